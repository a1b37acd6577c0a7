"""The bytes of a conversation's images and files, for as long as they are needed.

Imported by `minutebook.conversation`. Bytes are here from `send` (or from the store,
when a session is opened) until their input is encoded; then the encoded form is all that
is kept. The newest media that fit the provider's limits are carried by a request. What
has fallen out of them stays out, so that a resumed session sends the same bytes.

Decided by what the journal says alone: how big a part is, never whether its bytes are
still there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from domain.model_ports import Capabilities
from domain.ports import Blob, JournalReader
from domain.references import media_parts
from projections.transcript import Exchange, Item, UserItem
from recovery.blobs import read_blob

#: Kinds of a failed attempt after which media that no response has followed yet are not sent
#: again: otherwise one picture that a server cannot read would fail every request after it.
REFUSED: Final = frozenset(
    {"bad_request", "request_too_large", "context_length_exceeded", "content_filtered"}
)

#: Of these, the kinds that say nothing about what is new in the request.
_ABOUT_ALL: Final = REFUSED - {"content_filtered"}

log = logging.getLogger("minutebook")


@dataclass(slots=True)
class _Carried:
    """An item with media: where it is, what it weighs, its form without them, and whether that is in use."""

    position: int
    count: int
    size: int
    without: bytes
    is_out: bool = False


@dataclass(slots=True, eq=False)
class Attachments:
    """Media of one conversation with one provider."""

    capabilities: Capabilities
    _bytes: dict[str, bytes] = field(default_factory=dict)
    #: Digests of inputs that are accepted and not applied yet, with what they weigh.
    _waiting: dict[str, tuple[frozenset[str], int]] = field(default_factory=dict)
    _carried: deque[_Carried] = field(default_factory=deque)
    _refused: set[int] = field(default_factory=set)

    def beside(self, capabilities: Capabilities) -> Attachments:
        """The same inputs for another provider. What was encoded already is read again by `load`."""
        return Attachments(capabilities, dict(self._bytes), dict(self._waiting), _refused=set(self._refused))

    @property
    def waiting_bytes(self) -> int:
        """How much waits in the queue."""
        return sum(size for _, size in self._waiting.values())

    @property
    def held_bytes(self) -> int:
        """How much is in memory that no item's encoded form holds yet."""
        return sum(map(len, self._bytes.values()))

    # --- what comes in ----------------------------------------------------------------

    def give(self, blobs: Iterable[Blob]) -> None:
        """Take the bytes of an input that was just accepted."""
        self._bytes.update((blob.digest, blob.data) for blob in blobs)

    def accepted(self, input_id: str, content: str | list[dict[str, Any]]) -> None:
        """An input is in the queue."""
        count, size = weight(content)
        if count:
            self._waiting[input_id] = (frozenset(part["blob"] for part in media_parts(content)), size)

    def applied(self, input_id: str) -> None:
        """An input left the queue for the conversation: encoding it is next."""
        self._waiting.pop(input_id, None)

    def cancelled(self, input_id: str) -> None:
        """An input left the queue for good."""
        if self._waiting.pop(input_id, None):
            self.let_go()

    def refused(self, items: Sequence[Item], kind: str) -> None:
        """The provider would not have the request: media that no response followed are not sent again.

        Where there are none, none of the conversation's media are: a text has to get through.

        Args:
            kind: of the failure, one of `REFUSED`.
        """
        media = {n for n, item in enumerate(items) if isinstance(item, UserItem) and weight(item.content)[0]}
        answered = max((n for n, item in enumerate(items) if isinstance(item, Exchange)), default=-1)
        fresh = {n for n in media if n > answered} or (media if kind in _ABOUT_ALL else set())
        for position in sorted(fresh - self._refused):
            item = items[position]
            assert isinstance(item, UserItem)
            digests = ", ".join(part["blob"][:12] for part in media_parts(item.content))
            log.warning("input %s: its images and files (%s) are not sent again", item.input_id, digests)
        self._refused |= fresh

    # --- what goes out ------------------------------------------------------------------

    def of(self, item: UserItem) -> Mapping[str, bytes]:
        """The bytes that an item is to be encoded with; empty for none."""
        parts = [part for part in media_parts(item.content) if self._takes(part)]
        return {part["blob"]: self._bytes[part["blob"]] for part in parts if part["blob"] in self._bytes}

    def carry(self, position: int, item: UserItem, without: bytes) -> None:
        """An item with media was encoded; `without` is its form with none."""
        others = (each for each in self._carried if each.position != position)
        carried = [*others, _Carried(position, *weight(item.content), without)]
        self._carried = deque(sorted(carried, key=lambda each: each.position))

    def left_out(self) -> Iterator[tuple[int, bytes]]:
        """Positions that are refused or over the limits from now on, and the form each has then."""
        out = [each for each in self._carried if each.position in self._refused]
        while not self._fit(self._carried):
            out.append(self._carried.popleft())
        for each in out:
            if not each.is_out:
                each.is_out = True
                yield each.position, each.without

    def let_go(self) -> None:
        """Drop the bytes that no waiting input needs. Called once everything applied is encoded."""
        if not self._bytes:
            return
        needed = frozenset[str]().union(*(digests for digests, _ in self._waiting.values()))
        self._bytes = {digest: data for digest, data in self._bytes.items() if digest in needed}

    # --- from the store ------------------------------------------------------------------

    async def load(self, journal: JournalReader, items: Sequence[Item]) -> bool:
        """Read the bytes that the next request and the queue need. False: there are none.

        What the store does not have, or has damaged, is left out with a warning: the
        part is then a line of text, and `verify` names it.

        Raises:
            StoreFailure: the store cannot be read.
        """
        wanted = self._wanted(items)
        for digest in wanted:
            if digest in self._bytes:
                continue
            data = await read_blob(journal, digest)
            if data is None:
                log.warning("the blob %s is missing or damaged: its part is sent as a line of text", digest)
            else:
                self._bytes[digest] = data
        return bool(wanted)

    def _wanted(self, items: Sequence[Item]) -> list[str]:
        found = [digest for digests, _ in self._waiting.values() for digest in digests]
        newest: deque[_Carried] = deque()
        for position in range(len(items) - 1, -1, -1):
            item = items[position]
            count, size = weight(item.content) if isinstance(item, UserItem) else (0, 0)
            if not count:
                continue
            newest.append(_Carried(position, count, size, b""))
            if not self._fit(newest):
                break
            if position not in self._refused:
                assert isinstance(item, UserItem)
                found += [part["blob"] for part in media_parts(item.content) if self._takes(part)]
        return list(dict.fromkeys(found))

    def _fit(self, carried: Iterable[_Carried]) -> bool:
        limits = self.capabilities.media
        count = size = 0
        for each in carried:
            count, size = count + each.count, size + each.size
        return count <= limits.count and size <= limits.request_bytes

    def _takes(self, part: dict[str, Any]) -> bool:
        """Whether this provider takes a part. Another one may have, when it was sent."""
        has, limits = self.capabilities, self.capabilities.media
        match part.get("type"):
            case "image":
                return has.images and _size(part) <= limits.image_bytes
            case "file":
                return has.files and _size(part) <= limits.file_bytes
        return False


def weight(content: str | list[dict[str, Any]]) -> tuple[int, int]:
    """How many media parts an input has, and their bytes."""
    sizes = [_size(part) for part in media_parts(content)]
    return len(sizes), sum(sizes)


def _size(part: dict[str, Any]) -> int:
    size = part.get("size")
    return size if isinstance(size, int) and size > 0 else 0
