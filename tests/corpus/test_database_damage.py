"""Damaged SQLite journals: a cut, a flip or scattered bytes are typed, named, or changed no row."""

from __future__ import annotations

import collections
import resource
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from domain.envelope import Stored
from tests.corpus.damage import ODD_STEP, PAGE_BYTES, flips, scattered
from tests.corpus.examining import BROKEN, SAME, TYPED, content, examined, put
from tests.corpus.journals import kept_in_file, several
from tests.corpus.test_export_damage import rows_of
from tests.integration.command_line import ROOT, call

MEMORY_BYTES = 1024 * 1024 * 1024


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal file with several sessions."""
    return anyio.run(kept_in_file, tmp_path / "j.db", *several())


@pytest.fixture(scope="module")
def written() -> dict[str, list[Stored]]:
    """What the journal holds."""
    return rows_of(*several())


@pytest.mark.anyio
async def test_a_cut_at_every_page_and_in_between_is_typed(
    journal: Path, written: dict[str, list[Stored]]
) -> None:
    whole = content(journal)
    assert await examined(journal, written) == SAME
    for size in [*range(0, len(whole), PAGE_BYTES), *range(1, len(whole), 101 * ODD_STEP)]:
        put(journal, whole[:size])
        assert await examined(journal, written) in TYPED | {BROKEN}, f"cut to {size} bytes"


async def outcomes_of(
    journal: Path, written: dict[str, list[Stored]], count: int, seed: int
) -> collections.Counter[str]:
    """What scattered damages of a journal come to; each of them is examined."""
    whole, outcomes = content(journal), collections.Counter[str]()
    for number, changed in enumerate(scattered(whole, count, seed)):
        put(journal, changed)
        try:
            outcomes[await examined(journal, written)] += 1
        except Exception as e:
            raise AssertionError(f"damage {number} of seed {seed}: {e!r}") from e
    return outcomes


@pytest.mark.anyio
async def test_scattered_damages_are_found_or_changed_no_row(
    journal: Path, written: dict[str, list[Stored]]
) -> None:
    outcomes = await outcomes_of(journal, written, 80, seed=1)
    assert outcomes["SESSION_STORE_CORRUPT"] + outcomes[BROKEN] + outcomes["NOT_A_JOURNAL"] > 40


@pytest.mark.anyio
async def test_flipped_bits_are_found_or_changed_no_row(
    journal: Path, written: dict[str, list[Stored]]
) -> None:
    whole = content(journal)
    for bit, changed in flips(whole, len(whole) * 8 // 40):
        put(journal, changed)
        assert await examined(journal, written) in TYPED | {BROKEN, SAME}, bit


def test_every_command_has_a_sentence_for_every_damage(journal: Path) -> None:
    whole = content(journal)
    for number, changed in enumerate([*scattered(whole, 18, seed=2), b"", whole[:PAGE_BYTES]]):
        put(journal, changed)
        for name, *rest in (["inspect"], ["verify", "--json"], ["replay", "s-pay"], ["timeline", "s-texts"]):
            told = call(name, journal, *rest)
            assert told.code in (0, 1, 2, 3, 4), (number, name, told.err)
            assert "INTERNAL_ERROR" not in told.err, (number, name, told.err)
        assert content(journal) == changed, "looking changed it"


def test_a_child_with_little_memory_ends_with_a_sentence(tmp_path: Path, journal: Path) -> None:
    """Real processes, each with a limit: no damage makes one grow, hang or show a traceback."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    whole = content(journal)
    for number, changed in enumerate(scattered(whole, 4, seed=3)):
        damaged = tmp_path / f"{number}.db"
        damaged.write_bytes(changed)
        done = subprocess.run(
            [sys.executable, "-m", "recovery", "verify", "--json", str(damaged)],
            cwd=ROOT,
            capture_output=True,
            timeout=60,
            preexec_fn=limited,
            check=False,
        )
        assert done.returncode in (1, 2, 3, 4), done.stderr
        assert b"Traceback" not in done.stderr + done.stdout
