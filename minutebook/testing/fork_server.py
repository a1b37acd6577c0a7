"""A process that imports a file once and then forks a child for each run of it.

For crash tests: a child is a real process with nothing open, and it is there in
milliseconds because everything was imported before. The server itself never
starts a thread, an event loop or a store; a fork would not survive them.
Not for Windows.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib.util
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

import orjson

from minutebook.testing.crash import Ended

INTERRUPTED: Final = 130
_PIPE: Final = 1


class Running:
    """A child that was started. `wait_for` and `ended` read what it says.

    Args:
        process_id: of the child.
    """

    def __init__(self, server: ForkServer, process_id: int) -> None:
        self.process_id = process_id
        self.said: list[dict[str, Any]] = []
        self._server = server
        self._ended: Ended | None = None

    def wait_for(self, key: str) -> Any:
        """Return the next value that the child tells under a key.

        Raises:
            AssertionError: it ended first.
        """
        for line in self._lines():
            if key in line:
                return line[key]
        raise AssertionError(f"expected to be told {key!r}, found the end: {self._ended}")

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send the child a signal. It may have ended by itself meanwhile."""
        assert self._ended is None, f"it has ended: {self._ended}"
        with suppress(ProcessLookupError):
            os.kill(self.process_id, number)

    def ended(self) -> Ended:
        """Wait for its end."""
        for _ in self._lines():
            pass
        assert self._ended is not None
        return self._ended

    def _lines(self) -> Iterator[dict[str, Any]]:
        while self._ended is None:
            kind, value = self._server.next_line(self.process_id)
            if kind == "ended":
                self._ended = Ended(value, self.said)
                self._server.running = None
            else:
                self.said.append(value)
                yield value


class ForkServer:
    """Runs functions of one file, each in a process of its own. One at a time.

    A function's first argument is `tell` (see `minutebook.testing.crash`), the others
    are plain values. It returns (exit code 0), raises (1, with `traceback` told; 130
    after Ctrl-C), exits, or is killed.

    Args:
        script: a Python file. It is imported once, with this process's import path; it must
            not start threads or event loops while it is.
        silence_s: how long a child may say nothing; then it is ended with SIGABRT, and says
            on stderr where each of its threads was. Only a hang should get there.
        preload: modules to import before it; `minutebook.testing.warm` spares each child a second.
    """

    def __init__(self, script: Path, silence_s: float = 30.0, preload: Sequence[str] = ()) -> None:
        self.running: Running | None = None
        self._pending, self._silence_s = b"", silence_s
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"[__import__(name) for name in {list(preload)!r}]; "
            f"from minutebook.testing.fork_server import serve; serve({str(script)!r})"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, function: str, **arguments: Any) -> Running:
        """Start a child that calls a function of the file.

        Raises:
            AssertionError: the last one was not waited for, or the server is gone.
        """
        assert self.running is None, "wait for the child that runs"
        assert self._process.returncode is None, "the fork server is over: use it inside its block"
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # then reading finds the end, and says so
            self._process.stdin.write(orjson.dumps([function, arguments]) + b"\n")
        kind, process_id = self.next_line()
        assert kind == "began", f"expected a child, found {kind} {process_id}"
        self.running = Running(self, process_id)
        return self.running

    def run(self, function: str, **arguments: Any) -> Ended:
        """Start a child and wait for its end."""
        return self.start(function, **arguments).ended()

    def close(self) -> None:
        """End the child, if one is left, and the server."""
        if self.running is not None:
            self.running.kill()
            self.running.ended()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def next_line(self, process_id: int | None = None) -> tuple[str, Any]:
        """The next thing that comes through the pipe: its kind and its value."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            # The server itself has to start and to import; it is never given up.
            patience = self._silence_s if process_id is not None else None
            if not select.select([pipe], [], [], patience)[0]:
                assert process_id is not None
                os.kill(process_id, signal.SIGABRT)
                os.kill(process_id, signal.SIGCONT)  # one that was stopped would never hear of it
                process_id = None
                continue
            some = os.read(pipe, 65536)
            assert some, "the fork server ended; its error is above"
            self._pending += some
        line, _, self._pending = self._pending.partition(b"\n")
        kind, value = orjson.loads(line)
        return kind, value


# --- in the server and its children ---------------------------------------------------------


def serve(script: str) -> None:
    """Serve until the other side goes away. The program of the server's process."""
    module = _imported(Path(script))
    gc.collect()
    gc.freeze()  # the children share this memory as long as nobody touches it
    for request in sys.stdin.buffer:
        function, arguments = orjson.loads(request)
        alive, held_by_child = os.pipe()
        child = os.fork()
        if child == 0:
            os._exit(_run(module, function, arguments))
        os.close(held_by_child)
        _write("ended", _end_of(child, alive))
        os.close(alive)


def _end_of(child: int, alive: int) -> int:
    """The exit code of a child; `alive` is a pipe that ends with it.

    A child does not outlive whoever asked for it, who says nothing more meanwhile.
    """
    if alive not in select.select([alive, sys.stdin.fileno()], [], [])[0]:
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _imported(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None and spec.loader is not None, script
    module = importlib.util.module_from_spec(spec)
    sys.modules[script.stem] = module
    spec.loader.exec_module(module)
    return module


def _run(module: ModuleType, function: str, arguments: dict[str, Any]) -> int:
    """What a child does; returns its exit code."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    _write("began", os.getpid())
    try:
        getattr(module, function)(tell, **arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 1
    except BaseException:
        tell(traceback=traceback.format_exc())
        return 1
    return 0


def tell(**values: Any) -> None:
    """Write one line of plain values to the pipe; up to 4 KiB come through in one piece or not at all."""
    _write("said", values)


def _write(kind: str, value: Any) -> None:
    line = orjson.dumps([kind, value]) + b"\n"
    while line:
        line = line[os.write(_PIPE, line) :]
