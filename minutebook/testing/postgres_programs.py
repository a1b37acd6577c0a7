"""Which PostgreSQL server programs this machine has, and which account may run them.

Imported by the throw-away cluster and by whoever wants to know beforehand whether one can
be made. Starts nothing but `pg_config`. Must load nothing beyond the standard library and
this project's errors.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from domain.errors import StoreUnsupported

#: What to do where the programs are missing.
HOW_TO_INSTALL: Final = (
    "install PostgreSQL's server programs, for example: apt-get install postgresql; "
    "they need not run as a service"
)

_PACKAGED: Final = Path("/usr/lib/postgresql")  # where Debian keeps them, off the PATH
_ACCOUNTS: Final = ("postgres", "nobody")


def server_programs() -> Path | None:
    """The directory of `initdb` and `postgres`: on the PATH, where Debian keeps them, or pg_config's.

    Returns:
        None where there are none.
    """
    return next((place for place in _places() if _has_programs(place)), None)


def programs_or_refuse() -> Path:
    """The same directory, for whoever cannot go on without.

    Raises:
        StoreUnsupported: there are none; the message says what to install.
    """
    programs = server_programs()
    if programs is None:
        raise StoreUnsupported("PostgreSQL", f"expected initdb and postgres, found neither; {HOW_TO_INSTALL}")
    return programs


def _places() -> Iterator[Path]:
    found = shutil.which("initdb")
    if found is not None:
        yield Path(found).resolve().parent
    versions = [place for place in _PACKAGED.glob("*/bin") if place.parent.name.isdigit()]
    yield from sorted(versions, key=lambda place: int(place.parent.name), reverse=True)
    asked = shutil.which("pg_config")
    if asked is not None:
        told = subprocess.run([asked, "--bindir"], capture_output=True, text=True, check=False)
        yield Path(told.stdout.strip())


def _has_programs(place: Path) -> bool:
    return all(shutil.which(name, path=str(place)) for name in ("initdb", "postgres"))


def without_root() -> dict[str, Any]:
    """Arguments for `subprocess` with which a child leaves root behind: the server refuses to run as root.

    Returns:
        Nothing to change, where this process is not root.

    Raises:
        StoreUnsupported: root, and none of the usual accounts without rights.
    """
    if os.geteuid() != 0:
        return {}
    import pwd  # not on every system; where root is, it is

    for name in _ACCOUNTS:
        with suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise StoreUnsupported(
        "PostgreSQL", "expected an account for the server: it never runs as root; run as a user"
    )
