"""What `doctor` finds, given what the machine and the engine say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from domain.errors import NotAJournal
from minutebook import doctor
from minutebook.doctor import Finding, Grade, examine


@dataclass(frozen=True)
class Sqlite:
    driver_name: str = "pysqlite3"
    sqlite_version: str = "3.53.4"
    wal_is_safe: bool = True


@dataclass(frozen=True)
class Journal:
    format_version: int = 2
    current_version: int = 2
    journal_mode: str = "wal"
    integrity: tuple[str, ...] = ()
    orphaned_blobs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Server:
    name: str = "postgresql://db.example:5432/agents"
    version: str = "15.18"
    format_version: int = 1
    standby: bool = False
    not_durable: tuple[str, ...] = ()
    clock_ahead_s: float = 0.2
    orphaned_blobs: tuple[str, ...] = ()


def no_server(address: str) -> Server:
    """For tests of files."""
    raise AssertionError(address)


OLD = Sqlite("sqlite3", "3.40.1", wal_is_safe=False)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A file only its owner may read, in such a directory."""
    tmp_path.chmod(0o700)
    path = tmp_path / "sessions.db"
    path.touch(0o600)
    return path


def look(
    topic: str, path: Path | None = None, *, sqlite: Sqlite = Sqlite(), facts: Journal = Journal()
) -> list[Finding]:
    report = examine(str(path) if path else None, sqlite=sqlite, survey=lambda _: facts, server=no_server)
    return [finding for finding in report.findings if finding.topic == topic]


def grades(findings: list[Finding]) -> list[Grade]:
    return [finding.grade for finding in findings]


def test_this_installation_is_sound() -> None:
    report = examine(None, sqlite=Sqlite(), survey=lambda _: Journal(), server=no_server)
    assert [finding.topic for finding in report.findings] == ["python", "sqlite", "names"]
    assert report.worst is Grade.OK


def test_a_sound_journal_gives_nothing_but_ok(journal: Path) -> None:
    report = examine(str(journal), sqlite=Sqlite(), survey=lambda _: Journal(), server=no_server)
    assert {finding.grade for finding in report.findings} == {Grade.OK}
    assert [finding.topic for finding in report.findings[3:]] == [
        "integrity",
        "pragmas",
        "blobs",
        "modes",
        "filesystem",
    ]


def test_an_sqlite_that_damages_logs_is_a_warning_with_a_remedy() -> None:
    (finding,) = look("sqlite", sqlite=OLD)
    assert finding.grade is Grade.WARN
    assert "3.40.1" in finding.sentence
    assert "pysqlite3" in finding.remedy


def test_a_write_ahead_file_under_an_unsafe_sqlite_is_a_warning(journal: Path) -> None:
    assert grades(look("pragmas", journal, sqlite=OLD)) == [Grade.WARN]
    assert grades(look("pragmas", journal, sqlite=OLD, facts=Journal(journal_mode="truncate"))) == [Grade.OK]


def test_a_damaged_file_is_an_error_with_the_engine_s_words(journal: Path) -> None:
    (finding,) = look("integrity", journal, facts=Journal(integrity=("row 3 missing from index",)))
    assert finding.grade is Grade.ERROR
    assert "row 3 missing from index" in finding.sentence


def test_a_file_of_an_older_format_is_a_warning_with_the_command(journal: Path) -> None:
    (finding,) = look("format", journal, facts=Journal(format_version=1))
    assert finding.grade is Grade.WARN
    assert f"recovery migrate {journal}" in finding.remedy
    assert look("format", journal) == []


def test_orphaned_blobs_are_counted_and_the_first_are_named(journal: Path) -> None:
    (finding,) = look("blobs", journal, facts=Journal(orphaned_blobs=tuple("abcdefg")))
    assert finding.sentence == "7 of the journal's blobs belong to no event: a, b, c, d, e and 2 more"


def test_a_path_that_is_no_journal_is_one_error() -> None:
    def survey(path: str) -> Journal:
        raise NotAJournal(path, "there is no such file")

    report = examine("nowhere.db", sqlite=Sqlite(), survey=survey, server=no_server)
    assert report.worst is Grade.ERROR
    assert report.findings[-1].sentence == "NOT_A_JOURNAL: nowhere.db: there is no such file"


@pytest.mark.parametrize("side", ["", "-wal", "-shm", "-journal"])
def test_a_file_that_others_may_read_is_a_warning(journal: Path, side: str) -> None:
    file = journal.with_name(journal.name + side)
    file.touch()
    file.chmod(0o640)
    (finding,) = look("modes", journal)
    assert (finding.grade, finding.remedy) == (Grade.WARN, f"chmod 600 {file}")


