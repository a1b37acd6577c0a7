"""`python -m recovery export, import, backup` and `minutebook doctor` on real files."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.command_line import ROOT, call, run, traces, write
from tests.journals import asking, long, lost_payment, three_calls


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where a test keeps its journal."""
    directory = tmp_path / "kept"
    directory.mkdir(mode=0o700)
    return directory / "journal.db"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_export_goes_out_and_comes_back(journal: Path, tmp_path: Path) -> None:
    write(journal, long(300), three_calls())
    export, copy = tmp_path / "e.jsonl", tmp_path / "copy" / "journal.db"
    found = call("export", journal, "--output", export)
    assert (found.code, found.err) == (0, "exported 2 sessions, 318 events\n")
    assert mode(export) == 0o600
    assert call("verify", export).code == 4
    assert call("inspect", export).code == call("inspect", journal).code == 1
    assert call("import", export, copy).out == "imported 2 sessions, 318 events\n"
    for session_id in ("s-long", "s-three"):
        plans = [call("inspect", path, session_id, "--json").document for path in (journal, copy, export)]
        assert plans[0]["head"] == plans[1]["head"] == plans[2]["head"]
        items = [[(i["action"], i["evidence"]) for i in plan["items"]] for plan in plans]
        assert items[0] == items[1] == items[2]
    assert call("verify", copy).code == 4


def test_an_export_to_standard_output_is_the_same(journal: Path, tmp_path: Path) -> None:
    write(journal, three_calls())
    export = tmp_path / "e.jsonl"
    call("export", journal, "--output", export)
    assert run("export", journal).out == export.read_text()
    assert call("export", journal, "s-three").out == export.read_text()


def test_nothing_is_written_over(journal: Path, tmp_path: Path) -> None:
    write(journal, three_calls())
    taken = tmp_path / "taken.jsonl"
    taken.write_text("mine")
    assert call("export", journal, "--output", taken).code == 2
    assert call("backup", journal, taken).code == 2
    assert taken.read_text() == "mine"


def test_a_broken_journal_leaves_no_export_behind(journal: Path, tmp_path: Path) -> None:
    write(journal, asking(), lost_payment())
    connection = sqlite3.connect(journal)
    with connection:
        connection.execute("UPDATE minutebook_events SET payload = x'7b7d' WHERE originator_id = 's-pay'")
    connection.close()
    found = call("export", journal, "--output", tmp_path / "e.jsonl")
    assert (found.code, "payload at sequence 1" in found.err) == (3, True)
    assert not (tmp_path / "e.jsonl").exists()


FULL_DISK = """
import resource, sys
from recovery.cli import main

resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")
def test_an_export_that_finds_no_room_says_so_and_leaves_nothing(journal: Path, tmp_path: Path) -> None:
    write(journal, three_calls())
    export = tmp_path / "e.jsonl"
    command = [sys.executable, "-c", FULL_DISK, "export", str(journal), "--output", str(export)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (child.returncode, export.exists()) == (3, False), child.stderr
    assert child.stderr.startswith(f"SESSION_STORE_WRITE_FAILED: {export}: nothing was kept"), child.stderr


def test_an_import_writes_nothing_unless_all_of_it_is_valid(journal: Path, tmp_path: Path) -> None:
    write(journal, asking(), lost_payment())
    export, copy = tmp_path / "e.jsonl", tmp_path / "copy.db"
    call("export", journal, "--output", export)
    data = export.read_bytes()
    export.write_bytes(data[:-30])
    found = call("import", export, copy)
    assert (found.code, copy.exists()) == (3, False)
    assert "a line that was cut" in found.err
    export.write_bytes(data)
    assert call("import", export, copy).code == 0
    before = traces(copy)
    again = call("import", export, copy)
    assert (again.code, "were there already" in again.out) == (0, True)
    assert traces(copy)["copy.db"][0] == before["copy.db"][0]


def test_damage_to_an_export_is_named_on_the_command_line(journal: Path, tmp_path: Path) -> None:
    write(journal, lost_payment())
    export = tmp_path / "e.jsonl"
    call("export", journal, "--output", export)
    lines = export.read_bytes().splitlines(keepends=True)
    export.write_bytes(b"".join([*lines[:6], b"\0" * 512, *lines[6:]]))
    start = len(b"".join(lines[:6]))
    for command, code in (("inspect", 3), ("verify", 1), ("replay", 3)):
        found = call(command, export, "s-pay")
        assert found.code == code, command
        told = " ".join((found.out + found.err).split())
        assert "512 NUL bytes" in told, (command, told)
        assert f"bytes {start} to {start + 511}" in told or command == "inspect"


# --- backup -------------------------------------------------------------------------------


def test_a_backup_is_one_private_file_with_the_same_heads(journal: Path, tmp_path: Path) -> None:
    write(journal, long(300))
    before = traces(journal)
    copy = tmp_path / "copy.db"
    assert call("backup", journal, copy).code == 0
    assert traces(journal) == before
    assert mode(copy) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["copy.db", "kept"]
    heads = [call("inspect", path, "--json").document["plans"][0]["head"] for path in (journal, copy)]
    assert heads[0] == heads[1]
    assert call("verify", copy).code == 4


WRITE = """
import sys, anyio
from adapters.sqlite_store import SqliteStore
from domain import session
from minutebook.testing.keeping import batches
from minutebook.testing.scenario import created, given

