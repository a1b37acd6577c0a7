"""Every image of every run, and the controls. Takes minutes.

Not part of the suite, because of its name; run it by naming it, or with all the long runs:

    make test ARGS=tests/chaos/every_image.py
    make chaos
"""

from __future__ import annotations

import pytest

from tests.chaos.power import MODES, SCRIPTS, cut, written
from tests.chaos.tracing import needs_strace

SEED = 20_000
#: Random parts at each moment, beside the others.
SUBSETS = 3
#: At least so many images, over all scripts and journal modes.
FEWEST = 5_000

pytestmark = needs_strace


@pytest.fixture(scope="module")
def counted(numbers: list[str]) -> dict[str, int]:
    """How many images there were of each run at FULL; the table begins here."""
    numbers.append(f"power cuts, seed {SEED}, {SUBSETS} random parts at each moment")
    numbers.append(
        f"{'script':<9}{'journal':<10}{'synchronous':<12}{'images':>7}{'lost':>6}{'broken':>8}{'gone on':>9}"
    )
    return {}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_nothing_that_was_promised_is_lost(
    script: str, mode: str, counted: dict[str, int], numbers: list[str]
) -> None:
    outcome = cut(written(script, mode), script, mode, seed=SEED, subsets=SUBSETS)
    numbers.append(
        row(script, mode, "FULL", outcome.images, len(outcome.lost), len(outcome.broken), outcome.resumed)
    )
    counted[f"{script} {mode}"] = outcome.images
    assert (outcome.lost, outcome.broken) == ([], [])


def test_there_are_enough_images(counted: dict[str, int], numbers: list[str]) -> None:
    numbers.append(f"{sum(counted.values())} images at FULL")
    assert len(counted) == len(SCRIPTS) * len(MODES)
    assert sum(counted.values()) >= FEWEST


@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_store_that_does_not_sync_loses_events_in_these_images(
    script: str, mode: str, synchronous: str, counted: dict[str, int], numbers: list[str]
) -> None:
    outcome = cut(
        written(script, mode, synchronous), script, mode, seed=SEED, subsets=SUBSETS, step=5, lives=10_000
    )
    lost, broken = len(outcome.lost), len(outcome.broken)
    numbers.append(row(script, mode, synchronous, outcome.images, lost, broken, outcome.resumed))
    assert lost >= 10


def row(script: str, mode: str, synchronous: str, *found: int) -> str:
    """One line of the table."""
    images, lost, broken, resumed = found
    return f"{script:<9}{mode:<10}{synchronous:<12}{images:>7}{lost:>6}{broken:>8}{resumed:>9}"
