"""Every legal image of a disk after a power cut, built from what a process asked of it.

What an fsync covered is there. Of everything else any part may be there: nothing, all, all
but the first, the last one torn between sectors, any other part. Names in the directory are
treated like bytes: a file that was made, or removed, is so for certain only when its
directory was synced. What a file's bytes depend on is its own fsync.

Not covered: storage that says that it has synced and has not, and storage that damages
what it was not asked to write.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count, pairwise
from typing import Any, Final

import orjson

from tests.chaos.tracing import JOURNAL_FILES, Call

SECTOR: Final = 512
SHARED_MEMORY: Final = "journal.db-shm"

Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Change:
    """Something that was asked for and may be lost: bytes of a file, its length, or a name.

    Args:
        kind: write, truncate, link or unlink.
        inode: of which file.
        name: of a link or unlink.
        at: how many calls had come back when it had.
    """

    kind: str
    inode: int
    at: int
    name: str = ""
    offset: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Image:
    """What the disk may hold after a power cut.

    Args:
        files: name to bytes.
        moment: how many calls had come back.
        way: how much of what was not synced is there.
        said: what had been told until then.
        witness: the effects until then.
    """

    files: Files
    moment: int
    way: str
    said: list[dict[str, Any]]
    witness: list[tuple[str, ...]]

    def __str__(self) -> str:
        return f"cut after call {self.moment}, {self.way}"


@dataclass(slots=True)
class Disk:
    """What is certainly on a disk, and what may be.

    `names` and `contents` are durable; `unsynced` came after, in this order.
    """

    names: dict[str, int] = field(default_factory=dict)
    contents: dict[int, bytearray] = field(default_factory=dict)
    unsynced: list[Change] = field(default_factory=list)
    _current: dict[str, int] = field(default_factory=dict)

    def apply(self, call: Call, at: int) -> None:
        """Take note of a call that came back."""
        if call.result < 0 or (call.file not in JOURNAL_FILES and call.file):
            return
        match call.name:
            case "openat" if "O_CREAT" in call.flags and call.file not in self._current:
                self._current[call.file] = inode = len(self.contents)
                self.contents[inode] = bytearray()
                self.unsynced.append(Change("link", inode, at, call.file))
            case "openat":
                assert "O_TRUNC" not in call.flags
            case "unlink":
                self.unsynced.append(Change("unlink", self._current.pop(call.file), at, call.file))
            case "pwrite64":
                data = call.data[: call.result]
                self.unsynced.append(
                    Change("write", self._current[call.file], at, offset=call.number, data=data)
                )
            case "ftruncate":
                self.unsynced.append(Change("truncate", self._current[call.file], at, offset=call.number))
            case "fsync" | "fdatasync":
                self._sync(call)
            case _:
                raise AssertionError(f"nobody foresaw {call.name} of {call.file}")

    def _sync(self, call: Call) -> None:
        names = not call.file
        inode = None if names else self._current[call.file]
        kept: list[Change] = []
        for change in self.unsynced:
            ours = change.kind in ("link", "unlink") if names else change.inode == inode and not change.name
            if ours and change.at <= call.begun:
                _do(change, self.names, self.contents)
            else:
                kept.append(change)
        self.unsynced = kept

    def files(self, kept: Sequence[Change]) -> Files:
        """The files if these changes had become durable, and no others."""
        names = dict(self.names)
        touched = {change.inode for change in kept if not change.name}
        contents = {i: bytearray(c) if i in touched else c for i, c in self.contents.items()}
        for change in kept:
            _do(change, names, contents)
        return {name: bytes(contents[inode]) for name, inode in names.items()}


def _do(change: Change, names: dict[str, int], contents: dict[int, bytearray]) -> None:
    match change.kind:
        case "link":
            names[change.name] = change.inode
        case "unlink":
            if names.get(change.name) == change.inode:
                del names[change.name]
        case "truncate":
            content = contents[change.inode]
            del content[change.offset :]
            content.extend(bytes(change.offset - len(content)))
        case _:
            content, end = contents[change.inode], change.offset + len(change.data)
            content.extend(bytes(max(0, end - len(content))))
            content[change.offset : end] = change.data


def images(calls: Sequence[Call], seed: int, subsets: int, step: int = 1) -> Iterator[Image]:
    """Every image at every moment, each once.

    Args:
        subsets: how many random parts of what is not synced are tried at each moment.
        step: build only every so many of them.
    """
    disk, seen, numbers = Disk(), set[bytes](), count()
    said: list[dict[str, Any]] = []
    witness: list[tuple[str, ...]] = []
    for moment, call in enumerate(calls, 1):
        if call.name == "write":
            if call.file == "acks":
                said = [*said, orjson.loads(call.data)]
            else:
                witness = [*witness, tuple(call.data.decode().rstrip("\n").split("\t"))]
        else:
            disk.apply(call, moment)
        dice = random.Random(f"{seed}/{moment}")
        for way, kept in ways(disk.unsynced, dice, subsets):
            if next(numbers) % step:
                continue
            files = _with_shared_memory(disk.files(kept), dice)
            known = _digest(files, len(said), len(witness))
            if known not in seen:
                seen.add(known)
                yield Image(files, moment, way, said, witness)


def ways(
    unsynced: Sequence[Change], dice: random.Random, subsets: int
) -> Iterator[tuple[str, Sequence[Change]]]:
    """Parts of what is not synced, as a disk may keep them."""
    yield "nothing unsynced", ()
    if not unsynced:
        return
    yield "all unsynced", unsynced
    yield "the first lost", unsynced[1:]
    yield "only the last", unsynced[-1:]
    yield "the last torn", [*unsynced[:-1], *_torn(unsynced[-1], dice)]
    yield "the last scattered", [*unsynced[:-1], *_scattered(unsynced[-1], dice)]
    for _ in range(subsets):
        share = dice.random()
        kept = [change for change in unsynced if dice.random() < share]
        if kept and dice.random() < 0.5:
            place = dice.randrange(len(kept))
            kept[place : place + 1] = _scattered(kept[place], dice)
        yield "a part", kept


def _torn(change: Change, dice: random.Random) -> list[Change]:
    """Its beginning, up to the border of a sector."""
    borders = range(-change.offset % SECTOR or SECTOR, len(change.data), SECTOR)
    if not borders:
        return []
    return [_part(change, 0, dice.choice(borders))]


def _scattered(change: Change, dice: random.Random) -> list[Change]:
    """Some of its sectors."""
    borders = [0, *range(-change.offset % SECTOR or SECTOR, len(change.data), SECTOR), len(change.data)]
    pieces = ((start, end) for start, end in pairwise(borders) if end > start)
    return [_part(change, *piece) for piece in pieces if dice.random() < 0.5]


def _part(change: Change, start: int, end: int) -> Change:
    data = change.data[start:end]
    return Change(change.kind, change.inode, change.at, change.name, change.offset + start, data)


def _with_shared_memory(files: Files, dice: random.Random) -> Files:
    """Shared memory is written past the system calls: after a power cut it may hold anything."""
    if SHARED_MEMORY not in files:
        return files
    found = files.pop(SHARED_MEMORY)
    match dice.randrange(3):
        case 0:
            files[SHARED_MEMORY] = found
        case 1:
            files[SHARED_MEMORY] = dice.randbytes(len(found))
    return files


def _digest(files: Files, *more: int) -> bytes:
    digest = blake2b(repr(more).encode(), digest_size=16)
    for name in sorted(files):
        if name != SHARED_MEMORY:  # recovered from the others, and never by itself another case
            digest.update(b"%s %d " % (name.encode(), len(files[name])))
            digest.update(files[name])
    return digest.digest()
