"""What may be wrong with an installation, a machine or a journal file.

`examine` collects findings and never changes anything. It looks at the machine
itself (Python, installed names, mounts, file modes); what only an engine knows
is handed in by `minutebook.compose`, so no engine is imported here. Printing is
the command line's work.
"""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, Protocol

from domain.errors import MinutebookError
from minutebook import _siblings
from minutebook.findings import Finding as Finding
from minutebook.findings import Grade as Grade
from minutebook.findings import Report as Report
from minutebook.findings import some
from minutebook.server_findings import ServerFacts, orphans, server_findings
from recovery.addresses import is_server

_OLDEST_PYTHON: Final = (3, 11)
_MOUNTS: Final = Path("/proc/self/mountinfo")
_REMOTE_KINDS: Final = frozenset(
    "9p afs afpfs beegfs ceph cifs coda glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 smb3 smbfs".split()
)
_REMOTE_FUSE: Final = frozenset(
    "ceph curlftpfs davfs gcsfuse glusterfs goofys nfs rclone s3fs smbnetfs sshfs".split()
)
_SIDE_FILES: Final = ("", "-wal", "-shm", "-journal")


class SqliteFacts(Protocol):
    """The SQLite that was chosen: the driver's name, SQLite's version, and whether several
    connections may share its write-ahead log. The adapter's driver module is one of these."""

    @property
    def driver_name(self) -> str: ...
    @property
    def sqlite_version(self) -> str: ...
    @property
    def wal_is_safe(self) -> bool: ...


class JournalFacts(Protocol):
    """What the engine says about one journal file, read without changing it.

    `format_version`: the journal format in the file; `current_version`: the one that is written
    today; `journal_mode`: SQLite's
    word for it, in lower case; `integrity`: the engine's complaints, none if
    sound; `orphaned_blobs`: digests (hex) that no event refers to.
    """

    @property
    def format_version(self) -> int: ...
    @property
    def current_version(self) -> int: ...
    @property
    def journal_mode(self) -> str: ...
    @property
    def integrity(self) -> Sequence[str]: ...
    @property
    def orphaned_blobs(self) -> Sequence[str]: ...


def examine(
    journal: str | None,
    *,
    sqlite: SqliteFacts,
    survey: Callable[[str], JournalFacts],
    server: Callable[[str], ServerFacts],
) -> Report:
    """Look at the installation and, if a journal is named, at that journal.

    Args:
        journal: a journal file or the address of one on a server; None: the installation alone.
        sqlite: the chosen driver.
        survey: reads a journal's facts from a path; its typed errors become findings.
        server: the same, from an address.

    Guarantees: writes nothing, opens nothing but the named journal and what describes this machine.
    """
    findings = [_python(sys.version_info[:3]), _sqlite(sqlite), *_names()]
    if journal is not None and is_server(journal):
        findings += server_findings(journal, server)
    elif journal is not None:
        findings += _journal(journal, sqlite, survey)
    return Report(tuple(findings))


# --- the installation -----------------------------------------------------------


def _python(version: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, version))
    if version < _OLDEST_PYTHON:
        return Finding(
            "python",
            Grade.ERROR,
            f"This is Python {text}; 3.11 is the oldest that works.",
            "Use a newer Python.",
        )
    return Finding("python", Grade.OK, f"Python {text}.")


def _sqlite(facts: SqliteFacts) -> Finding:
    what = f"SQLite {facts.sqlite_version} through {facts.driver_name}"
    if facts.wal_is_safe:
        return Finding("sqlite", Grade.OK, f"{what}; its write-ahead log is safe with several connections.")
    return Finding(
        "sqlite",
        Grade.WARN,
        f"{what}: this version can corrupt a write-ahead log that several connections use. "
        "Journals are kept with a rollback journal instead; that is safe, and slower to commit.",
        "Install pysqlite3 (it comes with minutebook where a wheel exists), or use a Python with SQLite "
        "3.51.3 or newer.",
    )


def _names() -> list[Finding]:
    wrong = [finding for name in _siblings.SIBLINGS for finding in _claims(name)]
    if wrong:
        return wrong
    return [Finding("names", Grade.OK, f"{', '.join(_siblings.SIBLINGS)}: minutebook's, and nobody else's.")]


def _claims(name: str) -> Iterator[Finding]:
    for owner in _siblings.owners(name):
        shared = _shared_files(name, _files(owner), _files("minutebook"))
        if shared:
            sentence = f"{some(shared)}: installed by minutebook and by {owner}; the last one won."
        else:
            sentence = f"The package name {name!r} is also used by the distribution {owner}."
        yield Finding(
            "names",
            Grade.ERROR if shared else Grade.WARN,
            sentence,
            f"Keep {owner} out of this environment: uninstall it, then install minutebook again.",
        )


