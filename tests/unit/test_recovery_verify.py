"""Verifying: what is proven, what is only consistent, and where the first bad place is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from adapters.memory_journal import MemoryStore
from domain import canonical, snapshot
from domain.envelope import Stored, link
from domain.errors import Corrupt, SessionNotFound
from domain.ports import Holder, Journal, Receipt, SessionRow, Snapshot
from minutebook.testing.keeping import keep
from minutebook.testing.scenario import Scenario
from recovery.chain import ChainCheck
from recovery.pages import PAGE
from recovery.verify import Result, Verification, verify
from tests.journals import Altered, at, flipped, kept, kept_rows, long, lost_payment, resealed, unsettled

pytestmark = pytest.mark.anyio


async def verified(scenario: Scenario, *, expected_head: bytes | None = None, **how: Any) -> Verification:
    async with kept(scenario) as journal:
        reader = Altered(journal, **how)
        return await verify(reader, scenario.state.session_id, expected_head=expected_head)


def first(found: Verification) -> tuple[str, int]:
    return found.problems[0].check, found.problems[0].sequence


# --- whole journals -----------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_whole_journal_is_consistent_and_not_proven() -> None:
    found = await verified(lost_payment())
    assert (found.result, found.events, found.rules_to, found.problems) == (Result.CONSISTENT, 12, 12, ())
    assert found.head == lost_payment().rows()[-1].head


async def test_with_its_head_from_elsewhere_it_is_proven() -> None:
    head = lost_payment().rows()[-1].head
    found = await verified(lost_payment(), expected_head=head)
    assert (found.result, found.proven_to) == (Result.PROVEN, 12)


async def test_an_earlier_head_proves_what_came_before_it() -> None:
    head = lost_payment().rows()[6].head
    found = await verified(lost_payment(), expected_head=head)
    assert (found.result, found.proven_to, found.events) == (Result.PROVEN, 7, 12)


async def test_a_journal_that_was_shortened_is_consistent_but_not_the_expected_one() -> None:
    rows = lost_payment().rows()

    def shorter(row: SessionRow) -> SessionRow:
        return replace(row, sequence=9, head=rows[8].head)

    def cut(row: Stored) -> Stored | None:
        return row if row.sequence <= 9 else None

    alone = await verified(lost_payment(), row=shorter, alter=cut)
    assert alone.result is Result.CONSISTENT
    known = await verified(lost_payment(), row=shorter, alter=cut, expected_head=rows[11].head)
    assert known.result is Result.BROKEN
    assert first(known) == ("outside head", 9)


async def test_snapshots_are_folded_again_and_compared() -> None:
    found = await verified(long(600))
    assert (found.result, found.snapshots) == (Result.CONSISTENT, 4)


async def test_a_session_that_is_not_there_is_not_found() -> None:
    async with MemoryStore().open() as journal:
        with pytest.raises(SessionNotFound):
            await verify(journal, "s-none")


async def test_the_chain_alone_can_be_checked() -> None:
    async with kept(long(300)) as journal:
        reader = Altered(journal)
        found = await verify(reader, "s-long", rules=False)
    assert (found.result, found.events, found.rules_to, found.snapshots) == (Result.CONSISTENT, 301, 0, 0)
    assert reader.snapshots_read == 0


async def test_no_page_is_larger_than_a_page() -> None:
    async with kept(long(1500)) as journal:
        reader = Altered(journal)
        await verify(reader, "s-long", rules=False)
    assert reader.largest_page == PAGE < 1500
    assert [after for after, _ in reader.asked] == [0, PAGE]


# --- one bit of anything ------------------------------------------------------------------


CHANGES: dict[str, tuple[Callable[[Stored], Stored | None], str]] = {
    "a bit of the envelope": (lambda r: replace(r, envelope=flipped(r.envelope)), "chain"),
    "a bit of the payload": (lambda r: replace(r, payload=flipped(r.payload or b"")), "payload"),
    "a bit of the salt": (lambda r: replace(r, salt=flipped(r.salt or b"")), "payload"),
    "a bit of the head": (lambda r: replace(r, head=flipped(r.head)), "chain"),
    "the topic": (lambda r: replace(r, topic="notice_recorded@1"), "envelope"),
    "the content, removed": (lambda r: replace(r, payload=None, salt=None), "payload"),
    "half of the content, removed": (lambda r: replace(r, salt=None), "payload"),
    "the row, removed": (lambda row: None, "sequence"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("sequence", [1, 7, 12])
async def test_any_change_is_found_where_it_is(name: str, sequence: int) -> None:
    change, check = CHANGES[name]
    found = await verified(lost_payment(), alter=at(sequence, change))
    assert found.result is Result.BROKEN
    assert first(found) == (check, sequence)


async def test_every_bit_of_a_row_counts() -> None:
    rows = lost_payment().rows()
    for column in ("envelope", "payload", "salt", "head"):
        for position in range(len(getattr(rows[4], column))):
            chain = ChainCheck("s-pay")
            for row in rows[:4]:
                chain.follow(row)
            changed: Any = {column: flipped(getattr(rows[4], column), position)}
            with pytest.raises(Corrupt):
                chain.follow(replace(rows[4], **changed))
            assert chain.sequence == 4


async def test_two_rows_in_the_wrong_order_are_found() -> None:
    rows = lost_payment().rows()

    def swapped(row: Stored) -> Stored:
        return {5: rows[5], 6: rows[4]}.get(row.sequence, row)

    found = await verified(lost_payment(), alter=swapped)
    assert first(found) == ("sequence", 5)


async def test_the_rows_of_another_session_are_found() -> None:
    other = lost_payment("s-other").rows()
    found = await verified(lost_payment(), alter=at(7, lambda row: other[6]))
    assert first(found) == ("chain", 7)


# --- envelopes that were sealed like that --------------------------------------------------


async def forged(sequence: int, topic: str | None = None, **fields: Any) -> Verification:
    """The lost payment, one of its envelopes sealed and committed with other fields."""
    scenario = lost_payment()
    async with kept_rows(scenario, resealed(scenario.rows(), sequence, topic, **fields)) as journal:
        return await verify(journal, "s-pay")


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"causation": 7}, "causation"),
        ({"causation": 99}, "causation"),
        ({"session_id": "s-other"}, "envelope"),
        ({"sequence": 8}, "envelope"),
        ({"version": 2}, "envelope"),
        ({"command": {"id": "cmd-9", "index": 0, "size": 1}}, "command"),
        ({"command": {"id": "cmd-3", "index": 9, "size": 5}}, "command"),
        ({"command": {"id": "cmd-3", "index": 3, "size": 9}}, "command"),
        ({"command": None}, "envelope"),
        ({"payload": {}}, "envelope"),
    ],
)
async def test_an_envelope_that_cannot_be_is_found(changes: dict[str, Any], check: str) -> None:
    scenario = lost_payment()
    rows = scenario.rows()
    made = canonical.encode({**orjson.loads(rows[6].envelope), **changes})
    chain = ChainCheck("s-pay")
    for row in rows[:6]:
        chain.follow(row)
    with pytest.raises(Corrupt) as error:
        chain.follow(replace(rows[6], envelope=made, head=link(rows[5].head, made)))
    assert (error.value.where, error.value.sequence) == (check, 7)


async def test_a_token_that_falls_is_found() -> None:
    found = await forged(7, recorded_by={"worker_id": "w", "lease_id": "l", "token": 5})
    assert found.result is Result.BROKEN
    assert first(found) == ("token", 8)


async def test_an_event_that_breaks_a_rule_is_found_and_the_chain_goes_on() -> None:
    found = await forged(7, turn_id="r1.t9")
    assert found.result is Result.BROKEN
    assert [(p.check, p.sequence) for p in found.problems] == [("rule", 7)]
    assert (found.events, found.rules_to) == (12, 6)


async def test_a_type_of_a_newer_version_is_not_called_broken() -> None:
    found = await forged(7, "seal_recorded@1", type="seal_recorded")
    assert (found.result, found.events, found.rules_to) == (Result.UNREADABLE, 12, 6)
    assert [(p.check, p.sequence, p.newer) for p in found.problems] == [("event type", 7, True)]


async def test_content_that_a_newer_type_may_have_removed_is_not_called_broken() -> None:
    scenario = lost_payment()
    rows = resealed(scenario.rows(), 12, "payload_redacted@1", type="payload_redacted")
    async with kept_rows(scenario, rows) as journal:
        reader = Altered(journal, alter=at(9, lambda row: replace(row, payload=None, salt=None)))
        found = await verify(reader, "s-pay")
    assert (found.result, found.redacted, found.events) == (Result.UNREADABLE, 1, 12)
    assert [(p.check, p.sequence) for p in found.problems] == [("payload", 9), ("event type", 12)]


async def test_a_broken_chain_is_broken_whatever_its_types() -> None:
    scenario = lost_payment()
    rows = resealed(scenario.rows(), 7, "seal_recorded@1", type="seal_recorded")
    async with kept_rows(scenario, rows) as journal:
        found = await verify(Altered(journal, alter=at(9, lambda row: replace(row, payload=b"{}"))), "s-pay")
    assert found.result is Result.BROKEN
    assert [(p.check, p.sequence) for p in found.problems] == [("event type", 7), ("payload", 9)]


# --- beside the events --------------------------------------------------------------------


class Commands(Altered):
    """A reader that shows another command row."""

    shown: Callable[[tuple[bytes, Receipt]], tuple[bytes, Receipt] | None]
    command_id = "cmd-3"

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        found = await super().command(session_id, command_id)
        return self.shown(found) if found and command_id == self.command_id else found


@pytest.mark.parametrize(
    "shown",
    [
        lambda found: None,
        lambda found: (found[0], replace(found[1], first_sequence=1)),
        lambda found: (found[0], replace(found[1], last_sequence=12)),
        lambda found: (found[0], replace(found[1], head=b"\x00" * 32)),
    ],
    ids=["missing", "another first", "another last", "another head"],
)
async def test_a_command_has_to_be_on_record_once_and_for_its_own_events(shown: Any) -> None:
    async with kept(lost_payment()) as journal:
        reader = Commands(journal)
        reader.shown = shown
        found = await verify(reader, "s-pay")
    assert found.result is Result.BROKEN
    assert first(found) == ("command", 8)


async def test_a_command_id_that_is_used_twice_is_found() -> None:
    """The record names one place only, so that one of the two does not agree with it."""
    found = await forged(9, command={"id": "cmd-1", "index": 0, "size": 1})
    assert found.result is Result.BROKEN
    assert [(p.check, p.sequence, p.found) for p in found.problems] == [("command", 9, "for 1 to 1")]


async def test_a_command_id_that_is_used_twice_is_found_wherever_its_record_points() -> None:
    """Both places are in one page and asked for together: each is compared by itself."""
    scenario = lost_payment()
    rows = resealed(scenario.rows(), 9, command={"id": "cmd-1", "index": 0, "size": 1})
    async with kept_rows(scenario, rows) as journal:
        reader = Commands(journal)
        reader.shown = lambda found: (
            found[0],
            replace(found[1], first_sequence=9, last_sequence=9, head=rows[8].head),
        )
        reader.command_id = "cmd-1"
        found = await verify(reader, "s-pay")
    assert found.result is Result.BROKEN
    assert [(p.check, p.sequence, p.found) for p in found.problems] == [("command", 1, "for 9 to 9")]


async def test_a_row_that_contradicts_the_last_event_is_found() -> None:
    found = await verified(lost_payment(), row=lambda row: replace(row, head=b"\x01" * 32))
    assert first(found) == ("head", 12)


async def test_a_row_with_another_owner_is_found() -> None:
    found = await verified(lost_payment(), row=lambda row: replace(row, owner_id="mallory"))
    assert first(found) == ("owner", 1)


async def test_a_lease_whose_token_fell_behind_the_events_is_found() -> None:
    scenario = lost_payment()
    rows = resealed(scenario.rows(), 12, recorded_by={"worker_id": "w", "lease_id": "l", "token": 5})
    async with kept_rows(scenario, rows) as journal:
        await journal.leases.acquire("s-pay", Holder("w", "l-1"), 1000)
        found = await verify(journal, "s-pay")
    assert found.result is Result.BROKEN
    assert (found.token, first(found)) == (5, ("lease", 12))


def other_state(kept_: Snapshot) -> Snapshot:
    state = snapshot.restore(kept_)
    assert state is not None
    return replace(kept_, state=snapshot.take(replace(state, requests=7), kept_.head).state)


@pytest.mark.parametrize(
    "change",
    [other_state, lambda k: replace(k, head=b"\x00" * 32), lambda k: replace(k, state=b"[]")],
    ids=["another state", "another head", "no state"],
)
async def test_a_snapshot_that_says_something_else_is_found(change: Any) -> None:
    found = await verified(long(200), snapshots=change)
    assert found.result is Result.BROKEN
    assert first(found) == ("snapshot", 141)


async def test_a_snapshot_of_an_unknown_version_is_only_named() -> None:
    found = await verified(long(200), snapshots=lambda kept_: replace(kept_, version=99))
    assert (found.result, found.snapshots) == (Result.CONSISTENT, 0)
    assert found.notes == ("The snapshot at 141 has an unknown version; it was not compared.",)


async def test_a_snapshot_inside_a_command_is_found() -> None:
    found = await verified(long(200), snapshots=lambda kept_: replace(kept_, sequence=140))
    assert first(found) == ("snapshot", 140)


async def test_a_journal_cut_inside_a_command_is_broken() -> None:
    rows = lost_payment().rows()
    found = await verified(
        lost_payment(),
        row=lambda row: replace(row, sequence=5, head=rows[4].head),
        alter=lambda row: row if row.sequence <= 5 else None,
    )
    assert first(found) == ("cut", 6)


async def test_a_row_that_is_no_row_is_found_where_it_is() -> None:
    class Refuses(Altered):
        async def read(
            self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
        ) -> Sequence[Stored]:
            if after < 10 and (upto or 99) >= 10:
                raise Corrupt("event", "an envelope", "NULL", 10)
            return await super().read(session_id, after=after, upto=upto, limit=limit)

    async with kept(lost_payment()) as journal:
        found = await verify(Refuses(journal), "s-pay")
    assert (found.result, found.events) == (Result.BROKEN, 9)
    assert first(found) == ("event", 10)


# --- the document -------------------------------------------------------------------------


async def test_the_document_has_its_format_and_its_fields() -> None:
    document = (await verified(unsettled())).to_json()
    assert document["format"] == "minutebook.verification/1"
    assert set(document) == {
        "format", "session_id", "result", "events", "head", "proven_to", "rules_to", "snapshots",
        "redacted", "token", "problems", "notes",
    }  # fmt: skip
    assert document["result"] == "consistent"


async def test_the_store_is_not_written_to() -> None:
    async with MemoryStore().open() as journal:
        await keep(journal, lost_payment())
        before = await _everything(journal)
        await verify(journal, "s-pay")
        assert await _everything(journal) == before


async def _everything(journal: Journal) -> Any:
    return await journal.session("s-pay"), await journal.read("s-pay")
