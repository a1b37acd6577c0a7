"""The conversation that every system has: one definition for ours, the floor and the peers.

One request: a user's message, a streamed answer that asks for tools, tools that do
nothing, a streamed answer in pieces. No time to think anywhere. Imported by every
case and by the fake model; only the standard library, because peers have their own
environments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Protocol

#: About 200 bytes, as somebody would type them.
PROMPT: Final = "Look this up for me, please, and tell me in one paragraph what you found. " * 3
TOOL_NAME: Final = "look_up"
TOOL_TEXT: Final = "Looks something up."
TOOL_RESULT: Final = "0123456789abcdef" * 64  # 1 KiB
PIECES: Final = 20
#: What the last piece of an answer contains, so that a cut one is noticed.
LAST_WORDS: Final = "piece 19"

TOOL_SPEC: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": TOOL_TEXT,
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    },
}

#: What a case hands back: figures, short texts about how it was measured, curves.
Metrics = dict[str, Any]


def model_name(tools: int = 1, pieces: int = PIECES) -> str:
    """The model that asks for `tools` tools and answers in `pieces` pieces: its name is its script."""
    return f"fake-{tools}-{pieces}"


def piece(number: int) -> str:
    """One piece of an answer, 22 characters."""
    return f"piece {number:02d} of the answer. "


class NotHereError(Exception):
    """What a case needs is not on this machine: it is left out, not failed."""


class Conversation(Protocol):
    """One session of a system."""

    async def request(self, number: int) -> str:
        """Have one request answered, taking every piece of the answer; its last text."""

    async def close(self) -> None:
        """End it."""


class System(Protocol):
    """Something that can have the conversation: ours, the floor, a peer."""

    async def open(self, mode: str, directory: Path, url: str) -> None:
        """Set it up.

        Args:
            mode: what keeps the conversation; each system names its own.
            directory: empty, for files.
            url: of the fake model, without `/v1`.
        """

    async def begin(self, session_id: str, tools: int) -> Conversation:
        """A new session whose model asks for `tools` tools."""

    async def close(self) -> None:
        """Let everything go."""

    def facts(self) -> dict[str, str]:
        """What stands beside the time: `journal`, how it keeps; `version` of the library."""


class Resumable(Protocol):
    """A system whose long session can be picked up again."""

    async def build(self, requests: int) -> None:
        """Store a session of so many requests, by the quickest way the system has."""

    async def resume(self) -> int:
        """Get that session back as the system would for its next request; the number of messages."""
