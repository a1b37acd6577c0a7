"""What commands print: nothing of a journal, a file name or an argument does anything to a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from minutebook.cli import main as minutebook
from tests.corpus.journals import exported as exported_of
from tests.corpus.journals import kept_in_file
from tests.corpus.poison import HOSTILE, SHORT, export_of, poisoned_envelopes, poisoned_payloads
from tests.corpus.texts import TEXTS, harmful
from tests.integration.command_line import ROOT, Ran, call
from tests.journals import asking, lost_payment, suspended, three_calls, unsettled
from tests.unit.golden_session import session as every_type

GOLDEN = every_type().rows()
SESSION = GOLDEN[0].session_id
TEXT = (
    ["inspect"],
    ["inspect", SESSION, "--verify"],
    ["verify"],
    ["verify", SESSION, "--chain-only"],
    ["replay", SESSION],
    ["timeline", SESSION],
)
JSON = (
    ["inspect", "--json"],
    ["inspect", SESSION, "--json", "--verify"],
    ["verify", "--json"],
    ["replay", SESSION, "--json"],
)


def check(told: Ran) -> None:
    """What a command printed is harmless, and it did not fall over."""
    assert harmful(told.out) == [], [
        told.out[max(0, told.out.find(c) - 60) :][:120] for c in harmful(told.out)
    ]
    assert harmful(told.err) == [], told.err
    assert told.code in (0, 1, 2, 3, 4)
    assert "INTERNAL_ERROR" not in told.err, told.err
    assert "Traceback" not in told.err


def check_document(told: Ran) -> None:
    """A document is ASCII and parses."""
    check(told)
    assert told.out.isascii()
    if told.out:
        orjson.loads(told.out)


def show_everything(path: Path) -> None:
    """Every command that looks, over one file."""
    for name, *rest in TEXT:
        check(call(name, path, *rest))
    for name, *rest in JSON:
        check_document(call(name, path, *rest))


def test_a_hostile_text_in_any_payload_does_nothing(tmp_path: Path) -> None:
    poisoned = list(poisoned_payloads(GOLDEN))
    assert len(poisoned) > len(GOLDEN) // 2
    shown = 0
    for number, rows in enumerate(poisoned[::5]):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(export_of(rows))
        if number % 8 == 0:
            show_everything(path)
        for command in ("inspect", "replay"):
            check(call(command, path, SESSION))
        minutes = call("timeline", path, SESSION)
        check(minutes)
        shown += "\\x1b[2J" in minutes.out
    assert shown > 4, "the hostile texts have to get as far as the screen"


def test_a_hostile_text_in_any_envelope_does_nothing(tmp_path: Path) -> None:
    for number, rows in enumerate(poisoned_envelopes(GOLDEN)):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(export_of(rows))
        for command in ("inspect", "verify", "replay", "timeline"):
            check(call(command, path, SESSION))
        check_document(call("inspect", path, "--json"))


HEADERS: list[dict[str, Any]] = [
    {"owner_id": HOSTILE.encode("utf-8", "replace").decode()},
    {"status": "\x1b[2J", "next_action": "\u202e\x9b"},
    {"created_at": "2026-01-01T00:00:00"},
    {"created_at": "9999-12-31T23:59:59.999999-23:59", "updated_at": "0001-01-01T00:00:00+23:59"},
    {"created_at": "\x1b"},
    {"session_id": "../\x1b[2J"},
    {"session_id": ""},
    {"session_id": "\U0010ffff"},
    {"minutebook_export": 2**53},
    {"minutebook_export": -1},
    {"minutebook_export": True},
    {"minutebook_export": "\x1b[2J"},
    {"minutebook_export": None},
    {"lc": 2, "type": "constructor", "__class__": "os.system"},
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_a_hostile_first_line_of_an_export_does_nothing(tmp_path: Path, header: dict[str, Any]) -> None:
    path = tmp_path / "e.jsonl"
    path.write_bytes(export_of(GOLDEN, **header))
    show_everything(path)
    check(call("import", path, tmp_path / "j.db"))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal file with sessions that have a lot to say."""
    directory = tmp_path / "kept"
    directory.mkdir(mode=0o700)
    return anyio.run(
        kept_in_file,
        directory / "j.db",
        three_calls(),
        asking(summary=HOSTILE),
        suspended(),
        unsettled(),
        lost_payment(),
    )


