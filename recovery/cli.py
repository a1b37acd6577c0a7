"""`python -m recovery <command>`, also `minutebook <command>`: arguments in, exit code out.

Parses, dispatches, and turns every error into a sentence and a code. What the
commands do is in `recovery.looking`, `recovery.deciding` and `recovery.moving`,
each loaded when its command is used.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from recovery.arguments import parser
from recovery.exit_codes import INTERRUPTED, PIPE_CLOSED, UNREADABLE, USAGE

Command = Callable[[argparse.Namespace], Awaitable[int]]


def main(arguments: Sequence[str] | None = None, *, prog: str = "python -m recovery", more: str = "") -> int:
    """Carry out one command line.

    Args:
        arguments: None for the process's own.
        prog: what the help calls the command.
        more: printed at the end of the help.

    Guarantees: prints no traceback; an error is one message on standard error.
    """
    _have_outputs()
    options = parser(prog, more).parse_args(arguments)
    _be_printable()
    try:
        code = _run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read us is gone. Nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    import anyio

    from domain.errors import MinutebookError
    from recovery.escape import visible

    try:
        return anyio.run(partial(_command(options.command), options))
    except MinutebookError as e:
        print(f"{e.code}: {visible(str(e))}", file=sys.stderr)
        return exit_code(e)
    except BrokenPipeError:
        raise
    except OSError as e:
        print(f"{type(e).__name__}: {visible(str(e))}", file=sys.stderr)
        return UNREADABLE
    except Exception as e:  # a defect of ours must not bury the terminal under a traceback
        print(f"INTERNAL_ERROR: {visible(repr(e))}. Please report this.", file=sys.stderr)
        return UNREADABLE


def exit_code(error: Exception) -> int:
    """2 where nothing was written and the call has to be changed, otherwise 3."""
    from domain.errors import Rejected

    return USAGE if isinstance(error, Rejected) else UNREADABLE


def _have_outputs() -> None:
    """A process may be started with its outputs closed; what it prints then goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # for the whole run


def _be_printable() -> None:
    """An output that cannot show a character shows its number instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _command(name: str) -> Command:
    """The function behind a command; only what it needs is loaded."""
    match name:
        case "reconcile":
            from recovery.deciding import reconcile

            return reconcile
        case "export" | "import" | "backup":
            from recovery import moving

            moves: dict[str, Command] = {
                "export": moving.export,
                "import": moving.import_,
                "backup": moving.backup,
            }
            return moves[name]
        case "migrate":
            from recovery.migrating import command

            return command
    from recovery import looking

    looks: dict[str, Command] = {
        "inspect": looking.inspect,
        "verify": looking.verify,
        "replay": looking.replay,
        "timeline": looking.timeline,
        "diff": looking.diff,
    }
    return looks[name]
