"""The parts of an input: what may be sent, what is refused and why, what is recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import minutebook as mb
from domain import canonical
from domain.errors import InvalidOptions, SendRejected
from domain.model_ports import EVERYTHING, Capabilities, MediaLimits
from domain.references import media_parts
from minutebook.input_parts import MAX_PARTS, SessionInputs, listed, prepare
from minutebook.media_types import FILE_TYPES, IMAGE_TYPES, fits_file_type, image_size, image_type
from projections.transcript import UserItem
from projections.wire_parts import Media, left_out, parts, readable
from tests.media import GIF, JPEG, PDF, PNG, WEBP, gif, jpeg, png, webp

IMAGES = {"image/png": PNG, "image/jpeg": JPEG, "image/gif": GIF, "image/webp": WEBP}


def recorded(*content: Any, has: Capabilities = EVERYTHING) -> Any:
    return prepare(listed(list(content)), has).content


def refusal(*content: Any, has: Capabilities = EVERYTHING) -> SendRejected:
    with pytest.raises(SendRejected) as refused:
        prepare(listed(list(content)), has)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500
    return refused.value


# --- what is recorded -------------------------------------------------------------------


def test_text_stays_text() -> None:
    assert prepare(listed("hello"), EVERYTHING).content == "hello"
    assert prepare(listed("hello"), EVERYTHING).blobs == ()


def test_a_string_in_a_list_is_a_text_part() -> None:
    assert recorded("a", mb.TextPart("a")) == [{"type": "text", "text": "a"}] * 2


def test_bytes_become_a_blob_and_the_event_names_it() -> None:
    made = prepare(listed(["look", mb.ImagePart(PNG, "image/png")]), EVERYTHING)
    digest = hashlib.sha256(PNG).hexdigest()
    assert made.content == [
        {"type": "text", "text": "look"},
        {"type": "image", "media_type": "image/png", "blob": digest, "size": len(PNG)},
    ]
    assert [(blob.digest, blob.data) for blob in made.blobs] == [(digest, PNG)]


def test_a_file_keeps_its_name() -> None:
    named = recorded(mb.FilePart(PDF, "application/pdf", "bill.pdf"))
    assert named[0]["filename"] == "bill.pdf"
    assert "filename" not in recorded(mb.FilePart(PDF, "application/pdf"))[0]


def test_the_same_bytes_twice_are_one_blob() -> None:
    made = prepare(listed([mb.ImagePart(PNG, "image/png"), mb.ImagePart(PNG, "image/png")]), EVERYTHING)
    assert len(made.content) == 2
    assert len(made.blobs) == 1


def test_a_part_shows_no_bytes_of_its_own() -> None:
    assert repr(mb.ImagePart(PNG, "image/png")) == f"ImagePart(image/png, {len(PNG)} bytes)"
    shown = repr(mb.FilePart(b"secret", "text/plain", "a.txt"))
    assert shown == "FilePart('a.txt', text/plain, 6 bytes)"


# --- from a path ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cat.PNG", "cat.png"])
def test_an_image_is_read_from_a_path(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(PNG)
    assert mb.ImagePart.from_path(path) == mb.ImagePart(PNG, "image/png")


def test_a_file_is_read_from_a_path_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(b"# notes")
    assert mb.FilePart.from_path(str(path)) == mb.FilePart(b"# notes", "text/markdown", "notes.md")
    given = mb.FilePart.from_path(path, "text/plain")
    assert given.media_type == "text/plain"


@pytest.mark.parametrize(
    ("part", "name"), [(mb.ImagePart, "bill.pdf"), (mb.FilePart, "cat.png"), (mb.FilePart, "x")]
)
def test_a_suffix_that_says_nothing_asks_for_the_media_type(tmp_path: Path, part: Any, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"x")
    with pytest.raises(InvalidOptions, match="media_type"):
        part.from_path(path)


# --- refusals -----------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, str]] = {
    "a number": (5, "NOT_A_PART"),
    "nothing": (None, "NOT_A_PART"),
    "a dict of an API": ({"type": "image_url", "image_url": {"url": "data:,x"}}, "NOT_A_PART"),
    "a text as a dict": ({"type": "text", "text": "x"}, "NOT_A_PART"),
    "a text part of a number": (mb.TextPart(5), "NOT_A_PART"),  # type: ignore[arg-type]
    "an image of text": (mb.ImagePart("x", "image/png"), "NOT_A_PART"),  # type: ignore[arg-type]
    "an image of no type": (mb.ImagePart(PNG, None), "NOT_A_PART"),  # type: ignore[arg-type]
    "an empty image": (mb.ImagePart(b"", "image/png"), "EMPTY_PART"),
    "an empty file": (mb.FilePart(b"", "text/plain"), "EMPTY_PART"),
    "a drawing": (mb.ImagePart(b"<svg/>", "image/svg+xml"), "UNSUPPORTED_MEDIA_TYPE"),
    "an image as a file": (mb.FilePart(PNG, "image/png"), "UNSUPPORTED_MEDIA_TYPE"),
    "a program": (mb.FilePart(b"\x7fELF", "application/octet-stream"), "UNSUPPORTED_MEDIA_TYPE"),
    "a type with a line end": (mb.FilePart(b"x", "text/plain\r\nx: y"), "UNSUPPORTED_MEDIA_TYPE"),
    "a picture of another format": (mb.ImagePart(PNG, "image/jpeg"), "MEDIA_TYPE_MISMATCH"),
    "no picture": (mb.ImagePart(b"hello", "image/png"), "MEDIA_TYPE_MISMATCH"),
    "no PDF": (mb.FilePart(b"hello", "application/pdf"), "MEDIA_TYPE_MISMATCH"),
    "no text": (mb.FilePart(b"\xff\xfe", "text/plain"), "MEDIA_TYPE_MISMATCH"),
    "text with a NUL": (mb.FilePart(b"a\0b", "text/plain"), "MEDIA_TYPE_MISMATCH"),
    "an empty name": (mb.FilePart(b"x", "text/plain", ""), "NOT_A_PART"),
    "a name that turns": (mb.FilePart(b"x", "text/plain", "a\u202eb"), "NOT_A_PART"),
    "half a character as a name": (mb.FilePart(b"x", "text/plain", "\ud83d"), "NOT_A_PART"),
    "a name without end": (mb.FilePart(b"x", "text/plain", "x" * 256), "NOT_A_PART"),
    "a wide picture": (mb.ImagePart(png(8001, 1), "image/png"), "PART_TOO_LARGE"),
    "a high picture": (mb.ImagePart(jpeg(1, 8001), "image/jpeg"), "PART_TOO_LARGE"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_part_that_cannot_be_sent_is_refused_by_its_place(name: str) -> None:
    part, reason = REFUSED[name]
    refused = refusal("before", part)
    assert refused.reason == reason
    assert "part 1" in str(refused)


def test_the_refusal_of_a_dict_names_the_part_types() -> None:
    told = str(refusal({"type": "image_url"}))
    assert all(name in told for name in ("mb.TextPart", "mb.ImagePart", "mb.FilePart"))


@pytest.mark.parametrize(
    "content", [5, None, b"bytes", bytearray(b"x"), {"type": "text"}, {"a", "b"}, object()]
)
def test_what_is_neither_text_nor_a_list_is_refused(content: Any) -> None:
    with pytest.raises(SendRejected, match="NOT_A_PART"):
        listed(content)


@pytest.mark.parametrize("content", ["", [], (), [""], ["", mb.TextPart("")]])
def test_nothing_is_refused(content: Any) -> None:
    with pytest.raises(SendRejected, match="EMPTY_INPUT"):
        listed(content)


LIMITS = MediaLimits(count=3, request_bytes=200, image_bytes=len(PNG), file_bytes=100)
SMALL = replace(EVERYTHING, media=LIMITS)


def test_one_part_is_bounded_by_what_the_provider_takes() -> None:
    recorded(mb.ImagePart(PNG, "image/png"), mb.FilePart(b"x" * 100, "text/plain"), has=SMALL)
    assert refusal(mb.ImagePart(PNG + b"x", "image/png"), has=SMALL).reason == "PART_TOO_LARGE"
    assert refusal(mb.FilePart(b"x" * 101, "text/plain"), has=SMALL).reason == "PART_TOO_LARGE"


def test_one_input_is_bounded_in_number_and_bytes() -> None:
    small, big = mb.FilePart(b"x", "text/plain"), mb.FilePart(b"x" * 100, "text/plain")
    recorded(small, small, small, "text", "text", has=SMALL)
    assert refusal(small, small, small, small, has=SMALL).reason == "TOO_MANY_PARTS"
    recorded(big, big, has=SMALL)
    assert refusal(big, big, small, has=SMALL).reason == "INPUT_TOO_LARGE"
    assert refusal(*["x"] * (MAX_PARTS + 1)).reason == "TOO_MANY_PARTS"


def test_what_the_provider_cannot_take_is_refused() -> None:
    text = Capabilities()
    assert refusal(mb.ImagePart(PNG, "image/png"), has=text).reason == "UNSUPPORTED_PART"
    assert (
        refusal(mb.FilePart(PDF, "application/pdf"), has=replace(text, images=True)).reason
        == "UNSUPPORTED_PART"
    )
    assert recorded("only text", has=text)


def test_the_session_says_what_it_takes() -> None:
    every = SessionInputs(EVERYTHING).capabilities()
    assert (every.text, every.blocks, every.images, every.files) == (True, True, True, True)
    assert (every.image_types, every.file_types) == (IMAGE_TYPES, FILE_TYPES)
    assert (every.durable_ack, every.retention, every.limits) == (True, "forever", MediaLimits())
    none = SessionInputs(Capabilities(images=True)).capabilities()
    assert (none.files, none.file_types, none.image_types) == (False, (), IMAGE_TYPES)


# --- formats -------------------------------------------------------------------------------


@pytest.mark.parametrize("media_type", IMAGE_TYPES)
def test_a_format_is_known_by_its_first_bytes(media_type: str) -> None:
    assert image_type(IMAGES[media_type]) == media_type
    assert recorded(mb.ImagePart(IMAGES[media_type], media_type))


@pytest.mark.parametrize(
    "make",
    [png, jpeg, gif, webp("VP8 "), webp("VP8L"), webp("VP8X")],
    ids="png jpeg gif lossy lossless wide".split(),
)
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (3, 8001), (8192, 2)])
def test_a_header_tells_the_size(make: Callable[[int, int], bytes], size: tuple[int, int]) -> None:
    assert image_size(make(*size)) == size


@given(st.sampled_from(sorted(IMAGES)), st.integers(0, 80), st.binary(max_size=40))
def test_a_damaged_picture_is_looked_at_without_a_failure(kind: str, cut: int, tail: bytes) -> None:
    data = IMAGES[kind][:cut] + tail
    size = image_size(data)
    assert size is None or all(0 <= edge < 2**32 for edge in size)


def test_a_jpeg_that_never_gets_to_its_frame_has_no_size() -> None:
    assert image_size(b"\xff\xd8\xff\xe0\x00\x00" + b"\xff\xd9") is None
    assert image_size(b"\xff\xd8" + b"\xff\xe0\x00\x02" * 1000) is None


def test_a_pdf_may_have_some_bytes_before_it() -> None:
    assert fits_file_type(b"\n\n" + PDF, "application/pdf")
    assert not fits_file_type(b" " * 1024 + PDF, "application/pdf")


# --- random lists ---------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)
PARTS = st.one_of(
    TEXTS,
    TEXTS.map(mb.TextPart),
    st.sampled_from(sorted(IMAGES)).map(lambda kind: mb.ImagePart(IMAGES[kind], kind)),
    st.builds(lambda text: mb.FilePart(text.encode(), "text/plain"), st.text("ab", min_size=1, max_size=5)),
    st.just(mb.FilePart(PDF, "application/pdf", "bill.pdf")),
)


@given(st.lists(PARTS, min_size=1, max_size=12))
def test_any_list_of_parts_is_recorded_as_plain_values_and_comes_back_for_the_wire(given: list[Any]) -> None:
    if not any(_wire(part) for part in given):
        with pytest.raises(SendRejected, match="EMPTY_INPUT"):
            listed(given)
        return
    made = prepare(listed(given), EVERYTHING)
    assert isinstance(made.content, list)
    assert canonical.decode(canonical.encode(made.content)) == made.content
    blobs = {blob.digest: blob.data for blob in made.blobs}
    assert {part["blob"] for part in media_parts(made.content)} == set(blobs)
    found = parts(UserItem(1, "i", made.content, blobs))
    wanted = [_wire(part) for part in given]
    assert list(found) == [part for part in wanted if part]


def _wire(part: Any) -> Any:
    if isinstance(part, str):
        return part
    if isinstance(part, mb.TextPart):
        return part.text
    if isinstance(part, mb.ImagePart):
        return Media("image", part.media_type, "", part.data)
    return Media("file", part.media_type, part.filename or "", part.data)


# --- the place of what is not sent ------------------------------------------------------------


def test_a_part_without_its_bytes_is_a_line_of_text() -> None:
    content = recorded("look", mb.FilePart(PDF, "application/pdf", "bill.pdf"))
    assert parts(UserItem(1, "i", content)) == (
        "look",
        f"[file bill.pdf, application/pdf, {len(PDF)} bytes: not sent again]",
    )


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "image", "blob": "f" * 64},
        {"blob": "f" * 64},
    ],
    ids=["nothing", "of an API", "of an old version", "of no type"],
)
def test_a_part_of_another_form_never_fails(plain: dict[str, Any]) -> None:
    item = UserItem(1, "i", [plain], {"f" * 64: PNG})
    assert parts(item) == (left_out(plain),)
    assert "not sent again" in left_out(plain)
    assert readable([plain]).startswith("[")


def test_people_read_a_name_and_a_size() -> None:
    content = recorded("look at", mb.ImagePart(PNG, "image/png"), mb.FilePart(b"x", "text/plain", "x.txt"))
    assert (
        readable(content)
        == f"look at\n[image, image/png, {len(PNG)} bytes]\n[file x.txt, text/plain, 1 bytes]"
    )
    assert readable("text") == "text"
    assert readable(["odd"]) == ["odd"]
