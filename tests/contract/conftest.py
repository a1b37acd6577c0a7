"""Contract suites live in the package; their assertions explain themselves here too.

Asked for alone (`pytest tests/contract`), the run ends with a table: a row for each test of the
contract, a column for each store that was held against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

pytest.register_assert_rewrite(
    "minutebook.testing.cancellation_contract",
    "minutebook.testing.clock_contract",
    "minutebook.testing.commit_contract",
    "minutebook.testing.durable_contract",
    "minutebook.testing.handle_contract",
    "minutebook.testing.hostile_contract",
    "minutebook.testing.lease_contract",
    "minutebook.testing.read_contract",
    "minutebook.testing.subscription_contract",
)

#: What a store's suite is called at the head of its column, in the table's order.
COLUMNS = {
    "TestMemoryStore": "memory",
    "TestSqliteStore": "SQLite",
    "TestSqliteStoreWithoutWal": "SQLite, no WAL",
    "TestPostgresStore": "PostgreSQL",
}
#: By contract test, by column: how many of its cases ended how.
RESULTS = pytest.StashKey[dict[str, dict[str, Counter[str]]]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    column = COLUMNS.get(getattr(getattr(item, "cls", None), "__name__", ""))
    if column is not None and (report.when == "call" or not report.passed):
        _count(item, column, report.outcome)
    return report


def _count(item: Any, column: str, outcome: str) -> None:
    row = item.config.stash.setdefault(RESULTS, {}).setdefault(item.originalname, {})
    row.setdefault(column, Counter())[outcome] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash.get(RESULTS, {})
    if rows and all("tests/contract" in argument for argument in config.args):
        terminalreporter.section("stores and their contract")
        for line in _table(rows):
            terminalreporter.write_line(line)


def _table(rows: dict[str, dict[str, Counter[str]]]) -> list[str]:
    columns = [name for name in COLUMNS.values() if any(name in row for row in rows.values())]
    width = max(len(_words(name)) for name in rows)
    lines = [f"{'cases passed':<{width}}  " + "  ".join(f"{name:>14}" for name in columns)]
    for name in rows:
        cells = "  ".join(f"{_cell(rows[name].get(column)):>14}" for column in columns)
        lines.append(f"{_words(name):<{width}}  {cells}")
    totals = {
        column: sum((row.get(column, Counter()) for row in rows.values()), Counter()) for column in columns
    }
    lines.append(f"{f'{len(rows)} rules':<{width}}  " + "  ".join(f"{_cell(totals[c]):>14}" for c in columns))
    return lines


def _cell(outcomes: Counter[str] | None) -> str:
    if not outcomes:
        return "-"
    passed, count = outcomes["passed"], outcomes.total()
    return str(passed) if passed == count else f"FAILED {count - passed}/{count}"


def _words(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ")
