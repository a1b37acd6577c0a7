"""Damaged exports: every cut is named, a flipped bit is found or changed nothing that is hashed."""

from __future__ import annotations

import collections
from pathlib import Path

import anyio
import pytest

from domain.envelope import Stored
from minutebook.testing.scenario import Scenario
from tests.corpus.damage import cuts, flips, scattered
from tests.corpus.examining import BROKEN, SAME, TYPED, examined, put
from tests.corpus.journals import GOLDEN, exported
from tests.integration.command_line import call
from tests.journals import lost_payment

#: Bits between two that are flipped here; all of them: `every_damage.py`.
STEP = 97


def rows_of(*scenarios: Scenario) -> dict[str, list[Stored]]:
    """What an export of these sessions holds."""
    return {scenario.state.session_id: scenario.rows() for scenario in scenarios}


async def flipped(path: Path, name: str, step: int) -> collections.Counter[str]:
    """What flips of an export come to; each of them is examined."""
    data, outcomes = await exported(GOLDEN[name]), collections.Counter[str]()
    written = rows_of(GOLDEN[name])
    for bit, changed in flips(data, step):
        put(path, changed)
        try:
            outcomes[await examined(path, written)] += 1
        except Exception as e:
            raise AssertionError(f"{name}: bit {bit % 8} of byte {bit // 8}: {e!r}") from e
    return outcomes


@pytest.mark.anyio
@pytest.mark.parametrize("name", GOLDEN)
async def test_a_flipped_bit_is_found_or_changed_nothing_that_is_hashed(tmp_path: Path, name: str) -> None:
    outcomes = await flipped(tmp_path / "e.jsonl", name, STEP)
    assert outcomes.keys() <= TYPED | {BROKEN, SAME}
    assert outcomes[SAME] < outcomes.total() / 5, "what is not hashed is the smaller part"


@pytest.mark.anyio
async def test_cuts_are_named(tmp_path: Path) -> None:
    await check_cuts(tmp_path / "e.jsonl", STEP // 2 + 1)


async def check_cuts(path: Path, step: int) -> collections.Counter[str]:
    """Cut the export of a session with an open call: after lines, inside lines and characters."""
    scenario, outcomes = lost_payment(), collections.Counter[str]()
    data = await exported(scenario)
    for cut in cuts(data, step):
        put(path, cut)
        outcome = await examined(path, rows_of(scenario))
        assert outcome in TYPED | {BROKEN}, f"cut to {len(cut)} bytes"
        outcomes[outcome] += 1
    put(path, data)
    assert await examined(path, rows_of(scenario)) == SAME
    return outcomes


@pytest.mark.anyio
async def test_scattered_damages_are_found(tmp_path: Path) -> None:
    scenarios = (*GOLDEN.values(), lost_payment())
    data, path = await exported(*scenarios), tmp_path / "e.jsonl"
    outcomes = collections.Counter[str]()
    for changed in scattered(data, 120, seed=6):
        put(path, changed)
        outcomes[await examined(path, rows_of(*scenarios)) if changed != data else SAME] += 1
    assert outcomes[BROKEN] > 60


COMMANDS = (["inspect"], ["inspect", "--json", "--verify"], ["verify"], ["verify", "--json"], ["export"])
OF_ONE = (["replay", "s-pay"], ["replay", "s-pay", "--json"], ["timeline", "s-pay"])


def test_every_command_has_a_sentence_for_every_damage(tmp_path: Path) -> None:
    data, path = anyio.run(exported, lost_payment()), tmp_path / "e.jsonl"
    damaged = [*scattered(data, 12, seed=7), *cuts(data, 2999)]
    for number, changed in enumerate(damaged):
        put(path, changed)
        for name, *rest in COMMANDS + OF_ONE:
            told = call(name, path, *rest)
            assert told.code in (0, 1, 2, 3, 4), (number, name, told.err)
            assert "INTERNAL_ERROR" not in told.err, (number, name, told.err)


def test_an_import_of_a_damaged_export_writes_all_of_it_or_nothing(tmp_path: Path) -> None:
    scenario = lost_payment()
    data, path = anyio.run(exported, scenario), tmp_path / "e.jsonl"
    for number, changed in enumerate([*scattered(data, 40, seed=8), *cuts(data, 1499)]):
        put(path, changed)
        target = tmp_path / f"{number}.db"
        told = call("import", path, target)
        if told.code:
            assert "INTERNAL_ERROR" not in told.err, told.err
            assert not target.exists(), "refused, and a file was made all the same"
        else:
            assert anyio.run(examined, target, rows_of(scenario)) == SAME
