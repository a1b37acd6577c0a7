"""Waiting for a state in tests without a loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tests.store.waiting import PATIENCE_S

_STEP_S = 0.005


def wait_until(state: Callable[[], bool], what: str) -> None:
    """Look again and again until a state is reached."""
    end, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while not state():
        assert time.monotonic() < end, f"waited in vain: {what}"
        pause.wait(_STEP_S)
