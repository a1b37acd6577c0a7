"""The grammar of the command line. Loads nothing but the standard library, so that help is quick."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    Commands = argparse._SubParsersAction[Any]

#: Where a journal that takes events may be.
WHERE: Final = "a SQLite journal, or postgresql://USER@HOST/DATABASE (#SCHEMA, if it is not minutebook)"
#: Of a sequence; more than any journal will ever need.
_MAX_DIGITS: Final = 18
_READABLE: Final = f"{WHERE}, or a .jsonl export"


class Parser(argparse.ArgumentParser):
    """A parser whose messages can do nothing to a terminal: they repeat what was typed, or globbed."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, exit with 2."""
        from recovery.escape import visible

        super().error(visible(message))


def parser(prog: str, more: str = "") -> argparse.ArgumentParser:
    """The whole grammar; `more` is printed at the end of the help."""
    description = "Look at journals of agent sessions, and say what happened."
    top = Parser(prog=prog, description=description, epilog=more)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_looking(commands)
    _add_moving(commands)
    _add_reconcile(_sub(commands, "reconcile", "Say what happened, on record.", WHERE))
    return top


def _sub(commands: Commands, name: str, help_: str, journal: str = _READABLE) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=help_, description=help_)
    made.add_argument("journal", metavar="JOURNAL", help=journal)
    return made


def _session(made: argparse.ArgumentParser, *, all_without: bool = False) -> None:
    if all_without:
        made.add_argument("session", metavar="SESSION", nargs="?", help="a session id; default: all of them")
    else:
        made.add_argument("session", metavar="SESSION", help="a session id")
    made.add_argument("--owner", metavar="ID", help="this owner's sessions only")


def _sequence(text: str) -> int:
    return _number(text, 1)


def _count(text: str) -> int:
    return _number(text, 0)


def _number(text: str, least: int) -> int:
    if not text.isdecimal() or len(text) > _MAX_DIGITS or int(text) < least:
        raise argparse.ArgumentTypeError(f"expected a number, {least} or more, got {text!r}")
    return int(text)


