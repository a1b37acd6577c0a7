"""One machine that asks every store, and the model, the same things.

Used by `test_stores_agree.py` and by the long run, `every_agreement.py`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import hypothesis
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from domain.cursor import Cursor
from domain.envelope import Fence, Stored, genesis
from domain.limits import MAX_EVENTS_PER_COMMIT
from domain.ports import Batch, Blob, Holder, Journal, Listing
from minutebook.testing.batches import dummy_batch
from minutebook.testing.clock import ManualClock
from tests.property.opinions import Ask, Opinions, Voice, asked
from tests.property.store_model import Answer, Kept, StoreModel

#: Never a whole number of seconds, as every move of the clock is: nothing runs out at the very moment.
TTLS_MS = [10_500, 25_500]
MOVES_S = [1, 3, 8, 30]
MALFORMED = {
    "no events": "VALUE_REFUSED",
    "too many": "VALUE_REFUSED",
    "a gap": "VALUE_REFUSED",
    "another chain": "VALUE_REFUSED",
    "half redacted": "VALUE_REFUSED",
    "a short fingerprint": "VALUE_REFUSED",
    "a foreign snapshot": "VALUE_REFUSED",
    "a wrong digest": "VALUE_REFUSED",
    "a command that is no id": "INVALID_ID",
    "somebody's batch": "SESSION_NOT_FOUND",
}
_RUNS = count(1)

sessions = st.sampled_from([0, 1])
holders = st.sampled_from([("worker-1", "lease-1"), ("worker-1", "lease-2"), ("worker-2", "lease-3")])
fences = st.sampled_from(["held", "held", "none", "former", "other token", "other worker"])
listings = st.sampled_from([("open", "none"), ("open", "go_on"), ("closed", "none")])


class Agreement(RuleBasedStateMachine):
    """Two sessions of one owner, three holders, somebody else who looks on.

    Args:
        opinions: the stores.
        seen: counts what every rule came to.
    """

    def __init__(self, opinions: Opinions, seen: Counter[str]) -> None:
        super().__init__()
        run = next(_RUNS)
        self.opinions, self.seen = opinions, seen
        self.model = StoreModel()
        self.owner, self.somebody = f"owner-{run}", f"somebody-{run}"
        self.ids = [f"s{run}-a", f"s{run}-b"]
        self.tried: dict[str, list[Batch]] = {each: [] for each in self.ids}
        self.granted: dict[str, list[Fence]] = {each: [] for each in self.ids}
        self.heard: dict[str, int] = {}
        self.commands = count(1)
        #: Whether anything was asked for since the last look that may change something.
        self.changed = False
        self.opinions.open((self.owner, self.somebody))

    def teardown(self) -> None:
        self.opinions.close()

    @initialize(
        sizes=st.lists(st.integers(1, 3), max_size=4), leased=st.sampled_from([None, "worker-1", "worker-2"])
    )
    def begin(self, sizes: list[int], leased: str | None) -> None:
        """The first session has a past, and perhaps a holder."""
        if leased is not None:
            self.acquire(0, (leased, "lease-1"), TTLS_MS[1])
        for size in sizes:
            self.commit_at_the_head(0, "held", size, (b"shared",), size == 2, False, ("open", "go_on"))
        self.listen(0, 0, "here")

    # --- commits ------------------------------------------------------------------------

    @rule(
        which=sessions,
        fence=fences,
        size=st.integers(1, 3),
        blob=st.sampled_from([(), (b"shared",), (b"shared", b"")]),
        snapshot=st.booleans(),
        redacted=st.booleans(),
        listing=listings,
    )
    def commit_at_the_head(
        self,
        which: int,
        fence: str,
        size: int,
        blob: Sequence[bytes],
        snapshot: bool,
        redacted: bool,
        listing: tuple[str, str],
    ) -> None:
        batch = self.batch(self.place(which), fence, size, snapshot=snapshot, blobs=blob)
        if redacted:
            first = replace(batch.events[0], payload=None, salt=None)
            batch = replace(batch, events=(first, *batch.events[1:]))
        self.commit("head", replace(batch, listing=Listing(*listing)))

    @rule(which=sessions, fence=fences, back=st.integers(1, 3))
    def commit_behind(self, which: int, fence: str, back: int) -> None:
        at = max(len(self.rows(self.ids[which])) - back, 0)
        self.commit("behind", self.batch(self.place(which, at), fence))

    @rule(which=sessions, fence=fences, ahead=st.integers(0, 3))
    def commit_after_another_history(self, which: int, fence: str, ahead: int) -> None:
        place = self.place(which)
        other = Cursor(place.session_id, place.sequence + ahead, hashlib.sha256(place.head).digest())
        self.commit("other history", self.batch(other, fence))

    @rule(which=sessions, back=st.integers(1, 4), fence=fences)
    def commit_again(self, which: int, back: int, fence: str) -> None:
        tried = self.tried[self.ids[which]]
        if tried:
            batch = tried[-min(back, len(tried))]
            self.commit("again", replace(batch, fence=self.fence(batch.session_id, fence)))

    @rule(which=sessions, back=st.integers(1, 4), fence=fences)
    def commit_other_content(self, which: int, back: int, fence: str) -> None:
        tried = self.tried[self.ids[which]]
        if tried:
            used = tried[-min(back, len(tried))]
            batch = self.batch(self.place(which), fence, command_id=used.command_id)
            self.commit("other content", replace(batch, fingerprint=b"f" * 32), keep=False)

    @rule(which=sessions, wrong=st.sampled_from(sorted(MALFORMED)), fence=fences)
    def commit_what_could_not_be_read_back(self, which: int, wrong: str, fence: str) -> None:
        batch = self.batch(self.place(which), fence, 2, snapshot=True, blobs=(b"shared",))
        self.commit("malformed", self.malformed(batch, wrong), MALFORMED[wrong], keep=False)

    @rule(which=sessions, back=st.integers(0, 4))
    def commit_as_somebody(self, which: int, back: int) -> None:
        batch = replace(self.batch(self.place(which), "held"), owner_id=self.somebody)
        if self.ids[which] in self.model.sessions:  # else the session would be theirs
            self.commit("somebody", batch, owner=self.somebody, keep=False)

    @rule(which=sessions, back=st.integers(1, 4), other=st.booleans())
    def settle(self, which: int, back: int, other: bool) -> None:
        tried = self.tried[self.ids[which]]
        batch = tried[-min(back, len(tried))] if tried and back < 4 else self.batch(self.place(which), "none")
        if other:
            batch = replace(batch, fingerprint=b"g" * 32)
        told = self.change(self.owner, lambda journal: journal.settle(batch))
        self.agree("settle", told, self.model.asked(lambda: self.model.settle(batch)))
        if told == ("value", None):
            self.note("settle", "nothing")

    # --- leases -------------------------------------------------------------------------

    @rule(which=sessions, holder=holders, ttl_ms=st.sampled_from(TTLS_MS))
    def acquire(self, which: int, holder: tuple[str, str], ttl_ms: int) -> None:
        session_id, asks = self.ids[which], Holder(*holder, boot_id=self.opinions.clock.boot_id)
        told = self.change(self.owner, lambda journal: journal.leases.acquire(session_id, asks, ttl_ms))
        model = self.model
        self.agree("acquire", told, model.asked(lambda: model.acquire(session_id, self.owner, asks, ttl_ms)))
        if told[0] == "lease":
            self.granted[session_id].append(Fence(asks.worker_id, asks.lease_id, told[1]))

    @rule(which=sessions, holder=holders)
    def acquire_as_somebody(self, which: int, holder: tuple[str, str]) -> None:
        session_id, asks = self.ids[which], Holder(*holder, boot_id=self.opinions.clock.boot_id)
        if session_id in self.model.sessions:
            told = self.change(
                self.somebody, lambda journal: journal.leases.acquire(session_id, asks, TTLS_MS[0])
            )
            self.agree("acquire as somebody", told, ("error", "SESSION_NOT_FOUND"))

    @rule(which=sessions, fence=fences, ttl_ms=st.sampled_from(TTLS_MS))
    def renew(self, which: int, fence: str, ttl_ms: int) -> None:
        session_id, held = self.ids[which], self.some_fence(which, fence)
        told = self.change(self.owner, lambda journal: journal.leases.renew(session_id, held, ttl_ms))
        model = self.model
        self.agree("renew", told, model.asked(lambda: model.renew(session_id, self.owner, held, ttl_ms)))

    @rule(which=sessions, fence=fences, owned=st.booleans())
    def validate(self, which: int, fence: str, owned: bool) -> None:
        session_id, held = self.ids[which], self.some_fence(which, fence)
        owner = self.owner if owned else self.somebody
        told = self.opinions.ask(owner, lambda journal: journal.leases.validate(session_id, held))
        model = self.model
        self.agree("validate", told, model.asked(lambda: model.validate(session_id, owner, held)))

    @rule(which=sessions, fence=fences)
    def release(self, which: int, fence: str) -> None:
        session_id, held = self.ids[which], self.some_fence(which, fence)
        before = self.model.sessions.get(session_id)
        free = before is None or before.lease is None or before.lease.lease_id is None
        told = self.change(self.owner, lambda journal: journal.leases.release(session_id, held))
        self.agree("release", told, self.model.release(session_id, held))
        lease = before.lease if before else None
        self.note("release", "freed" if not free and lease and lease.lease_id is None else "nothing")

    @rule(seconds=st.sampled_from(MOVES_S))
    def time_passes(self, seconds: int) -> None:
        self.opinions.clock.advance(seconds)
        self.model.seconds += seconds

    # --- reading ------------------------------------------------------------------------

    @rule(
        which=sessions,
        after=st.integers(0, 4),
        upto=st.none() | st.integers(0, 8),
        limit=st.integers(1, 5),
        owned=st.booleans(),
    )
    def read(self, which: int, after: int, upto: int | None, limit: int, owned: bool) -> None:
        session_id, owner = self.ids[which], self.owner if owned else self.somebody
        told = self.opinions.ask(
            owner, lambda journal: journal.read(session_id, after=after, upto=upto, limit=limit)
        )
        kept = self.model.seen(session_id, owner)
        rows = [row for row in (kept.rows if kept else []) if upto is None or row.sequence <= upto]
        self.agree("read", told, ("value", rows[after:][:limit]))
        self.note("read", "rows" if told[1] else "nothing")

    @rule(which=sessions, upto=st.none() | st.integers(0, 8))
    def snapshot(self, which: int, upto: int | None) -> None:
        session_id = self.ids[which]
        told = self.opinions.ask(self.owner, lambda journal: journal.snapshot(session_id, upto=upto))
        kept = self.model.sessions.get(session_id) or Kept(self.owner)
        found = [each for each in kept.snapshots if upto is None or each.sequence <= upto]
        self.agree("snapshot", told, ("value", found[-1] if found else None))
        self.note("snapshot", "found" if found else "nothing")

    @rule(which=sessions, owned=st.booleans())
    def look_up_commands(self, which: int, owned: bool) -> None:
        session_id, owner = self.ids[which], self.owner if owned else self.somebody
        asked = [batch.command_id for batch in self.tried[session_id]] + ["never"]
        told = self.opinions.ask(owner, lambda journal: journal.commands(session_id, asked))
        kept = self.model.seen(session_id, owner)
        shown = {
            name: (fingerprint, receipt.first_sequence, receipt.last_sequence, receipt.head)
            for name, (fingerprint, receipt) in told[1].items()
        }
        assert shown == (kept.commands if kept else {})
        self.note("commands", "found" if shown else "nothing")

    @rule(blob=st.sampled_from([b"shared", b"", b"never kept"]))
    def blob(self, blob: bytes) -> None:
        digest = hashlib.sha256(self.own(blob)).hexdigest()
        told = self.opinions.ask(self.owner, lambda journal: journal.blob(digest))
        self.agree("blob", told, ("value", self.model.blobs.get(digest)))
        self.note("blob", "found" if told[1] is not None else "nothing")

    @rule(which=sessions, after=st.integers(0, 3), of=st.sampled_from(["here", "elsewhere"]))
    def listen(self, which: int, after: int, of: str) -> None:
        """After a place of this session, or of another journal, which has something else there."""
        session_id, there = self.ids[which], self.place(which, after)
        if of == "elsewhere" or there.sequence < after:
            there = Cursor(session_id, after, b"elsewhere".ljust(32))
        self.opinions.listen(self.owner, session_id, there)
        if there == self.place(which, after):
            self.heard[session_id] = after
            self.note("listen", "begun")
        else:
            told = self.opinions.hear(session_id, 1)
            self.agree("listen", told, ("error", "JOURNAL_CURSOR_MISMATCH"))
            self.heard.pop(session_id, None)

    @precondition(lambda self: self.heard)
    @rule(which=sessions)
    def hear(self, which: int) -> None:
        session_id = self.ids[which]
        if session_id in self.heard:
            rows = self.rows(session_id)[self.heard[session_id] :]
            told = self.opinions.hear(session_id, len(rows))
            self.agree("hear", told, ("value", rows))
            self.heard[session_id] += len(rows)
            self.note("hear", "rows" if rows else "nothing")

    @precondition(lambda self: self.model.sessions)
    @rule()
    def reopen(self) -> None:
        self.opinions.open((self.owner, self.somebody))
        self.heard.clear()
        self.note("reopen", "open")

    # --- what holds all the time ----------------------------------------------------------

    @invariant()
    def the_listing_is_one(self) -> None:
        if not self.changed:
            return
        self.changed = False
        told = self.opinions.ask(self.owner, lambda journal: journal.sessions())
        rows = []
        for session_id in self.ids:
            kept = self.model.seen(session_id, self.owner)
            if kept is not None:
                lease = kept.lease
                held = (lease.token, lease.lease_id, lease.worker) if lease else None
                last = kept.rows[-1]
                rows.append((session_id, self.owner, last.sequence, last.head, kept.listing, held))
        assert told == ("value", rows)

    # --- helpers --------------------------------------------------------------------------

    def agree(self, what: str, told: Answer, expected: Answer) -> None:
        """The stores, which are of one mind, are of the model's."""
        assert told == expected, f"{what}: the stores say {told}, the model says {expected}"
        if told[0] != "value":
            self.note(what, str(told[1]) if told[0] != "lease" else "granted")

    def note(self, what: str, came_of_it: str) -> None:
        self.seen[f"{what}: {came_of_it}"] += 1
        event(f"{what}: {came_of_it}")

    def change(self, owner: str, call: Ask) -> Answer:
        """Ask for something that may change what there is."""
        self.changed = True
        return self.opinions.ask(owner, call)

    def commit(
        self,
        what: str,
        batch: Batch,
        malformed: str | None = None,
        *,
        owner: str | None = None,
        keep: bool = True,
    ) -> None:
        told = self.change(owner or self.owner, lambda journal: journal.commit(batch))
        start = genesis(batch.session_id)
        expected = self.model.asked(lambda: self.model.commit(batch, start, malformed))
        self.agree(f"commit {what}", told, expected)
        for each in batch.blobs:
            found = self.opinions.ask(self.owner, partial(_blob, each.digest))
            assert found == ("value", self.model.blobs.get(each.digest))
        if keep and batch not in self.tried[batch.session_id]:
            self.tried[batch.session_id].append(batch)

    def rows(self, session_id: str) -> list[Stored]:
        kept = self.model.sessions.get(session_id)
        return kept.rows if kept else []

    def place(self, which: int, sequence: int | None = None) -> Cursor:
        """After the event of a sequence; None: at the end."""
        before = self.rows(self.ids[which])[:sequence]
        return Cursor.after(before[-1]) if before else Cursor.start(self.ids[which])

    def batch(
        self,
        place: Cursor,
        fence: str,
        size: int = 1,
        *,
        command_id: str | None = None,
        snapshot: bool = False,
        blobs: Sequence[bytes] = (),
    ) -> Batch:
        number = next(self.commands)
        return dummy_batch(
            place,
            command_id or f"c{number}",
            [b'{"n":%d,"of":%d}' % (each, number) for each in range(size)],
            owner_id=self.owner,
            fence=self.fence(place.session_id, fence),
            snapshot_state=b"state %d" % number if snapshot else None,
            blobs=[self.own(blob) for blob in blobs],
        )

    def own(self, blob: bytes) -> bytes:
        """A blob's content for this example: blobs have no owner."""
        return blob + self.owner.encode()

    def fence(self, session_id: str, kind: str) -> Fence | None:
        granted = self.granted[session_id]
        if kind == "none" or not granted:
            return Fence("worker-1", "lease-1", 1) if kind == "other worker" else None
        match kind:
            case "former":
                return granted[0]
            case "other token":
                return replace(granted[-1], token=granted[-1].token + 1)
            case "other worker":
                return replace(granted[-1], worker_id="worker-9")
        return granted[-1]

    def some_fence(self, which: int, kind: str) -> Fence:
        return self.fence(self.ids[which], kind) or Fence("worker-1", "lease-1", 1)

    def malformed(self, batch: Batch, wrong: str) -> Batch:
        first, second = batch.events
        assert batch.snapshot is not None
        match wrong:
            case "no events":
                return replace(batch, events=(), snapshot=None)
            case "too many":
                many = [b"{}"] * (MAX_EVENTS_PER_COMMIT + 1)
                place = Cursor(batch.session_id, batch.expected_sequence, batch.expected_head)
                return dummy_batch(place, batch.command_id, many, owner_id=self.owner)
            case "a gap":
                return replace(batch, events=(first, replace(second, sequence=second.sequence + 1)))
            case "another chain":
                return replace(batch, events=(replace(first, head=second.head), second))
            case "half redacted":
                return replace(batch, events=(first, replace(second, salt=None)))
            case "a short fingerprint":
                return replace(batch, fingerprint=b"short")
            case "a foreign snapshot":
                return replace(batch, snapshot=replace(batch.snapshot, sequence=first.sequence + 9))
            case "a wrong digest":
                return replace(batch, blobs=(Blob(hashlib.sha256(b"other").hexdigest(), b"blob"),))
            case "a command that is no id":
                return replace(batch, command_id="no command")
        return replace(batch, owner_id=self.somebody)


