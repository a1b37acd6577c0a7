"""What a running tool is given: who it runs for, its key, and a way to report.

Made by the tool runtime for each run and handed to a parameter annotated
`ToolContext`. Nothing here starts, records or decides anything.
"""

from __future__ import annotations

import os
import subprocess
from asyncio import CancelledError  # noqa: TID251 - only the type, which passes `except Exception`
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from anyio import from_thread
from anyio.abc import Process

from domain.envelope import Fence
from domain.errors import InvalidOptions
from minutebook.processes import Stdio


async def _nobody_listens(_: Any) -> None:
    """What a report does where no session takes it."""


async def _nobody_ends_it(*_: Any) -> Process:
    """What starting a process does where no session would end it."""
    raise InvalidOptions("context", "one that a session made, to start a process", "a context of no session")


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
        on_start: who starts and ends processes.
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
    on_start: Callable[..., Awaitable[Process]] = field(default=_nobody_ends_it, repr=False)

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

    async def start_process(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stdin: Stdio = subprocess.DEVNULL,
        stdout: Stdio = subprocess.PIPE,
        stderr: Stdio = subprocess.PIPE,
        background: bool = False,
    ) -> Process:
        """Start a program that ends with the call, whatever becomes of it.

        The program is a process group of its own. When the call ends, however it does, the whole
        group is killed; when the call is told to stop with time to do so, the group is sent SIGTERM
        first. When the session's lease is lost, or the session is left, every group is killed.
        A program that begins a session of its own (a daemon) is out of reach.

        Args:
            argv: the program and its arguments; no shell reads them. Without a `PATH` in its
                environment it is looked for where the system's own programs are.
            environment: on top of the context's; the process's own is not given to it.
            cwd: where it runs; None: where this process does.
            stdin, stdout, stderr: `subprocess.PIPE`, `subprocess.DEVNULL`, or an open file.
            background: it goes on after the call, until `session.background.stop`, or until the
                session is left. Do not give it a pipe: once full, it stops the program. While it
                runs the session is not handed over.

        Returns:
            The running process, as `anyio.open_process` gives it.

        Raises:
            InvalidOptions: `argv` is no list of texts.
            LeaseLost: the session is not ours any more; nothing was started.
            OSError: there is no such program, or it cannot be run.
        """
        given = {**self.environment, **(environment or {})}
        return await self.on_start(argv, given, cwd, (stdin, stdout, stderr), background)

    def progress_sync(self, value: Any) -> None:
        """`progress` for a sync tool, which runs in a thread. It returns when the value was taken."""
        from_thread.run(self.progress, value)

    def message_sync(self, content: str) -> None:
        """`message` for a sync tool, which runs in a thread. It returns when the text was taken."""
        from_thread.run(self.message, content)