def test_a_directory_that_others_may_write_is_a_warning(journal: Path) -> None:
    journal.parent.chmod(0o770)
    (finding,) = look("modes", journal)
    assert (finding.grade, finding.remedy) == (Grade.WARN, f"chmod 700 {journal.parent}")


MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 21 0:40 / /mnt/team rw - nfs4 server:/export rw
41 40 8:2 / /mnt/team/local rw shared:2 master:1 - xfs /dev/sdb1 rw
42 21 0:42 / /mnt/far\\040away rw - fuse.sshfs me@host: rw
43 21 8:3 / /mnt/once rw - ext4 /dev/sdc1 rw
44 21 0:44 / /mnt/once rw - cifs //host/share rw
not a mount at all
"""


@pytest.mark.parametrize(
    ("path", "kind", "remote"),
    [
        ("/srv/sessions.db", "ext4", False),
        ("/mnt/team/sessions.db", "nfs4", True),
        ("/mnt/teammate/sessions.db", "ext4", False),
        ("/mnt/team/local/sessions.db", "xfs", False),
        ("/mnt/far away/sessions.db", "fuse.sshfs", True),
        ("/mnt/once/sessions.db", "cifs", True),
    ],
)
def test_the_deepest_and_latest_mount_says_whether_a_path_is_remote(
    path: str, kind: str, remote: bool
) -> None:
    assert doctor._kind_of_mount(Path(path), MOUNTS) == kind
    assert doctor._is_remote(kind) is remote


def test_a_file_that_two_distributions_own_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("minutebook", "shadow"):
        record = tmp_path / f"{name}-1.0.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (record / "RECORD").write_text("domain/__init__.py,,\ndomain/ids.py,,\n")
        (record / "top_level.txt").write_text("domain\n")
    monkeypatch.syspath_prepend(tmp_path)
    (finding,) = look("names")
    assert finding.grade is Grade.ERROR
    assert "domain/__init__.py, domain/ids.py: installed by minutebook and by shadow" in finding.sentence
    assert "shadow" in finding.remedy


# --- a journal on a server --------------------------------------------------------------


ADDRESS = "postgresql://ann:hunter2@db.example/agents"


def look_at_server(facts: Server) -> list[Finding]:
    def no_file(path: str) -> Journal:
        raise AssertionError(path)

    report = examine(ADDRESS, sqlite=Sqlite(), survey=no_file, server=lambda _: facts)
    return list(report.findings[3:])


def test_a_sound_journal_on_a_server_gives_nothing_but_ok() -> None:
    findings = look_at_server(Server())
    assert [finding.topic for finding in findings] == ["journal", "server", "durability", "clock", "blobs"]
    assert set(grades(findings)) == {Grade.OK}


@pytest.mark.parametrize(
    ("facts", "topic", "grade", "words"),
    [
        (Server(standby=True), "server", Grade.WARN, "a standby"),
        (Server(not_durable=("fsync=off",)), "durability", Grade.ERROR, "fsync=off"),
        (Server(clock_ahead_s=3600), "clock", Grade.WARN, "3600 s ahead of"),
        (Server(clock_ahead_s=-7.2), "clock", Grade.WARN, "7 s behind"),
        (Server(orphaned_blobs=("ab" * 32,)), "blobs", Grade.WARN, "1 of the journal's blobs"),
    ],
)
def test_what_may_be_wrong_with_a_server(facts: Server, topic: str, grade: Grade, words: str) -> None:
    (found,) = [finding for finding in look_at_server(facts) if finding.grade is not Grade.OK]
    assert (found.topic, found.grade) == (topic, grade)
    assert words in found.sentence
    assert found.remedy


def test_a_server_that_cannot_be_read_is_a_finding_without_its_password() -> None:
    def server(address: str) -> Server:
        raise NotAJournal("postgresql://db.example:5432/agents", "expected a minutebook journal")

    def no_file(path: str) -> Journal:
        raise AssertionError(path)

    report = examine(ADDRESS, sqlite=Sqlite(), survey=no_file, server=server)
    assert report.worst is Grade.ERROR
    assert report.findings[-1].sentence.startswith("NOT_A_JOURNAL: postgresql://db.example:5432/agents")
    assert "postgresql://db.example/agents" in report.findings[-1].remedy
    assert "hunter2" not in str(report)
