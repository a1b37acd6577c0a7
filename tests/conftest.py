"""What every test may use: the event loop, Hypothesis profiles, what lies outside the repository.

Recordings of real providers and the executable model of the rules are not part
of the repository. A test that asks for `wire_dir` or `model_dir` runs where they
are, and is left out, counted and reported where they are not. This is the only
place in the project that reads an environment variable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from minutebook.testing.postgres_cluster import Cluster
from minutebook.testing.postgres_programs import HOW_TO_INSTALL, server_programs

#: The first fails a run in which a credential shows up in a file, a log record or captured output.
pytest_plugins = ["tests.corpus.canary", "tests.long_runs"]

_ROOT = Path(__file__).parent.parent
_LEFT_OUT = pytest.StashKey[dict[str, int]]()

settings.register_profile("dev", deadline=None)
# No luck in a gate: the same examples every time, and more of them.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=200)
settings.load_profile("dev")


@pytest.fixture
def anyio_backend() -> str:
    """The loop under a test marked `anyio`; parametrize this name to run on others too."""
    return "asyncio"


@pytest.fixture(scope="session")
def wire_dir(pytestconfig: pytest.Config) -> Path:
    """The directory of recordings: one JSON file for each exchange with a provider."""
    return _present(pytestconfig, "wire_dir")


@pytest.fixture(scope="session")
def model_dir(pytestconfig: pytest.Config) -> Path:
    """The directory of the executable model: Python modules that import each other by name."""
    return _present(pytestconfig, "model_dir")


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Cluster]:
    """One PostgreSQL server for the whole run, started by the first test that asks for it."""
    if server_programs() is None:
        pytest.skip(f"no PostgreSQL server programs on this machine: {HOW_TO_INSTALL}")
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def postgres_url(postgres_cluster: Cluster) -> Iterator[str]:
    """The address of an empty database, which is this test's own."""
    url = postgres_cluster.new_database()
    yield url
    postgres_cluster.drop_database(url)


@dataclass(frozen=True)
class Outside:
    """Something that tests may need and the repository does not hold."""

    kind: str
    contents: str
    option: str
    variable: str
    default: Path
    pattern: str

    def find(self, config: pytest.Config) -> Path | None:
        """Its directory, if there is anything in it."""
        place = Path(config.getoption(self.option))
        return place if any(place.glob(self.pattern)) else None


#: By the fixture that a test asks for.
_OUTSIDE = {
    "wire_dir": Outside(
        "wire", "recordings", "--wire", "MINUTEBOOK_WIRE", _ROOT.parent / "shared" / "wire", "*.json"
    ),
    "model_dir": Outside(
        "model", "model", "--model", "MINUTEBOOK_MODEL", _ROOT.parent / "shared" / "model", "model.py"
    ),
}


def _present(config: pytest.Config, fixture: str) -> Path:
    found = _OUTSIDE[fixture].find(config)
    assert found is not None, "tests that need it are left out where it is not"
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    for outside in _OUTSIDE.values():
        parser.addoption(
            outside.option,
            metavar="DIR",
            default=os.environ.get(outside.variable) or str(outside.default),
            help=f"directory of {outside.contents} (default: ${outside.variable}, "
            f"then ../shared/{outside.default.name})",
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[_LEFT_OUT] = {}
    for fixture, outside in _OUTSIDE.items():
        if outside.find(config) is None:
            _leave_out(config, items, fixture)


def _leave_out(config: pytest.Config, items: list[pytest.Item], fixture: str) -> None:
    left_out = [item for item in items if fixture in getattr(item, "fixturenames", ())]
    config.stash[_LEFT_OUT][fixture] = len(left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish(session: pytest.Session) -> None:
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["left out"] = session.config.stash.get(_LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every process of a run leaves out the same; one of them says it for all."""
    node.config.stash.setdefault(_LEFT_OUT, {}).update(getattr(node, "workeroutput", {}).get("left out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for fixture, count in config.stash.get(_LEFT_OUT, {}).items():
        outside = _OUTSIDE[fixture]
        if count:
            terminalreporter.write_line(
                f"{count} {outside.kind} tests left out: no {outside.contents} in "
                f"{config.getoption(outside.option)} "
                f"(name their directory: {outside.variable} or {outside.option})",
                yellow=True,
            )
