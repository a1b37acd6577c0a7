"""Running the cases: one process for each case and round, interleaved, in turn.

Every round runs all cases, odd rounds from the last to the first, so that a
machine that gets slower does so for everybody. Progress is told as it goes.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from bench import fsyncs
from bench.cases import ROOT, Case, Journal
from bench.child import RESULT, SKIPPED

TIMEOUT_S: Final = 900
FORMAT: Final = "minutebook.bench/1"

#: Children get this and nothing else: no keys, no proxies, no telemetry.
ENVIRONMENT: Final = {
    "PATH": os.defpath,
    "LANG": "C.UTF-8",
    "OTEL_SDK_DISABLED": "true",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}

#: Told of each step: a line to show.
Tell = Callable[[str], None]


@dataclass(slots=True)
class Run:
    """What a run brought.

    samples: case -> figure -> one value for each round. facts: case -> texts.
    curves: case -> (position, ms) pairs, the median over the rounds.
    """

    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    curves: dict[str, list[list[list[float]]]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    wall_s: float = 0.0

    def add(self, case: Case, figures: dict[str, Any]) -> None:
        """Keep the figures of one round of a case."""
        for name, value in figures.items():
            match value:
                case int() | float():
                    self.samples.setdefault(case.id, {}).setdefault(name, []).append(value)
                case str():
                    self.facts.setdefault(case.id, {})[name] = value
                case list():
                    self.curves.setdefault(case.id, []).append(value)

    def forget(self, case: Case) -> None:
        """Drop the figures of a case that did not get through every round."""
        for kept in (self.samples, self.facts, self.curves):
            kept.pop(case.id, None)

    def to_plain(self, suite: str, profile: str, rounds: int, cases: Sequence[Case]) -> dict[str, Any]:
        """As a document of plain values, without the verdicts."""
        return {
            "format": FORMAT,
            "suite": suite,
            "profile": profile,
            "rounds": rounds,
            "wall_s": round(self.wall_s, 1),
            "machine": machine(),
            "fsyncs": "counted with strace" if fsyncs.can_count() else "not counted: there is no strace",
            "titles": {case.id: case.title for case in cases},
            "requests": {c.id: c.arguments["requests"] for c in cases if "requests" in c.arguments},
            "samples": self.samples,
            "facts": self.facts,
            "curves": {case: _median_curve(curves) for case, curves in self.curves.items()},
            "skipped": self.skipped,
            "failed": self.failed,
        }


def machine() -> dict[str, Any]:
    """What it ran on, without names."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
    }


def _median_curve(curves: list[list[list[float]]]) -> list[list[float]]:
    points = zip(*curves, strict=True)
    return [[each[0][0], float(f"{statistics.median(y for _, y in each):.4g}")] for each in points]


