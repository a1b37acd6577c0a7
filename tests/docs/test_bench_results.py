"""The README's table of times and its picture: made from the stored run, nothing typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import PROFILES
from bench.cases import core, peers
from bench.goals import judge, load_goals, to_plain
from bench.picture import picture
from bench.report import PICTURE, README, readme_block, with_block

RESULTS = Path(__file__).parents[2] / "bench" / "results.json"


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def test_the_readme_shows_what_the_run_gives(run: dict[str, Any]) -> None:
    """If not: python -m bench.report --readme bench/results.json"""
    text = README.read_text()
    assert with_block(text, readme_block(run)) == text


def test_the_picture_is_that_of_the_run(run: dict[str, Any]) -> None:
    assert PICTURE.read_text() == picture(run)


def test_the_run_is_whole(run: dict[str, Any]) -> None:
    assert (run["suite"], run["failed"]) == ("all", {})
    profile = PROFILES[run["profile"]]
    wanted = {case.id for case in (*core(profile), *peers(profile))}
    assert wanted - set(run["samples"]) - set(run["skipped"]) == set()
    assert run["fsyncs"] == "counted with strace"


def test_the_run_is_judged_by_today_s_goals(run: dict[str, Any]) -> None:
    again = [to_plain(judged) for judged in judge(load_goals(), run["samples"])]
    assert run["goals"] == json.loads(json.dumps(again))
