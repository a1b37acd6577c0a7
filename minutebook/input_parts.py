"""The parts of an input: text, images, files. What may be sent, and its form in the journal.

Pure. Imported by `minutebook.session`. Bytes become blobs, named by their SHA-256; the
event holds their digest, media type and size. The bytes' way to the model is
`minutebook.attachments`'.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from domain.errors import InvalidOptions, SendRejected
from domain.model_ports import Capabilities, MediaLimits
from domain.ports import Blob
from minutebook.media_types import BY_SUFFIX, FILE_TYPES, IMAGE_TYPES, fits_file_type, image_size, image_type

#: Parts of one input, texts included.
MAX_PARTS: Final = 100
MAX_FILENAME_CHARACTERS: Final = 255

_PART_TYPES: Final = (
    "text, mb.TextPart(text), mb.ImagePart(data, media_type) or mb.FilePart(data, media_type)"
)


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of text. A plain string in the list means the same."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image.

    Args:
        data: the bytes of the file, at most the provider's `image_bytes`.
        media_type: image/png, image/jpeg, image/gif or image/webp; it has to be what the bytes are.
    """

    data: bytes
    media_type: str

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], media_type: str | None = None) -> ImagePart:
        """Read an image from a file, at once.

        Args:
            media_type: None goes by the suffix of the name.

        Raises:
            InvalidOptions: the suffix says nothing; name the media type.
            OSError: the file cannot be read.
        """
        return cls(Path(path).read_bytes(), media_type or _by_suffix(path, IMAGE_TYPES))

    def __repr__(self) -> str:
        return f"ImagePart({self.media_type}, {len(self.data)} bytes)"


@dataclass(frozen=True, slots=True)
class FilePart:
    """A document.

    Args:
        data: the bytes of the file, at most the provider's `file_bytes`.
        media_type: application/pdf, application/json, or one of text/plain, text/markdown,
            text/csv and text/html, which have to be UTF-8.
        filename: what the model is told it is called; never opened.
    """

    data: bytes
    media_type: str
    filename: str | None = None

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], media_type: str | None = None) -> FilePart:
        """Read a document from a file, at once; it keeps its name.

        Args:
            media_type: None goes by the suffix of the name.

        Raises:
            InvalidOptions: the suffix says nothing; name the media type.
            OSError: the file cannot be read.
        """
        return cls(Path(path).read_bytes(), media_type or _by_suffix(path, FILE_TYPES), Path(path).name)

    def __repr__(self) -> str:
        named = f"{self.filename!r}, " if self.filename else ""
        return f"FilePart({named}{self.media_type}, {len(self.data)} bytes)"


InputPart = str | TextPart | ImagePart | FilePart
#: What `send`, `run` and `prompt` take.
Content = str | Sequence[InputPart]
#: What an event holds: text, or parts as plain values with digests in the place of bytes.
Plain = str | list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """An input as it will be recorded, and the blobs that go with it, each once."""

    content: Plain
    blobs: tuple[Blob, ...] = ()


@dataclass(frozen=True, slots=True)
class InputCapabilities:
    """What an input of a session may be made of.

    Args:
        text: always.
        blocks: a list of parts may be sent instead of one text.
        images, files: which other parts the session's provider takes.
        image_types, file_types: their media types; empty where there are none.
        limits: sizes and counts; beyond those of one part or one input it is refused.
        durable_ack: the receipt means that the input, media included, is in the journal.
        retention: how long the journal keeps it.
    """

    text: bool
    blocks: bool
    images: bool
    files: bool
    image_types: tuple[str, ...]
    file_types: tuple[str, ...]
    limits: MediaLimits
    durable_ack: bool = True
    retention: Literal["forever"] = "forever"


