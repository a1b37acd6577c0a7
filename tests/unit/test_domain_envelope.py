"""The stored form: envelope, payload, chain; what was altered is seen, and where."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest

from domain import catalogue, session
from domain.canonical import encode
from domain.decider import EndRequest
from domain.envelope import (
    JOURNAL_DOMAIN,
    PAYLOAD_DOMAIN,
    Actor,
    Fence,
    Recorded,
    Stored,
    check_link,
    claimed_commitment,
    commitment,
    genesis,
    link,
    open_envelope,
    seal,
)
from domain.errors import Corrupt, MinutebookError
from domain.lifecycle import advance
from domain.request import Interrupt
from domain.state import State
from domain.values import ActorKind, AggregateKind
from minutebook.testing.scenario import EPOCH, PAY, created, given
from tests.unit.domain_cases import begun

SCENARIO = given(*begun(PAY), EndRequest("abandoned", Interrupt("abandoned")))
ROWS = SCENARIO.rows()
FULL = Recorded(
    session_id="s-1",
    sequence=7,
    type="tool_started",
    version=1,
    aggregate_kind=AggregateKind.TOOL,
    aggregate_id="r1.t1.a1.c0",
    request_id="r1",
    turn_id="r1.t1",
    model_attempt_id="r1.t1.a1",
    tool_id="r1.t1.a1.c0",
    occurred_at=EPOCH,
    recorded_at=EPOCH + timedelta(microseconds=1),
    command_id="cmd-1",
    causation=6,
    recorded_by=Fence("worker", "lease", 3),
    actor=Actor(ActorKind.OPERATOR, "ann"),
    data=None,
    command_index=1,
    command_size=4,
)
SALT = b"s" * 32
HEAD = b"h" * 32


def test_an_envelope_is_opened_as_it_was_sealed() -> None:
    row = seal(FULL, b"{}", SALT, HEAD)
    assert open_envelope(row) == FULL
    assert (row.session_id, row.sequence, row.topic, row.payload, row.salt) == (
        "s-1",
        7,
        "tool_started@1",
        b"{}",
        SALT,
    )


def test_what_may_be_missing_may_be_missing() -> None:
    bare = replace(
        FULL,
        request_id=None,
        turn_id=None,
        model_attempt_id=None,
        tool_id=None,
        causation=None,
        recorded_by=None,
        actor=Actor(ActorKind.HOST),
    )
    assert open_envelope(seal(bare, b"{}", SALT, HEAD)) == bare


def test_moments_are_kept_in_utc_to_the_microsecond() -> None:
    elsewhere = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=9)))
    opened = open_envelope(seal(replace(FULL, occurred_at=elsewhere), b"{}", SALT, HEAD))
    assert opened.occurred_at == elsewhere
    assert opened.occurred_at.isoformat() == "2026-01-01T03:00:00.000005+00:00"


def test_derived_names() -> None:
    assert (FULL.topic, FULL.event_id) == ("tool_started@1", "s-1/7")
    assert (FULL.originator_id, FULL.originator_version) == ("s-1", 7)


def test_the_digests_are_those_that_are_published() -> None:
    row = seal(FULL, b"{}", SALT, HEAD)
    leaf = hashlib.sha256(b"\x00" + row.envelope).digest()
    assert row.head == hashlib.sha256(b"\x01" + HEAD + leaf).digest() == link(HEAD, row.envelope)
    assert commitment(SALT, b"{}") == hashlib.sha256(PAYLOAD_DOMAIN + SALT + b"{}").digest()
    assert claimed_commitment(row) == commitment(SALT, b"{}")
    assert genesis("s-1") == hashlib.sha256(JOURNAL_DOMAIN + b"s-1").digest()
    assert (PAYLOAD_DOMAIN, JOURNAL_DOMAIN) == (b"minutebook/payload/1\x00", b"minutebook/journal/1\x00")


def test_the_envelope_says_nothing_of_the_content_but_its_size() -> None:
    row = seal(FULL, b'{"secret":"hunter2"}', SALT, HEAD)
    plain = orjson.loads(row.envelope)
    assert b"hunter2" not in row.envelope
    assert plain["payload"] == {
        "commitment": commitment(SALT, b'{"secret":"hunter2"}').hex(),
        "media_type": "application/json",
        "size_bytes": 20,
    }


def test_the_same_content_under_another_salt_is_another_commitment() -> None:
    assert commitment(SALT, b"{}") != commitment(b"t" * 32, b"{}")


# --- altered after it was sealed ------------------------------------------------------------


def verify(rows: list[Stored]) -> None:
    head = genesis("s-test")
    for at, row in enumerate(rows):
        check_link(row, at, head)
        head = row.head


def test_an_untouched_journal_is_whole() -> None:
    verify(ROWS)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"sequence": 9}, "sequence"),
        ({"envelope": ROWS[4].envelope}, "chain"),
        ({"head": b"\x00" * 32}, "chain"),
        ({"payload": b'{"kind":"x","message":"y"}'}, "payload"),
        ({"payload": b""}, "payload"),
        ({"salt": b"\x00" * 32}, "payload"),
        ({"payload": None}, "payload"),
        ({"salt": None}, "payload"),
    ],
    ids="sequence envelope head payload empty salt payload-gone salt-gone".split(),
)
def test_what_was_altered_is_named_with_its_sequence(changes: dict[str, Any], where: str) -> None:
    altered = [*ROWS[:5], replace(ROWS[5], **changes), *ROWS[6:]]
    with pytest.raises(Corrupt) as corrupt:
        verify(altered)
    assert (corrupt.value.where, corrupt.value.sequence) == (where, 6)


def test_removed_content_leaves_the_chain_whole() -> None:
    verify([*ROWS[:5], replace(ROWS[5], payload=None, salt=None), *ROWS[6:]])


@pytest.mark.parametrize("change", [{"session_id": "s-2"}, {"sequence": 8}, {"topic": "tool_failed@1"}])
def test_a_row_that_contradicts_its_envelope_is_corrupt(change: dict[str, Any]) -> None:
    with pytest.raises(Corrupt, match="the row's own") as corrupt:
        open_envelope(replace(seal(FULL, b"{}", SALT, HEAD), **change))
    assert corrupt.value.where == "envelope"


# --- written by somebody who can make chains ---------------------------------------------------


def rewritten(row: Stored, place: tuple[str, ...], value: Any) -> Stored:
    """The row with one field of its envelope replaced, under columns that agree with it."""
    plain = orjson.loads(row.envelope)
    inner = plain
    for name in place[:-1]:
        inner = inner[name]
    if value is GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return replace(row, envelope=encode(plain))


GONE = object()
FIELDS: list[tuple[str, ...]] = [
    *[(name,) for name in orjson.loads(ROWS[0].envelope)],
    *[("aggregate", name) for name in ("kind", "id")],
    *[("command", name) for name in ("id", "index", "size")],
    *[("actor", name) for name in ("kind", "id")],
    *[("recorded_by", name) for name in ("worker_id", "lease_id", "token")],
]
WRONG = {"list": [], "object": {}, "text": "x", "number": 1.5, "negative": -1, "true": True, "gone": GONE}
FINE = {
    *[((name,), "text") for name in ("request_id", "turn_id", "model_attempt_id", "tool_id")],
    *[(("aggregate", "id"), "text"), (("command", "id"), "text"), (("actor", "id"), "text")],
    *[(("recorded_by", "worker_id"), "text"), (("recorded_by", "lease_id"), "text")],
    *[(("payload",), kind) for kind in WRONG if kind != "gone"],  # looked at by `check_link`
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("place", FIELDS, ids=".".join)
def test_a_field_of_another_kind_is_corrupt(place: tuple[str, ...], kind: str) -> None:
    row = rewritten(seal(FULL, b"{}", SALT, HEAD), place, WRONG[kind])
    if (place, kind) in FINE:
        open_envelope(row)
        return
    with pytest.raises(Corrupt) as corrupt:
        open_envelope(row)
    assert (corrupt.value.where, corrupt.value.sequence) == ("envelope", 7)


def test_a_field_too_many_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="an envelope of this format"):
        open_envelope(rewritten(seal(FULL, b"{}", SALT, HEAD), ("note",), "from a newer version"))


@pytest.mark.parametrize("moment", ["yesterday", "2026-01-01T00:00:00", "2026-01-01T00:00:00+02:00", 0, None])
def test_a_moment_is_one_in_utc(moment: Any) -> None:
    with pytest.raises(Corrupt, match="an envelope of this format"):
        open_envelope(rewritten(seal(FULL, b"{}", SALT, HEAD), ("recorded_at",), moment))


@pytest.mark.parametrize("envelope", [b"", b"[]", b"5", b"null", b'"x"', b"{}", b"\xff", b"[" * 2000])
def test_an_envelope_that_is_none_is_corrupt(envelope: bytes) -> None:
    row = replace(seal(FULL, b"{}", SALT, HEAD), envelope=envelope, head=link(HEAD, envelope))
    with pytest.raises(Corrupt):
        open_envelope(row)
    with pytest.raises(Corrupt):
        check_link(row, 6, HEAD)


NASTY: list[Any] = [None, 0, 1, 2, 2**70, "", "r1", "r9", "\ud800", [], {}, True]


@pytest.mark.parametrize("at", range(len(ROWS)))
@pytest.mark.parametrize("place", FIELDS[:-3], ids=".".join)
def test_whatever_an_envelope_says_reading_ends_in_an_error_of_ours(at: int, place: tuple[str, ...]) -> None:
    """A stranger may write any envelope and chain it properly; nobody gets a bare traceback."""
    state = State("s-test")
    for row in ROWS[:at]:
        state = advance(state, catalogue.open_stored(row))
    for value in NASTY:
        try:
            advance(state, catalogue.open_stored(rewritten(ROWS[at], place, value)))
        except MinutebookError as error:
            shown = str(error)
            assert shown
            assert shown.isprintable()


def test_a_session_of_another_name_has_another_beginning() -> None:
    assert genesis("s-1") != genesis("s-2")
    (row,) = given(created()).rows()
    with pytest.raises(Corrupt, match="chain"):
        check_link(row, 0, genesis("s-other"))


def test_notes_of_any_text_are_sealed_and_opened() -> None:
    note = session.Note("remark", "\x00 \ud800 \u202e", {"\udfff": b"\x00"})
    scenario = given(created(), note)
    opened = catalogue.open_stored(scenario.rows()[1])
    assert opened == scenario.events[1]
    assert opened.recorded_at.tzinfo is UTC
