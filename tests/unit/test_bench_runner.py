"""How the benchmark runs its cases: in turn, in processes of their own, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import child, fsyncs
from bench.cases import FULL, QUICK, Case, Journal, core, described, interpreters, peers
from bench.conversations import Place
from bench.fake_model import answer_to
from bench.measure import curve, percentile
from bench.runner import Run, Runner, schedule
from bench.workload import Metrics

MISSING = {"system": "bench_peer_that_is_missing:System", "mode": "x", "requests": 1}


def quick(place: Place) -> Metrics:
    """A case for these tests."""
    return {"ms": 1.23456789, "journal": "none", "curve": [[1.0, 2.00004]]}


def broken(place: Place) -> Metrics:
    """Another one."""
    raise OSError("the disk is gone")


def runner(directory: Path, lines: list[str]) -> Runner:
    return Runner(directory, "http://127.0.0.1:9", {"nobody": directory / "no-python"}, lines.append)


def order(case: Case) -> dict[str, object]:
    told = {"program": case.program, "arguments": case.arguments, "optional": case.optional}
    return {**told, "directory": ".", "url": "", "journals": {}}


# --- the order ----------------------------------------------------------------------------------


def test_rounds_are_interleaved_and_odd_ones_run_backwards() -> None:
    cases = [Case("a", "", ""), Case("b", "", "", once=True), Case("c", "", "")]
    ran = [(number, case.id) for number, case in schedule(cases, 3)]
    assert ran == [(0, "a"), (0, "b"), (0, "c"), (1, "c"), (1, "a"), (2, "a"), (2, "c")]


@pytest.mark.parametrize("profile", [QUICK, FULL], ids=["quick", "full"])
def test_case_ids_are_names_and_appear_once(profile: object) -> None:
    names = [case.id for case in (*core(FULL), *peers(FULL))]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


# --- what cannot be run ---------------------------------------------------------------------------


def test_a_peer_that_cannot_be_imported_is_skipped() -> None:
    case = Case("t1_x", "", "bench.conversations:talk", MISSING, optional=True)
    assert child.run(order(case)) == child.SKIPPED + "No module named 'bench_peer_that_is_missing'"


def test_what_is_ours_has_to_be_importable() -> None:
    case = Case("t1_x", "", "bench.conversations:talk", MISSING)
    with pytest.raises(ImportError):
        child.run(order(case))


def test_a_missing_environment_skips_its_peer(tmp_path: Path) -> None:
    lines: list[str] = []
    case = Case("t1_x", "T1 nobody", "x:y", interpreter="nobody", optional=True)
    runs = runner(tmp_path, lines)
    runs.measure([case], 2)
    assert runs.run.skipped == {"t1_x": "no environment 'nobody'; make it with: make bench-peers"}
    assert (runs.run.failed, runs.run.samples) == ({}, {})
    assert "[1/2] round 1/2  T1 nobody" in lines[0]


def test_every_peer_names_an_environment_that_the_makefile_makes() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    for peer in described()["peers"].values():
        assert f"{interpreters()[peer['interpreter']].parents[1].name}/.complete" in makefile


def test_a_case_that_fails_in_any_round_has_no_figures(tmp_path: Path) -> None:
    case = Case("x", "", "tests.unit.test_bench_runner:broken")
    runs = runner(tmp_path, [])
    runs.run.add(case, {"ms": 1.0, "journal": "none", "curve": [[1.0, 1.0]]})  # an earlier round
    runs.measure([case], 1)
    assert runs.run.failed == {"x": "OSError: the disk is gone"}
    assert (runs.run.samples, runs.run.facts, runs.run.curves) == ({}, {}, {})


def test_a_journal_that_cannot_be_made_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "x.db").mkdir()
    with pytest.raises(RuntimeError, match="the journal x was not made"):
        runner(tmp_path, []).make([Journal("x", 1)])


# --- figures --------------------------------------------------------------------------------------


def test_figures_come_back_from_a_process_of_its_own(tmp_path: Path) -> None:
    lines: list[str] = []
    runs = runner(tmp_path, lines)
    runs.measure([Case("x", "a case", "tests.unit.test_bench_runner:quick")], 2)
    assert runs.run.samples == {"x": {"ms": [1.235, 1.235]}}
    assert runs.run.facts == {"x": {"journal": "none"}}
    assert runs.run.to_plain("core", "tiny", 2, [])["curves"] == {"x": [[1.0, 2.0]]}
    assert len(lines) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_figure_that_was_not_taken_is_no_figure() -> None:
    run = Run()
    run.add(Case("x", "", ""), {"written_kib": None, "ms": 1.0})
    assert run.samples == {"x": {"ms": [1.0]}}


def test_curves_and_percentiles() -> None:
    assert curve([5.0, 1.0, 3.0, 9.0], points=2) == [[1.5, 3.0], [3.5, 6.0]]
    assert curve([4.0]) == [[1.0, 4.0]]
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0


def test_waits_for_the_disk_are_read_from_a_report_of_strace() -> None:
    report = (
        "% time     seconds  usecs/call     calls    errors syscall\n"
        "------ ----------- ----------- --------- --------- ----------------\n"
        " 75.00    0.003317          27       119           fsync\n"
        " 25.00    0.001000          27        10         2 fdatasync\n"
        "------ ----------- ----------- --------- --------- ----------------\n"
        "100.00    0.003317          27       129         2 total\n"
    )
    assert fsyncs.counted(report) == 129
    assert fsyncs.counted("") == 0
    assert fsyncs.per_request(lambda requests: 7 + 5 * requests) == 5


# --- the fake model -------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [0, 1000])
def test_the_fake_model_looks_at_the_last_role_only(history: int) -> None:
    before = b'{"role": "tool", "content": "x"},{"role":"assistant","content":"y"},' * history
    asked = b'{"model":"fake-2-3","messages":[%b{"role":"user","content":"hi"}]}' % before
    told = b'{"model":"fake-2-3","messages":[%b{"role":"tool","content":"r"}],"stream":true}' % before
    assert answer_to(asked, 7).count(b'"name":"look_up"') == 2
    assert b"call-fake-id-00000007-1" in answer_to(asked, 7)
    assert answer_to(told, 8).count(b"of the answer") == 3
    assert answer_to(told, 8).endswith(b"data: [DONE]\n\n")


def test_a_model_without_tools_answers_at_once() -> None:
    assert b"piece 00" in answer_to(b'{"model":"fake-0-1","messages":[{"role":"user"}]}', 1)
