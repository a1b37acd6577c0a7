"""What a running tool is given: who it runs for, its key, and a way to report.

Made by the tool runtime for each run and handed to a parameter annotated
`ToolContext`. Nothing here starts, records or decides anything.
"""

from __future__ import annotations

from asyncio import CancelledError  # noqa: TID251 - only the type, which passes `except Exception`
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from anyio import from_thread

from domain.envelope import Fence


async def _nobody_listens(_: Any) -> None:
    """What a report does where no session takes it."""


@dataclass(frozen=True, slots=True, eq=False)
class ToolContext:
    """What one run of a call may know and do. Annotate a parameter with it to get it.

    Args:
        session_id, request_id, turn_id, tool_id: where the call belongs; `tool_id` names the call.
        idempotency_key: the same for every run of this call, different for every other call.
        run: which run of the call this is, from 1.
        fence: the session's lease, or None; pass its token on to systems that can refuse old ones.
        environment: what the session's context gives to tools. The process's own is not read.
        metadata: what the application attached to the request.
        stopping: set when the call shall stop; shared by all who hold this context.
        on_progress, on_message: who takes `progress` and `message`.
    """

    session_id: str
    request_id: str
    turn_id: str
    tool_id: str
    idempotency_key: str
    run: int = 1
    fence: Fence | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    stopping: Event = field(default_factory=Event, repr=False)
    on_progress: Callable[[Any], Awaitable[None]] = field(default=_nobody_listens, repr=False)
    on_message: Callable[[Any], Awaitable[None]] = field(default=_nobody_listens, repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether the call shall stop. A sync tool can only be stopped by looking here."""
        return self.stopping.is_set()

    def raise_if_cancelled(self) -> None:
        """Leave the tool if it shall stop; the call is then recorded as cancelled.

        Raises:
            asyncio.CancelledError: the call shall stop. Do not catch it.
        """
        if self.cancelled:
            raise CancelledError("the call was told to stop")

    async def progress(self, value: Any) -> None:
        """Show how far the tool is. Live only: it is not recorded.

        Args:
            value: any JSON value.
        """
        await self.on_progress(value)

    async def message(self, content: str) -> None:
        """Say something to the people who watch the session.

        Args:
            content: plain text.
        """
        await self.on_message(content)

    def progress_sync(self, value: Any) -> None:
        """`progress` for a sync tool, which runs in a thread. It returns when the value was taken."""
        from_thread.run(self.progress, value)

    def message_sync(self, content: str) -> None:
        """`message` for a sync tool, which runs in a thread. It returns when the text was taken."""
        from_thread.run(self.message, content)
