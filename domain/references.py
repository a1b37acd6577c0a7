"""Which blobs an event refers to. Whoever copies, checks or sweeps a journal asks here.

Pure. Old and foreign journals may hold parts of any shape: what names no blob is
passed over, never an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from domain import events as ev
from domain.events import Payload

#: Types whose payloads may name a blob, and the text that then stands in the stored bytes.
MARKS: Final = {
    ev.ToolCompleted.type: b'"blobs"',
    ev.InputAccepted.type: b'"blob"',
    ev.InputPrepared.type: b'"blob"',
}


def may_refer(topic: str, payload: bytes | None) -> bool:
    """Whether it is worth decoding a stored event to look for blobs. Never wrongly False."""
    mark = MARKS.get(topic.partition("@")[0])
    return mark is not None and payload is not None and mark in payload


def blob_digests(data: Payload) -> tuple[str, ...]:
    """The digests (hex) an event refers to, in order, each once."""
    match data:
        case ev.ToolCompleted():
            found = iter(data.blobs)
        case ev.InputAccepted():
            found = _of_content(data.content)
        case ev.InputPrepared():
            found = (digest for content in data.contents.values() for digest in _of_content(content))
        case _:
            return ()
    return tuple(dict.fromkeys(found))


def media_parts(content: Any) -> Iterator[dict[str, Any]]:
    """The parts of an input's content that stand for bytes in a blob."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("blob"), str):
            yield part


def _of_content(content: Any) -> Iterator[str]:
    return (part["blob"] for part in media_parts(content))
