"""The fixtures of the session tests: cases are sessions too."""

from __future__ import annotations

from tests.session.conftest import any_place, hands, place

__all__ = ["any_place", "hands", "place"]
