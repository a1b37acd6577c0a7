"""The conversation as one provider gets it: each item encoded once, kept as bytes.

Imported by `minutebook.conversation`. A request splices these bytes. An item that
changed (a call settled later) is encoded again, alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from domain import canonical
from domain.model_ports import ModelProvider, Parameters, ToolSpec
from domain.ports import JournalReader
from minutebook.attachments import Attachments, weight
from projections.transcript import Item, UserItem


class Wire:
    """The items of a transcript in one provider's dialect.

    Args:
        items: the transcript's own list.
    """

    def __init__(self, provider: ModelProvider, items: Sequence[Item], attachments: Attachments) -> None:
        self.provider, self.attachments = provider, attachments
        self._items = items
        self._encoded: list[bytes] = []
        self._chain: list[bytes] = []
        self._changed: set[int] = set(range(len(items)))

    def note(self, changed: Iterable[int]) -> None:
        """Items at these positions are new, or not what they were."""
        self._changed.update(changed)

    def request(self, tools: Sequence[ToolSpec], parameters: Parameters) -> tuple[bytes, str]:
        """The body to send next, and its digest.

        The digest (SHA-256, hex) chains the digests of the encoded items and ends
        with the tools and parameters, so it is found without hashing the history again.
        """
        self._encode_changed()
        rest = canonical.encode(_without_items(tools, parameters))
        head = self._chain[-1] if self._chain else b""
        digest = hashlib.sha256(head + hashlib.sha256(rest).digest()).hexdigest()
        return self.provider.body(self._encoded, tools, parameters), digest

    async def load_media(self, journal: JournalReader) -> None:
        """Bring in the bytes that the next requests need, and encode what they are for.

        Raises:
            StoreFailure: the store cannot be read.
        """
        if await self.attachments.load(journal, self._items):
            self._encode_changed()

    def _encode_changed(self) -> None:
        moved = sorted(self._changed)
        self._changed.clear()
        for position in moved:
            encoded = self._encode(position)
            if position == len(self._encoded):
                self._encoded.append(encoded)
            else:
                self._encoded[position] = encoded
        for position, without in self.attachments.left_out():
            self._encoded[position] = without
            moved.append(position)
        if moved:
            self._link_from(min(moved))
        self.attachments.let_go()

    def _encode(self, position: int) -> bytes:
        item = self._items[position]
        encoded = self.provider.encode(item)
        if not isinstance(item, UserItem) or not weight(item.content)[0]:
            return encoded
        media = self.attachments.of(item)
        self.attachments.carry(position, item, encoded)
        if not media:
            return encoded
        # A copy: the encoder's own buffer may be many times as long as what is in it.
        return bytes(memoryview(self.provider.encode(replace(item, media=media))))

    def _link_from(self, position: int) -> None:
        del self._chain[position:]
        head = self._chain[-1] if self._chain else b""
        for encoded in self._encoded[position:]:
            head = hashlib.sha256(head + hashlib.sha256(encoded).digest()).digest()
            self._chain.append(head)


def _without_items(tools: Sequence[ToolSpec], parameters: Parameters) -> dict[str, object]:
    """What a request says besides its items; what is not asked for is not in it."""
    said: dict[str, object] = {
        "tools": [[t.name, t.description, t.parameters] for t in tools],
        "model": parameters.model,
        "system_prompt": parameters.system_prompt,
        "temperature": parameters.temperature,
        "max_output_tokens": parameters.max_output_tokens,
        "extra": parameters.extra,
    }
    if parameters.thinking is not None:
        said["thinking"] = asdict(parameters.thinking)
    if parameters.output_schema is not None:
        said["output_schema"] = parameters.output_schema
    return said
