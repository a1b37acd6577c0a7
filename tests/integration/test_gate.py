"""The gate, up to where it would begin: what has to be on the machine, and what it does about it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHELL = ("bash", "dirname", "env")


@pytest.fixture
def bin_(tmp_path: Path) -> Path:
    """A PATH with hardly anything; `make` says that it was called and fails."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in SHELL:
        found = shutil.which(name)
        assert found is not None
        (place / name).symlink_to(found)
    program(place, "make", 'echo "make $*"; exit 1')
    return place


def program(place: Path, name: str, text: str) -> None:
    """A program of a few words."""
    (place / name).write_text(f"#!{shutil.which('bash')}\n{text}\n")
    (place / name).chmod(0o755)


def gate(bin_: Path, *, recordings: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the gate with that PATH."""
    wire = bin_.parent / "wire"
    wire.mkdir()
    if recordings:
        (wire / "one.json").write_text("{}")
    environment = {"PATH": str(bin_), "MINUTEBOOK_WIRE": str(wire)}
    return subprocess.run(
        [ROOT / ".ci" / "run"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_without_recordings_it_refuses(bin_: Path) -> None:
    ended = gate(bin_, recordings=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "No recordings" in ended.stderr


@pytest.mark.parametrize("root", [False, True])
def test_without_programs_and_without_a_way_to_install_them_it_refuses(bin_: Path, root: bool) -> None:
    program(bin_, "id", f"echo {0 if root else 1000}")
    if not root:
        program(bin_, "apt-get", "echo called")
    ended = gate(bin_)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "strace" in ended.stderr
    assert "apt-get install" in ended.stderr


@pytest.mark.parametrize("works", [False, True])
def test_root_installs_them_as_a_step_that_is_seen(bin_: Path, works: bool) -> None:
    program(bin_, "id", "echo 0")
    program(bin_, "apt-get", f'echo "installing: $*"; exit {0 if works else 1}')
    ended = gate(bin_)
    assert ended.returncode == 1
    assert "== apt-get update\n" in ended.stdout
    assert "installing: install --yes --no-install-recommends " in ended.stdout
    assert ("make environment" in ended.stdout) is works


def test_with_programs_it_begins(bin_: Path) -> None:
    for name in ("initdb", "strace", "ip"):
        program(bin_, name, "exit 1")
    ended = gate(bin_)
    assert ended.stdout.startswith("== make environment\nmake environment\n")
    assert "apt-get" not in ended.stdout + ended.stderr
