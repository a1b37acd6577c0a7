"""A throw-away standby of a throw-away PostgreSQL server: it follows, can be read, and can be promoted.

For tests of what a failover does to an application. Never for anything that is worth keeping.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from domain.errors import StoreFailure
from minutebook.testing.postgres_cluster import BOTH_PIPED, HOST, USER, Cluster


@dataclass(slots=True, eq=False)
class Standby(Cluster):
    """A server that follows another one: `with Standby(primary=cluster) as standby:`.

    It has the primary's databases and its password, at a port of its own. It lives as long as its
    block, also when the primary is stopped; what it has not received then, it will never know.

    Args:
        primary: a server that runs when the block is entered.

    Raises:
        StoreUnsupported, StoreFailure: as `Cluster`; when entered, also if the primary cannot be copied.
    """

    primary: Cluster = field(kw_only=True)

    def url_of(self, url: str) -> str:
        """Where a database of the primary is here."""
        return self.url(urlsplit(url).path.removeprefix("/"))

    def url_of_both(self, url: str, *, itself_first: bool = False) -> str:
        """A database of the primary, by an address with both servers."""
        primary, itself = (f"{HOST}:{server.port}" for server in (self.primary, self))
        both = (itself, primary) if itself_first else (primary, itself)
        return url.replace(primary, ",".join(both))

    def promote(self) -> None:
        """Make it a primary; returns once it takes changes. It follows nobody any more."""
        self.execute("SELECT pg_promote()")

    def has_replayed_everything(self) -> bool:
        """Whether it shows all that the primary has committed up to now."""
        ((position,),) = self.primary.execute("SELECT pg_current_wal_lsn()::text")
        ((there,),) = self.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (position,))
        return bool(there)

    def _initialise(self, secret: Path) -> None:
        self.password = self.primary.password
        secret.write_text(f"*:*:*:{USER}:{self.password}\n")
        secret.chmod(0o600)  # or it would not be read
        place = f"host={HOST} port={self.primary.port} user={USER} passfile={secret}"
        arguments = [f"--dbname={place}", f"--pgdata={self._data}", "--write-recovery-conf"]
        arguments += ["--checkpoint=fast", "--no-sync"]
        copied = self._spawn([str(self._programs / "pg_basebackup"), *arguments], **BOTH_PIPED)
        said, _ = copied.communicate()
        if copied.returncode:
            told = f"expected pg_basebackup to copy the primary: {said.decode(errors='replace')}"
            raise StoreFailure("PostgreSQL", told)
