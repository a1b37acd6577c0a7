"""A throw-away PostgreSQL server: made in a moment, spoken to over loopback only, gone afterwards.

For tests of stores and applications on PostgreSQL. Needs the server's programs (`initdb`
and `postgres`), never a server that runs already, and never root: where the tests run as
root, the server gets an account without rights. psycopg is loaded only when a connection is
made. Must never import an adapter, and never be used for anything that is worth keeping.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from domain.errors import StoreFailure
from minutebook.testing.postgres_programs import programs_or_refuse, without_root

HOST: Final = "127.0.0.1"
USER: Final = "minutebook"
# Below the ports that systems give to outgoing connections, so that nobody takes it during a restart.
_FIRST_PORT, _PORTS = 15000, 15000
_ROOMS: Final = ("/tmp", "/var/tmp")
_STEP_S: Final = 0.02
_MOST_STEPS: Final = 3000
_STOP_S: Final = 30.0
_CONNECT_S: Final = 10
_STATUS_LINE: Final = 7  # of postmaster.pid, counted from 0
_WILL_PASS: Final = ("shared memory block", "Address already in use")
_SIGNALS: Final = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_QUICK: Final = {"fsync": "off", "full_page_writes": "off"}
_SETTINGS: Final = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_checkpoints": "off",
}
# Outlives the test process, however that ends: the pipe it reads from closes then.
_WATCH: Final = """
read -r _
its="$1/data/postmaster.pid"
pid=$(head -n 1 "$its" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null &&
while [ -e "$its" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
rm -rf "$1"
"""


@dataclass(slots=True, eq=False)
class Cluster:
    """One server of its own: `with Cluster() as cluster: url = cluster.new_database()`.

    It keeps its port and its databases when it is stopped and started again. Everything it
    made is gone after the block, and also when the test process is killed.

    Args:
        durable: let it wait for the disk (fsync); quicker without, and a stop, a kill or a
            restart of the server loses nothing either way. Only a power cut would.
        settings: further settings of the server, by name; they win over ours.

    Raises:
        StoreUnsupported: when entered: no server programs, or root without an account to give
            the server; the message says what to install.
        StoreFailure: when entered or started: the server does not start; the message ends with
            its log.
    """

    durable: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default=0, init=False)
    password: str = field(default="", init=False, repr=False)
    _programs: Path = field(default=Path(), init=False, repr=False)
    _place: Path = field(default=Path(), init=False, repr=False)
    _as: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _watcher: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _databases: int = field(default=0, init=False, repr=False)

    def __enter__(self) -> Self:
        self._programs, self._as = programs_or_refuse(), without_root()
        self._place = Path(tempfile.mkdtemp(prefix="mb-pg-", dir=_room(self._as)))
        try:
            self._make()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the server -----------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the server's main process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int | None:
        """The id of the server's main process; None: it does not run."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def log(self) -> str:
        """Everything the server wrote to its log, over all its starts."""
        with suppress(FileNotFoundError):
            return self._log.read_text(errors="replace")
        return ""

    def start(self) -> None:
        """Start the server and return once it takes connections; nothing to do if it runs.

        Raises:
            StoreFailure: it does not start; the message ends with its log.
        """
        for _ in range(_MOST_STEPS):
            if self.running or self._began():
                return
        raise self._failure("expected the server to take connections, it does not")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server and return once it is gone; nothing to do if it does not run.

        Args:
            mode: `fast` ends the sessions and closes the files in order; `immediate` lets go of
                everything, and the next start has to recover.
        """
        if self._process is None or not self.running:
            return
        self._process.send_signal(_SIGNALS[mode])
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End every process of the server at once, as a crash of its host would."""
        if self._process is None or not self.running:
            return
        self._process.send_signal(signal.SIGSTOP)  # or it would begin to recover from the first death
        for child in _children(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        (self._data / "postmaster.pid").unlink(missing_ok=True)  # its number may be somebody else's soon

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start; every connection is lost, every committed transaction is there.

        Raises:
            StoreFailure: it does not start again.
        """
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server and remove everything; the end of the `with` block does this."""
        self.stop("immediate")
        if self._place != Path():
            shutil.rmtree(self._place, ignore_errors=True)
        if self._watcher is not None:
            self._watcher.communicate()

    # --- databases ------------------------------------------------------------------

    def url(self, database: str = "postgres", *, user: str = USER, password: str | None = None) -> str:
        """The address of one of its databases, with a user that may do everything."""
        return f"postgresql://{user}:{password or self.password}@{HOST}:{self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database, in about 10 ms, and give its address."""
        self._databases += 1
        name = f"t{self._databases}"
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Remove a database that `new_database` made, and end the connections to it."""
        name = urlsplit(url).path.removeprefix("/")
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(
        self, statement: str, parameters: Sequence[Any] = (), *, url: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own and give its rows.

        Args:
            url: of the database; default: `postgres`, from where all others can be managed.

        Raises:
            psycopg.Error: what the server said.
        """
        import psycopg

        with closing(psycopg.connect(url or self.url(), autocommit=True)) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    # --- making it ------------------------------------------------------------------

    @property
    def _data(self) -> Path:
        return self._place / "data"

    @property
    def _log(self) -> Path:
        return self._place / "log"

    def _make(self) -> None:
        hidden = Path(tempfile.mkdtemp(dir=self._place))  # a random name that nobody else can list
        self.password = hashlib.sha256(hidden.name.encode()).hexdigest()[:20]
        secret = hidden / "password"
        secret.write_text(self.password)
        for path in (self._place, hidden, secret):
            os.chown(path, self._as.get("user", -1), self._as.get("group", -1))
        self._watcher = self._spawn(["/bin/sh", "-c", _WATCH, "sh", str(self._place)], stdin=subprocess.PIPE)
        self._initialise(secret)

    def _initialise(self, secret: Path) -> None:
        arguments = ["--auth=scram-sha-256", f"--pwfile={secret}", f"--username={USER}", "--no-sync"]
        arguments += ["--encoding=UTF8", "--no-locale", f"--pgdata={self._data}"]
        made = self._spawn([str(self._programs / "initdb"), *arguments], **BOTH_PIPED)
        said, _ = made.communicate()
        if made.returncode:
            raise StoreFailure(
                "PostgreSQL", f"expected initdb to make a cluster: {said.decode(errors='replace')}"
            )

    def _began(self) -> bool:
        """One attempt to start: whether it takes connections; False if it is worth another one."""
        before = len(self.log)
        self.port = self.port or _free_port(self._place.name)
        settings = {**_SETTINGS, **({} if self.durable else _QUICK), "port": str(self.port), **self.settings}
        options = [f"--{name}={value}" for name, value in settings.items()]
        with self._log.open("ab") as log:
            command = [str(self._programs / "postgres"), "-D", str(self._data), *options]
            self._process = self._spawn(command, stdout=log, stderr=subprocess.STDOUT)
        if self._wait_until_ready():
            return True
        if not any(words in self.log[before:] for words in _WILL_PASS):
            raise self._failure("expected the server to start, it ended")
        if not self._databases:
            self.port = 0  # no address was given out yet
        return False

    def _wait_until_ready(self) -> bool:
        import psycopg

        assert self._process is not None
        for _ in range(_MOST_STEPS):
            with suppress(psycopg.OperationalError):
                if self._says_ready():
                    psycopg.connect(self.url(), connect_timeout=_CONNECT_S).close()
                    return True
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STEP_S)  # ends early only if the server does
                return False
        raise self._failure("expected the server to take connections, it does not")

    def _says_ready(self) -> bool:
        # Before that, somebody else may be listening on the port: one who takes connections and is silent.
        with suppress(OSError):
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            return len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"
        return False

    def _spawn(self, command: Sequence[str], **pipes: Any) -> subprocess.Popen[bytes]:
        # An environment of its own: no PGDATA and no language of whoever runs the tests.
        return subprocess.Popen(
            command,
            cwd="/",
            env={"LC_ALL": "C"},
            start_new_session=True,
            **{"stdin": subprocess.DEVNULL, **pipes},
            **self._as,
        )

    def _failure(self, what: str) -> StoreFailure:
        return StoreFailure(
            f"postgresql://{HOST}:{self.port}", f"{what}; the end of its log:\n{self.log[-2000:]}"
        )


BOTH_PIPED: Final[dict[str, Any]] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


def _room(account: Mapping[str, Any]) -> str:
    """Where to make the directory: the usual place, or one that the server's account can reach."""
    usual = tempfile.gettempdir()
    if not account or _open_to_all(Path(usual)):
        return usual
    return next((place for place in _ROOMS if _open_to_all(Path(place))), usual)


def _open_to_all(place: Path) -> bool:
    return all(each.is_dir() and each.stat().st_mode & 0o001 for each in (place, *place.parents))


def _free_port(seed: str) -> int:
    for number in range(_PORTS):
        digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
        port = _FIRST_PORT + int.from_bytes(digest[:4]) % _PORTS
        with closing(socket.socket()) as tried, suppress(OSError):
            tried.bind((HOST, port))
            return port
    raise StoreFailure("PostgreSQL", f"expected a free port from {_FIRST_PORT} on, found none")


def _children(process_id: int) -> list[int]:
    """Where the system tells; elsewhere the children notice by themselves that they are alone."""
    with suppress(OSError):
        return [
            int(each) for each in Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
        ]
    return []
