"""Hosts for `several_hosts.py`: network and process namespaces where we are root, plain processes elsewhere.

A namespaced host has its own interface, its own process numbers, and a cable that can be pulled. To
another host its processes are nobody's to look at, as on real machines: whether they live can only be
told by their lease.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

EXAMPLES: Final = Path(__file__).parent
#: What a process without a namespace has to believe, so that the other one cannot look it up.
_AS_ANOTHER_HOST: Final = (
    "import os, runpy, sys; from adapters import system; name = sys.argv[1]; system._boot_id = lambda: name; "
    "sys.argv = sys.argv[2:]; sys.path.insert(0, os.path.dirname(sys.argv[0])); "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


@dataclass(slots=True)
class Host:
    """One host. `address` is what it reaches the server by; `namespace` is empty without one."""

    name: str
    address: str = "127.0.0.1"
    namespace: str = ""
    cable: str = ""
    _started: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self, url: str, options: Sequence[str], log: Path) -> None:
        """Start a worker on this host."""
        parts = urlsplit(url)
        login, _, _ = parts.netloc.rpartition("@")
        here = urlunsplit(parts._replace(netloc=f"{login}@{self.address}:{parts.port}"))
        program = [str(EXAMPLES / "worker.py"), "--journal", here, "--name", self.name, *options]
        with log.open("ab") as file:
            self._started = subprocess.Popen([*self._python(), *program], stdout=file, stderr=file)

    def _python(self) -> list[str]:
        if self.namespace:
            alone = ["unshare", "--pid", "--fork", "--kill-child"]
            return ["ip", "netns", "exec", self.namespace, *alone, sys.executable]
        return [sys.executable, "-c", _AS_ANOTHER_HOST, f"host-{self.name}/pid/time"]

    def send(self, number: signal.Signals) -> None:
        """Send the worker a signal."""
        os.kill(self._process_id, number)

    def ended(self, timeout_s: float = 30.0) -> int:
        """Wait for the worker's end; its exit code."""
        assert self._started is not None
        return self._started.wait(timeout_s)

    def stop(self) -> None:
        """End whatever is left of the worker."""
        if self._started is not None and self._started.poll() is None:
            self.send(signal.SIGKILL)
            self._started.wait()

    def pull(self) -> None:
        """Pull the cable."""
        subprocess.run(["ip", "link", "set", self.cable, "down"], check=True)

    def plug(self) -> None:
        """Put the cable back."""
        subprocess.run(["ip", "link", "set", self.cable, "up"], check=True)

    @property
    def _process_id(self) -> int:
        """The worker itself, not what put it into its namespaces."""
        assert self._started is not None
        children = Path(f"/proc/{self._started.pid}/task/{self._started.pid}/children")
        while self.namespace:
            if found := children.read_text().split():
                return int(found[0])
            time.sleep(0.01)
        return self._started.pid


def can_have_namespaces() -> bool:
    """Whether this machine lets us make hosts with a network of their own."""
    programs = all(shutil.which(each) for each in ("ip", "unshare"))
    if os.geteuid() != 0 or not programs:
        return False
    tried = f"mb{os.getpid()}try"
    made = subprocess.run(["ip", "netns", "add", tried], capture_output=True, check=False)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "del", tried], check=False)
    return made.returncode == 0


@contextmanager
def two_hosts(namespaces: bool) -> Iterator[list[Host]]:
    """Two hosts, gone afterwards. With namespaces each has a cable to this machine."""
    with ExitStack() as stack:
        if not namespaces:
            hosts = [Host("anna"), Host("bert")]
        else:
            hosts = [stack.enter_context(_namespaced(name, n)) for n, name in enumerate(("anna", "bert"))]
        for host in hosts:
            stack.callback(host.stop)
        yield hosts


@contextmanager
def _namespaced(name: str, number: int) -> Iterator[Host]:
    us = f"mb{os.getpid()}{name[0]}"
    network = f"10.213.{os.getpid() % 250}"
    here, there = f"{network}.{4 * number + 1}", f"{network}.{4 * number + 2}"
    inside = ["ip", "netns", "exec", us, "ip"]
    commands = [
        ["ip", "netns", "add", us],
        ["ip", "link", "add", us, "type", "veth", "peer", "name", "eth0", "netns", us],
        ["ip", "addr", "add", f"{here}/30", "dev", us],
        ["ip", "link", "set", us, "up"],
        [*inside, "addr", "add", f"{there}/30", "dev", "eth0"],
        [*inside, "link", "set", "eth0", "up"],
        [*inside, "link", "set", "lo", "up"],
    ]
    try:
        for command in commands:
            subprocess.run(command, check=True)
        yield Host(name, here, us, us)
    finally:
        subprocess.run(["ip", "link", "del", us], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", us], check=False, capture_output=True)
