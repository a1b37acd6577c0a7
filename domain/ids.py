"""Identities. They are parsed, never cleaned up; what does not fit is refused.

Session, input and command ids are minted at the edge or given by the caller.
Everything below a session is derived from its parent and an ordinal, so it is
unique by construction and needs no index:

    r3            the third request of the session
    r3.t2         its second turn
    r3.t2.a1      the first model attempt of that turn
    r3.t2.a1.c0   the first call that attempt declared
    r3.t2.a1.c0.p1   the first permission question about that call
"""

from __future__ import annotations

import re
from typing import Final

from domain.errors import InvalidId, InvalidOptions

#: What an owner's id is, in words.
OWNER_ID: Final = "text that UTF-8 can hold, not empty, without NUL and lone surrogates"

_SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


def _parse(kind: str, value: object) -> str:
    if not isinstance(value, str) or not _SEGMENT.fullmatch(value) or ".." in value:
        raise InvalidId(kind, value)
    return value


def is_owner_id(value: object) -> bool:
    """Whether a value can name an owner: text that every store can hold, not empty."""
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def owner_id(value: object) -> str:
    """Return `value` if it can name an owner.

    Raises:
        InvalidOptions: anything else, of any type.
    """
    if not is_owner_id(value):
        raise InvalidOptions("owner_id", OWNER_ID, value)
    assert isinstance(value, str)
    return value


def session_id(value: object) -> str:
    """Return `value` if it is a session id.

    One path segment: a letter or digit, then up to 127 letters, digits, dots,
    underscores or dashes, without two dots in a row.

    Raises:
        InvalidId: anything else, of any type. Choose another id.
    """
    return _parse("session", value)


def input_id(value: object) -> str:
    """Return `value` if it is an input id (same alphabet as a session id)."""
    return _parse("input", value)


def command_id(value: object) -> str:
    """Return `value` if it is a command id (same alphabet as a session id)."""
    return _parse("command", value)


def request(ordinal: int) -> str:
    """The id of a session's `ordinal`-th request, from 1."""
    return f"r{ordinal}"


def turn(request_id: str, number: int) -> str:
    """The id of a request's turn `number`, from 1."""
    return f"{request_id}.t{number}"


def attempt(turn_id: str, number: int) -> str:
    """The id of a turn's model attempt `number`, from 1."""
    return f"{turn_id}.a{number}"


def call(attempt_id: str, index: int) -> str:
    """The id of the call at `index` (from 0) of a model attempt's response."""
    return f"{attempt_id}.c{index}"


def permission(tool_id: str, number: int) -> str:
    """The id of the `number`-th permission question about a call, from 1."""
    return f"{tool_id}.p{number}"
