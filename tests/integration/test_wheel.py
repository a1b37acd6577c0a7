"""The wheel: what is in it, and that it works without the checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {"domain", "projections", "adapters", "recovery", "minutebook"}


def python(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A child that sees the wheel's content before this checkout, from a directory with neither."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=installed.parent,
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_wheel_holds_the_five_packages_and_nothing_else(installed: Path) -> None:
    tops = {path.name for path in installed.iterdir()}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    for package in PACKAGES:
        assert (installed / package / "py.typed").is_file()


def test_the_wheel_has_the_licence_and_the_command(installed: Path) -> None:
    (record,) = installed.glob("*.dist-info")
    assert (record / "licenses" / "LICENSE").is_file()
    assert "minutebook = minutebook.cli:main" in (record / "entry_points.txt").read_text()


def test_the_library_imports_from_the_wheel(installed: Path) -> None:
    child = python(installed, "-c", "import minutebook, domain; print(minutebook.__file__, domain.__file__)")
    assert child.stdout.split() == [
        str(installed / name / "__init__.py") for name in ("minutebook", "domain")
    ], child.stderr


def test_the_recovery_command_runs_from_the_wheel(installed: Path) -> None:
    child = python(installed, "-m", "recovery", "--help")
    assert child.returncode == 0, child.stderr
    assert "inspect" in child.stdout
