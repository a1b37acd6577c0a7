"""The command: run a suite, show the progress, print the report, judge the goals."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bench import goals as judging
from bench.cases import FULL, QUICK, TINY, Case, Profile, core, interpreters, peers
from bench.report import comparison, report
from bench.runner import Run, running

OK, MISSED, FAILED = 0, 1, 2
PROFILES = {"quick": QUICK, "full": FULL, "tiny": TINY}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it. 0: every hard goal is met; 1: one is missed; 2: a case failed."""
    options = _parser().parse_args(arguments)
    profile = _profile(options)
    chosen = _chosen(options, profile)
    _tell(f"{len(chosen)} cases, {profile.rounds} rounds, one process for each; profile {options.profile}")
    start = time.monotonic()
    with running(interpreters(), _tell) as runner:
        runner.make(_needed(profile, chosen))
        runner.measure(chosen, profile.rounds)
    runner.run.wall_s = time.monotonic() - start
    found = document(runner.run, options.suite, options.profile, profile.rounds, chosen)
    print(report(found))
    if options.out is not None:
        options.out.write_text(as_text(found))
    if options.compare is not None:
        print("## Compared with the other run (ratios only)\n")
        print(comparison(json.loads(options.compare.read_text()), found))
    print(f"done in {runner.run.wall_s:.1f} s")
    return exit_code(found)


def document(run: Run, suite: str, profile: str, rounds: int, cases: Sequence[Case]) -> dict[str, Any]:
    """A run with its verdicts, as it is written to a file."""
    judged = judging.judge(judging.load_goals(), run.samples)
    return run.to_plain(suite, profile, rounds, cases) | {"goals": [judging.to_plain(j) for j in judged]}


def as_text(found: dict[str, Any]) -> str:
    """A run as JSON, one line for each of its parts."""
    lines = [f"{json.dumps(name)}: {json.dumps(part)}" for name, part in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def exit_code(found: dict[str, Any]) -> int:
    """A case that failed is worse than a goal that was missed; a soft goal never fails a run."""
    if found["failed"]:
        return FAILED
    missed = [g for g in found["goals"] if g["kind"] == "hard" and g["verdict"] == judging.Verdict.MISSED]
    return MISSED if missed else OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--suite", choices=("core", "peers", "all"), default="core")
    parser.add_argument(
        "--quick",
        dest="profile",
        action="store_const",
        const="quick",
        help="a minute and a half, small sizes",
    )
    parser.add_argument("--profile", choices=sorted(PROFILES), help="sizes; default: full")
    parser.add_argument("--rounds", type=int, help="in place of the profile's number")
    parser.add_argument("--only", default="*", help="only cases with these ids (patterns, with commas)")
    parser.add_argument("--out", type=Path, help="write the run as JSON")
    parser.add_argument("--compare", type=Path, help="an earlier run's JSON: what became of the ratios")
    parser.set_defaults(profile="full")
    return parser


def _profile(options: argparse.Namespace) -> Profile:
    profile = PROFILES[options.profile]
    return replace(profile, rounds=options.rounds) if options.rounds else profile


def _chosen(options: argparse.Namespace, profile: Profile) -> list[Case]:
    """The peers' suite has the floor and ours in it, so that every ratio is inside one run."""
    shared = ("t1_", "t2_", "r1_") if options.suite == "peers" else ("",)
    chosen = [case for case in core(profile) if case.id.startswith(shared)]
    if options.suite != "core":
        chosen += peers(profile)
    wanted = options.only.split(",")
    return [case for case in chosen if any(fnmatchcase(case.id, each) for each in wanted)]


def _needed(profile: Profile, chosen: Sequence[Case]) -> list[Any]:
    """The journals that the chosen cases read."""
    named = [value for case in chosen for value in _journals_of(case)]
    return [journal for journal in profile.journals if journal.name in named]


def _journals_of(case: Case) -> list[str]:
    arguments = case.arguments
    return [*arguments.get("journals", ()), *([arguments["journal"]] if "journal" in arguments else ())]


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
