"""The catalogue: what a stored name means, what is raised to it, and what blocks."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from pydantic import Field

from domain import canonical, catalogue, events
from domain import events as ev
from domain.catalogue import CATALOGUE, RESERVED, UPCASTERS, open_stored
from domain.envelope import Stored, commitment, genesis, link, seal
from domain.errors import Corrupt, JournalBlocked
from domain.events import Payload
from domain.values import AggregateKind
from minutebook.testing.scenario import created, given

ROWS = given(created()).rows()
ROW = ROWS[0]


def stored(topic: str, payload: bytes | None = b"{}") -> Stored:
    return replace(ROW, topic=topic, payload=payload)


def test_every_payload_of_the_events_module_is_listed_under_its_own_name() -> None:
    classes = {
        cls
        for cls in vars(events).values()
        if isinstance(cls, type) and issubclass(cls, Payload) and cls is not Payload
    }
    assert set(CATALOGUE.values()) == classes
    assert all(CATALOGUE[cls.type] is cls and cls.version == 1 for cls in classes)


def test_every_payload_is_frozen_and_knows_its_fields() -> None:
    for cls in CATALOGUE.values():
        assert cls.model_config["frozen"] is True, cls.type
        assert cls.model_config["extra"] == "forbid", cls.type
        assert cls.__doc__, cls.type
        assert set(cls.scope.upper()) <= set("RTAC"), cls.type


def test_reserved_names_have_no_class_yet() -> None:
    assert not RESERVED & CATALOGUE.keys()


BLOCKED = {
    "unknown": ("tool_teleported@1", "event type", "tool_teleported (unknown)"),
    "reserved": ("payload_redacted@1", "event type", "payload_redacted (reserved for a later version)"),
    "newer": ("tool_started@2", "event version", "tool_started@2"),
    "version 0": ("tool_started@0", "event version", "tool_started@0"),
    "no version": ("tool_started", "event type", "tool_started"),
    "no number": ("tool_started@x", "event type", "tool_started@x"),
    "negative": ("tool_started@-1", "event type", "tool_started@-1"),
    "not decimal": ("tool_started@\u00b2", "event type", "tool_started@"),
    "endless": ("tool_started@" + "9" * 5000, "event type", "tool_started@999"),
    "a python path": ("os:system@1", "event type", "os:system (unknown)"),
    "a class path": ("domain.events:ToolStarted@1", "event type", "(unknown)"),
    "nothing": ("", "event type", ""),
    "hostile": ("\x1b]0;x\x07\u202e@1", "event type", "unknown"),
}


@pytest.mark.parametrize(("topic", "where", "named"), BLOCKED.values(), ids=BLOCKED)
def test_what_it_does_not_know_blocks_and_is_named(topic: str, where: str, named: str) -> None:
    with pytest.raises(JournalBlocked) as blocked:
        open_stored(stored(topic))
    assert blocked.value.where == where
    assert named in blocked.value.actual
    assert blocked.value.sequence == ROW.sequence
    assert str(blocked.value).isprintable()


def test_a_type_name_is_never_imported() -> None:
    before = set(sys.modules)
    with pytest.raises(JournalBlocked):
        open_stored(stored("antigravity:fly@1"))
    assert set(sys.modules) == before


SHAPES: dict[str, Any] = {
    "another type": {"settings": []},
    "a field too many": {
        "owner_id": "o",
        "settings": {},
        "settings_digest": "d",
        "__class__": "os.system",
    },
    "a field too few": {"owner_id": "o"},
    "a list": [],
    "text": "session_created",
    "nothing": None,
}


@pytest.mark.parametrize("plain", SHAPES.values(), ids=SHAPES)
def test_another_shape_blocks(plain: Any) -> None:
    with pytest.raises(JournalBlocked, match="the shape of session_created@1") as blocked:
        open_stored(stored("session_created@1", canonical.encode(plain)))
    assert blocked.value.sequence == 1


@pytest.mark.parametrize("payload", [b"", b"{", b"NaN", b'{"$mb":"x"}', b"\xff", b"[" * 2000])
def test_a_payload_that_is_no_value_is_corrupt_at_its_sequence(payload: bytes) -> None:
    with pytest.raises(Corrupt) as corrupt:
        open_stored(stored("session_created@1", payload))
    assert (corrupt.value.where, corrupt.value.sequence) == ("payload", 1)


def test_a_payload_that_was_removed_blocks() -> None:
    with pytest.raises(JournalBlocked, match="redacted") as blocked:
        open_stored(stored("session_created@1", None))
    assert blocked.value.sequence == 1


# --- an older version -----------------------------------------------------------------------


class Imagined(Payload, type="imagined", aggregate=AggregateKind.SESSION, version=3):
    """Its first version had seconds, its second a unit, this one milliseconds."""

    waited_ms: int = Field(ge=0)
    why: str = "unknown"


def to_second(plain: dict[str, Any]) -> dict[str, Any]:
    return {"waited": plain["seconds"], "unit": "s"}


def to_third(plain: dict[str, Any]) -> dict[str, Any]:
    factor = {"s": 1000, "ms": 1}[plain["unit"]]
    return {"waited_ms": plain["waited"] * factor}


@pytest.fixture
def imagined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type whose two former versions can still be in journals."""
    monkeypatch.setitem(CATALOGUE, "imagined", Imagined)
    monkeypatch.setitem(UPCASTERS, ("imagined", 1), to_second)
    monkeypatch.setitem(UPCASTERS, ("imagined", 2), to_third)


