"""Results at the boundary: kept, told, or replaced by a placeholder; never a failure."""

from __future__ import annotations

import collections
import hashlib
import types
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from domain import canonical
from domain.limits import MAX_BLOB_BYTES, MAX_JSON_DEPTH, MAX_PAYLOAD_BYTES
from minutebook.plain_values import MAX_NOTES, MAX_VALUE_DEPTH, NotKept, to_plain
from minutebook.tool_result import (
    INLINE_BYTES,
    MAX_MESSAGE_CHARACTERS,
    SHOWN_CHARACTERS,
    Kept,
    ToolOutcome,
    ToolOutput,
    describe_exception,
    normalise,
)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def as_event(outcome: ToolOutcome) -> bytes:
    """All of an outcome that goes into one event."""
    return canonical.encode(
        {
            "result": {"text": outcome.output_text, "value": outcome.value},
            "notes": outcome.notes,
            "digest": outcome.raw_digest,
            "display": outcome.display,
            "messages": outcome.messages,
        }
    )


def kept_exactly(outcome: ToolOutcome) -> bool:
    return repr(canonical.decode(canonical.encode(outcome.value))) == repr(sorted_keys(outcome.value))


def sorted_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(item) for item in value] if isinstance(value, list) else value


# --- plain results --------------------------------------------------------------------


def test_text_is_told_as_it_is() -> None:
    outcome = normalise("naïve ✓\n")
    assert outcome == ToolOutcome(
        "naïve ✓\n", "naïve ✓\n", (), (), sha256("naïve ✓\n".encode()), len("naïve ✓\n".encode())
    )


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "(no result)"),
        ("", "(empty text)"),
        (b"", "(no bytes)"),
        (True, "true"),
        (3, "3"),
        (-0.0, "-0.0"),
        (2**70, str(2**70)),
        ([], "[]"),
        ({"b": 1, "a": [None, 1.5]}, '{"b":1,"a":[null,1.5]}'),
        ({"n": 2**70, "$mb": "x"}, f'{{"n":{2**70},"$mb":"x"}}'),
    ],
)
def test_plain_values_are_told_as_json_and_kept_exactly(value: Any, told: str) -> None:
    outcome = normalise(value)
    assert outcome.output_text == told
    assert repr(outcome.value) == repr(value)
    assert kept_exactly(outcome)
    assert outcome.kept is Kept.WHOLE
    assert outcome.blobs == ()
    if value != b"":
        assert outcome.notes == ()


def test_the_digest_of_a_structured_result_is_of_its_stored_form() -> None:
    value = {"b": 1, "a": 2}
    assert normalise(value).raw_digest == canonical.digest(value)
    assert normalise(value).original_bytes == len(canonical.encode(value))


# --- text and bytes that are hard to keep ------------------------------------------------


@pytest.mark.parametrize(
    "text", ["a\0b", "\x1b[2J\x1b]52;c;x\x07", "\u2028\ufeff\u202e", "<script>", "=cmd()"]
)
def test_p69_control_characters_are_kept_and_told(text: str) -> None:
    outcome = normalise(text)
    assert outcome.value == text
    assert outcome.output_text == text
    assert kept_exactly(outcome)


@pytest.mark.parametrize("text", ["\ud83d", "half \ud83d", "\ud83d\ude00", "\\ud83d \ud83d"])
def test_p69_lone_surrogates_are_kept_and_told_as_replacements(text: str) -> None:
    outcome = normalise(text)
    assert outcome.value == text
    assert kept_exactly(outcome)
    outcome.output_text.encode()
    assert "\ufffd" in outcome.output_text
    assert "U+FFFD" in outcome.notes[0]
    assert outcome.raw_digest == sha256(text.encode("utf-8", "surrogatepass"))


def test_p69_keys_are_kept_too() -> None:
    value = {"\0": 1, "\ud800": [b"\xff", "\ud800"], "$mb": {"$mb": "str", "v": "x"}}
    outcome = normalise(value)
    assert outcome.value == value
    assert kept_exactly(outcome)
    assert outcome.output_text == ('{"\\u0000":1,"\ufffd":["\ufffd","\ufffd"],"$mb":{"$mb":"str","v":"x"}}')


