"""The power is cut while a journal is written: what was promised is there, the rest is whole.

A few hundred images; all of them are in `every_image.py`. What they show is only worth
something because the same images lose events where a store does not sync.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.chaos.power import MODES, SCRIPTS, cut, written
from tests.chaos.tracing import Call, needs_strace

SEED = 7
SUBSETS = 3
#: How many images of each run are checked here, about.
STEP = 150
#: From how many of its states a session is lived to its end: every so many.
LIVES = 5

pytestmark = needs_strace


@cache
def calls(script: str, mode: str, synchronous: str) -> list[Call]:
    """What one run asked of its disk."""
    return written(script, mode, synchronous)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_nothing_that_was_promised_is_lost(script: str, mode: str) -> None:
    found = calls(script, mode, "FULL")
    outcome = cut(found, script, mode, seed=SEED, subsets=SUBSETS, step=STEP, lives=LIVES)
    assert (outcome.lost, outcome.broken) == ([], [])
    assert outcome.images >= 20
    assert outcome.resumed >= 2


@pytest.mark.parametrize(("script", "mode"), [("session", "wal"), ("commits", "truncate")])
def test_a_store_that_does_not_sync_loses_events_in_these_images(script: str, mode: str) -> None:
    """A harness that found nothing here would find nothing anywhere."""
    found = calls(script, mode, "NORMAL")
    outcome = cut(found, script, mode, seed=SEED, subsets=SUBSETS, step=29, lives=1000, enough=3)
    assert len(outcome.lost) == 3


@pytest.mark.parametrize("mode", MODES)
def test_a_run_does_everything_that_a_power_cut_may_meet(mode: str) -> None:
    found = calls("commits", mode, "FULL")
    asked = {(call.name, call.file) for call in found}
    assert ("fsync", "") in asked or ("fdatasync", "") in asked, "the directory is synced"
    side = "journal.db-wal" if mode == "wal" else "journal.db-journal"
    assert {("pwrite64", "journal.db"), ("pwrite64", side)} <= asked
    if mode == "wal":
        starts = [c for c in found if (c.name, c.file, c.number) == ("pwrite64", side, 0)]
        assert len(starts) > 1, "a checkpoint lets the log begin again"
        assert ("unlink", side) in asked
    else:
        assert ("ftruncate", side) in asked
