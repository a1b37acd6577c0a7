"""An address with a value that no connection can have is wrong usage, before anything is connected."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import pq

from adapters.postgres_address import address
from domain.errors import InvalidOptions
from recovery.cli import main
from recovery.exit_codes import USAGE

#: Nobody listens there.
NOBODY = "postgresql://u@127.0.0.1:1/d"
#: What names the server is in the address, and no value among others.
KEYWORDS = sorted(
    {each.keyword.decode() for each in pq.Conninfo.get_defaults()}
    - {"host", "port", "dbname", "user", "password", "client_encoding"}
)


def gets_to_the_server(url: str) -> bool:
    """Whether the driver finds out that nobody is there."""
    with pytest.raises(psycopg.Error) as failed:
        psycopg.connect(url)
    return "refused" in str(failed.value)


def is_taken(url: str) -> bool:
    """Whether it is an address."""
    try:
        address(url)
    except InvalidOptions:
        return False
    return True


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_an_address_that_is_taken_gets_to_the_server(keyword: str) -> None:
    """With any value of any parameter that this libpq knows."""
    for value in ("abc", "-1", "1.5", "99999999999", "%20", "a%00b", "'"):
        url = f"{NOBODY}?{keyword}={value}"
        assert not is_taken(url) or gets_to_the_server(url)


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_an_address_that_gets_to_the_server_is_taken(keyword: str) -> None:
    for url in (f"{NOBODY}?{keyword}=abc", f"{NOBODY}?{keyword}=1"):
        assert is_taken(url) == gets_to_the_server(url)
    assert is_taken(f"{NOBODY}?{keyword}=")  # that is: as if it were not given


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://h/d?sslmode=hunter2", "sslmode"),
        ("postgresql://h/d?sslmode=hunter2&connect_timeout=3", "sslmode"),
        ("postgresql://h/d?target_session_attrs=x&gssencmode=y", "gssencmode and target_session_attrs"),
        ("postgresql://h/d?sslnegotiation=direct&sslmode=prefer", "sslnegotiation"),
        ("postgresql://h/d?connect_timeout=soon", "a whole number from 0 for connect_timeout"),
        ("postgresql://h/d?hostaddr=h", "IP addresses"),
        ("postgresql://a,b/d?port=1,2,3", "port"),
    ],
)
def test_the_refusal_says_which_and_shows_no_value(url: str, told: str) -> None:
    with pytest.raises(InvalidOptions) as refusal:
        address(url)
    assert told in refusal.value.expected
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///d",
        "postgresql:///d?host=/tmp",
        "postgresql://ann:pw@[::1]:5432/d",
        "postgresql://a:1,b:2/d",
        "postgresql://a:1,b:2,c:3/d?target_session_attrs=read-write",
        "postgresql://h/d?hostaddr=::1",
        "postgresql://h/d?sslnegotiation=direct&sslmode=require",
        "postgresql://h/d?sslmode=verify-full&connect_timeout=5&options=-c%20work_mem%3D1MB",
    ],
)
def test_what_connections_have_is_taken(url: str) -> None:
    assert is_taken(url)


def test_the_environment_is_not_blamed_on_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "none of libpq's")
    assert is_taken(NOBODY)
    assert not is_taken(f"{NOBODY}?gssencmode=abc")
    monkeypatch.setenv("PGSERVICE", "none of anybody's")
    assert is_taken(NOBODY)


def test_a_command_says_that_it_was_used_wrongly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", f"{NOBODY}?connect_timeout=abc"]) == USAGE
    assert "a whole number from 0 for connect_timeout" in capsys.readouterr().err
