"""What travels to PostgreSQL and back: values as the server reads them, and what it says when it will not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import psycopg
import pytest

from adapters.postgres_address import address
from adapters.postgres_connections import Opening, connect
from adapters.postgres_driver import Connection, Value, byteas, texts
from adapters.postgres_errors import is_passing, text_of, was_refused
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.waiting import end_connections

MOMENTS = (
    datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1999, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
    datetime(2026, 7, 1, 12, 0, tzinfo=timezone(timedelta(hours=5, minutes=45))),
)


@pytest.fixture
def connection(postgres_url: str) -> Iterator[Connection]:
    made = connect(Opening(address(postgres_url), "minutebook", 15.0))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(("bigint", number) for number in (0, -1, 2**15, 2**31, 2**63 - 1, -(2**63))),
        *(("text", text) for text in ("", "a", "%s $1 \\ '", "\u00e9\u20ac\U0001f600", "x" * 100_000)),
        *(("bytea", data) for data in (b"", b"\0\1\xff", bytes(range(256)) * 400)),
        *(("timestamptz", moment) for moment in MOMENTS),
        *((kind, None) for kind in ("bigint", "text", "bytea", "timestamptz")),
    ],
)
def test_a_value_comes_back_as_it_was(connection: Connection, kind: str, value: Value) -> None:
    statement = f"SELECT %(value)s::{kind} AS value, %(value)s::{kind} IS NULL AS absent".encode()
    assert connection.ask(statement, {"value": value}) == [{"value": value, "absent": value is None}]


@pytest.mark.parametrize(
    ("kind", "packed", "values"),
    [
        *(("text[]", texts(each), each) for each in ([], [""], ["a", "\u20ac", "x,{}\"'"])),
        *(("bytea[]", byteas(each), each) for each in ([], [b""], [b"\0", None, b"x" * 70_000], [None])),
    ],
)
def test_so_do_many_in_their_order(
    connection: Connection, kind: str, packed: bytes, values: list[Value]
) -> None:
    statement = f"SELECT x FROM unnest(%(values)s::{kind}) WITH ORDINALITY AS e (x, n) ORDER BY n".encode()
    assert connection.ask(statement, {"values": packed}) == [{"x": value} for value in values]


def test_values_are_found_by_their_names(connection: Connection) -> None:
    statement = b"SELECT %(b)s::text || %(a)s::text || %(b)s::text AS said"
    assert connection.ask(statement, {"a": "1", "b": "2", "c": "3"}) == [{"said": "212"}]
    assert connection.ask(statement, {"a": "4", "b": "5"}) == [{"said": "545"}]


def test_a_statement_without_rows_gives_none(connection: Connection) -> None:
    assert connection.ask(b"SET DateStyle = ISO", {}) == []
    assert connection.ask(b"SELECT 1 WHERE false", {}) == []


@pytest.mark.parametrize("statement", [b"SELECT 1 / %(zero)s::bigint", b"SELECT nothing FROM nowhere"])
def test_what_the_server_refuses_has_its_code_and_the_connection_goes_on(
    connection: Connection, statement: bytes
) -> None:
    for _ in range(2):
        with pytest.raises((psycopg.errors.DivisionByZero, psycopg.errors.UndefinedTable)) as refused:
            connection.ask(statement, {"zero": 0})
        assert was_refused(refused.value)
        assert not is_passing(refused.value)
    assert connection.ask(b"SELECT 1 AS one", {}) == [{"one": 1}]


def test_a_server_process_that_was_ended_is_no_refusal(
    connection: Connection, postgres_url: str, postgres_cluster: Cluster
) -> None:
    """Whether a statement was carried out is not known then; the server's own words are not lost."""
    connection.ask(b"SELECT 1 AS one", {})
    end_connections(postgres_cluster, postgres_url.rpartition("/")[2])
    with pytest.raises(psycopg.OperationalError) as lost:
        connection.ask(b"SELECT 1 AS one", {})
    assert "terminating connection" in text_of(lost.value)
    assert is_passing(lost.value)
    assert not was_refused(lost.value)