@pytest.mark.parametrize(
    ("data", "told", "note"),
    [
        (b"W\0s\0l\0", "W\0s\0l\0", "bytes are told as UTF-8 text"),
        ("é".encode("latin-1"), "\ufffd", "U+FFFD"),
        (bytearray(b"\xc0\xaf"), "\ufffd\ufffd", "U+FFFD"),
        (memoryview("ok ✓".encode()), "ok ✓", "bytes are told as UTF-8 text"),
    ],
)
def test_p70_bytes_are_kept_beside_a_decoded_view(data: Any, told: str, note: str) -> None:
    outcome = normalise(data)
    assert outcome.value == bytes(data)
    assert type(outcome.value) is bytes
    assert kept_exactly(outcome)
    assert outcome.output_text == told
    assert note in outcome.notes[0]
    assert outcome.raw_digest == sha256(bytes(data))


# --- values of richer types ----------------------------------------------------------------


class Level(Enum):
    HIGH = "high"


class Rank(IntEnum):
    FIRST = 1


class Point(NamedTuple):
    x: int
    y: int


class Person(BaseModel):
    name: str
    born: date


@dataclass
class Job:
    owner: Person
    tags: set[str] = field(default_factory=set)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Decimal("1.10"), "1.10"),
        (Decimal("NaN"), "NaN"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "2024-02-29T01:02:03Z"),
        (date(2024, 2, 29), "2024-02-29"),
        (timedelta(days=1), "P1D"),
        (PurePosixPath("/a/b"), "/a/b"),
        (Level.HIGH, "high"),
        (Rank.FIRST, 1),
        (Point(1, 2), [1, 2]),
        ((1, (2,)), [1, [2]]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({1, "a", None, b"x"}, ["a", 1, None, b"x"]),
        (collections.deque([1]), [1]),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (Person(name="a", born=date(2000, 1, 1)), {"name": "a", "born": "2000-01-01"}),
        (
            Job(Person(name="a", born=date(2000, 1, 1)), {"y", "x"}),
            {"owner": {"name": "a", "born": "2000-01-01"}, "tags": ["x", "y"]},
        ),
    ],
    ids=range(19),
)
def test_p72_richer_types_are_kept_as_plain_values_and_marked(value: Any, plain: Any) -> None:
    outcome = normalise({"deep": [value]})
    assert repr(outcome.value) == repr({"deep": [plain]})
    assert kept_exactly(outcome)
    assert any(note.startswith(f"at $.deep[0]: {type(value).__name__} kept as ") for note in outcome.notes)


def test_a_subclass_of_text_is_told_as_text_of_json() -> None:
    class Html(str):
        __slots__ = ()

    outcome = normalise(Html("<b>"))
    assert type(outcome.value) is str
    assert outcome.notes == ("at $: Html kept as text",)


def test_notes_are_few_and_the_rest_is_counted() -> None:
    _, notes = to_plain([(i,) for i in range(100)])
    assert len(notes) == MAX_NOTES + 1
    assert notes[-1].startswith("80 more")


# --- what cannot be kept --------------------------------------------------------------------


class Broken(BaseModel):
    """A model that fails when it is read."""

    def model_dump(self, **_: Any) -> dict[str, Any]:
        raise RuntimeError("no")


@dataclass
class Hostile:
    """An object whose attributes raise."""

    x: int = 1

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


def circle() -> list[Any]:
    items: list[Any] = []
    items.append({"again": items})
    return items


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def doubling(levels: int) -> Any:
    """A few lists that stand for 2**levels values."""
    value: Any = "x"
    for _ in range(levels):
        value = [value, value]
    return value


def counting() -> Any:
    yield from range(3)


NOT_KEPT = [
    ({"a": [{"b": object()}]}, "$.a[0].b", "object", "no plain form"),
    ({"a": [{"b": float("nan")}]}, "$.a[0].b", "float", "not a finite number"),
    (float("-inf"), "$", "float", "not a finite number"),
    (circle(), "$[0].again", "list", "contains itself"),
    ({1: "a"}, "$", "int", "key has to be text"),
    ({"a": {None: 1}}, "$.a", "NoneType", "key has to be text"),
    ({"a": {("x",): 1}}, "$.a", "tuple", "key has to be text"),
    (deep(MAX_VALUE_DEPTH + 1), "$" + "[0]" * 33, "list", f"more than {MAX_VALUE_DEPTH} levels"),
    (deep(100_000), "$" + "[0]" * 33, "list", f"more than {MAX_VALUE_DEPTH} levels"),
    (doubling(60), "$", "str", "more than 1000000 values"),
    ([10**4001], "$[0]", "int", "more than 4000 digits"),
    ({"f": print}, "$.f", "builtin_function_or_method", "no plain form"),
    ({"g": counting()}, "$.g", "generator", "return a list"),
    ([iter([1])], "$[0]", "list_iterator", "return a list"),
    ([Broken()], "$[0]", "Broken", "failed when it was read, with RuntimeError"),
    ([Hostile()], "$[0]", "Hostile", "failed when it was read, with RuntimeError"),
    (Hostile(), "$", "Hostile", "failed when it was read, with RuntimeError"),
    (["x" * 40_000_000, "x" * 40_000_000], "$[1]", "str", "characters in one value"),
    ([ValueError("x")], "$[0]", "ValueError", "no plain form"),
    ({"t": int}, "$.t", "type", "no plain form"),
    ({"a\nb": {"x" * 100: object()}}, "$.'a\\nb'.'xxx", "object", "no plain form"),
]