class Runner:
    """Runs cases; made by `running`.

    Args:
        directory: for everything that is written, gone with the run.
        url: of the fake model.
        interpreters: of the peers, by name.
    """

    def __init__(self, directory: Path, url: str, interpreters: dict[str, Path], tell: Tell) -> None:
        self._directory, self._url, self._tell = directory, url, tell
        self._interpreters = interpreters
        self._journals: dict[str, str] = {}
        self.run = Run()

    def make(self, journals: Sequence[Journal]) -> None:
        """Make the journals that the cases read."""
        for journal in journals:
            arguments = {
                "name": f"{journal.name}.db",
                "requests": journal.requests,
                "copies": journal.copies,
                "left_open": journal.left_open,
            }
            case = Case(f"make_{journal.name}", "", "bench.journals:make", arguments)
            start = time.monotonic()
            self._tell(f"  making the {journal.name} journal ...")
            figures = self._child(case, self._directory, arguments)
            if figures is None:
                raise RuntimeError(f"the journal {journal.name} was not made: {self.run.failed[case.id]}")
            self._journals[journal.name] = figures["file"]
            self._tell(
                f"  made the {journal.name} journal: {figures['events']} events, "
                f"{time.monotonic() - start:.1f} s"
            )

    def measure(self, cases: Sequence[Case], rounds: int) -> None:
        """Run every case in every round."""
        plan = list(schedule(cases, rounds))
        for done, (number, case) in enumerate(plan, 1):
            if case.id in self.run.skipped or case.id in self.run.failed:
                continue
            start = time.monotonic()
            self._measure(case, number)
            state = self.run.skipped.get(case.id) or self.run.failed.get(case.id) or self._latest(case)
            took = time.monotonic() - start
            self._tell(
                f"[{done}/{len(plan)}] round {number + 1}/{rounds}  {case.title:32s} {state}  ({took:.1f} s)"
            )

    def _latest(self, case: Case) -> str:
        figures = self.run.samples.get(case.id, {})
        name = next(
            (n for n in ("ms", "per_s", "port_3_us", "one_per_s") if n in figures), next(iter(figures))
        )
        return f"{name} {figures[name][-1]:g}"

    def _measure(self, case: Case, number: int) -> None:
        if case.interpreter and not self._python(case).exists():
            self.run.skipped[case.id] = f"no environment {case.interpreter!r}; make it with: make bench-peers"
            return
        figures = self._child(case, None, case.arguments)
        if figures is None:
            self.run.forget(case)
            return
        self.run.add(case, figures)
        if case.counts_fsyncs and number == 0 and fsyncs.can_count():
            self._count_fsyncs(case)

    def _count_fsyncs(self, case: Case) -> None:
        report = self._directory / "strace.txt"

        def waits(requests: int) -> int:
            report.unlink(missing_ok=True)
            self._child(case, None, {**case.arguments, "requests": requests}, fsyncs.prefix(report))
            return fsyncs.counted(report.read_text())

        try:
            self.run.add(case, {"fsyncs": fsyncs.per_request(waits)})
        except OSError as e:
            self._tell(f"  fsyncs of {case.id} were not counted: {e}")

    def _child(
        self, case: Case, directory: Path | None, arguments: dict[str, Any], before: Sequence[str] = ()
    ) -> dict[str, Any] | None:
        with _own_directory(self._directory, directory) as place:
            order = {
                "program": case.program,
                "arguments": arguments,
                "directory": str(place),
                "url": self._url,
                "journals": self._journals,
                "optional": case.optional,
            }
            command = [*before, str(self._python(case)), "-m", "bench.child", json.dumps(order)]
            return self._outcome(case, command, place)

    def _outcome(self, case: Case, command: list[str], home: Path) -> dict[str, Any] | None:
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**ENVIRONMENT, "HOME": str(home)},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.run.failed[case.id] = f"not done after {TIMEOUT_S} s"
            return None
        for line in reversed(done.stdout.splitlines()):
            if line.startswith(RESULT):
                found: dict[str, Any] = json.loads(line.removeprefix(RESULT))
                return found
            if line.startswith(SKIPPED):
                self.run.skipped[case.id] = line.removeprefix(SKIPPED)
                return None
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        self.run.failed[case.id] = last[0]
        return None

    def _python(self, case: Case) -> Path:
        return self._interpreters[case.interpreter] if case.interpreter else Path(sys.executable)


def schedule(cases: Sequence[Case], rounds: int) -> Iterator[tuple[int, Case]]:
    """(round, case) in the order in which they run."""
    for number in range(rounds):
        ordered = cases if number % 2 == 0 else list(reversed(cases))
        yield from ((number, case) for case in ordered if number == 0 or not case.once)


@contextmanager
def _own_directory(parent: Path, given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    made = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def running(interpreters: dict[str, Path], tell: Tell) -> Iterator[Runner]:
    """A runner with its fake model, both gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory, _fake_model() as url:
        yield Runner(Path(directory), url, interpreters, tell)


@contextmanager
def _fake_model() -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.fake_model"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    output: IO[str] | None = server.stdout
    assert server.stdin is not None
    assert output is not None
    try:
        yield f"http://127.0.0.1:{int(output.readline())}"
    finally:
        server.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            server.wait(10)
        server.kill()
        output.close()
        server.wait()
