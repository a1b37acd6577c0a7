"""Running a child under strace: what it asked of the disk, and making the disk refuse.

Only calls about the files of one place are seen, counted and made to fail. strace counts
the calls of each thread by themselves.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

STRACE: Final = shutil.which("strace")
needs_strace: Final = pytest.mark.skipif(
    STRACE is None, reason="strace is not installed; it makes the disk fail (Linux)"
)

ROOT: Final = Path(__file__).parent.parent.parent
#: The files of a place. Those after the first four are not the journal's: what the world saw.
JOURNAL_FILES: Final = ("journal.db", "journal.db-wal", "journal.db-shm", "journal.db-journal")
WITNESSES: Final = ("acks", "witness")
#: What changes a file, or makes a change durable; the parser refuses those that it does not know.
CHANGING: Final = (
    "openat,pwrite64,write,fsync,fdatasync,ftruncate,unlink,unlinkat,"
    "writev,pwritev,pwritev2,rename,renameat,renameat2,link,linkat,fallocate,sync_file_range,creat"
)
_CALL: Final = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+)(.*)$", re.DOTALL)
_UNFINISHED: Final = " <unfinished ...>"
_RESUMED: Final = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)$", re.DOTALL)
_TEXT: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FILE: Final = re.compile(r"^\d+<((?:\\x[0-9a-f]{2})*)>")


@dataclass(frozen=True, slots=True)
class Call:
    """One system call that came back.

    Args:
        name: as the kernel's.
        thread: who called; threads are numbered in the order in which they first called.
        file: the name of the file in the place; "" for the place itself.
        data: what was written.
        number: the offset of a write, -1 for the end; the length of a truncation.
        flags: of an `openat`.
        begun: how many calls had come back when this one was begun.
        result: what it returned, -1 for an error.
        injected: whether strace made it fail.
    """

    name: str
    thread: int
    file: str
    data: bytes
    number: int
    flags: str
    begun: int
    result: int
    injected: bool


def traced(command: Sequence[str], place: Path, log: Path) -> list[Call]:
    """Run a program to its end and return what it asked of the files of `place`.

    Raises:
        AssertionError: it did not end well.
    """
    assert STRACE is not None
    watching = [
        STRACE,
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-y",
        "-xx",
        "-s",
        "16777216",
        "-e",
        "signal=none",
        "-o",
        str(log),
    ]
    done = subprocess.run(
        [*watching, "-e", f"trace={CHANGING}", *_paths(place), *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"the traced child ended with {done.returncode}: {done.stderr[-3000:]}"
    return parsed(log, place)


@contextmanager
def injected(process_id: int, place: Path, log: Path, fault: str, *, world: bool = False) -> Iterator[None]:
    """Make system calls of a running process fail, from now on until it ends.

    Args:
        process_id: of a process that waits to be told to go on.
        fault: as strace takes it, e.g. `pwrite64:error=EIO:when=3+`.
        world: whether calls about the witness count as well.
    """
    assert STRACE is not None
    command = [
        STRACE,
        "-f",
        "-y",
        "-xx",
        "-s",
        "4096",
        "-e",
        "signal=none",
        "-o",
        str(log),
        "-p",
        str(process_id),
    ]
    name = fault.partition(":")[0]
    with subprocess.Popen(
        [*command, "-e", f"trace={name}", "-e", f"inject={fault}", *_paths(place, world=world)],
        stderr=subprocess.PIPE,
        text=True,
    ) as strace:
        assert strace.stderr is not None
        said = strace.stderr.readline()
        assert "attached" in said, f"expected strace to attach, it said: {said}"
        yield
        strace.communicate()


def parsed(log: Path, place: Path) -> list[Call]:
    """The calls of a log, in the order in which they came back."""
    calls: list[Call] = []
    begun: dict[str, tuple[str, int]] = {}
    threads: dict[str, int] = {}
    for line in log.read_text("ascii").splitlines():
        at = len(calls)
        if line.endswith(_UNFINISHED):
            begun[line.split(" ", 1)[0]] = line.removesuffix(_UNFINISHED), at
            continue
        if resumed := _RESUMED.match(line):
            line, at = begun.pop(resumed[1])
            line += resumed[3]
        if found := _CALL.match(line):
            threads.setdefault(found[1], len(threads))
            calls.append(_call(found, threads[found[1]], at, place))
    return calls


def _call(found: re.Match[str], thread: int, begun: int, place: Path) -> Call:
    name, arguments = found[2], found[3]
    assert '"...' not in arguments or found[5], f"strace cut what {name} wrote"
    text = _TEXT.search(arguments)
    content = _bytes(text[1]) if text else b""
    if name in ("openat", "unlink"):
        path, data = content.decode(), b""
    else:
        file = _FILE.match(arguments)
        assert file, f"expected a file first, found {name}({arguments[:80]}"
        path, data = _bytes(file[1]).decode().removesuffix(" (deleted)"), content
    return Call(
        name=name,
        thread=thread,
        file="" if path == str(place) else path.rpartition("/")[2],
        data=data,
        number=_number(name, arguments),
        flags=arguments if name == "openat" else "",
        begun=begun,
        result=int(found[4]),
        injected="INJECTED" in found[5],
    )


def _number(name: str, arguments: str) -> int:
    if name in ("pwrite64", "ftruncate"):
        return int(arguments.rpartition(", ")[2])
    assert name in ("openat", "write", "fsync", "fdatasync", "unlink"), (
        f"nobody foresaw {name}({arguments[:80]}"
    )
    return -1


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _paths(place: Path, *, world: bool = True) -> list[str]:
    files = [place, *(place / name for name in (*JOURNAL_FILES, *(WITNESSES if world else ())))]
    return [word for file in files for word in ("-P", str(file))]


def child(function: str, place: Path, *arguments: str) -> list[str]:
    """The command that runs a function of `writers.py` in a process of its own."""
    return [sys.executable, "-m", "tests.chaos.writers", function, str(place), *arguments]
