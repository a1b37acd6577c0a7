"""What a journal keeps it gives back, to the last detail; what it cannot keep it says at once."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from domain import catalogue
from domain import events as ev
from domain.canonical import decode, encode, escape
from domain.envelope import Actor, Fence, check_link, open_envelope, seal
from domain.errors import Corrupt, InvalidId, ValueRefused
from domain.ids import session_id
from domain.limits import MAX_JSON_DEPTH
from domain.values import ActorKind, Priority
from minutebook.testing.scenario import created, salt
from minutebook.testing.scenario import given as given_that
from tests.property.examples import share
from tests.property.values import any_text, look_alikes, reordered, same, values

#: Levels that a generated value has at most, with three for each object that needs a mark.
MOST_LEVELS = 60


@share(150)
@given(values)
def test_what_is_encoded_is_decoded(value: Any) -> None:
    assert same(decode(encode(value)), value)


@share(100)
@given(values)
def test_the_order_in_which_an_object_was_built_does_not_count(value: Any) -> None:
    assert encode(reordered(value)) == encode(value)


@share(100)
@given(values | look_alikes)
def test_what_looks_like_an_escape_is_not_taken_for_one(value: Any) -> None:
    escaped = escape(value)
    assert same(decode(encode(escaped)), escaped)
    assert (encode(escaped) == encode(value)) is same(escaped, value)


@share(100)
@given(values, values)
def test_different_values_have_different_bytes(one: Any, other: Any) -> None:
    assert (encode(one) == encode(other)) is same(one, other)


@share(100)
@given(values)
def test_a_tuple_is_kept_as_a_list_and_a_word_as_its_text(value: Any) -> None:
    assert same(decode(encode((value, Priority.NOW))), [value, "now"])


@share(150)
@given(st.binary(max_size=60))
@example(b'{"$mb":"int","v":"9"}')
@example(b'{"$mb":"obj","v":[[[],1]]}')
@example(b'{"$mb":"obj","v":["ab"]}')
@example(b'{"$mb":"bytes","v":5}')
@example(b'{"$mb":{},"v":5}')
@example(b"[" * 2000)
@example(b"[" * 1000 + b"]" * 1000)
@example(b'{"$mb":"int","v":"' + b"9" * 5000 + b'"}')
@example(b"[" * 300 + b'{"$mb":"int","v":"1"}' + b"]" * 300)
@example(b"NaN")
@example(b"1e999")
@example(b'"\\ud800"')
@example(b"\xff")
def test_any_bytes_are_a_value_or_corrupt(data: bytes) -> None:
    _is_a_value_or_corrupt(data)


def _is_a_value_or_corrupt(data: bytes) -> None:
    try:
        value = decode(data)
    except Corrupt:
        return
    assert same(decode(encode(value)), value)


@share(150)
@given(values, st.data())
def test_damaged_bytes_are_a_value_or_corrupt(value: Any, data: st.DataObject) -> None:
    stored = bytearray(encode(value))
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] = data.draw(st.integers(0, 255))
    _is_a_value_or_corrupt(bytes(stored))


@share(100)
@given(values, st.integers(0, MAX_JSON_DEPTH + 60), st.booleans())
def test_nesting_has_one_limit_in_both_directions(value: Any, levels: int, as_object: bool) -> None:
    for _ in range(levels):
        value = {"k": value} if as_object else [value]
    stored = _encoded(value)
    if isinstance(stored, ValueRefused):
        assert "levels of nesting" in stored.expected
        assert levels + MOST_LEVELS > MAX_JSON_DEPTH
    else:
        assert same(decode(stored), value)
        assert levels <= MAX_JSON_DEPTH


def _encoded(value: Any) -> bytes | ValueRefused:
    try:
        return encode(value)
    except ValueRefused as refused:
        return refused


@share(100)
@given(values, any_text.map(lambda text: text[:20]))
def test_a_refusal_names_the_place(value: Any, key: str) -> None:
    refused = _encoded({key: [value, {"deep": float("nan")}]})
    assert isinstance(refused, ValueRefused)
    assert refused.path.startswith("$.")
    assert refused.path.endswith("[1].deep")
    assert str(refused).isprintable()


# --- through an event ---------------------------------------------------------------------


@share(100)
@given(values, any_text)
def test_an_event_keeps_any_value_and_any_text(value: Any, text: str) -> None:
    payloads = [
        ev.NoticeRecorded(kind="remark", message=text, data=value),
        ev.ToolCompleted(output=text, value=value, display=value, messages=[value], notes=[text]),
        ev.InputAccepted(
            input_id="i-1",
            content=[{"text": text, "more": value}],
            priority=Priority.NOW,
            ordinal=1,
            size_bytes=1,
            metadata={text: value},
        ),
        ev.PermissionRequested(permission_id="p", summary=text, input_digest=text),
    ]
    for payload in payloads:
        stored = catalogue.encode(payload)
        opened = catalogue.decode(payload.type, payload.version, stored)
        assert opened == payload
        assert catalogue.encode(opened) == stored


@share(100)
@given(any_text, any_text, st.integers(1, 2**62))
def test_an_envelope_keeps_any_text(actor: str, worker: str, token: int) -> None:
    (event,) = given_that().compose(created()).events
    stamped = event.__class__(
        **{
            **{name: getattr(event, name) for name in event.__slots__},
            "actor": Actor(ActorKind.USER, actor),
            "recorded_by": Fence(worker, actor, token),
            "aggregate_id": worker,
        }
    )
    row = seal(stamped, b"{}", salt("s-test", 1), b"h" * 32)
    check_link(row, 0, b"h" * 32)
    assert open_envelope(row, event.data) == stamped


@share(50)
@given(any_text)
def test_an_id_is_taken_as_it_is_or_refused(text: str) -> None:
    kept: object = None
    try:
        kept = session_id(text)
    except InvalidId as refused:
        kept = refused
    assert kept == text or (isinstance(kept, InvalidId) and str(kept).isprintable())
