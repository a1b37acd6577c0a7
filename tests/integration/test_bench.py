"""The benchmark's command, with the smallest sizes: it runs, tells its progress and judges."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_tiny_run_measures_judges_and_writes_its_json(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    only = "disk,c1,t1_floor_memory,t2_ours_4,count_1,r1_short"
    command = [sys.executable, "-m", "bench", "--profile", "tiny", "--only", only, "--out", str(out)]
    done = subprocess.run(
        [*command, "--rounds", "1"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = json.loads(out.read_text())
    assert (run["failed"], run["skipped"]) == ({}, {})
    assert set(run["samples"]) == set(only.split(","))
    verdicts = {goal["id"]: goal["verdict"] for goal in run["goals"]}
    assert verdicts["G-D1"] == "met"
    assert verdicts["G-C1"] == "noisy"  # one round cannot be quiet
    assert verdicts["G-T1"] == "not measured"
    assert "[6/6] round 1/1" in done.stderr
    assert "| G-D1 | hard |" in done.stdout
    assert f"done in {run['wall_s']:.1f} s" in done.stdout
