"""The command `minutebook`: everything that `python -m recovery` does, and `doctor` and `demo`.

Nothing is decided here: looking and deciding are `recovery.cli`'s, examining is
`minutebook.doctor`'s, showing off is `minutebook.demo`'s. Each is loaded when used.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

_MORE: Final = (
    "also: doctor [JOURNAL] examines the installation and a journal file; demo shows a crash and a resume"
)


def main(arguments: Sequence[str] | None = None, prog: str = "minutebook") -> int:
    """Carry out one command line; None: the process's own arguments. Returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    match given[:1]:
        case ["demo"]:
            return _demo(given[1:])
        case ["doctor"]:
            return _doctor(given[1:])
    from recovery.cli import main as look_or_decide

    return look_or_decide(given, prog=prog, more=_MORE)


def _demo(arguments: list[str]) -> int:
    try:
        from minutebook.demo import main as show
    except ModuleNotFoundError as e:
        if e.name is None or e.name.partition(".")[0] in ("minutebook", "recovery", "adapters", "domain"):
            raise
        print(
            f"the demo needs {e.name}, which is not installed: pip install 'minutebook[openai]'",
            file=sys.stderr,
        )
        return 2
    return show(arguments)


def _doctor(arguments: list[str]) -> int:
    """Print findings. 0: nothing that keeps journals from being safe; 1: something does."""
    from recovery.arguments import WHERE, Parser

    parser = Parser(prog="minutebook doctor", description="Examine installation and journal.")
    parser.add_argument("journal", metavar="JOURNAL", nargs="?", help=WHERE)
    options = parser.parse_args(arguments)

    from minutebook.doctor import Grade, examine
    from recovery import stores
    from recovery.escape import visible

    report = examine(
        options.journal, sqlite=stores.sqlite_facts(), survey=stores.survey, server=stores.server_survey
    )
    for finding in report.findings:
        print(f"{finding.grade.value:5} {finding.topic:11} {visible(finding.sentence)}")
        if finding.remedy:
            print(f"{'':17} -> {visible(finding.remedy)}")
    return 1 if report.worst is Grade.ERROR else 0
