"""The table of the long runs: what is summed, and what was not looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.long_runs import Numbers, Row, share, table

LONG_RUN = """
import pytest

@pytest.mark.parametrize("seed", [1, 2])
def test_it(numbers, every, seed):
    numbers.add(f"cuts, every {every}", {"cases": 30, "lost": seed - 1}, seed=seed, note="in the middle")
    assert seed == 1
"""


def lines(*rows: Row) -> list[list[str]]:
    """The table's words."""
    return [line.split() for line in table(rows)]


def test_rows_of_one_kind_are_summed_over_all_tests() -> None:
    one = Row("cuts", {"cases": 600, "lost": 1}, 2.0, [3], "here")
    other = Row("cuts", {"cases": 400, "lost": 0}, 3.0, [1], "there")
    assert lines(one, other)[1:] == [["cuts", "1,000", "-", "1", "-", "-", "5", "1-3"]]


def test_what_nobody_looked_at_is_no_zero() -> None:
    assert lines(Row("looked", {"doubled": 0}), Row("asleep"))[1:] == [
        ["asleep", "-", "-", "-", "-", "-", "0"],
        ["looked", "-", "-", "-", "0", "-", "0"],
    ]


def test_a_test_has_one_row_for_each_kind() -> None:
    numbers = Numbers()
    for seed in (7, 8):
        numbers.add("cuts", {"cases": 1_000}, seed=seed, note=f"after {seed}")
    numbers.add("kills", {"killed": 2})
    assert [row.what for row in numbers.rows] == ["cuts", "kills"]
    assert str(numbers.rows[0]) == "cuts: 2,000 cases; seed 7-8; 0 s; after 8"


def test_a_number_without_a_column_is_refused() -> None:
    with pytest.raises(AssertionError, match="broken"):
        Numbers().add("cuts", {"broken": 1})


def test_part_of_everything_is_called_so() -> None:
    assert [share(1), share(8)] == ["", ", 1 of 8"]


def test_numbers_come_from_every_process_and_from_failed_tests_too(tmp_path: Path) -> None:
    (tmp_path / "every_cut.py").write_text(LONG_RUN)
    settings = tmp_path / "settings.ini"
    settings.write_text("[pytest]\npython_files = every_*.py\naddopts = -p tests.long_runs -n 2\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", str(settings), "--every", "4", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "cuts, every 4: 30 cases, 1 lost; seed 2; 0 s; in the middle" in done.stdout
    summed = [line.split() for line in done.stdout.splitlines() if line.startswith("cuts, every 4  ")]
    assert summed == [["cuts,", "every", "4", "60", "-", "1", "-", "-", "0", "1-2"]]
