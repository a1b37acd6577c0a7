"""The numbers of the long runs (`make chaos`): told as each test ends, and in a table when all have.

A pytest plugin, loaded by `tests/conftest.py`. The numbers travel with the reports of the tests, so
it makes no difference in which process a test has run. Nothing here runs or judges anything.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast

import pytest

#: The table's columns of numbers. What is lost or doubled is wrong as well, and counted there too.
COLUMNS: Final = ("cases", "killed", "lost", "doubled", "wrong")
_KEY: Final = "numbers"


@dataclass(slots=True)
class Row:
    """What some cases of one kind came to.

    Args:
        what: their kind; the table has one row for each.
        counts: by column. A column that is missing was not looked at.
        seconds: how long they took.
        seeds: what was drawn by lot was drawn with these.
        note: what else there is to say; not in the table.
    """

    what: str
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    seeds: list[int] = field(default_factory=list)
    note: str = ""

    def add(self, other: Row) -> None:
        """Take another one's numbers into this one."""
        for column, count in other.counts.items():
            self.counts[column] = self.counts.get(column, 0) + count
        self.seconds += other.seconds
        self.seeds += other.seeds
        self.note = other.note

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {column}" for column, count in self.counts.items())
        seeds = f"seed {_span(self.seeds)}" if self.seeds else ""
        return "; ".join(filter(None, (f"{self.what}: {counts}", seeds, f"{self.seconds:.0f} s", self.note)))


class Numbers:
    """What one test of a long run came to."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._since = time.monotonic()

    def add(self, what: str, counts: Mapping[str, int], *, seed: int | None = None, note: str = "") -> None:
        """Say what some cases came to. Better before it is asserted: then a failure has its numbers too.

        Args:
            what, counts, seed, note: see `Row`. Their time is what has passed since the last call.
        """
        assert set(counts) <= set(COLUMNS), f"expected some of {COLUMNS}, found {[*counts]}"
        now = time.monotonic()
        row = Row(what, dict(counts), now - self._since, [] if seed is None else [seed], note)
        self._since = now
        known = next((known for known in self.rows if known.what == what), None)
        if known is None:
            self.rows.append(row)
        else:
            known.add(row)


@pytest.fixture
def numbers(request: pytest.FixtureRequest) -> Iterator[Numbers]:
    """Takes what this test comes to."""
    numbers = Numbers()
    yield numbers
    request.node.user_properties += [(_KEY, asdict(row)) for row in numbers.rows]


def share(step: int) -> str:
    """How much of everything it is if every so many cases are tried; to be added to their kind."""
    return "" if step == 1 else f", 1 of {step}"


@pytest.fixture
def every(pytestconfig: pytest.Config) -> int | None:
    """Every how manieth case a long run is asked to try; None: as many as the file thinks fit."""
    asked: int | None = pytestconfig.getoption("--every")
    return asked


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every", type=int, metavar="N", help="long runs that count their cases try every Nth; 1: all"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the processes of a run report to one, and that one tells
        config.pluginmanager.register(_Teller(config))


class _Teller:
    """Writes to the terminal."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._rows = config, list[Row]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell a test's numbers; they come when it is through."""
        terminal: Any = self._config.pluginmanager.getplugin("terminalreporter")
        for row in (Row(**cast(Any, value)) for key, value in report.user_properties if key == _KEY):
            self._rows.append(row)
            terminal.ensure_newline()
            terminal.write_line(f"    {row}")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Tell all of them."""
        if self._rows:
            terminalreporter.section("numbers of the long runs")
            for line in table(self._rows):
                terminalreporter.write_line(line)


def table(rows: Iterable[Row]) -> Iterator[str]:
    """A line for each kind, in alphabetical order; a `-` where nobody looked."""
    sums: dict[str, Row] = {}
    for row in rows:
        sums.setdefault(row.what, Row(row.what)).add(row)
    width = max(map(len, sums), default=0)
    yield " ".join([" " * width, *(f"{column:>8}" for column in (*COLUMNS, "seconds")), " seeds"])
    for what, row in sorted(sums.items()):
        counts = (f"{row.counts[column]:,}" if column in row.counts else "-" for column in COLUMNS)
        cells = (f"{cell:>8}" for cell in (*counts, f"{row.seconds:.0f}"))
        yield " ".join([what.ljust(width), *cells, f" {_span(row.seeds)}"]).rstrip()


def _span(seeds: list[int]) -> str:
    """One seed, or the first and the last."""
    return "-".join(str(seed) for seed in sorted({min(seeds), max(seeds)})) if seeds else ""
