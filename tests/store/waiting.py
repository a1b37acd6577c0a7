"""Waiting for a state, never for a time."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.lowlevel

#: Long enough never to be reached; a test that reaches it waits for what does not come.
PATIENCE_S = 20


async def until(state: Callable[[], bool]) -> None:
    """Let the others run until a state is reached."""
    with anyio.fail_after(PATIENCE_S):
        while not state():
            await anyio.lowlevel.checkpoint()
