"""A tool's result at the boundary: what the model is told and what the journal keeps.

Done once, right after the tool ended. A tool that returned has succeeded: nothing
about its result turns that into a failure. What cannot be kept is replaced by a
placeholder that says where the trouble is; what is too big for an event goes to a
blob, its beginning and end stay. Escaping for a screen is not done here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import pydantic_core

from domain import canonical
from domain.errors import ValueRefused
from domain.limits import MAX_BLOB_BYTES, MAX_PAYLOAD_BYTES, MAX_TOOL_OUTPUT_BYTES
from domain.ports import Blob
from minutebook import known_secrets
from minutebook.plain_values import NotKept, to_plain

#: Stored size of each of text, value, display and messages; an event holds all four.
INLINE_BYTES: Final = 3 * MAX_PAYLOAD_BYTES // 16
#: Characters kept of the beginning, and of the end, of what is bigger. One character
#: takes at most seven bytes in an event, so that both fit into `INLINE_BYTES`.
SHOWN_CHARACTERS: Final = 12 * 1024
MAX_MESSAGE_CHARACTERS: Final = 2000

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "�"


class Kept(StrEnum):
    """How much of a result is there."""

    WHOLE = "whole"  # in the value itself
    BLOB = "blob"  # in a blob, whole; beginning and end in the text
    CUT = "cut"  # in a blob, without its middle
    PLACEHOLDER = "placeholder"  # not at all; the value says why


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool may return to say more than one thing.

    Args:
        output: the result, as if it had been returned by itself.
        display: what people are shown instead; any value that the journal can keep.
        messages: texts for people, kept with the result; the model is not told.
    """

    output: Any
    display: Any = None
    messages: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A result, ready to be recorded. All of it but the blobs fits into one event.

    Args:
        output_text: what the model is told. Valid UTF-8, never empty.
        value: plain values that `domain.canonical` encodes; see `kept` for what they are.
        notes: what was changed or left out, in words.
        blobs: what has to be stored with the event.
        raw_digest: SHA-256 (hex) of the result's bytes before anything was left out: a text's
            UTF-8, bytes themselves, the stored form of anything else. Of the placeholder
            where the result could not be kept.
        original_bytes: how many bytes those are; 0 where the result could not be kept.
        kept: how much of the result is there.
        display, messages: of a `ToolOutput`, as plain values.
    """

    output_text: str
    value: Any
    notes: tuple[str, ...]
    blobs: tuple[Blob, ...]
    raw_digest: str
    original_bytes: int
    kept: Kept = Kept.WHOLE
    display: Any = None
    messages: tuple[str, ...] = ()


def normalise(value: object, *, limit_bytes: int = MAX_TOOL_OUTPUT_BYTES) -> ToolOutcome:
    """Bring what a tool returned into the form that is told and recorded.

    Args:
        value: anything; a `ToolOutput` is taken apart.
        limit_bytes: stored size above which only beginning and end are told. `INLINE_BYTES`
            is the upper limit, whatever is given.

    Returns:
        The outcome. It never raises: a result that cannot be kept becomes a placeholder.
    """
    limit = min(limit_bytes, INLINE_BYTES)
    if type(value) is not ToolOutput:
        return _kept(value, limit)
    outcome = _kept(value.output, limit)
    display, about_display = _small(value.display, "display")
    messages, about_messages = _messages(value.messages)
    return ToolOutcome(
        outcome.output_text,
        outcome.value,
        outcome.notes + about_display + about_messages,
        outcome.blobs,
        outcome.raw_digest,
        outcome.original_bytes,
        outcome.kept,
        display,
        messages,
    )


def describe_exception(error: BaseException) -> dict[str, str]:
    """An exception as data: its type and a message that is never empty.

    Args:
        error: what a tool raised. A group is described by its first few members.

    Returns:
        `type`, the class's name, and `message`, at most `MAX_MESSAGE_CHARACTERS` characters of
        valid UTF-8. No traceback. Control characters stay; a screen has to escape them.
    """
    return {"type": type(error).__name__[:200], "message": _bounded(_message(error))}


# --- results ----------------------------------------------------------------------


def _kept(value: object, limit: int) -> ToolOutcome:
    try:
        return _normalised(value, limit)
    except Exception as e:  # a hostile object, no stack or memory left: the tool has succeeded all the same
        return _placeholder(NotKept("$", value, f"it failed when it was read, with {type(e).__name__}"))


def _normalised(value: object, limit: int) -> ToolOutcome:
    if type(value) is str:
        text = known_secrets.masked(value)
        return _marked(_text_outcome(text, limit), text is not value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        given = bytes(value)
        data = known_secrets.masked_bytes(given)
        return _marked(_bytes_outcome(data, limit), data is not given)
    try:
        plain, notes, stored = _plain(value)
        text = _told(plain, stored)
    except NotKept as e:
        return _placeholder(e)
    except ValueRefused as e:
        return _placeholder(NotKept(e.path, value, f"expected {e.expected}"))
    if len(stored) > limit or not _fits(text, limit):
        return _oversized(_ends(text, limit), stored, notes)
    return ToolOutcome(text, plain, notes, (), _sha256(stored), len(stored))


def _marked(outcome: ToolOutcome, was_masked: bool) -> ToolOutcome:
    return replace(outcome, notes=(*outcome.notes, known_secrets.NOTE)) if was_masked else outcome


def _plain(value: object, **limits: int) -> tuple[Any, tuple[str, ...], bytes]:
    """A value as plain values, what was changed, its stored form."""
    plain, notes = to_plain(value, **limits)
    stored = canonical.encode(plain)
    if not known_secrets.is_in(stored):
        return plain, notes, stored
    plain = known_secrets.masked_value(plain)
    return plain, (*notes, known_secrets.NOTE), canonical.encode(plain)


def _text_outcome(value: str, limit: int) -> ToolOutcome:
    raw = value.encode("utf-8", "surrogatepass")
    if not _fits(value, limit):
        shown, notes = _clean(_ends(value, limit))
        return _oversized(shown, raw, notes)
    text, notes = _clean(value)
    return ToolOutcome(text or "(empty text)", value, notes, (), _sha256(raw), len(raw))


def _bytes_outcome(value: bytes, limit: int) -> ToolOutcome:
    if len(value) <= limit * 3 // 4:  # the journal keeps bytes as base64, a third longer
        text, notes = _decoded(value)
        if _fits(text, limit):
            return ToolOutcome(text or "(no bytes)", value, notes, (), _sha256(value), len(value))
    # A character takes up to four bytes; the middle of a huge output is never decoded.
    span = 4 * _shown_characters(limit)
    text, notes = _decoded(value if len(value) <= 2 * span else value[:span] + value[-span:])
    return _oversized(_ends(text, limit), value, notes)


def _oversized(shown: str, raw: bytes, notes: tuple[str, ...]) -> ToolOutcome:
    blob, kept = _blob(raw)
    digest = _sha256(raw)
    whole = "holds all of it" if kept is Kept.BLOB else "holds it without its middle"
    note = f"too big for an event: the blob {blob.digest} {whole} ({len(raw)} bytes, SHA-256 {digest})"
    text = f"{shown}\n[{note}; only its beginning and end are above]"
    value = {"blob": blob.digest, "bytes": len(raw), "sha256": digest, "kept": str(kept)}
    return ToolOutcome(text, value, (*notes, note), (blob,), digest, len(raw), kept)


def _blob(raw: bytes) -> tuple[Blob, Kept]:
    if len(raw) <= MAX_BLOB_BYTES:
        return Blob(_sha256(raw), raw), Kept.BLOB
    mark = f"\n[... of {len(raw)} bytes, the middle is left out here ...]\n".encode()
    half = (MAX_BLOB_BYTES - len(mark)) // 2
    cut = raw[:half] + mark + raw[-half:]
    return Blob(_sha256(cut), cut), Kept.CUT


def _shown_characters(limit: int) -> int:
    return max(0, min(SHOWN_CHARACTERS, limit // 2))


def _ends(text: str, limit: int) -> str:
    shown = _shown_characters(limit)
    if len(text) <= 2 * shown:
        return text
    return f"{text[:shown]}\n[... the middle is left out here ...]\n{text[len(text) - shown :]}"


def _placeholder(error: NotKept) -> ToolOutcome:
    why = _clean(error.why)[0][:300]
    path, kind = known_secrets.masked(_clean(error.path)[0])[:300], error.kind[:100]
    value = {"not_kept": {"path": path, "type": kind, "why": why}}
    text = f"The tool succeeded, but its result could not be kept: at {path}, {kind}: {why}."
    note = f"at {path}: {kind} not kept: {why}"
    return ToolOutcome(text, value, (note,), (), canonical.digest(value), 0, Kept.PLACEHOLDER)


# --- texts ------------------------------------------------------------------------


def _told(plain: Any, stored: bytes) -> str:
    """A structured result as JSON text for the model."""
    if plain is None:
        return "(no result)"
    readable = _readable(plain) if canonical.MARK.encode() in stored else plain
    return pydantic_core.to_json(readable).decode("utf-8")


def _readable(plain: Any) -> Any:
    if isinstance(plain, bytes):
        return _decoded(plain)[0]
    if isinstance(plain, str):
        return _clean(plain)[0]
    if isinstance(plain, list):
        return [_readable(item) for item in plain]
    if isinstance(plain, dict):
        return {_clean(key)[0]: _readable(item) for key, item in plain.items()}
    return plain


def _clean(text: str) -> tuple[str, tuple[str, ...]]:
    if text.isascii():
        return text, ()
    clean, times = _SURROGATE.subn(_REPLACEMENT, text)
    return clean, (f"{times} lone surrogates are told as U+FFFD",) if times else ()


def _decoded(data: bytes) -> tuple[str, tuple[str, ...]]:
    text = data.decode("utf-8", "replace")
    if text.encode("utf-8") == data:
        return text, ("bytes are told as UTF-8 text",)
    return text, ("bytes that are not UTF-8 are told with U+FFFD in their place",)


def _fits(text: str, limit: int) -> bool:
    return len(text) <= limit and len(canonical.encode(text)) <= limit


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- what goes with a result --------------------------------------------------------


def _small(value: Any, name: str) -> tuple[Any, tuple[str, ...]]:
    """A value that goes into the event as it is, or a placeholder."""
    try:
        plain, notes, stored = _plain(value, max_text=INLINE_BYTES)
        size = len(stored)
    except (NotKept, ValueRefused) as e:
        why = known_secrets.masked(_clean(str(e))[0])
        return {"not_kept": name}, (f"{name} not kept: {why[:300]}",)
    if size > INLINE_BYTES:
        return {"not_kept": name}, (f"{name} not kept: {size} bytes, the limit is {INLINE_BYTES}",)
    return plain, tuple(f"{name} {note}" for note in notes)


def _messages(messages: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    plain, notes = _small([messages] if type(messages) is str else messages, "messages")
    if isinstance(plain, list) and all(isinstance(each, str) for each in plain):
        return tuple(plain), ()
    return (), notes or ("messages not kept: expected a list of texts",)


# --- exceptions ---------------------------------------------------------------------


def _message(error: BaseException, levels: int = 3) -> str:
    if isinstance(error, BaseExceptionGroup) and levels:
        members = [f"{type(each).__name__}: {_message(each, levels - 1)}" for each in error.exceptions[:5]]
        more = len(error.exceptions) - len(members)
        return "; ".join([*members, f"and {more} more"] if more else members)
    try:
        text = str(error).strip()
    except Exception as e:
        return f"{type(error).__name__}, whose text could not be read ({type(e).__name__})"
    return text or f"{type(error).__name__} without a message"


def _bounded(text: str) -> str:
    text = _clean(known_secrets.masked(text))[0]
    if len(text) <= MAX_MESSAGE_CHARACTERS:
        return text
    mark = f" [... {len(text)} characters in all ...] "
    half = (MAX_MESSAGE_CHARACTERS - len(mark)) // 2
    return f"{text[:half]}{mark}{text[-half:]}"
