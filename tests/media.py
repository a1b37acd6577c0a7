"""Small images and documents, made here: whole enough for whoever looks at headers."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final


def png(width: int, height: int, filler: bytes = b"") -> bytes:
    """A grey picture; `filler` makes it another file, as big as wanted."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height) if width * height < 10**6 else b""
    chunks = [
        (b"IHDR", header),
        *([(b"tEXt", b"c\0" + filler)] if filler else []),
        (b"IDAT", rows),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def jpeg(width: int, height: int) -> bytes:
    """The header of a picture, with a segment before its frame."""
    frame = struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\x00"
    return b"\xff\xd8\xff\xe0\x00\x10JFIF\0" + bytes(9) + b"\xff\xff\xc0" + frame + b"\xff\xd9"


def gif(width: int, height: int) -> bytes:
    """The header of a picture."""
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b";"


def webp(kind: str) -> Callable[[int, int], bytes]:
    """A maker of headers of one of the three kinds."""

    def make(width: int, height: int) -> bytes:
        match kind:
            case "VP8 ":
                body = b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", width, height)
            case "VP8L":
                body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + bytes(5)
            case _:
                body = bytes(4) + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
        chunk = kind.encode() + struct.pack("<I", len(body)) + body
        return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk

    return make


PNG: Final = png(2, 2)
JPEG: Final = jpeg(2, 2)
GIF: Final = gif(2, 2)
WEBP: Final = webp("VP8X")(2, 2)
PDF: Final = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
