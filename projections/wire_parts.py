"""The parts of an input as every dialect's encoder takes them: text, or media with its bytes.

Pure. The journal refers to media by digest; the session puts the bytes beside the
item before it is encoded. A part whose bytes are not at hand becomes a line of text
that says so: a request is never refused for an old picture.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from projections.transcript import UserItem


@dataclass(frozen=True, slots=True)
class Media:
    """An image or a file of an input. `kind` is "image" or "file"."""

    kind: str
    media_type: str
    filename: str
    data: bytes

    def in_base64(self) -> str:
        """The bytes as text."""
        return base64.b64encode(self.data).decode()

    def as_url(self) -> str:
        """A `data:` URL that holds the bytes."""
        return f"data:{self.media_type};base64,{self.in_base64()}"


Part = str | Media


def parts(item: UserItem) -> tuple[Part, ...]:
    """The parts of an input, in order; empty texts are left out."""
    if isinstance(item.content, str):
        return (item.content,) if item.content else ()
    return tuple(part for part in (_part(plain, item) for plain in item.content) if part)


def readable(content: Any) -> Any:
    """An input's content as people read it: text, with each image or file as a name and a size.

    What is no list of parts comes back as it is.
    """
    if not isinstance(content, list) or not all(isinstance(plain, dict) for plain in content):
        return content
    return "\n".join(str(plain["text"]) if "text" in plain else f"[{_label(plain)}]" for plain in content)


def text_of(item: UserItem) -> str | None:
    """The text of an input without media, or None where it holds some."""
    found = parts(item)
    texts = [part for part in found if isinstance(part, str)]
    return "\n".join(texts) if len(texts) == len(found) else None


def left_out(plain: dict[str, Any]) -> str:
    """What stands in the place of media that is not sent."""
    return f"[{_label(plain)}: not sent again]"


def _label(plain: dict[str, Any]) -> str:
    """What a part is called. Old and foreign journals hold parts of other forms: less is said of these."""
    name = f" {plain['filename']}" if plain.get("filename") else ""
    known = [str(plain["media_type"])] if "media_type" in plain else []
    known += [f"{plain['size']} bytes"] if "size" in plain else []
    return ", ".join([f"{plain.get('type', 'part')}{name}", *known])


def _part(plain: dict[str, Any], item: UserItem) -> Part:
    if plain.get("type") == "text":
        return str(plain.get("text", ""))
    data = item.media.get(plain.get("blob", ""))
    if data is None or "media_type" not in plain:
        return left_out(plain)
    return Media(plain["type"], plain["media_type"], plain.get("filename", ""), data)
