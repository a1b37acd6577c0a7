"""Blobs as whoever reads a journal has to take them: there and whole, or not.

Imported by export and verification here, and by the session that is opened again.
"""

from __future__ import annotations

import hashlib
from typing import Final

import anyio.to_thread

from domain.errors import Corrupt
from domain.ports import JournalReader
from recovery.problem import Blocked

#: Words for what is wrong (`recovery.problem.Blocked.check`).
MISSING_BLOB: Final = "missing blob"
DAMAGED_BLOB: Final = "damaged blob"


async def read_blob(reader: JournalReader, digest: str) -> bytes | None:
    """A blob's bytes if they are there and are those of the digest, otherwise None.

    Raises:
        StoreFailure: the store cannot be read.
    """
    data, problem = await _look(reader, digest)
    return data if problem is None else None


async def check_blob(reader: JournalReader, digest: str, sequence: int) -> Blocked | None:
    """What is wrong with a blob that the event at `sequence` refers to, if anything is.

    Raises:
        StoreFailure: the store cannot be read.
    """
    _, problem = await _look(reader, digest)
    if problem is None:
        return None
    check, found = problem
    return Blocked(check, sequence, f"the blob {digest}", found)


async def _look(reader: JournalReader, digest: str) -> tuple[bytes, None] | tuple[None, tuple[str, str]]:
    try:
        data = await reader.blob(digest)
    except Corrupt:
        return None, (DAMAGED_BLOB, "other bytes")
    if data is None:
        return None, (MISSING_BLOB, "none")
    found = await anyio.to_thread.run_sync(lambda: hashlib.sha256(data).hexdigest())
    return (data, None) if found == digest else (None, (DAMAGED_BLOB, f"bytes with the digest {found}"))