@pytest.mark.usefixtures("imagined")
@pytest.mark.parametrize(
    ("version", "plain"),
    [
        (1, {"seconds": 2}),
        (2, {"waited": 2, "unit": "s"}),
        (2, {"waited": 2000, "unit": "ms"}),
        (3, {"waited_ms": 2000}),
    ],
    ids=["1", "2 in seconds", "2 in ms", "3"],
)
def test_an_older_version_is_raised_step_by_step(version: int, plain: dict[str, Any]) -> None:
    opened = catalogue.decode("imagined", version, canonical.encode(plain), 7)
    assert opened == Imagined(waited_ms=2000)


@pytest.mark.usefixtures("imagined")
@pytest.mark.parametrize(
    ("version", "plain"),
    [
        (1, {"minutes": 2}),
        (1, []),
        (1, None),
        (2, {"waited": 2, "unit": "h"}),
        (2, {"waited": None, "unit": "s"}),
    ],
    ids=["other field", "list", "nothing", "unit", "type"],
)
def test_an_older_version_of_another_shape_blocks(version: int, plain: Any) -> None:
    with pytest.raises(JournalBlocked, match=f"the shape of imagined@{version}") as blocked:
        catalogue.decode("imagined", version, canonical.encode(plain), 7)
    assert blocked.value.sequence == 7


@pytest.mark.usefixtures("imagined")
def test_a_raised_payload_is_checked_like_any() -> None:
    with pytest.raises(JournalBlocked, match="waited_ms"):
        catalogue.decode("imagined", 1, canonical.encode({"seconds": -1}), 7)


@pytest.mark.usefixtures("imagined")
def test_newer_than_the_newest_blocks() -> None:
    with pytest.raises(JournalBlocked, match="imagined@1 to imagined@3"):
        catalogue.decode("imagined", 4, b"{}", 7)


@pytest.mark.usefixtures("imagined")
def test_raising_leaves_the_stored_bytes_and_the_version_of_the_event_alone() -> None:
    payload = canonical.encode({"seconds": 2})
    (event,) = given().compose(created()).events
    old = replace(event, type="imagined", version=1)
    row = seal(old, payload, b"s" * 32, genesis("s-test"))
    opened = open_stored(row)
    assert opened.data == Imagined(waited_ms=2000)
    assert (opened.version, opened.topic, row.payload) == (1, "imagined@1", payload)
    assert link(genesis("s-test"), row.envelope) == row.head
    assert commitment(b"s" * 32, payload).hex().encode() in row.envelope


def test_a_default_is_left_out_of_the_stored_bytes() -> None:
    short = ev.ModelRequestFailed(error_code="c", message="m", retryable=True)
    assert catalogue.encode(short) == b'{"error_code":"c","message":"m","retryable":true}'
    assert catalogue.decode("model_request_failed", 1, catalogue.encode(short)) == short
