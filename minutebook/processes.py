"""The processes that tools start: each call's own, and those that go on behind it.

Imported by the opening of a session, by its flights and by its launcher. A process is begun
in a session of its own, so that it ends with everything it has started. When something has
to end is decided by whoever calls; what a call means is not known here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

import anyio
from anyio.abc import Process

from domain.errors import InvalidOptions, MinutebookError

#: How long the kernel has to end what was killed.
REAP_S: Final = 5.0

#: What a process may be connected to: `subprocess.PIPE`, `subprocess.DEVNULL`, or an open file.
Stdio = int | IO[Any] | None


@dataclass(frozen=True, slots=True)
class BackgroundProcess:
    """A process that goes on after the call that started it.

    Args:
        id: names it among those of the session.
        tool_id: the call that started it.
        process_id: its number, also that of its group.
    """

    id: str
    tool_id: str
    argv: tuple[str, ...]
    process_id: int


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """A process and everything that it has started."""

    told: BackgroundProcess
    process: Process
    background: bool

    @property
    def lives(self) -> bool:
        """Whether anything of it is left."""
        return self.process.returncode is None or self._rest_lives()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of it."""
        if self.process.returncode is None or self._rest_lives():
            try:
                os.killpg(self.process.pid, number)
            except (ProcessLookupError, PermissionError):
                return  # it has ended; what has no rights over is none of ours

    def _rest_lives(self) -> bool:
        # The number of a group with members is never given to a new process. So where a
        # process has it although ours has ended, the group is gone, and that one is a stranger.
        try:
            os.kill(self.process.pid, 0)
        except ProcessLookupError:
            pass
        except PermissionError:
            return False
        else:
            return False
        try:
            os.killpg(self.process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


class Processes:
    """The processes of one session.

    Args:
        check: raises where nothing may be started any more.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._groups: dict[str, _Group] = {}
        self._started = 0
        self._closed: MinutebookError | None = None
        self._foreground_only: MinutebookError | None = None

    @property
    def background(self) -> tuple[BackgroundProcess, ...]:
        """Those that go on after their call."""
        return tuple(group.told for group in self._groups.values() if group.background and group.lives)

    async def start(
        self,
        tool_id: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | os.PathLike[str] | None,
        stdio: tuple[Stdio, Stdio, Stdio],
        background: bool,
    ) -> Process:
        """Begin a process for a call. Arguments as for `ToolContext.start_process`."""
        command = _checked(argv)
        self._may_start()
        if background and self._foreground_only is not None:
            raise self._foreground_only.with_traceback(None)
        stdin, stdout, stderr = stdio
        with anyio.CancelScope(shield=True):  # or it could run with nobody who knows of it
            process = await anyio.open_process(
                list(command),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=dict(environment),
                start_new_session=True,
            )
        self._started += 1
        told = BackgroundProcess(f"{tool_id}.p{self._started}", tool_id, command, process.pid)
        group = self._groups[told.id] = _Group(told, process, background)
        try:
            self._may_start()  # it may have been lost meanwhile, and nobody saw this one
        except MinutebookError:
            await self._end([group])
            raise
        return process

    def ask(self, tool_id: str) -> None:
        """Ask the processes of a call to end, those in the background not."""
        for group in self._of(tool_id):
            group.send(signal.SIGTERM)

    def refuse_background(self, error: MinutebookError) -> None:
        """Start nothing any more that outlives its call; `error` says why."""
        self._foreground_only = error

    def kill(self, error: MinutebookError) -> None:
        """Kill everything at once, and start nothing more; `error` says why. Nobody is waited for."""
        self._closed = error
        for group in self._groups.values():
            group.send(signal.SIGKILL)

    async def end_call(self, tool_id: str) -> None:
        """End what a call has left, except what was begun to go on after it."""
        await self._end(list(self._of(tool_id)))

    async def end_background(self, process_id: str, grace_s: float) -> bool:
        """Ask one to end, and kill it when its time is over. False: it does not run (any more)."""
        group = self._groups.get(process_id)
        if group is None or not group.background or not group.lives:
            return False
        group.send(signal.SIGTERM)
        with anyio.move_on_after(grace_s):
            await group.process.wait()
        await self._end([group])
        return True

    async def close(self, error: MinutebookError) -> None:
        """Kill everything and return when it has ended."""
        self.kill(error)
        await self._end(list(self._groups.values()))

    def _of(self, tool_id: str) -> Iterator[_Group]:
        return (g for g in self._groups.values() if g.told.tool_id == tool_id and not g.background)

    def _may_start(self) -> None:
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        self._check()

    async def _end(self, groups: Sequence[_Group]) -> None:
        for group in groups:
            group.send(signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            for group in groups:
                with anyio.move_on_after(REAP_S):
                    await group.process.aclose()
                self._groups.pop(group.told.id, None)


class Background:
    """What goes on in a session behind its calls. While it does, the session is not handed over.

    Subagents will be listed here too, once there are any.
    """

    def __init__(self, processes: Processes, grace_s: float) -> None:
        self._processes, self._grace_s = processes, grace_s

    def list(self) -> tuple[BackgroundProcess, ...]:
        """The processes that were started with `ctx.start_process(..., background=True)` and live."""
        return self._processes.background

    async def stop(self, process_id: str) -> bool:
        """Ask one to end (SIGTERM), and kill it with everything it has started after `abort_timeout_s`.

        Args:
            process_id: its `id`, as `list` gives it.

        Returns:
            False if it does not run (any more).
        """
        return await self._processes.end_background(process_id, self._grace_s)


def _checked(argv: object) -> tuple[str, ...]:
    if isinstance(argv, list | tuple) and argv and all(isinstance(part, str) for part in argv):
        return tuple(argv)
    raise InvalidOptions("argv", "a list of texts, the program first; no shell reads it", argv)