COLUMNS = (
    ("minutebook_sessions", "owner_id"),
    ("minutebook_sessions", "status"),
    ("minutebook_sessions", "next_action"),
    ("minutebook_sessions", "created_at"),
    ("minutebook_sessions", "lease_holder_id"),
    ("minutebook_events", "topic"),
    ("minutebook_commands", "command_id"),
)


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_hostile_column_of_a_database_does_nothing(journal: Path, table: str, column: str) -> None:
    import sqlite3

    with contextlib.closing(sqlite3.connect(journal)) as connection, connection:
        names = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if column in names:
            text = SHORT.replace("\ud800", "")
            connection.execute(f"UPDATE {table} SET {column} = {column} || ?", (text,))
    show_everything(journal)


# --- names and arguments ------------------------------------------------------------------

NAMES = [text for text in TEXTS.values() if text.strip() and "\0" not in text and len(text) < 60]


def test_a_hostile_file_name_does_nothing(tmp_path: Path, journal: Path) -> None:
    exported = anyio.run(exported_of, asking())
    made = 0
    for text in NAMES[::3]:
        name = text.replace("/", "_")
        with contextlib.suppress(OSError, UnicodeEncodeError):
            database, export = tmp_path / f"{name}.db", tmp_path / f"{name}.jsonl"
            database.write_bytes(journal.read_bytes())
            export.write_bytes(exported)
            made += 1
            check(call("inspect", export, "s-ask"))
            check_document(call("inspect", export, "s-ask", "--json"))
            check(call("inspect", tmp_path / f"missing {name}.db"))
            check(call("backup", database, tmp_path / f"copy of {name}.db"))
            if made % 6 == 0:
                check(call("verify", database))
                check(call("export", database, "--output", tmp_path / f"export of {name}.jsonl"))
                check(call("export", database, "--output", tmp_path / f"export of {name}.jsonl"))
                check(call("import", export, tmp_path / f"import of {name}.db"))
                check(doctor(database))
    assert made > 8


