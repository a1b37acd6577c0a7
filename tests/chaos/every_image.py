"""Every image of every run, and the controls.

Not part of the suite, because of its name; run it by naming it, or with all the long runs:

    make test ARGS=tests/chaos/every_image.py
    make chaos
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.chaos.power import MODES, SCRIPTS, Outcome, cut, written
from tests.chaos.tracing import needs_strace
from tests.long_runs import Numbers

SEED: Final = 20_000
#: Random parts at each moment, beside the others.
SUBSETS: Final = 3
#: At least so many images of each run: 5,000 in all.
FEWEST: Final = 5_000 // (len(SCRIPTS) * len(MODES))

pytestmark = needs_strace


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_nothing_that_was_promised_is_lost(script: str, mode: str, numbers: Numbers) -> None:
    outcome = cut(written(script, mode), script, mode, seed=SEED, subsets=SUBSETS)
    tell(numbers, "FULL", outcome, f"{script}, {mode}")
    assert (outcome.lost, outcome.broken) == ([], [])
    assert outcome.images >= FEWEST


@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_store_that_does_not_sync_loses_events_in_these_images(
    script: str, mode: str, synchronous: str, numbers: Numbers
) -> None:
    outcome = cut(
        written(script, mode, synchronous), script, mode, seed=SEED, subsets=SUBSETS, step=5, lives=10_000
    )
    tell(numbers, f"{synchronous}, has to lose", outcome, f"{script}, {mode}")
    assert len(outcome.lost) >= 10


def tell(numbers: Numbers, synchronous: str, outcome: Outcome, where: str) -> None:
    """Say what became of the images of one run."""
    counts = {"cases": outcome.images, "lost": len(outcome.lost)}
    if synchronous == "FULL":  # the others are there to be wrong
        counts["wrong"] = len(outcome.lost) + len(outcome.broken)
    note = f"{where}: {outcome.resumed} sessions gone on with to the end"
    numbers.add(f"power cut, {synchronous}", counts, seed=SEED, note=note)
