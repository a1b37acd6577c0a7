"""The API reference is what the docstrings say, and every public name is in it."""

from __future__ import annotations

import runpy
from pathlib import Path

import minutebook as mb

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_is_made_from_the_docstrings() -> None:
    made = runpy.run_path(str(DOCS / "make_api.py"))["page"]()
    assert (DOCS / "api.md").read_text(encoding="utf-8") == made, "run: python docs/make_api.py"


def test_every_public_name_is_in_it() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    assert [name for name in mb.__all__ if name != "errors" and f"### `mb.{name}`\n" not in text] == []


def test_no_address_and_no_path_of_a_machine_is_in_it() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    assert " at 0x" not in text
    assert str(DOCS.parent) not in text