def test_bytes_that_are_no_text_in_a_file_name_do_nothing(tmp_path: Path, journal: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[2J\xc0\xaf.db")
    with open(path, "wb") as file:
        file.write(journal.read_bytes())
    for name in ("inspect", "verify"):
        check(call(name, path))
        check_document(call(name, path, "--json"))
    check(call("backup", path, f"{path}\udc80"))
    check(doctor(path))


ARGUMENTS = (
    [SHORT],
    ["inspect"],
    ["inspect", "{journal}", SHORT],
    ["inspect", "{journal}", "s-ask", SHORT, HOSTILE],
    ["inspect", "{journal}", "s-ask", "--at", SHORT],
    ["inspect", "{journal}", f"--{SHORT}"],
    ["verify", "{journal}", "--expect-head", SHORT],
    ["inspect", "{journal}", "--owner", SHORT],
    ["timeline", "{journal}", "s-ask", "--after", SHORT],
    ["inspect", f"postgresql://{SHORT}"],
    ["export", "{journal}", "--output", f"/nowhere/{SHORT}"],
    ["reconcile", "{journal}", "s-ask", SHORT],
    ["reconcile", "{journal}", "s-ask", "permission", SHORT, "--allow"],
    ["reconcile", "{journal}", "s-pay", "tool", SHORT, "--outcome", "failed", "--evidence", SHORT],
    ["reconcile", "{journal}", "s-pay", "tool", "r1.t1.a1.c0", "--outcome", SHORT, "--evidence", "e"],
    ["reconcile", "{journal}", "s-pay", "model", SHORT, "--outcome", "completed", "--evidence", "e",
     "--response", SHORT],
    ["reconcile", "{journal}", "s-pay", "abandon", "--reason", SHORT, "--command-id", SHORT],
    ["reconcile", "{journal}", "s-pay", "abandon", "--reason", SHORT, "--dry-run"],
    ["reconcile", "{journal}", "s-pay", "automatic", "--dry-run", "--owner", SHORT],
    ["reconcile", "{journal}", "s-pay", "suspension", SHORT, "--answer", SHORT],
    ["reconcile", "{journal}", "s-pay", "tool", "r1.t1.a1.c0", "--outcome", "completed", "--evidence",
     HOSTILE, "--output", HOSTILE, "--value", '{"a":"\\u001b[2J"}', "--by", HOSTILE],
)  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=range(len(ARGUMENTS)))
def test_a_hostile_argument_does_nothing(journal: Path, arguments: list[str]) -> None:
    given = [typed(argument.replace("{journal}", str(journal))) for argument in arguments]
    check(call(*given))
    check(called(minutebook, given))
    if arguments[0] == "reconcile" and "--dry-run" not in arguments:  # the others write nothing
        show_everything(journal)


def typed(argument: str) -> str:
    """The argument as a process gets it: without NUL, bytes that are no text as Python spells them."""
    return argument.replace("\0", "").encode("utf-8", "replace").decode() + "\udcff" * ("\x1b" in argument)


def test_a_hostile_argument_of_the_other_commands_does_nothing() -> None:
    hostile = typed(SHORT)
    for given in (
        ["doctor", "a", hostile],
        ["doctor", f"--{hostile}"],
        ["demo", hostile],
        ["demo", f"--{hostile}"],
    ):
        check(called(minutebook, given))


def doctor(path: str | Path) -> Ran:
    """`minutebook doctor` in this process."""
    return called(minutebook, ["doctor", str(path)])


def called(main: Any, arguments: Sequence[str]) -> Ran:
    """A command line in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(arguments))
        except SystemExit as e:
            code = int(e.code or 0)
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return Ran(code, *texts)


# --- where it is printed --------------------------------------------------------------------


def in_terminal(columns: int, *arguments: str | Path) -> tuple[int, bytes]:
    """A command as a child in a terminal of that width: its exit code and what it printed."""
    import fcntl
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    child = subprocess.Popen(
        [sys.executable, "-m", "recovery", *map(str, arguments)], cwd=ROOT, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    printed = bytearray()
    with contextlib.suppress(OSError):  # the end of a terminal is an error
        while piece := os.read(ours, 65536):
            printed += piece
    os.close(ours)
    return child.wait(timeout=60), bytes(printed)


@pytest.mark.parametrize("columns", [1, 20])
def test_any_width_of_a_terminal_will_do(journal: Path, columns: int) -> None:
    code, printed = in_terminal(columns, "inspect", journal)
    assert code == 1
    assert b"Traceback" not in printed
    assert b"INTERNAL_ERROR" not in printed
    assert b"\x1b[2J" not in printed
    assert b"\x1b]52" not in printed
    assert printed.count(b"\n") > 20


def test_an_export_is_not_for_a_terminal(journal: Path) -> None:
    """It holds stored texts as they are, so that what was hashed is what is there."""
    code, printed = in_terminal(80, "export", journal)
    assert code == 2
    assert b"--output" in printed
    assert b"minutebook_export" not in printed


LOOKING = (["inspect"], ["export"])


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
@pytest.mark.parametrize("way", ["| true", ">&-", ">/dev/full"])
def test_an_output_that_takes_nothing_is_no_traceback(journal: Path, arguments: list[str], way: str) -> None:
    name, *rest = arguments
    line = f'"$0" -m recovery {name} "$1" {" ".join(rest)} {way}'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable, str(journal)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    assert "INTERNAL_ERROR" not in done.stderr, done.stderr
