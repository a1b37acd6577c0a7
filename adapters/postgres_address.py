"""Where a PostgreSQL journal is: a URL, taken apart once, and what may be shown of it.

Imported by the PostgreSQL modules. Nothing here connects. The URL holds
credentials: it is in no message and in no `repr`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from domain.errors import InvalidOptions

_SCHEMES: Final = ("postgresql://", "postgres://")
_EXPECTED: Final = "postgresql://user:password@host:port/database"
_DEFAULT_PORT: Final = "5432"
_PORTS: Final = re.compile(r"[0-9]{1,5}(,[0-9]{1,5})*")
# Not more than an identifier that needs no quotes: a name to be typed into SQL by people, too.
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
#: What libpq reads as a number, and only once it has a connection; the driver reads the first one.
_WHOLE: Final = (
    "connect_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
)
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
#: A socket that cannot be, since its name is too long.
_NOWHERE: Final = "/" + "minutebook/" * 20
#: Without a value of libpq's own, and not to be left empty.
_NOT_EMPTY: Final = {
    "sslcertmode": "allow",
    "min_protocol_version": "3.0",
    "max_protocol_version": "3.0",
}
#: Cannot be given as nothing. Taken from the environment they add no value; a connection can only fail.
_UNSETTABLE: Final = ("service", "require_auth")


@dataclass(frozen=True, slots=True)
class Address:
    """A server and a database.

    Args:
        name: what to call it in a message: no user, no password, no query.
        parameters: libpq's keywords and values; every one that libpq would else
            take from the environment is there.
        secrets: texts that must not be shown.
    """

    name: str
    parameters: tuple[tuple[str, str], ...] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


def address(url: object) -> Address:
    """Take a URL apart.

    Raises:
        InvalidOptions: it is none, names no database, or gives a parameter a value that it cannot
            have. What was given is not shown.
    """
    if not isinstance(url, str) or not url.startswith(_SCHEMES) or "\0" in url:
        raise _refusal()
    try:
        given = {key: str(value) for key, value in conninfo_to_dict(url).items() if value}
    except (psycopg.Error, UnicodeError):
        # libpq's message quotes what it could not read: not even as a cause.
        raise _refusal() from None
    given.setdefault("port", _DEFAULT_PORT)
    if not given.get("dbname") or not _PORTS.fullmatch(given["port"]) or _torn(url, given):
        raise _refusal()
    _check_values(given)
    secrets = tuple(given[key] for key in ("password", "sslpassword") if given.get(key))
    return Address(_name(given), tuple((_defaults() | given).items()), secrets)


def checked_schema(schema: object) -> str:
    """The name of the PostgreSQL schema that holds the tables.

    Raises:
        InvalidOptions: it is no plain identifier.
    """
    if not isinstance(schema, str) or not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        expected = "1 to 63 of a-z 0-9 _, not beginning with a digit or pg_"
        raise InvalidOptions("schema", expected, schema)
    return schema


def _defaults() -> dict[str, str]:
    """libpq's built-in values for what it would else look up in the environment."""
    built_in = {
        each.keyword.decode(): (each.compiled or b"").decode()
        for each in pq.Conninfo.get_defaults()
        if each.envvar and each.keyword.decode() not in _UNSETTABLE
    }
    return built_in | {key: value for key, value in _NOT_EMPTY.items() if built_in.get(key) == ""}


def _check_values(given: dict[str, str]) -> None:
    """Refuse what libpq would refuse only when it connects, where it looks like a server that is away."""
    for key in _WHOLE:
        if not _NUMBER.fullmatch(given.get(key, "0")):
            raise _refusal(f"a whole number from 0 for {key}")
    if not all(map(_is_ip, given.get("hostaddr", "").split(","))):
        raise _refusal("IP addresses for hostaddr")
    if not _is_taken(given) and _is_taken({}):
        alone = [key for key in given if not _is_taken({key: given[key]})]
        raise _refusal(f"values that libpq takes for {' and '.join(alone or given)} (see its documentation)")


def _is_taken(given: dict[str, str]) -> bool:
    """Whether libpq gets as far as looking for a server; that is nowhere, in as many places as asked for."""
    nowhere = ",".join(_NOWHERE for _ in given.get("host", "").split(","))
    tried = {key: value for key, value in (_defaults() | given).items() if key not in ("hostaddr", *_WHOLE)}
    attempt = pq.PGconn.connect_start(make_conninfo(**tried | {"host": nowhere}).encode())
    said = attempt.error_message
    attempt.finish()
    return _NOWHERE.encode() in said


def _is_ip(text: str) -> bool:
    try:
        return not text or bool(ip_address(text))
    except ValueError:
        return False


def _torn(url: str, given: dict[str, str]) -> bool:
    """Whether a password may reach into what is shown: libpq ends it at the first @ or / as it stands."""
    place = url.partition("://")[2].partition("?")[0]
    hosts = given.get("host", "").split(",")
    return (
        place.count("@") > 1
        or "@" in place.partition("/")[2]
        or any("@" in host and not host.startswith(("/", "@")) for host in hosts)  # those are sockets
    )


def _name(given: dict[str, str]) -> str:
    hosts = given.get("host", "").split(",")
    ports = given["port"].split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    places = [
        f"{f'[{host}]' if ':' in host else host}:{port}" if host and not host.startswith("/") else host
        for host, port in zip(hosts, ports, strict=False)
    ]
    return f"postgresql://{','.join(places)}/{given['dbname']}"


def _refusal(expected: str = _EXPECTED) -> InvalidOptions:
    return InvalidOptions("url", expected, "another text (not shown: it may hold a password)")
