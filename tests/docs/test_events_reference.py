"""The events reference is what the catalogue says."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_events_reference_is_made_from_the_catalogue() -> None:
    made = runpy.run_path(str(DOCS / "make_events.py"))["reference"]()
    assert (DOCS / "events.md").read_text(encoding="utf-8") == made, "run: python docs/make_events.py"
