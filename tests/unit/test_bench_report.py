"""The benchmark's report, from runs made by hand: what was missed, left out or failed is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import report as reporting
from bench.__main__ import FAILED, MISSED, OK, document, exit_code
from bench.cases import Case
from bench.picture import picture
from bench.runner import Run

CASES = [
    Case("t1_floor", "T1 floor", ""),
    Case("t1_ours", "T1 ours as shipped", "", {"requests": 30}),
    Case("t1_ours_memory", "T1 ours, memory", ""),
    Case("t1_langgraph", "T1 LangGraph", ""),
    Case("count_1", "counts", ""),
    Case("growth_ours", "growth ours", "", {"requests": 100}),
]


def figures(ms: float, journal: str = "SQLite WAL, FULL") -> dict[str, Any]:
    return {"ms": ms, "cpu_ms": ms, "first_ms": ms, "last_ms": ms, "peak_mib": 50.0, "journal": journal}


def a_run(commits: int = 5, ours: float = 6.0) -> dict[str, Any]:
    """A document of three quiet rounds."""
    run = Run()
    for _ in range(3):
        run.add(CASES[0], figures(3.0))
        run.add(CASES[1], {**figures(ours), "fsyncs": 5})
        run.add(CASES[2], figures(5.0, "none"))
        run.add(CASES[5], {"ms": 7.0, "curve": [[1, 6.0], [50, 7.0], [100, 8.5]]})
    run.add(CASES[4], {"commits": commits})
    return document(run, "peers", "full", 3, CASES)


def line(text: str, beginning: str) -> str:
    (found,) = [each for each in text.splitlines() if each.startswith(beginning)]
    return found


def test_a_missed_goal_is_printed_as_missed() -> None:
    text = reporting.report(a_run(ours=6.01))
    assert "**MISSED**" in line(text, "| G-T1 |")
    assert "| met |" in line(reporting.report(a_run(ours=6.0)), "| G-T1 |")


def test_what_was_not_measured_says_so_and_why() -> None:
    text = reporting.report(a_run())
    assert "not measured: no figure c1.port_3_us in this run" in line(text, "| G-C1 |")
    assert "not measured: no figure postgres.round_trips in this run" in line(text, "| G-D4 |")


def test_only_a_hard_goal_or_a_failed_case_fails_a_run() -> None:
    assert exit_code(a_run(ours=99.0)) == OK
    assert exit_code(a_run(commits=6)) == MISSED
    failed = a_run(commits=6)
    failed["failed"] = {"c1": "OSError"}
    assert exit_code(failed) == FAILED


def test_a_noisy_run_says_so_at_the_top() -> None:
    found = a_run()
    found["samples"]["t1_floor"]["ms"] = [3.0, 5.0, 3.0]
    assert "noisy: timed goals are not judged" in reporting.report(found)
    assert "noisy" not in reporting.report(a_run()).split("## ")[0]


def test_what_was_left_out_and_what_failed_is_listed() -> None:
    found = a_run()
    found["skipped"] = {"t1_langgraph": "No module named 'langgraph'"}
    found["failed"] = {"count_1": "AssertionError: expected an answer"}
    text = reporting.report(found)
    assert "- T1 LangGraph: skipped: No module named 'langgraph'" in text
    assert "- counts: FAILED: AssertionError: expected an answer" in text


def test_the_journal_mode_and_the_waits_stand_beside_the_time() -> None:
    row = line(reporting.report(a_run()), "| ours as shipped |")
    assert row.split(" | ")[1:3] == ["SQLite WAL, FULL", "6 [6..6]"]
    assert " | 5 | " in row


def test_a_comparison_is_of_ratios_only() -> None:
    before, now = a_run(ours=6.0), a_run(ours=9.0)
    for case in now["samples"].values():  # a machine that is half as quick
        case.update({name: [2 * value for value in case[name]] for name in ("ms",) if name in case})
    text = reporting.comparison(before, now)
    assert line(text, "| G-T1 |") == "| G-T1 | 2 | 3 | +50 % | <= 2 |"
    del now["samples"]["t1_ours"]
    now["goals"] = [{**goal, "value": None} for goal in now["goals"]]
    assert reporting.comparison(before, now) == ""
    assert "ms" not in text


# --- the README and the picture -----------------------------------------------------------------


def test_the_table_holds_what_keeps_the_conversation_and_what_keeping_costs() -> None:
    block = reporting.readme_block(a_run())
    assert line(block, "| ours as shipped |").split(" | ") == [
        "| ours as shipped", "6 [6..6]", "8.5", "1", "5", "-", "SQLite WAL, FULL |",
    ]  # fmt: skip
    assert "memory" not in block


def test_a_cost_below_nothing_is_noise_and_no_figure() -> None:
    run = a_run()
    run["samples"]["t1_ours"]["cpu_ms"] = [0.5]
    assert line(reporting.readme_block(run), "| ours as shipped |").split(" | ")[3] == "in the noise"


def test_who_is_best_at_something_is_named_whoever_it_is() -> None:
    run = a_run()
    case, title = "t1_openai_agents", "T1 openai-agents"
    run["titles"][case], run["facts"][case] = title, {"journal": "SQLite WAL, FULL"}
    run["samples"][case] = {"ms": [9.0], "fsyncs": [3.0], "peak_mib": [99.0]}
    block = reporting.readme_block(run)
    assert "Fewest waits for the disk: openai-agents, 3; minutebook 5." in block
    assert "Least memory: ours as shipped, 50 MiB." in block


def test_a_noisy_run_s_table_says_so() -> None:
    found = a_run()
    assert reporting.NOISY not in reporting.readme_block(found)
    found["samples"]["t1_floor"]["ms"] = [3.0, 5.0, 3.0]
    assert reporting.NOISY in reporting.readme_block(found)


def test_only_the_part_between_the_markers_is_replaced() -> None:
    text = f"before\n{reporting.BEGIN}\nold\n{reporting.END}\nafter\n"
    block = f"{reporting.BEGIN}\nnew\n{reporting.END}"
    assert reporting.with_block(text, block) == f"before\n{block}\nafter\n"


@pytest.mark.parametrize(
    "broken",
    [
        lambda begin, end: "no markers",
        lambda begin, end: f"{begin} only",
        lambda begin, end: f"{end} {begin}",
        lambda begin, end: f"{begin} {begin} {end}",
        lambda begin, end: f"{begin} {end} {end}",
    ],
    ids=["none", "begin only", "other order", "begin twice", "end twice"],
)
def test_other_markers_are_refused(broken: Callable[[str, str], str]) -> None:
    with pytest.raises(ValueError, match="expected one part between"):
        reporting.with_block(broken(reporting.BEGIN, reporting.END), "new")


def test_the_picture_is_an_svg_with_a_named_line_for_each_system() -> None:
    root = ElementTree.fromstring(picture(a_run()))
    names = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "minutebook" in names
    assert "LangGraph" not in names
    (drawn,) = root.iter("{http://www.w3.org/2000/svg}polyline")
    places = [tuple(map(float, place.split(","))) for place in drawn.attrib["points"].split()]
    assert places == sorted(places)
    assert places[0][1] > places[-1][1]  # 6 ms lies below 8.5 ms


def test_a_run_without_long_sessions_has_an_empty_picture() -> None:
    found = {**a_run(), "curves": {}}
    assert "polyline" not in picture(found)
