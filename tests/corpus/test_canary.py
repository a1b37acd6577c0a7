"""The plugin that looks for secrets finds them: planted ones fail a run, and every place is told."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus.canary import Watch, canary, forms
from tests.integration.command_line import ROOT

PLANTED = """
import base64, logging, sqlite3, sys, tempfile
import pytest
from tests.corpus.canary import canary

SECRET = canary("planted")

def test_a_file(tmp_path):
    (tmp_path / "export.jsonl").write_text("x" * 9_000_000 + SECRET)

def test_a_write_ahead_log(tmp_path):
    connection = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x BLOB)")
    connection.execute("INSERT INTO t VALUES (?)", (SECRET.encode(),))
    keep.append(connection)

keep = []

def test_base64(tmp_path):
    (tmp_path / "encoded").write_bytes(base64.b64encode(b"user:" + SECRET.encode()))

def test_a_file_name(tmp_path):
    (tmp_path / SECRET).touch()

def test_a_temporary_file():
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(SECRET.encode())

def test_a_log_record():
    logging.getLogger("httpx2").debug("sent %s", {"authorization": SECRET})

def test_a_traceback_in_a_log():
    try:
        raise ValueError(SECRET)
    except ValueError:
        logging.getLogger("minutebook").exception("it failed")

def test_standard_output():
    print(SECRET)

def test_standard_error():
    print(SECRET, file=sys.stderr)

@pytest.mark.xfail(strict=True)
def test_a_failure():
    assert SECRET == "expected"

def test_what_somebody_uses_as_a_key(tmp_path):
    from minutebook.provider_config import ProviderConfig
    config = ProviderConfig("openai", api_key="a-key-of-my-own-making")
    (tmp_path / "config").write_text(config.credential)
"""
PLACES = (
    "test_a_file0/export.jsonl",
    "journal.db-wal",
    "test_base640/encoded",
    "the name of test_a_file_name0",
    "elsewhere/",
    "a log record of httpx2",
    "a log record of minutebook",
    "Captured stdout call of test_standard_output",
    "Captured stderr call of test_standard_error",
    "/config",
    "the traceback of test_a_failure",
)

CLEAN = """
from minutebook.provider_config import ProviderConfig
from tests.corpus.canary import canary

def test_nothing(tmp_path):
    config = ProviderConfig("openai", api_key=canary("clean"))
    (tmp_path / "config").write_text(repr(config))
    print(config)
"""


#: A run in one process, and one that is shared out to two.
WAYS = pytest.mark.parametrize("way", [[], ["-n", "2"]], ids=["alone", "shared out"])


def run(directory: Path, tests: str, way: list[str]) -> subprocess.CompletedProcess[str]:
    """A run of its own with these tests."""
    file = directory / "test_planted.py"
    file.write_text(tests)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.corpus.canary", "-q", "--no-header", "-p",
         "no:cacheprovider", "--rootdir", str(directory), "--basetemp", str(directory / "base"), *way,
         str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip


@WAYS
def test_a_planted_secret_fails_the_run_wherever_it_is(tmp_path: Path, way: list[str]) -> None:
    found = run(tmp_path, PLANTED, way)
    assert found.returncode == 1, found.stdout
    assert "10 passed, 1 xfailed" in found.stdout, "each test passes: it is the run that fails"
    told = [line for line in found.stdout.splitlines() if line.startswith("SECRET FOUND")]
    assert [place for place in PLACES if not any(place in line for line in told)] == []
    assert "sk-planted" not in found.stdout
    assert "a-key-of-my-own" not in found.stdout


@WAYS
def test_a_run_without_one_passes(tmp_path: Path, way: list[str]) -> None:
    found = run(tmp_path, CLEAN, way)
    assert found.returncode == 0, found.stdout
    assert " 0 hits" in found.stdout


def test_this_run_is_watched(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("tests.corpus.canary")


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(4))
def test_base64_gives_a_secret_away_wherever_it_begins(before: int, after: int) -> None:
    watch, secret = Watch(), canary("base64")
    watch.add(secret)
    watch.look(base64.b64encode(os.urandom(before) + secret.encode() + os.urandom(after)), "somewhere")
    assert len(watch.hits) == 1
    assert all(len(form) >= 10 for form in forms(secret))
