"""Canaries: secrets that nobody may ever find again, watched over a whole run of tests.

A pytest plugin (loaded by `tests/conftest.py`) and the source of the secrets that tests
use. Watched are the run's own random canaries, and everything that went into a
`Secret` or arrived at the fake server as a credential. Looked at are: log records, from
DEBUG on for the SDKs and the HTTP layers; captured output; tracebacks of failed tests; and, at
the end, every file that the run left under its temporary directory, so databases with
their -wal, -shm and -journal, exports, copies. One hit fails the run.

Not seen: what a test deletes itself, and other processes' memory.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import secrets
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

#: In every canary of this process and in nothing else.
RUN: Final = secrets.token_hex(12)
#: Shorter texts are no secrets that could be told from a word.
_SHORTEST: Final = 10
_CHUNK_BYTES: Final = 8 * 1024 * 1024
_LOGGERS: Final = ("openai", "anthropic", "httpx2", "httpcore2", "httpx", "httpcore")
_CREDENTIALS: Final = ("authorization", "api-key", "x-api-key", "x-goog-api-key", "proxy-authorization")


def canary(name: str) -> str:
    """A secret for a test: random for the run, the same for a name. Visible ASCII, no spaces."""
    return f"sk-{name}-{RUN}"


def forms(secret: str) -> set[bytes]:
    """The byte strings that give a secret away: itself, its base64 at any place, its hex."""
    raw = secret.encode()
    found = {raw, raw.hex().encode()}
    for shift in range(3):
        coded = base64.b64encode(bytes(shift) + raw)
        # The first and last characters also depend on what stands beside the secret.
        inner = coded[-(-shift * 4 // 3) + 1 * bool(shift) : len(coded) // 4 * 4 - 4]
        found |= {inner, inner.replace(b"+", b"-").replace(b"/", b"_")}
    return {form for form in found if len(form) >= _SHORTEST}


#: Digests of the secrets, log records, files, their bytes, hits.
Told = tuple[list[str], int, int, int, list[str]]


@dataclass(slots=True)
class Watch:
    """What is watched for, what was looked at, what was found."""

    needles: dict[bytes, str] = field(default_factory=dict)
    hits: list[str] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set)
    records: int = 0
    files: int = 0
    size: int = 0

    def add(self, secret: object) -> None:
        """Watch for a secret from now on."""
        if isinstance(secret, str) and len(secret) >= _SHORTEST and secret not in self.secrets:
            self.secrets.add(secret)
            # Never shown in full, also not by the plugin that looks for it.
            self.needles |= dict.fromkeys(forms(secret), f"{secret[:6]}... ({len(secret)} characters)")

    def look(self, data: bytes | str, where: str) -> None:
        """Note every secret that is in `data`."""
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        for needle, name in list(self.needles.items()):
            if needle in raw:
                self._hit(f"{name} in {where}")

    def look_in_files(self, directory: Path) -> None:
        """Look into every file below a directory."""
        for path in _files(directory):
            self.files += 1
            for chunk in _chunks(path):
                self.size += len(chunk)
                self.look(chunk, str(path.relative_to(directory)))
            self.look(os.fsencode(path), f"the name of {path.parent.relative_to(directory)}/...")

    def told(self) -> Told:
        """What was seen, in plain values; of the secrets only their digests."""
        digests = sorted(hashlib.sha256(secret.encode()).hexdigest() for secret in self.secrets)
        return digests, self.records, self.files, self.size, self.hits

    def take(self, told: Told) -> None:
        """Add what another process saw."""
        digests, records, files, size, hits = told
        self.secrets.update(digests)
        self.records, self.files, self.size = self.records + records, self.files + files, self.size + size
        for hit in hits:
            self._hit(hit)

    def _hit(self, told: str) -> None:
        if told not in self.hits:
            self.hits.append(told)


def _files(directory: Path) -> Iterator[Path]:
    for place, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not Path(place, name).is_symlink()]
        paths = (Path(place, name) for name in names)
        yield from (path for path in paths if path.is_file() and not path.is_symlink())


def _chunks(path: Path) -> Iterator[bytes]:
    """A file in pieces that overlap by more than any secret is long."""
    before = b""
    try:
        with path.open("rb") as file:
            while piece := file.read(_CHUNK_BYTES):
                yield before + piece
                before = piece[-4096:]
    except OSError:  # a test may have taken the right to read away
        return


class _Records(logging.Handler):
    """Looks at each log record, its traceback included, as it is written."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(logging.NOTSET)
        self._watch = watch

    def emit(self, record: logging.LogRecord) -> None:
        self._watch.records += 1
        try:
            text = self.format(record)
        except Exception as e:
            text = repr(e)
        self._watch.look(text, f"a log record of {record.name}")


