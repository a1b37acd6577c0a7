"""The name guard, in real child processes: another package of one of our names on the path."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from minutebook import _siblings

ROOT = Path(__file__).parents[2]
FOREIGN = "raise SystemExit('foreign code was executed')\n"

#: Import minutebook and say how that went, on one line for each fact.
ASK = """
try:
    import minutebook
except ImportError as error:
    print(type(error).__name__, error.code, error.name)
    print(error.path)
    print(error)
else:
    print("fine")
"""


def run(
    code: str, *, path: Iterable[Path] = (), cwd: Path = ROOT, flags: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """A child Python that sees this checkout last, after `path`."""
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        cwd=cwd,
        env={"PYTHONPATH": ":".join(str(place) for place in (*path, ROOT))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def foreign_package(place: Path, name: str = "domain", text: str = FOREIGN) -> Path:
    package = place / name
    package.mkdir(parents=True)
    init = package / "__init__.py"
    init.write_text(text)
    return init


def assert_refused(child: subprocess.CompletedProcess[str], name: str, found: Path) -> None:
    lines = child.stdout.splitlines()
    assert lines[:2] == [f"ForeignPackageError FOREIGN_PACKAGE {name}", str(found)], child.stderr
    assert f"found:    {found}" in child.stdout
    assert f"expected: {ROOT / name / '__init__.py'}" in child.stdout
    for remedy in ("another directory", "PYTHONPATH", "rename", "python -P"):
        assert remedy in child.stdout


@pytest.mark.parametrize("name", _siblings.SIBLINGS)
def test_a_foreign_package_in_the_current_directory_is_refused(tmp_path: Path, name: str) -> None:
    found = foreign_package(tmp_path, name)
    assert_refused(run(ASK, cwd=tmp_path), name, found)


@pytest.mark.parametrize("name", _siblings.SIBLINGS)
def test_a_foreign_package_on_pythonpath_is_refused(tmp_path: Path, name: str) -> None:
    found = foreign_package(tmp_path, name)
    assert_refused(run(ASK, path=[tmp_path], flags=["-P"]), name, found)


def test_a_foreign_package_that_is_imported_already_is_refused(tmp_path: Path) -> None:
    found = foreign_package(tmp_path, text="")
    assert_refused(run(f"import domain\n{ASK}", cwd=tmp_path), "domain", found)


def test_a_foreign_module_is_refused(tmp_path: Path) -> None:
    found = tmp_path / "domain.py"
    found.write_text(FOREIGN)
    assert_refused(run(ASK, path=[tmp_path], flags=["-P"]), "domain", found)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("# MINUTEBOOK_SIBLING = 'minutebook'\n" + FOREIGN, id="in a comment"),
        pytest.param("MINUTEBOOK_SIBLING = 'another'\n" + FOREIGN, id="another value"),
        pytest.param("# coding: no-such-coding\n" + FOREIGN, id="unreadable"),
    ],
)
def test_a_file_that_only_looks_like_ours_is_refused(tmp_path: Path, text: str) -> None:
    found = foreign_package(tmp_path, text=text)
    assert_refused(run(ASK, path=[tmp_path], flags=["-P"]), "domain", found)


def test_python_p_is_a_way_out(tmp_path: Path) -> None:
    foreign_package(tmp_path)
    assert run(ASK, cwd=tmp_path, flags=["-P"]).stdout == "fine\n"


def test_a_directory_that_is_no_package_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "domain").mkdir()
    assert run(ASK, path=[tmp_path], cwd=tmp_path).stdout == "fine\n"


def test_a_path_changed_after_the_import_does_not_swap_a_sibling(tmp_path: Path) -> None:
    foreign_package(tmp_path)
    later = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); print(minutebook.SideEffect.PURE)"
    assert run(f"import minutebook; {later}").stdout == "pure\n"


def test_a_missing_sibling_is_named(tmp_path: Path) -> None:
    gone = "import sys, importlib.util as util\nreal = util.find_spec\n"
    gone += "util.find_spec = lambda name, *rest: None if name == 'recovery' else real(name, *rest)\n"
    answer = run(gone + ASK).stdout
    assert "ForeignPackageError FOREIGN_PACKAGE recovery\nnowhere" in answer
    assert "install minutebook again" in answer


def test_a_distribution_that_claims_the_name_is_named(tmp_path: Path) -> None:
    foreign_package(tmp_path)
    record = tmp_path / "shadow-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: shadow\nVersion: 1.0\n")
    (record / "top_level.txt").write_text("domain\n")
    (record / "RECORD").write_text("domain/__init__.py,,\n")
    assert "also installed by: shadow" in run(ASK, path=[tmp_path], flags=["-P"]).stdout


def test_the_recovery_command_says_so_in_plain_words(tmp_path: Path) -> None:
    found = foreign_package(tmp_path)
    child = subprocess.run(
        [sys.executable, "-P", "-m", "recovery", "inspect", "sessions.db"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 2
    assert f"found:    {found}" in child.stderr
    assert "Traceback" not in child.stderr


def test_our_own_packages_are_found_to_be_ours() -> None:
    _siblings.check()
