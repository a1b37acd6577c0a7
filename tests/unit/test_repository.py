"""The repository itself: nothing of one machine in it, and its indexes are complete."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADRS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
SECTIONS = ("Context", "Decision", "Consequences", "Alternatives rejected", "Evidence", "Source")

MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:root|work|home|Users)/[\w.-]")
REGISTRY = re.compile(r"https?://[\w.-]*(?:pypi|pythonhosted|npmjs|debian)[\w.-]*", re.IGNORECASE)
INDEX_OPTION = re.compile(r"--(?:extra-)?index-url")


def tracked() -> list[Path]:
    """Files that are, or would be, in the repository; all files where there is no git."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if listing.returncode != 0:
        return [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY, INDEX_OPTION], ids=["path", "registry", "index"])
def test_no_file_names_a_machine_or_a_registry(pattern: re.Pattern[str]) -> None:
    hits = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in tracked()
        if (found := pattern.search(path.read_bytes().decode("utf-8", "replace")))
    ]
    assert hits == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [  # in pieces, so that this file does not contain what it looks for
        (MACHINE_PATH, f"cd /{'root'}/project"),
        (REGISTRY, f"https://files.{'python'}hosted.org/packages"),
        (INDEX_OPTION, f"pip install --extra-{'index'}-url x"),
    ],
)
def test_the_patterns_see_what_they_look_for(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)


def test_constraints_are_plain_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin)] == []


def test_every_dependency_is_pinned_by_a_constraint() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[\[<>=; ]", each, maxsplit=1)[0] for each in wanted} - {"minutebook"}
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert names - pinned == set()


def test_the_changelog_says_what_happens_to_the_journal_format() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    releases = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert releases
    assert [release.split("\n")[0] for release in releases if "### Journal format\n" not in release] == []


def test_the_adr_index_lists_every_record() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    listed = re.findall(r"^\| \[(\d{4})\]\((\d{4}-[\w-]+\.md)\) \|", index, flags=re.MULTILINE)
    assert [name for _, name in listed] == [adr.name for adr in ADRS]
    assert [number for number, name in listed if not name.startswith(number)] == []


@pytest.mark.parametrize("adr", ADRS, ids=lambda adr: adr.stem)
def test_a_record_has_every_section_and_fits_a_page(adr: Path) -> None:
    text = adr.read_text()
    assert text.startswith(f"# {adr.name[:4]} ")
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == list(SECTIONS)
    assert len(text.split()) <= 700