# --- the plugin ---------------------------------------------------------------------------

_WATCH: Final = pytest.StashKey[Watch]()
_TOLD: Final = pytest.StashKey[list[Told]]()
_UNDO: Final = pytest.StashKey[list[Callable[[], None]]]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin to watch: logs, and what tests use as credentials."""
    watch = config.stash[_WATCH] = Watch()
    config.stash[_TOLD] = []
    watch.add(RUN)
    config.stash[_UNDO] = [*_watch_logs(watch), *_watch_credentials(watch)]


def _watch_logs(watch: Watch) -> Iterable[Callable[[], None]]:
    handler = _Records(watch)
    logging.getLogger().addHandler(handler)
    yield lambda: logging.getLogger().removeHandler(handler)
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        level = logger.level
        logger.setLevel(logging.DEBUG)
        yield partial(logger.setLevel, level)


def _watch_credentials(watch: Watch) -> Iterable[Callable[[], None]]:
    """Learn what is used as a secret, without changing what is done with it."""
    from minutebook.provider_config import Secret
    from minutebook.testing import fake_server

    make, read = Secret.__init__, fake_server._read_request

    def made(self: Any, text: str) -> None:
        watch.add(text)
        make(self, text)

    async def received(*arguments: Any) -> Any:
        request = await read(*arguments)
        for name in _CREDENTIALS:
            watch.add(request.headers.get(name, "").rpartition(" ")[2])
        return request

    Secret.__init__ = made  # type: ignore[method-assign]
    fake_server._read_request = received  # type: ignore[assignment]  # it passes everything on
    yield lambda: setattr(Secret, "__init__", make)
    yield lambda: setattr(fake_server, "_read_request", read)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let everything that asks for a temporary place get one below the run's own."""
    place = _base(session.config) / "elsewhere"
    place.mkdir(mode=0o700)
    before, known = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(place)

    def undo() -> None:
        tempfile.tempdir = before
        os.environ.pop("TMPDIR")
        if known is not None:
            os.environ["TMPDIR"] = known

    session.config.stash[_UNDO].append(undo)


def _base(config: pytest.Config) -> Path:
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]  # no other way
    return factory.getbasetemp()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Look at captured output, and at the traceback of a test that failed, as expected or not."""
    report = yield
    watch = item.config.stash[_WATCH]
    for name, text in report.sections:
        watch.look(text, f"{name} of {item.name}")
    if report.longrepr is not None and RUN in report.longreprtext:
        watch.look(report.longreprtext, f"the traceback of {item.name}")
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep what another process of this run has seen. One that ended before its time says nothing."""
    told = getattr(node, "workeroutput", {}).get("canary")
    node.config.stash[_TOLD].append(told or ([], 0, 0, 0, ["a process of the run ended unseen"]))


def _is_shared_out(config: pytest.Config) -> bool:
    """Whether the tests run in other processes, each of which looks after its own."""
    return config.pluginmanager.has_plugin("dsession")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look into the files that are left; a hit fails the run."""
    watch = session.config.stash[_WATCH]
    if _is_shared_out(session.config):
        for each in session.config.stash[_TOLD]:
            watch.take(each)
    else:
        watch.look_in_files(_base(session.config))
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["canary"] = watch.told()
    if watch.hits and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was looked at, and where a secret was found."""
    watch = config.stash[_WATCH]
    terminalreporter.write_line(
        f"canary: {len(watch.secrets)} secrets, {watch.records} log records, {watch.files} files "
        f"({watch.size // 1_000_000} MB), {len(watch.hits)} hits"
    )
    for hit in watch.hits[:50]:
        terminalreporter.write_line(f"SECRET FOUND: {hit}", red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave everything as it was."""
    undoing: list[Callable[[], None]] = config.stash.get(_UNDO, [])  # empty: it never began
    for undo in reversed(undoing):
        undo()