@pytest.mark.parametrize(
    ("value", "path", "kind", "why"), NOT_KEPT, ids=[f"{i}-{row[2]}" for i, row in enumerate(NOT_KEPT)]
)
def test_p72_a_tool_that_succeeded_has_succeeded_whatever_it_returned(
    value: Any, path: str, kind: str, why: str
) -> None:
    outcome = normalise(value)
    assert outcome.kept is Kept.PLACEHOLDER
    placeholder = outcome.value["not_kept"]
    assert placeholder["path"].startswith(path)
    assert placeholder["type"] == kind
    assert why in placeholder["why"]
    assert outcome.output_text.startswith("The tool succeeded, but its result could not be kept: at $")
    assert all(part in outcome.output_text for part in (placeholder["path"], kind, why))
    assert kept_exactly(outcome)
    assert (outcome.blobs, outcome.original_bytes) == ((), 0)
    assert len(outcome.output_text) < 1000


def test_the_deepest_value_that_is_kept_fits_into_an_event() -> None:
    assert MAX_VALUE_DEPTH < MAX_JSON_DEPTH
    outcome = normalise(deep(MAX_VALUE_DEPTH))
    assert outcome.kept is Kept.WHOLE
    as_event(outcome)


def test_escaped_keys_that_are_too_deep_for_the_journal_are_no_failure() -> None:
    value: Any = 1
    for _ in range(MAX_VALUE_DEPTH - 1):
        value = {"$mb": value}
    assert normalise(value).kept is Kept.PLACEHOLDER


def test_the_same_object_twice_is_no_circle() -> None:
    part = {"x": 1}
    assert normalise([part, part, (part,)]).value == [part, part, [part]]


def test_running_out_of_stack_is_no_failure() -> None:
    def deeper(left: int) -> ToolOutcome:
        try:
            return deeper(left + 1)
        except RecursionError:
            return normalise([[[{"a": [1]}]]])

    assert deeper(0).kept in (Kept.PLACEHOLDER, Kept.WHOLE)


def test_not_kept_names_path_type_and_reason() -> None:
    with pytest.raises(NotKept, match=r"^at \$\[1\]: object: it has no plain form"):
        to_plain([1, object()])


# --- size ---------------------------------------------------------------------------------


def test_p83_a_big_text_keeps_its_ends_and_goes_to_a_blob() -> None:
    text = "first line\n" + "x" * 1_000_000 + "\nERROR: the last line"
    outcome = normalise(text)
    raw = text.encode()
    assert outcome.kept is Kept.BLOB
    assert outcome.output_text.startswith("first line\nx")
    assert "ERROR: the last line" in outcome.output_text[-500:]
    assert f"{len(raw)} bytes, SHA-256 {sha256(raw)}" in outcome.output_text
    assert len(outcome.output_text) < 2 * SHOWN_CHARACTERS + 500
    (blob,) = outcome.blobs
    assert (blob.digest, blob.data) == (sha256(raw), raw)
    assert outcome.value == {"blob": blob.digest, "bytes": len(raw), "sha256": sha256(raw), "kept": "blob"}
    assert (outcome.raw_digest, outcome.original_bytes) == (sha256(raw), len(raw))


def test_p83_big_bytes_are_decoded_at_their_ends_only() -> None:
    data = b"start" + b"\xff" * 1_000_000 + "Ende ✓".encode()
    outcome = normalise(data)
    assert outcome.output_text.startswith("start\ufffd")
    assert "Ende ✓\n[too big" in outcome.output_text
    assert outcome.blobs[0].data == data
    assert outcome.raw_digest == sha256(data)