async def _blob(digest: str, journal: Journal) -> bytes | None:
    return await journal.blob(digest)


#: What every run has to come to at least once: each rule's success and each of its refusals.
COMES_TO = [
    *(f"commit head: {each}" for each in ("committed",)),
    *(
        f"commit {place}: DURABLE_EXECUTION_LEASE_{why}"
        for place in ("head", "behind", "other history")
        for why in ("LOST", "REQUIRED")
    ),
    "commit behind: DURABLE_EVENT_SEQUENCE_CONFLICT",
    "commit other history: DURABLE_EVENT_SEQUENCE_CONFLICT",
    "commit again: replayed",
    "commit again: DURABLE_EVENT_SEQUENCE_CONFLICT",
    "commit again: DURABLE_EXECUTION_LEASE_LOST",
    "commit other content: DURABLE_COMMAND_CONFLICT",
    "commit other content: committed",
    *(f"commit malformed: {code}" for code in sorted(set(MALFORMED.values()))),
    "commit somebody: SESSION_NOT_FOUND",
    "settle: reconciled",
    "settle: nothing",
    "settle: DURABLE_COMMAND_CONFLICT",
    "acquire: granted",
    "acquire: DURABLE_EXECUTION_LEASE_CONFLICT",
    "acquire as somebody: SESSION_NOT_FOUND",
    "renew: granted",
    "renew: DURABLE_EXECUTION_LEASE_LOST",
    "validate: granted",
    "validate: DURABLE_EXECUTION_LEASE_LOST",
    "release: freed",
    "release: nothing",
    *(f"{what}: {each}" for what in ("read", "hear") for each in ("rows", "nothing")),
    *(f"{what}: {each}" for what in ("snapshot", "commands", "blob") for each in ("found", "nothing")),
    "listen: begun",
    "listen: JOURNAL_CURSOR_MISMATCH",
    "reopen: open",
]


def agree(
    voices: Sequence[Voice], clock: ManualClock, examples: settings, seed: int | None = None
) -> Counter[str]:
    """Run the machine over some stores. How often each rule came to what."""
    seen: Counter[str] = Counter()

    def machine() -> Agreement:
        return Agreement(opinions, seen)

    with asked(voices, clock) as opinions:
        # A function that gives machines is as good as their class.
        made: Any = machine if seed is None else hypothesis.seed(seed)(machine)
        run_state_machine_as_test(made, settings=examples)
    return seen
