"""Leases on one host against a ledger that keeps true time: no setting of the wall clock shows in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from adapters import lease_rules
from adapters.lease_rules import Instant
from domain.envelope import Fence
from domain.errors import LeaseConflict, LeaseLost, LeaseRequired
from domain.ports import Holder, LeaseRow
from minutebook.testing.clock import ManualClock

TTL_S: Final = 30
WORKERS: Final = [Holder(f"worker-{n}", f"lease-{n}", "boot-1", n, str(n)) for n in range(3)]

_moments = st.sampled_from([0.001, 1, 10, 29.999, 30, 31])
_steps = st.sampled_from([-86400, -3600, -30, -0.001, 0.001, 30, 3600, 86400])
_who = st.integers(0, len(WORKERS) - 1)
_moves = st.one_of(
    st.tuples(st.just("advance"), _moments),
    st.tuples(st.just("step"), _steps),
    st.tuples(st.sampled_from(["acquire", "renew", "write", "release"]), _who),
)


@dataclass
class Host:
    """One host's store, and beside it what is true: who holds until which second, by nobody's clock."""

    clock: ManualClock = field(default_factory=ManualClock)
    row: LeaseRow | None = None
    true_seconds: float = 0.0
    held_by: int | None = None
    held_until: float = 0.0
    tokens: list[int] = field(default_factory=list)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.true_seconds = round(self.true_seconds + seconds, 6)

    def step(self, seconds: float) -> None:
        self.clock.step(seconds)

    def acquire(self, who: int) -> None:
        given = (self.held_by in (None, who)) or self.true_seconds >= self.held_until
        again = self.held_by == who
        try:
            row = lease_rules.granted(
                "s", self.row, WORKERS[who], 1000 * TTL_S, self.at, is_dead=lambda row: False
            )
        except LeaseConflict:
            assert not given
            return
        assert given
        assert row.token == (self.tokens[-1] if again else max(self.tokens, default=0) + 1)
        self.tokens.append(row.token)
        self._holds(who, row)

    def renew(self, who: int) -> None:
        try:
            row = lease_rules.renewed("s", self.row, self._fence(who), 1000 * TTL_S, self.at)
        except LeaseLost:
            assert not self._lives(who)
            return
        assert self._lives(who)
        self._holds(who, row)

    def write(self, who: int) -> None:
        try:
            lease_rules.check_fence("s", self.row, self._fence(who), self.at)
        except (LeaseLost, LeaseRequired):
            assert not self._lives(who)
        else:
            assert self._lives(who)

    def release(self, who: int) -> None:
        row = lease_rules.released(self.row, self._fence(who), self.at)
        assert (row is not None) == (self.held_by == who)
        if row is not None:
            self.row, self.held_by = row, None

    @property
    def at(self) -> Instant:
        return Instant.of(self.clock)

    def _holds(self, who: int, row: LeaseRow) -> None:
        self.row, self.held_by = row, who
        self.held_until = round(self.true_seconds + TTL_S, 6)
        assert row.expires_at == self.clock.now() + timedelta(seconds=TTL_S)

    def _lives(self, who: int) -> bool:
        return self.held_by == who and self.true_seconds < self.held_until

    def _fence(self, who: int) -> Fence:
        token = self.row.token if self.row is not None else 1
        return Fence(WORKERS[who].worker_id, WORKERS[who].lease_id, token)


@given(st.lists(_moves, max_size=40))
def test_on_one_host_only_true_time_counts(moves: list[tuple[str, Any]]) -> None:
    host = Host()
    for move, argument in moves:
        getattr(host, move)(argument)
    if host.row is not None and host.held_by is not None:
        lives = lease_rules.lives(host.row, host.at, is_dead=lambda row: False)
        assert lives == (host.true_seconds < host.held_until)
