"""Servers and databases that a test may break."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.proxy import Proxy


@pytest.fixture(scope="module")
def own_cluster(postgres_cluster: Cluster) -> Iterator[Cluster]:
    """A server that the tests of a file may stop; left out where the other one is."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def own_url(own_cluster: Cluster) -> Iterator[str]:
    """An empty database in it."""
    url = own_cluster.new_database()
    yield url
    own_cluster.start()
    own_cluster.drop_database(url)


@pytest.fixture
def proxy(own_cluster: Cluster, own_url: str) -> Iterator[Proxy]:
    """What stands between a store and that database."""
    with Proxy(own_cluster, own_url) as running:
        yield running
