"""What the bytes of an image or a file are, by looking at their beginning. Pure.

Imported by `minutebook.input_parts`. Nothing is decoded: a few bytes tell the
format, and where the header says it, the size of the picture.
"""

from __future__ import annotations

from typing import Final

#: Every hosted API takes these four, and no other format is taken by all of them.
IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")

#: Documents that some API reads, and text, which is sent as text where it has to be.
FILE_TYPES: Final = (
    "application/pdf",
    "application/json",
    "text/plain",
    "text/markdown",
    "text/csv",
    "text/html",
)

#: Media type by suffix: ours, not the machine's, so that a path means the same everywhere.
BY_SUFFIX: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".pdf": "application/pdf",
    ".json": "application/json",
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".html": "text/html",
}

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG: Final = b"\xff\xd8\xff"
_GIF: Final = (b"GIF87a", b"GIF89a")

#: JPEG markers of a frame header: all of C0 to CF but tables, arithmetic coding and extensions.
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_ALONE: Final = frozenset((0x01, *range(0xD0, 0xD9)))


def image_type(data: bytes) -> str | None:
    """The media type of an image by its first bytes, or None if it is none of `IMAGE_TYPES`."""
    if data.startswith(_PNG):
        return "image/png"
    if data.startswith(_JPEG):
        return "image/jpeg"
    if data.startswith(_GIF):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def fits_file_type(data: bytes, media_type: str) -> bool:
    """Whether bytes may be a file of one of `FILE_TYPES`: a PDF begins as one, text is UTF-8."""
    if media_type == "application/pdf":
        return b"%PDF-" in data[:1024]  # readers of the format allow some bytes before it
    try:
        return "\0" not in data.decode("utf-8")
    except UnicodeDecodeError:
        return False


def image_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) in pixels as the header says, or None where it does not."""
    match image_type(data):
        case "image/png" if data[12:16] == b"IHDR" and len(data) >= 24:
            return _big(data[16:20]), _big(data[20:24])
        case "image/gif" if len(data) >= 10:
            return _little(data[6:8]), _little(data[8:10])
        case "image/jpeg":
            return _jpeg_size(data)
        case "image/webp":
            return _webp_size(data)
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF:  # a fill byte
            place += 1
        elif marker in _JPEG_ALONE:
            place += 2
        elif marker in _JPEG_FRAMES:
            return _big(data[place + 7 : place + 9]), _big(data[place + 5 : place + 7])
        else:
            place += 2 + _big(data[place + 2 : place + 4])
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return _little(data[24:27]) + 1, _little(data[27:30]) + 1
    if kind == b"VP8L" and len(data) >= 25:
        bits = _little(data[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and len(data) >= 30:
        return _little(data[26:28]) & 0x3FFF, _little(data[28:30]) & 0x3FFF
    return None


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