def test_p83_a_big_structure_goes_to_a_blob_in_its_stored_form() -> None:
    value = [{"i": i, "name": "n" * 50} for i in range(10_000)]
    outcome = normalise(value)
    assert canonical.decode(outcome.blobs[0].data) == value
    assert outcome.output_text.startswith('[{"i":0,')
    assert '"i":9999' in outcome.output_text
    assert outcome.kept is Kept.BLOB


def test_p83_what_no_blob_may_hold_is_cut_in_its_middle_and_says_so() -> None:
    data = b"begin" + bytes(MAX_BLOB_BYTES) + b"end"
    outcome = normalise(data)
    assert outcome.kept is Kept.CUT
    (blob,) = outcome.blobs
    assert MAX_BLOB_BYTES - 2 <= len(blob.data) <= MAX_BLOB_BYTES
    assert blob.digest == sha256(blob.data)
    assert blob.data.startswith(b"begin\0")
    assert blob.data.endswith(b"\0end")
    assert f"of {len(data)} bytes, the middle is left out".encode() in blob.data
    assert outcome.raw_digest == sha256(data)
    assert "without its middle" in outcome.output_text


def test_a_lower_limit_counts_a_higher_one_does_not() -> None:
    text = "x" * 2000
    assert normalise(text).kept is Kept.WHOLE
    low = normalise(text, limit_bytes=1000)
    assert low.kept is Kept.BLOB
    assert low.output_text.startswith("x" * 500 + "\n[... the middle is left out here ...]\n" + "x" * 500)
    assert normalise("x" * (INLINE_BYTES + 1), limit_bytes=10**9).kept is Kept.BLOB
    assert normalise("abc", limit_bytes=0).kept is Kept.BLOB
    assert normalise([1] * 600, limit_bytes=1000).kept is Kept.BLOB