class SessionInputs:
    """What a session says about its inputs: `session.inputs`."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._has = capabilities

    def capabilities(self) -> InputCapabilities:
        """What may be sent."""
        has = self._has
        return InputCapabilities(
            text=True,
            blocks=True,
            images=has.images,
            files=has.files,
            image_types=IMAGE_TYPES if has.images else (),
            file_types=FILE_TYPES if has.files else (),
            limits=has.media,
        )


def needs_work(content: Content) -> bool:
    """Whether preparing it means to look at bytes, which takes time."""
    return not isinstance(content, str) and any(isinstance(p, ImagePart | FilePart) for p in content)


def listed(content: Any) -> Content:
    """The content as text or as a list, whatever sequence it came in.

    Raises:
        SendRejected: EMPTY_INPUT, NOT_A_PART.
    """
    if isinstance(content, str):
        parts: Content = content
    elif isinstance(content, Sequence) and not isinstance(content, bytes | bytearray | memoryview):
        parts = list(content)
    else:
        raise SendRejected("NOT_A_PART", f"expected text or a list of parts, got {_named(content)}")
    if not parts or (isinstance(parts, list) and all(_is_empty(part) for part in parts)):
        raise SendRejected("EMPTY_INPUT", "give it some content")
    return parts


def prepare(content: Content, capabilities: Capabilities) -> Prepared:
    """Check an input and turn it into what is recorded.

    Args:
        content: as `listed` returned it.
        capabilities: of the session's provider.

    Raises:
        SendRejected: NOT_A_PART, UNSUPPORTED_PART, UNSUPPORTED_MEDIA_TYPE, MEDIA_TYPE_MISMATCH,
            EMPTY_PART, PART_TOO_LARGE, TOO_MANY_PARTS, INPUT_TOO_LARGE. Says which part.
    """
    if isinstance(content, str):
        return Prepared(content)
    if len(content) > MAX_PARTS:
        raise SendRejected("TOO_MANY_PARTS", f"{len(content)} parts in one input, the limit is {MAX_PARTS}")
    for index, part in enumerate(content):
        _check(part, f"part {index}", capabilities)
    _check_sum([part for part in content if isinstance(part, ImagePart | FilePart)], capabilities.media)
    blobs: dict[str, Blob] = {}
    plain = [_plain(part, blobs) for part in content]
    return Prepared(plain, tuple(blobs.values()))


# --- checks -------------------------------------------------------------------------


def _is_empty(part: object) -> bool:
    return part == "" or (isinstance(part, TextPart) and not part.text)


def _named(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _check(part: object, where: str, has: Capabilities) -> None:
    match part:
        case str() | TextPart(text=str()):
            return
        case ImagePart(data=bytes(), media_type=str()):
            _check_image(part, where, has)
        case FilePart(data=bytes(), media_type=str()):
            _check_file(part, where, has)
        case ImagePart() | FilePart():
            given = f"{_named(part.data)} and {_named(part.media_type)}"
            raise SendRejected("NOT_A_PART", f"{where}: expected bytes and a media type, got {given}")
        case dict():
            told = (
                f"{where}: a dict in one API's own form; expected {_PART_TYPES}, which every provider takes"
            )
            raise SendRejected("NOT_A_PART", told)
        case _:
            raise SendRejected("NOT_A_PART", f"{where}: expected {_PART_TYPES}, got {_named(part)}")


def _check_image(part: ImagePart, where: str, has: Capabilities) -> None:
    if not has.images:
        raise SendRejected("UNSUPPORTED_PART", f"{where}: this session's provider takes no images")
    _check_bytes(part.data, part.media_type, IMAGE_TYPES, has.media.image_bytes, where)
    found = image_type(part.data)
    if found != part.media_type:
        raise _mismatch(where, part.media_type, found or "of no known image format")
    size = image_size(part.data)
    if size is not None and max(size) > has.media.image_edge:
        told = (
            f"{size[0]} x {size[1]} pixels, the limit of an edge is {has.media.image_edge}; make it smaller"
        )
        raise SendRejected("PART_TOO_LARGE", f"{where}: {told}")


def _check_file(part: FilePart, where: str, has: Capabilities) -> None:
    if not has.files:
        raise SendRejected("UNSUPPORTED_PART", f"{where}: this session's provider takes no files")
    _check_bytes(part.data, part.media_type, FILE_TYPES, has.media.file_bytes, where)
    if not fits_file_type(part.data, part.media_type):
        raise _mismatch(where, part.media_type, "something else")
    if part.filename is not None and not _is_name(part.filename):
        wanted = f"a name of 1 to {MAX_FILENAME_CHARACTERS} printable characters"
        raise SendRejected("NOT_A_PART", f"{where}: expected {wanted} as filename, got {part.filename!r:.80}")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_FILENAME_CHARACTERS and name.isprintable()


def _check_bytes(data: bytes, media_type: str, allowed: tuple[str, ...], limit: int, where: str) -> None:
    if media_type not in allowed:
        told = f"{where}: expected one of {', '.join(allowed)}, got {media_type!r:.80}"
        raise SendRejected("UNSUPPORTED_MEDIA_TYPE", told)
    if not data:
        raise SendRejected("EMPTY_PART", f"{where}: expected at least one byte")
    if len(data) > limit:
        told = f"{len(data)} bytes, the limit of this provider is {limit}; make it smaller"
        raise SendRejected("PART_TOO_LARGE", f"{where}: {told}")


def _mismatch(where: str, media_type: str, found: str) -> SendRejected:
    return SendRejected("MEDIA_TYPE_MISMATCH", f"{where}: said to be {media_type}, its bytes are {found}")


def _check_sum(media: list[ImagePart | FilePart], limits: MediaLimits) -> None:
    if len(media) > limits.count:
        told = f"{len(media)} images and files in one input, the limit of this provider is {limits.count}"
        raise SendRejected("TOO_MANY_PARTS", told)
    size = sum(len(part.data) for part in media)
    if size > limits.request_bytes:
        told = f"images and files of {size} bytes in one input, the limit of this provider is"
        raise SendRejected("INPUT_TOO_LARGE", f"{told} {limits.request_bytes}")


# --- the recorded form -----------------------------------------------------------------


def _plain(part: InputPart, blobs: dict[str, Blob]) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    digest = hashlib.sha256(part.data).hexdigest()
    blobs.setdefault(digest, Blob(digest, part.data))
    stored = {"media_type": part.media_type, "blob": digest, "size": len(part.data)}
    if isinstance(part, ImagePart):
        return {"type": "image", **stored}
    return {"type": "file", **stored} | ({"filename": part.filename} if part.filename is not None else {})


def _by_suffix(path: str | os.PathLike[str], allowed: tuple[str, ...]) -> str:
    found = BY_SUFFIX.get(Path(path).suffix.lower())
    if found is None or found not in allowed:
        known = ", ".join(suffix for suffix, named in BY_SUFFIX.items() if named in allowed)
        raise InvalidOptions("media_type", f"a name, or a path that ends with one of {known}", str(path))
    return found