def _files(owner: str) -> frozenset[str]:
    try:
        found: Distribution = distribution(owner)
    except PackageNotFoundError:
        return frozenset()  # run from a checkout
    return frozenset(str(file) for file in found.files or ())


def _shared_files(name: str, theirs: frozenset[str], ours: frozenset[str]) -> list[str]:
    return sorted(file for file in theirs & ours if file.startswith(f"{name}/"))


# --- one journal ------------------------------------------------------------------


def _journal(path: str, sqlite: SqliteFacts, survey: Callable[[str], JournalFacts]) -> Iterator[Finding]:
    try:
        facts = survey(path)
    except MinutebookError as error:
        yield Finding("journal", Grade.ERROR, f"{error.code}: {error}", "It was not touched.")
        return
    yield _soundness(path, facts)
    if facts.format_version < facts.current_version:
        yield _older(path, facts)
    yield _pragmas(facts, sqlite)
    yield orphans(facts.orphaned_blobs)
    yield from _modes(Path(path))
    yield _file_system(Path(path))


def _soundness(path: str, facts: JournalFacts) -> Finding:
    if facts.integrity:
        return Finding(
            "integrity",
            Grade.ERROR,
            f"SQLite finds the file damaged: {some(facts.integrity)}",
            "Stop using it. Copy it with its side files, then restore the latest backup.",
        )
    return Finding(
        "integrity", Grade.OK, f"{path}: journal format {facts.format_version}, a sound SQLite file."
    )


def _older(path: str, facts: JournalFacts) -> Finding:
    return Finding(
        "format",
        Grade.WARN,
        f"Format {facts.format_version} is read as it is; only format {facts.current_version} is written.",
        f"Run `python -m recovery migrate {path}` before sessions go on in it.",
    )


def _pragmas(facts: JournalFacts, sqlite: SqliteFacts) -> Finding:
    if facts.journal_mode == "wal" and not sqlite.wal_is_safe:
        return Finding(
            "pragmas",
            Grade.WARN,
            f"The file is in write-ahead mode, and SQLite {sqlite.sqlite_version} is not safe with that.",
            "Open it with a newer SQLite; do not let several processes use it with this one.",
        )
    return Finding("pragmas", Grade.OK, f"The file's journal mode is {facts.journal_mode}.")


def _modes(path: Path) -> Iterator[Finding]:
    files = [path.with_name(path.name + side) for side in _SIDE_FILES]
    wrong = [*_too_open(path.absolute().parent, 0o022, "700"), *_too_open_files(files)]
    yield from wrong or [
        Finding("modes", Grade.OK, "Only the owner can read or replace the journal's files.")
    ]


def _too_open_files(files: Sequence[Path]) -> Iterator[Finding]:
    for file in files:
        if file.exists():
            yield from _too_open(file, 0o077, "600")


def _too_open(place: Path, refused: int, wanted: str) -> Iterator[Finding]:
    mode = stat.S_IMODE(place.stat().st_mode)
    if mode & refused:
        yield Finding(
            "modes",
            Grade.WARN,
            f"{place}: mode {mode:o} lets other users in; a journal holds whole conversations.",
            f"chmod {wanted} {place}",
        )


def _file_system(path: Path) -> Finding:
    kind = _kind_of_mount(path.resolve(), _MOUNTS.read_text()) if _MOUNTS.exists() else None
    if kind is None:
        return Finding(
            "filesystem",
            Grade.OK,
            "This system does not say what kind of file system the journal is on. It has to be a local one.",
        )
    if not _is_remote(kind):
        return Finding("filesystem", Grade.OK, f"The file system ({kind}) is a local one.")
    return Finding(
        "filesystem",
        Grade.WARN,
        f"The journal is on a network file system ({kind}), where SQLite's locks cannot be trusted.",
        "Move the journal to a local disk.",
    )


def _kind_of_mount(path: Path, mounts: str) -> str | None:
    """The kind of the file system that holds `path`: the deepest mount above it, the last of equals."""
    deepest: tuple[int, str | None] = (0, None)
    for line in mounts.splitlines():
        place, separator, rest = line.partition(" - ")
        fields = place.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount = Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4]))
        if path.is_relative_to(mount) and len(mount.parts) >= deepest[0]:
            deepest = (len(mount.parts), rest.split(" ", 1)[0])
    return deepest[1]


def _is_remote(kind: str) -> bool:
    family, _, member = kind.partition(".")
    return kind in _REMOTE_KINDS or (family == "fuse" and member in _REMOTE_FUSE)