@pytest.mark.parametrize("character", ["x", "\0", "\ud800", "\\", "✓", "\U0001f600"])
@pytest.mark.parametrize("size", [INLINE_BYTES // 7, INLINE_BYTES - 2, INLINE_BYTES, 5 * INLINE_BYTES])
def test_any_outcome_fits_into_one_event(character: str, size: int) -> None:
    big = character * size
    everything = ToolOutput(big, display=big, messages=[big])
    for value in (everything, ToolOutput([big], display={"k": big}, messages=[character] * 1000)):
        assert len(as_event(normalise(value))) < MAX_PAYLOAD_BYTES


@pytest.mark.parametrize("size", [INLINE_BYTES // 2, INLINE_BYTES * 3 // 4 + 1, INLINE_BYTES])
def test_bytes_are_measured_as_they_are_stored(size: int) -> None:
    outcome = normalise(b"x" * size)
    assert len(canonical.encode(outcome.value)) <= INLINE_BYTES
    assert outcome.kept is (Kept.WHOLE if size == INLINE_BYTES // 2 else Kept.BLOB)


def test_notes_and_placeholders_shorten_long_paths() -> None:
    noted: Any = [(i,) for i in range(30)]
    lost: Any = object()
    for _ in range(80):
        noted, lost = {"k" * 64: noted}, {"k" * 64: lost}
    assert all(len(note) < 300 for note in normalise(noted).notes)
    assert len(normalise(noted).notes) == MAX_NOTES + 1
    placeholder = normalise(lost)
    assert len(placeholder.value["not_kept"]["path"]) == 200
    assert len(placeholder.output_text) < 500


# --- a tool that says more than one thing ------------------------------------------------------


def test_display_and_messages_go_with_the_result() -> None:
    outcome = normalise(ToolOutput({"n": 1}, display={"at": date(2024, 1, 1)}, messages=["look"]))
    assert (outcome.output_text, outcome.value) == ('{"n":1}', {"n": 1})
    assert outcome.display == {"at": "2024-01-01"}
    assert outcome.messages == ("look",)
    assert outcome.notes == ("display at $.at: date kept as text",)


def test_one_text_as_messages_is_one_message() -> None:
    assert normalise(ToolOutput("x", messages="hello")).messages == ("hello",)


@pytest.mark.parametrize("messages", [[1], {"a": 1}, 7, [object()], ["x" * INLINE_BYTES]], ids=range(5))
def test_messages_that_are_no_texts_are_left_out_and_noted(messages: Any) -> None:
    outcome = normalise(ToolOutput("x", messages=messages))
    assert (outcome.output_text, outcome.messages) == ("x", ())
    assert any(note.startswith("messages not kept") for note in outcome.notes)


@pytest.mark.parametrize("display", [object(), [float("nan")], "x" * INLINE_BYTES], ids=range(3))
def test_a_display_that_cannot_be_kept_leaves_the_result_alone(display: Any) -> None:
    outcome = normalise(ToolOutput("x", display=display))
    assert (outcome.output_text, outcome.value, outcome.kept) == ("x", "x", Kept.WHOLE)
    assert outcome.display == {"not_kept": "display"}
    assert outcome.notes[0].startswith("display not kept: ")


# --- exceptions ---------------------------------------------------------------------------------


class Unreadable(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Exception(""), "Exception without a message"),
        (ValueError(), "ValueError without a message"),
        (TimeoutError("  "), "TimeoutError without a message"),
        (ValueError("a\x1b[2Jb"), "a\x1b[2Jb"),
        (ValueError("half \ud83d"), "half \ufffd"),
        (KeyError("x"), "'x'"),
        (SystemExit(3), "3"),
        (Unreadable(), "Unreadable, whose text could not be read (ValueError)"),
        (
            ExceptionGroup("two", [ValueError(""), ExceptionGroup("in", [KeyError("k")])]),
            "ValueError: ValueError without a message; ExceptionGroup: KeyError: 'k'",
        ),
        (ExceptionGroup("many", [OSError(str(i)) for i in range(8)]), "OSError: 4; and 3 more"),
    ],
    ids=range(10),
)
def test_p94_an_error_always_has_a_message(error: BaseException, message: str) -> None:
    described = describe_exception(error)
    assert described["type"] == type(error).__name__
    assert described["message"].endswith(message)
    canonical.encode(described)


def test_a_long_message_keeps_its_ends() -> None:
    described = describe_exception(ValueError("begin" + "x" * 10_000_000 + "end"))
    assert described["message"].startswith("beginx")
    assert described["message"].endswith("xend")
    assert len(described["message"]) <= MAX_MESSAGE_CHARACTERS


def test_no_traceback_is_told() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / 0
    caught.value.add_note("a note")
    assert describe_exception(caught.value) == {"type": "ZeroDivisionError", "message": "division by zero"}


def test_groups_inside_groups_are_bounded() -> None:
    error: Exception = ValueError("x")
    for _ in range(200):
        error = ExceptionGroup("level", [error] * 5)
    assert len(describe_exception(error)["message"]) <= MAX_MESSAGE_CHARACTERS


# --- properties ------------------------------------------------------------------------------

hostile = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**62, max_value=2**90)
    | st.floats()
    | st.text(st.characters(exclude_categories=[]), max_size=6)
    | st.binary(max_size=6)
    | st.decimals()
    | st.dates()
    | st.uuids()
    | st.builds(object)
    | st.sampled_from([Level.HIGH, Rank.FIRST, print, int]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.sampled_from(["a", "$mb", "\0", "\ud800"]) | st.integers(0, 1), inner, max_size=3
        )
        | st.builds(lambda a, b: ToolOutput(a, display=b), inner, inner)
    ),
    max_leaves=10,
)


@given(hostile)
def test_any_result_is_stored_and_read_back_equal_or_replaced_with_its_path(value: Any) -> None:
    outcome = normalise(value)
    assert kept_exactly(outcome)
    assert outcome.output_text
    outcome.output_text.encode("utf-8")
    assert len(as_event(outcome)) < MAX_PAYLOAD_BYTES
    if outcome.kept is Kept.PLACEHOLDER:
        assert outcome.value["not_kept"]["path"].startswith("$")


@given(hostile)
def test_a_value_that_is_plain_already_stays_as_it_is(value: Any) -> None:
    outcome = normalise(value)
    assert repr(normalise(outcome.value).value) == repr(outcome.value)


@given(st.text(st.characters(exclude_categories=[]), max_size=200), st.integers(0, 100))
def test_p83_beginning_and_end_survive_any_limit(text: str, limit: int) -> None:
    outcome = normalise(text, limit_bytes=limit)
    if outcome.kept is Kept.BLOB:
        assert outcome.blobs[0].data.decode("utf-8", "surrogatepass") == text
        told = "".join("\ufffd" if "\ud800" <= each <= "\udfff" else each for each in text)
        shown = limit // 2
        assert outcome.output_text.startswith(told[:shown])
        assert told[len(told) - shown :] in outcome.output_text
    else:
        assert outcome.value == text
