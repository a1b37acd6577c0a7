"""From whatever a tool returned to plain values that the journal can keep.

Plain values are None, bool, int, float, str, bytes, list and dict, the ones that
`domain.canonical` encodes. What was changed on the way is noted; what cannot be
kept is refused with its JSON path. Sizes and texts are `tool_result`'s business.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from enum import Enum
from pathlib import PurePath
from typing import Any, Final

import pydantic_core
from pydantic import BaseModel

from domain import canonical
from domain.arguments import MAX_ARGUMENT_DEPTH, MAX_DIGITS
from domain.limits import MAX_BLOB_BYTES
from domain.preview import preview

#: As deep as arguments may be, so that an event's payload can hold either.
MAX_VALUE_DEPTH: Final = MAX_ARGUMENT_DEPTH
#: Values in one result. A small list that holds itself many times over can stand for more.
MAX_VALUES: Final = 1_000_000
MAX_NOTES: Final = 20

_TOO_LONG: Final = 10**MAX_DIGITS


class NotKept(Exception):
    """A value cannot be kept. `path` is its JSON path, `kind` its type's name, `why` a clause."""

    def __init__(self, path: str, value: object, why: str) -> None:
        self.path, self.kind, self.why = _short(path), type(value).__name__[:100], why
        super().__init__(f"at {self.path}: {self.kind}: {why}")


def to_plain(value: object, *, max_text: int = MAX_BLOB_BYTES) -> tuple[Any, tuple[str, ...]]:
    """Turn a value into plain values.

    Tuples, sets (sorted), dataclasses, pydantic models and mappings become lists
    and objects; dates, ids, decimals, paths and the like become their usual text.

    Args:
        value: anything.
        max_text: characters and bytes that all its texts may have together.

    Returns:
        The plain value and a note for each change, at most `MAX_NOTES` and one that counts the rest.

    Raises:
        NotKept: not a finite number, a circle, a key that is no text, too deep, too much,
            an object with no plain form, or an object that failed when it was read.
    """
    walk = _Walk(max_text)
    plain = walk.visit(value, "$", 0)
    return plain, walk.notes()


class _Walk:
    """One pass over one value: what was noted, what is open, how much was seen."""

    def __init__(self, max_text: int) -> None:
        self._notes: list[str] = []
        self._unlisted = 0
        self._open: set[int] = set()
        self._values_left = MAX_VALUES
        self._max_text = self._text_left = max_text

    def notes(self) -> tuple[str, ...]:
        more = (f"{self._unlisted} more changes of these kinds",) if self._unlisted else ()
        return (*self._notes, *more)

    def visit(self, value: Any, path: str, depth: int) -> Any:
        self._values_left -= 1
        if self._values_left < 0:
            raise NotKept(path, value, f"more than {MAX_VALUES} values")
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str or kind is bytes:
            return self._text(value, path)
        if kind is int:
            return _integer(value, path)
        if kind is float:
            return _float(value, path)
        return self._structured(value, path, depth)

    def _structured(self, value: Any, path: str, depth: int) -> Any:
        if depth >= MAX_VALUE_DEPTH:
            raise NotKept(path, value, f"more than {MAX_VALUE_DEPTH} levels of nesting")
        if id(value) in self._open:
            raise NotKept(path, value, "it contains itself")
        self._open.add(id(value))
        try:
            return self._by_kind(value, path, depth)
        except NotKept:
            raise
        except Exception as e:  # properties, serialisers and iterators are other people's code
            raise NotKept(path, value, f"it failed when it was read, with {type(e).__name__}") from e
        finally:
            self._open.discard(id(value))

    def _by_kind(self, value: Any, path: str, depth: int) -> Any:
        if type(value) is dict:
            return self._object(value, path, depth)
        if type(value) is list:
            return self._items(value, path, depth)
        if isinstance(value, Enum):
            return self._instead(value, value.value, path, depth)
        if isinstance(value, BaseModel):
            return self._instead(value, value.model_dump(by_alias=True, warnings=False), path, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            return self._instead(value, fields, path, depth)
        if isinstance(value, Mapping):
            return self._instead(value, dict(value.items()), path, depth)
        if isinstance(value, Set):
            return self._set(value, path, depth)
        if isinstance(value, (list, tuple, deque)):
            return self._instead(value, list(value), path, depth)
        return self._scalar(value, path, depth)

    def _object(self, value: dict[Any, Any], path: str, depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, item in list(value.items()):
            if not isinstance(key, str):
                raise NotKept(path, key, "an object's key has to be text")
            text = self._text(str.__str__(key), path)
            plain[text] = self.visit(item, f"{path}.{step(text)}", depth + 1)
        return plain

    def _items(self, value: Iterable[Any], path: str, depth: int) -> list[Any]:
        return [self.visit(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(list(value))]

    def _set(self, value: Iterable[Any], path: str, depth: int) -> list[Any]:
        self._note(path, value, "a sorted list")
        return sorted(self._items(value, path, depth), key=canonical.encode)

    def _instead(self, value: Any, stand_in: Any, path: str, depth: int) -> Any:
        """Keep a value as another one, at the same depth."""
        plain = self.visit(stand_in, path, depth)
        self._note(path, value, _named(plain))
        return plain

    def _scalar(self, value: Any, path: str, depth: int) -> Any:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._instead(value, bytes(value), path, depth)
        if isinstance(value, str):
            return self._instead(value, str.__str__(value), path, depth)
        if isinstance(value, int):
            return self._instead(value, int(value), path, depth)
        if isinstance(value, float):
            return self._instead(value, float(value), path, depth)
        if isinstance(value, Iterator):
            raise NotKept(path, value, "it has to be read to be kept; return a list")
        text = str(value) if isinstance(value, PurePath) else _as_text(value)
        if text is None:
            raise NotKept(path, value, "it has no plain form; return text, numbers, lists and objects")
        return self._instead(value, text, path, depth)

    def _text(self, value: Any, path: str) -> Any:
        self._text_left -= len(value)
        if self._text_left < 0:
            raise NotKept(path, value, f"more than {self._max_text} characters in one value")
        return value

    def _note(self, path: str, value: object, kept_as: str) -> None:
        if len(self._notes) < MAX_NOTES:
            self._notes.append(f"at {_short(path)}: {type(value).__name__[:100]} kept as {kept_as}")
        else:
            self._unlisted += 1


def step(key: str) -> str:
    """A key as a step of a JSON path in a message: as it is where it is short and printable."""
    return key if key.isprintable() and len(key) <= 64 else preview(key)


def _short(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:100]}...{path[-97:]}"


def _named(plain: object) -> str:
    if isinstance(plain, (dict, list)):
        return "an object" if isinstance(plain, dict) else "a list"
    return "text" if isinstance(plain, str) else "its plain value"


def _integer(value: int, path: str) -> int:
    if not -_TOO_LONG < value < _TOO_LONG:
        raise NotKept(path, value, f"more than {MAX_DIGITS} digits")
    return value


def _float(value: float, path: str) -> float:
    if not math.isfinite(value):
        raise NotKept(path, value, "not a finite number")
    return value


def _as_text(value: object) -> str | None:
    """The usual text of a date, id, decimal, address and the like; None where there is none."""
    try:
        text = pydantic_core.to_jsonable_python(value)
    except pydantic_core.PydanticSerializationError:
        return None
    return text if type(text) is str else None