def _head(text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != 32:
        raise argparse.ArgumentTypeError(f"expected a head, 64 hexadecimal digits, got {text!r}")
    return found


def _add_looking(commands: Commands) -> None:
    made = _sub(commands, "inspect", "What comes next in each session, and who does it.")
    _session(made, all_without=True)
    _json(made)
    _at(made)
    _all(made, "that need nobody")
    made.add_argument("--verify", action="store_true", help="also read and check everything")
    made = _sub(commands, "verify", "Read everything and prove what can be proved.")
    _session(made, all_without=True)
    _json(made)
    _all(made, "that nothing is wrong with")
    made.add_argument("--expect-head", metavar="HASH", type=_head, help="a head known from elsewhere, in hex")
    made.add_argument("--chain-only", action="store_true", help="check the chain, not the rules: quicker")
    made = _sub(commands, "replay", "Rebuild conversation, queue, questions and usage, offline.")
    _session(made)
    _json(made)
    _at(made)
    made = _sub(commands, "timeline", "What happened, event by event: who, why, how long.")
    _session(made)
    made.add_argument("--after", metavar="SEQ", type=_count, default=0, help="only events after a sequence")
    made.add_argument("--limit", metavar="N", type=_sequence, help="at most that many events")
    made = _sub(commands, "diff", "What changed between two points.")
    _session(made)
    for option, name, help_ in (("--from", "first", "after this event"), ("--to", "last", "up to this one")):
        made.add_argument(option, dest=name, metavar="SEQ", type=_sequence, required=True, help=help_)
    _json(made)


def _json(made: argparse.ArgumentParser) -> None:
    made.add_argument("--json", action="store_true", help="as a JSON document, in ASCII")


def _all(made: argparse.ArgumentParser, others: str) -> None:
    made.add_argument("--all", action="store_true", help=f"show the sessions {others}, too; JSON always does")


def _at(made: argparse.ArgumentParser) -> None:
    made.add_argument("--at", metavar="SEQ", type=_sequence, help="as it was at a sequence")


def _add_moving(commands: Commands) -> None:
    made = _sub(commands, "export", "Write sessions as JSON Lines, each with a trailer.")
    _session(made, all_without=True)
    made.add_argument("--output", metavar="FILE", help="a new file; default: standard output")
    help_ = "Put an export's sessions into a journal that lacks them."
    made = commands.add_parser("import", help=help_, description=help_)
    made.add_argument("export", metavar="EXPORT", help="a .jsonl export")
    made.add_argument("journal", metavar="JOURNAL", help=f"{WHERE}; made if it does not exist")
    made = _sub(commands, "backup", "Copy a SQLite journal while others write to it.", "a SQLite file")
    made.add_argument("target", metavar="FILE", help="a new file")
    made = _sub(commands, "migrate", "Bring a journal of an older format up to date.", WHERE)
    made.add_argument("--dry-run", action="store_true", help="say what would be done; write nothing")
    made.add_argument("--no-backup", dest="backup", action="store_false", help="keep no copy beside it")


def _add_reconcile(made: argparse.ArgumentParser) -> None:
    made.add_argument("session", metavar="SESSION", help="a session id")
    what = made.add_subparsers(dest="what", required=True, metavar="WHAT")
    common = _common()

    def kind(name: str, help_: str, *, evidence: bool = True) -> argparse.ArgumentParser:
        added = what.add_parser(name, parents=[common], help=help_, description=help_)
        if evidence:
            added.add_argument("--evidence", required=True, metavar="TEXT", help="how you know")
        return added

    _add_outcomes(kind)
    _add_answers(kind)
    _add_rollovers(kind)
    abandon = kind("abandon", "End the open request, whatever the plan says.", evidence=False)
    abandon.add_argument("--reason", required=True, metavar="TEXT")
    abandon.add_argument("--evidence", default="", metavar="TEXT")
    kind("automatic", "Carry out what needs no application code.", evidence=False)


def _common() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--dry-run", action="store_true", help="say what would be appended; write nothing")
    _json(common)
    common.add_argument("--by", metavar="NAME", help="who decides, for the record")
    common.add_argument("--command-id", metavar="ID", help="makes a repetition harmless")
    common.add_argument("--owner", metavar="ID", help="the session's owner")
    return common


def _add_outcomes(kind: Callable[..., Any]) -> None:
    model = kind("model", "What became of a model attempt.")
    model.add_argument("subject", metavar="ATTEMPT")
    model.add_argument("--outcome", required=True, choices=("completed", "failed", "lost"))
    model.add_argument("--response", metavar="FILE", help="the response as JSON, where completed; -: stdin")
    model.add_argument("--message", default="", metavar="TEXT", help="what went wrong, where failed")
    tool = kind("tool", "What a started call did.")
    tool.add_argument("subject", metavar="CALL")
    tool.add_argument("--outcome", required=True, choices=("completed", "failed", "cancelled", "suspended"))
    tool.add_argument("--output", default="", metavar="TEXT", help="what the model is told")
    tool.add_argument("--value", metavar="JSON", help="the result as kept")
    inputs = kind("inputs", "The applied inputs are prepared.")
    inputs.add_argument("--contents", metavar="JSON", help="an object: input id to final content")
    request = kind("request", "How a request ended that cannot go on by itself.")
    request.add_argument("--outcome", required=True, choices=("failed", "interrupted", "completed"))
    request.add_argument("--message", default="", metavar="TEXT")


def _add_rollovers(kind: Callable[..., Any]) -> None:
    request = kind("rollover-request", "A new request takes over from one that no turn has begun about.")
    request.add_argument("--applied", default="", metavar="IDS", help="applied inputs, joined by commas")
    turn = kind("rollover-turn", "Give up the open turn and go on in a new request.")
    for made in (request, turn):
        content = made.add_mutually_exclusive_group()
        content.add_argument("--content", metavar="TEXT", help="what the new request's input says")
        content.add_argument("--parts", metavar="JSON", help="the same as a list of parts")
        made.add_argument("--max-turns", metavar="N", type=_sequence, help="default: those that are left")


def _add_answers(kind: Callable[..., Any]) -> None:
    permission = kind("permission", "Answer an open question.", evidence=False)
    permission.add_argument("subject", metavar="QUESTION", help="the question's id, or its call's")
    verdict = permission.add_mutually_exclusive_group(required=True)
    verdict.add_argument("--allow", dest="verdict", action="store_const", const="allow")
    verdict.add_argument("--deny", dest="verdict", action="store_const", const="deny")
    permission.add_argument("--digest", metavar="HEX", help="of the input that you looked at")
    permission.add_argument("--message", default="", metavar="TEXT", help="told to the model")
    permission.add_argument("--updated-input", metavar="JSON", help="runs in place of the declared input")
    suspension = kind("suspension", "Answer a suspended call.", evidence=False)
    suspension.add_argument("subject", metavar="CALL")
    suspension.add_argument("--answer", required=True, metavar="JSON")
