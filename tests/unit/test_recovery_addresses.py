"""What a JOURNAL on the command line is, and what of it may be printed."""

from __future__ import annotations

import pytest

from domain.errors import StoreUnsupported
from recovery import addresses


@pytest.mark.parametrize(
    ("journal", "shown"),
    [
        ("journal.db", "journal.db"),
        ("sqlite:a/b.db", "sqlite:a/b.db"),
        ("postgresql://db.example/agents", "postgresql://db.example/agents"),
        ("postgresql://ann@db.example:5433/agents", "postgresql://db.example:5433/agents"),
        ("postgresql://ann:hunter2@db.example/agents?sslmode=require", "postgresql://db.example/agents"),
        ("postgresql://db.example/agents?password=hunter2", "postgresql://db.example/agents"),
        ("postgresql://ann:hunter2@db.example/agents#team", "postgresql://db.example/agents#team"),
        ("postgresql://ann:hunter2@db.example/agents#minutebook", "postgresql://db.example/agents"),
        ("postgres://ann:hunter2@[::1]:5432/agents", "postgres://[::1]:5432/agents"),
        ("postgresql://ann:hun/ter2@db.example/agents", "postgresql://db.example/agents"),
        ("postgresql://ann:hunter2", "postgresql://..."),
        ("postgresql://db.example/agents?user=ann@hunter2", "postgresql://..."),
        ("postgresql://a:5432,b:5433/agents", "postgresql://a:5432,b:5433/agents"),
        ("postgresql://ann:hunter2@[::1/agents", "postgresql://..."),
        ("postgresql://ann:hun#ter2@db.example/agents", "postgresql://db.example/agents"),
        ("postgresql://ann:hun?ter2@db.example/agents", "postgresql://..."),
        ("mysql://ann:hunter2@db.example/agents", "mysql://db.example/agents"),
    ],
)
def test_no_user_and_no_password_is_shown(journal: str, shown: str) -> None:
    assert addresses.shown(journal) == shown


@pytest.mark.parametrize(
    ("journal", "url", "schema"),
    [
        ("postgresql://h/d", "postgresql://h/d", "minutebook"),
        ("postgresql://h/d#team", "postgresql://h/d", "team"),
        ("postgresql://h/d?sslmode=require#team", "postgresql://h/d?sslmode=require", "team"),
        ("postgresql://u:a#b@h/d", "postgresql://u:a#b@h/d", "minutebook"),
        ("postgresql://u:a#b@h/d#team", "postgresql://u:a#b@h/d", "team"),
        ("postgresql://u:a/#b@h/d", "postgresql://u:a/#b@h/d", "minutebook"),
        ("postgresql://h/d#", "postgresql://h/d", ""),
    ],
)
def test_the_schema_stands_behind_the_address(journal: str, url: str, schema: str) -> None:
    assert addresses.parts(journal) == (url, schema)


@pytest.mark.parametrize(("journal", "is_server"), [("postgresql://h/d", True), ("x.db", False)])
def test_what_is_a_server(journal: str, is_server: bool) -> None:
    assert addresses.is_server(journal) is is_server


def test_a_missing_driver_says_what_to_install() -> None:
    with (
        pytest.raises(StoreUnsupported, match=r"pip install 'minutebook\[postgres\]'"),
        addresses.driver_or_refuse(),
    ):
        raise ModuleNotFoundError("no", name="psycopg.rows")


def test_another_missing_module_is_a_defect() -> None:
    with pytest.raises(ModuleNotFoundError), addresses.driver_or_refuse():
        raise ModuleNotFoundError("no", name="adapters.nothing")
