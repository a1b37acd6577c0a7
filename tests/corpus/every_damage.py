"""Every bit and every byte of what the suites here take samples of.

Not part of the suite, because of its name; run it by naming it, or with all the long runs:

    make test ARGS=tests/corpus/every_damage.py
    make chaos
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from domain.envelope import Stored
from domain.model_ports import Block, Response
from domain.values import Stop
from minutebook.testing.scripted import reply
from tests.corpus.damage import ODD_STEP
from tests.corpus.examining import BROKEN, SAME, TYPED, content, examined, put
from tests.corpus.journals import GOLDEN, kept_in_file, several
from tests.corpus.test_database_damage import outcomes_of
from tests.corpus.test_export_damage import check_cuts, flipped, rows_of
from tests.long_runs import Numbers
from tests.session.harness import Place

pytestmark = pytest.mark.anyio

SEEDS = range(100, 110)
DAMAGES = 250


def told(what: str, outcomes: Counter[str], numbers: Numbers, seed: int | None = None) -> None:
    """Say what some damages came to. One that went by unnoticed has failed its test by now."""
    wrong = sum(times for outcome, times in outcomes.items() if outcome not in TYPED | {BROKEN, SAME})
    ends = ", ".join(f"{times:,} {end}" for end, times in outcomes.most_common())
    numbers.add(what, {"cases": outcomes.total(), "wrong": wrong}, seed=seed, note=ends)


@pytest.mark.parametrize("name", GOLDEN)
async def test_every_bit_of_an_export(tmp_path: Path, name: str, numbers: Numbers) -> None:
    outcomes = await flipped(tmp_path / "e.jsonl", name, 1)
    told("damage: every bit of three exports", outcomes, numbers)
    assert outcomes.keys() <= TYPED | {BROKEN, SAME}
    assert outcomes.total() > 10_000


async def test_every_cut_of_an_export(tmp_path: Path, numbers: Numbers) -> None:
    told("damage: an export cut short", await check_cuts(tmp_path / "e.jsonl", 1), numbers)


async def test_a_database_cut_at_every_97th_byte(tmp_path: Path, numbers: Numbers) -> None:
    outcomes = Counter[str]()
    path = await kept_in_file(tmp_path / "j.db", *several())
    whole, written = content(path), rows_of(*several())
    for size in range(0, len(whole), ODD_STEP):
        put(path, whole[:size])
        outcome = await examined(path, written)
        assert outcome in TYPED | {BROKEN}, f"cut to {size} bytes"
        outcomes[outcome] += 1
    told("damage: a database cut short", outcomes, numbers)


@pytest.mark.parametrize("seed", SEEDS)
async def test_scattered_damages_of_a_database(tmp_path: Path, seed: int, numbers: Numbers) -> None:
    path = await kept_in_file(tmp_path / "j.db", *several())
    written: dict[str, list[Stored]] = rows_of(*several())
    outcomes = await outcomes_of(path, written, DAMAGES, seed)
    told("damage: scattered over a database", outcomes, numbers, seed)
    assert outcomes.total() == DAMAGES


async def test_a_million_small_blocks_end_the_attempt_and_not_the_session() -> None:
    blocks = tuple(Block("opaque", "x", "y") for _ in range(1_000_000))
    async with Place().create([[Response(blocks, (), Stop.END, {}, {})], reply("on")]) as session:
        assert (await session.run("go")).error_code == "response_too_large"
        assert (await session.run("go")).content == "on"
