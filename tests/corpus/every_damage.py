"""The long run (`make chaos`): every bit and every byte of what the suites here take samples of.

Not collected by itself. About ten minutes on one core.
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
from tests.session.harness import Place

pytestmark = pytest.mark.anyio

SEEDS = range(100, 110)
DAMAGES = 250


def told(what: str, outcomes: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Print what some damages came to."""
    ends = ", ".join(f"{times} {end}" for end, times in outcomes.most_common())
    with capsys.disabled():
        print(f"\n{what}: {outcomes.total()} damages: {ends}")


@pytest.mark.parametrize("name", GOLDEN)
async def test_every_bit_of_an_export(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = await flipped(tmp_path / "e.jsonl", name, 1)
    assert outcomes.keys() <= TYPED | {BROKEN, SAME}
    assert outcomes.total() > 10_000
    told(f"every bit of the export {name}", outcomes, capsys)


async def test_every_cut_of_an_export(tmp_path: Path) -> None:
    await check_cuts(tmp_path / "e.jsonl", 1)


async def test_a_database_cut_at_every_97th_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = Counter[str]()
    path = await kept_in_file(tmp_path / "j.db", *several())
    whole, written = content(path), rows_of(*several())
    for size in range(0, len(whole), ODD_STEP):
        put(path, whole[:size])
        outcome = await examined(path, written)
        assert outcome in TYPED | {BROKEN}, f"cut to {size} bytes"
        outcomes[outcome] += 1
    told("a database cut short", outcomes, capsys)


@pytest.mark.parametrize("seed", SEEDS)
async def test_scattered_damages_of_a_database(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = await kept_in_file(tmp_path / "j.db", *several())
    written: dict[str, list[Stored]] = rows_of(*several())
    outcomes = await outcomes_of(path, written, DAMAGES, seed)
    assert outcomes.total() == DAMAGES
    told(f"scattered damages of a database, seed {seed}", outcomes, capsys)


async def test_a_million_small_blocks_end_the_attempt_and_not_the_session() -> None:
    blocks = tuple(Block("opaque", "x", "y") for _ in range(1_000_000))
    async with Place().create([[Response(blocks, (), Stop.END, {}, {})], reply("on")]) as session:
        assert (await session.run("go")).error_code == "response_too_large"
        assert (await session.run("go")).content == "on"