async def main():
    scenario = given(created())
    async with SqliteStore(sys.argv[1]).open() as journal:
        for number in range(1, 1000):
            scenario.given([session.Note("n", "x" * 200) for _ in range(5)])
            for batch in list(batches(scenario.entries))[-1 if number > 1 else 0:]:
                await journal.commit(batch)
            print(number, flush=True)

anyio.run(main)
"""


def test_a_backup_is_consistent_while_another_process_writes(journal: Path, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WRITE, str(journal)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        for number in range(3):
            child.stdout.readline()
            copy = tmp_path / f"copy-{number}.db"
            assert call("backup", journal, copy).code == 0
            assert call("verify", copy).code == 4
        child.kill()


@pytest.mark.parametrize("name", ["missing.db", "prose.db", "e.jsonl"])
def test_what_is_no_journal_is_not_copied(tmp_path: Path, name: str) -> None:
    (tmp_path / "prose.db").write_text("hello " * 500)
    found = call("backup", tmp_path / name, tmp_path / "copy.db")
    assert found.code in (2, 3)
    assert not (tmp_path / "copy.db").exists()


# --- memory -------------------------------------------------------------------------------


MEASURE = """
import resource, sys
from recovery.cli import main

code = main(sys.argv[1:])
print("KB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(code)
"""


def peak(*arguments: str | Path) -> int:
    """The most memory that a command ever had, in KB."""
    child = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return int(child.stdout.rsplit("KB", 1)[1])


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A journal of more than a page, and one eight times as long (about 8 MB)."""
    directory = tmp_path_factory.mktemp("sizes")
    small = write(directory / "small.db", long(1200, per_commit=100))
    large = write(directory / "large.db", long(10_000, per_commit=100))
    return small, large


@pytest.mark.parametrize(
    "command", [["inspect", "{}", "s-long"], ["verify", "{}", "s-long"], ["verify", "{}", "--chain-only"]]
)
def test_memory_does_not_grow_with_the_journal(sizes: tuple[Path, Path], command: list[str]) -> None:
    small, large = (peak(*[word.format(path) for word in command]) for path in sizes)
    assert large - small < 1_500, (small, large)


# --- doctor -------------------------------------------------------------------------------


def doctor(*arguments: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from minutebook.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, "doctor", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_doctor_finds_a_sound_journal_sound(journal: Path) -> None:
    write(journal, three_calls())
    before = traces(journal)
    found = doctor(journal)
    assert (found.returncode, found.stderr) == (0, "")
    for topic in ("python", "sqlite", "integrity", "pragmas", "blobs", "modes", "filesystem"):
        assert topic in found.stdout
    assert traces(journal) == before


def test_the_doctor_names_what_is_wrong(journal: Path, tmp_path: Path) -> None:
    write(journal, three_calls())
    connection = sqlite3.connect(journal)
    with connection:
        connection.execute("INSERT INTO minutebook_blobs VALUES ('ab12', x'00')")
    connection.close()
    journal.chmod(0o644)
    found = doctor(journal)
    assert "ab12" in found.stdout
    assert "chmod 600" in found.stdout
    assert doctor(tmp_path / "missing.db").returncode == 1
