"""Every page of the documentation, carried out: its examples run, its links lead somewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.model_ports import DeclaredCall
from minutebook.testing.chat_replies import chat_reply
from minutebook.testing.fake_server import Received, Reply, serve_in_thread
from tests.docs.pages import DOCS, LANGUAGES, ROOT, Reader, anchors, blocks, commands, fits, links

PAGES = sorted(DOCS.glob("*.md"))
ELSEWHERE = ("README.md", "CONTRIBUTING.md", "tests/README.md", "tests/golden/README.md", "bench/README.md")
PROSE = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ELSEWHERE if (ROOT / name).exists())]


def runs(page: Path) -> bool:
    return any(each.language in ("python", "console") for each in blocks(page.read_text(encoding="utf-8")))


def provider(request: Received) -> Reply:
    """A model that asks for the weather once and then says that it is sunny."""
    if any(message["role"] == "tool" for message in request.parsed["messages"]):
        return chat_reply("It is sunny.")
    has_weather = "weather" in str(request.parsed.get("tools", ""))
    call = DeclaredCall("call_1", "weather", '{"city": "Rome"}')
    return chat_reply("", [call]) if has_weather else chat_reply("Hello.")


@pytest.fixture
def base_url() -> Iterator[str]:
    with serve_in_thread(provider) as server:
        yield server.url


@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: page.stem)
def test_the_examples_run(page: Path, base_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"BASE_URL": base_url, "API_KEY": "a-key", "MODEL": "small"}
    reader = Reader(page, tmp_path, given)
    reader.read()
    assert reader.ran


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_says_what_it_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {block.language for block in blocks(text)} <= LANGUAGES
    assert text.count("\n```") + text.startswith("```") == 2 * len(blocks(text))


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = [link for link in links(page.read_text(encoding="utf-8")) if not _leads(page, link)]
    assert lost == []


def _leads(page: Path, link: str) -> bool:
    if link.startswith("https://"):
        return True
    path, _, anchor = link.partition("#")
    target = page if not path else Path(os.path.normpath(page.parent / path))
    if not target.exists():
        return False
    return not anchor or anchor in anchors(target.read_text(encoding="utf-8"))


def test_every_page_is_in_the_index() -> None:
    index = links((DOCS / "README.md").read_text(encoding="utf-8"))
    assert {page.name for page in PAGES} - {"README.md"} <= set(index)
    assert "adr/README.md" in index


# --- the reader itself ------------------------------------------------------------------


def test_blocks_are_found_with_their_lines() -> None:
    text = "# Title\n\n```python\na = 1\n```\n\n<!--\n```sh\nls\n```\n-->\n"
    assert [(each.language, each.text, each.line) for each in blocks(text)] == [
        ("python", "a = 1\n", 4),
        ("sh", "ls\n", 9),
    ]


def test_commands_are_found_with_what_is_shown_under_them() -> None:
    text = "$ one \\\n    more\nfirst\n\nthird\n$ two\n"
    assert list(commands(text)) == [("one \\\n    more", "first\n\nthird"), ("two", "")]


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("a\nb\n", "a\nb", True),
        ("a\nc\n", "a\nb", False),
        ("anything\n", "", True),
        ("head 12ab at 7\n", "head ... at 7", True),
        ("head 12ab at 8\n", "head ... at 7", False),
        ("a\nx\ny\nb\n", "a\n...\nb", True),
        ("a\nb\n", "a\n...\nb", True),
        ("a\nx\n", "a\n...\nb", False),
        ("a  \nb\n", "a\nb", True),
        ("a\nb\nc\n", "a\nb", False),
    ],
)
def test_what_is_shown_is_compared_with_what_is_printed(printed: str, shown: str, same: bool) -> None:
    assert fits(printed, shown) is same


def test_links_inside_blocks_are_none() -> None:
    assert links('[a](b.md) <img src="c.svg" alt="">\n```text\n[d](e.md)\n```\n') == ["b.md", "c.svg"]


def test_a_reader_follows_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nimport anyio\nasync def two():\n    return GIVEN\n```\n"
        "```python\nmade = await two()\n```\n"
        "```python\n# show.py\nprint('shown', 7)\n```\n"
        "```console\n$ python show.py\nshown ...\n```\n"
    )
    names = {"GIVEN": 2}
    reader = Reader(page, tmp_path, names)
    reader.read()
    assert [block.language for block in reader.ran] == ["python", "python", "python", "console"]
    page.write_text("```python\n# show.py\nprint('shown')\n```\n```console\n$ python show.py\nhidden\n```\n")
    with pytest.raises(AssertionError, match="the page shows"):
        Reader(page, tmp_path, {}).read()
