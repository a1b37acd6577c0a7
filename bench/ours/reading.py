"""R1, R2, P1, P3: getting a session back, its plan, all of its events, and a look from the shell."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import minutebook as mb
from adapters.sqlite_driver import sqlite
from adapters.sqlite_reader import open_reader
from bench.conversations import Place, collected
from bench.journals import SESSION
from bench.measure import Watch, resident_kib
from bench.ours.talking import OfflineProvider, config
from bench.workload import Metrics
from projections import transcript
from projections.projector import Folding, project
from projections.transcript import Transcript
from recovery.pages import PAGE
from recovery.plan import plan_of
from recovery.reading import load
from recovery.replaying import Replay
from recovery.verify import Result, verify

ROOT: Final = Path(__file__).parents[2]
TIMES: Final = 20


def resume(place: Place, *, journal: str) -> Metrics:
    """Milliseconds until a stored session stands ready for its next request, its messages read."""
    return asyncio.run(_resume(place, journal))


async def _resume(place: Place, journal: str) -> Metrics:
    file = place.directory / "journal.db"
    shutil.copyfile(place.journals[journal], file)
    await _resumed(file)  # once for the imports
    with collected(), Watch() as watch:
        messages = await _resumed(file)
    return {"ms": watch.wall_s * 1e3, "messages": messages}


async def _resumed(file: Path) -> int:
    async with mb.resume_session(SESSION, config(OfflineProvider()), store=mb.sqlite(file)) as session:
        return sum(1 + len(getattr(item, "calls", ())) for item in session.messages)


def plan(place: Place, *, journal: str) -> Metrics:
    """Milliseconds from nothing open to the recovery plan, and what reading as much takes at least."""
    return asyncio.run(_plan(place.journals[journal]))


async def _plan(file: str) -> Metrics:
    sequence = await _planned(file)
    with Watch() as ours:
        for _ in range(TIMES):
            await _planned(file)
    with Watch() as raw:
        for _ in range(TIMES):
            _raw_tail(file, sequence)
    return {"ms": ours.wall_s / TIMES * 1e3, "raw_ms": raw.wall_s / TIMES * 1e3}


async def _planned(file: str) -> int:
    async with open_reader(file) as reader:
        loaded = await load(reader, SESSION)
        plan_of(loaded, journal=file)
        return loaded.snapshot_sequence


def _raw_tail(file: str, after: int) -> None:
    """A snapshot's row and the rows after it, by a bare driver."""
    connection = sqlite.connect(f"file:{file}?mode=ro", uri=True)
    asked = (SESSION, after)
    connection.execute(
        "SELECT state FROM minutebook_snapshots WHERE session_id = ? AND sequence = ?", asked
    ).fetchone()
    connection.execute(
        "SELECT state, payload FROM minutebook_events WHERE originator_id = ? AND originator_version > ?",
        asked,
    ).fetchall()
    connection.close()


def replay(place: Place, *, journal: str) -> Metrics:
    """Events in a second over one whole session: one read model, all, the chain, chain and rules."""
    return asyncio.run(_replay(place.journals[journal]))


async def _replay(file: str) -> Metrics:
    found: Metrics = {}
    for name, foldings in (
        ("one", [Folding(transcript.TYPES, Transcript())]),
        ("all", Replay(SESSION).foldings),
    ):
        found[f"{name}_per_s"] = await _folded(file, foldings)
    before = resident_kib()
    for name, rules in (("chain", False), ("verified", True)):
        async with open_reader(file) as reader:
            start = time.perf_counter()
            proof = await verify(reader, SESSION, rules=rules)
            found[f"{name}_per_s"] = proof.events / (time.perf_counter() - start)
        if proof.result is not Result.CONSISTENT:
            raise AssertionError(f"expected a consistent journal, got {proof.problems}")
    return {**found, "verify_growth_mib": (resident_kib() - before) / 1024, "events": proof.events}


async def _folded(file: str, foldings: Sequence[Folding]) -> float:
    async with open_reader(file) as reader:
        start, after = time.perf_counter(), 0
        while rows := await reader.read(SESSION, after=after, limit=PAGE):
            project(foldings, rows)
            after = rows[-1].sequence
        return after / (time.perf_counter() - start)


def inspect(place: Place, *, journal: str) -> Metrics:
    """Milliseconds of `python -m recovery inspect` from a cold start, and of its imports alone."""
    imports = "import adapters.sqlite_reader, recovery.looking, recovery.report, recovery.terminal"
    return {
        "ms": _process_ms("-m", "recovery", "inspect", place.journals[journal], SESSION),
        "imports_ms": _process_ms("-c", imports),
        "bare_ms": _process_ms("-c", "pass"),
    }


def importing(place: Place) -> Metrics:
    """Milliseconds and modules of `import minutebook`, beside those of `import pydantic`."""
    bare = _process_ms("-c", "pass")
    return {
        "ms": _process_ms("-c", "import minutebook") - bare,
        "pydantic_ms": _process_ms("-c", "import pydantic") - bare,
        "modules": _modules("minutebook"),
        "pydantic_modules": _modules("pydantic"),
    }


def _process_ms(*arguments: str) -> float:
    with Watch() as watch:
        subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, timeout=120, check=False)
    return watch.wall_s * 1e3


def _modules(name: str) -> int:
    code = f"import sys; before = len(sys.modules); import {name}; print(len(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=120, check=True
    )
    with suppress(ValueError):
        return int(done.stdout)
    raise AssertionError(f"expected a number, got {done.stdout!r}")
