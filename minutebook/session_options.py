"""What each option of a session may be: checked before anything is opened or sent.

Pure. Imported by the configuration and by the calls that take the same options later
(`change`, `send`). What options mean together is checked where they meet. Must never
show a value that is not an option's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from domain.cursor import Cursor
from domain.errors import InvalidOptions
from domain.ids import OWNER_ID, is_owner_id
from domain.values import OnLostAttempt, PermissionMode, Priority
from minutebook.budget import Budget
from minutebook.lease_config import LeaseConfig
from minutebook.models import Thinking

#: A tool that does not stop in a day does not stop.
MAX_ABORT_TIMEOUT_S: Final = 24 * 3600
#: Whole numbers that every JSON reader keeps exactly.
_MAX_WHOLE: Final = 2**53 - 1


@dataclass(frozen=True, slots=True)
class _Rule:
    """What is allowed, in words and as a question."""

    expected: str
    allows: Callable[[Any], bool]


def _is_text(value: object) -> bool:
    """Text that UTF-8 can hold, without lone surrogates."""
    return isinstance(value, str) and value.encode("utf-8", "replace").decode() == value


def _is_word(value: object) -> bool:
    return _is_text(value) and value != ""


def _is_whole(value: object, least: int, most: int = _MAX_WHOLE) -> bool:
    return type(value) is int and least <= value <= most


def _is_number(value: Any, least: float, most: float) -> bool:
    return type(value) in (int, float) and least <= value <= most


def _or_none(allows: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or allows(value)


def _is_list(value: object) -> bool:
    """Not something that is empty once it was looked at, and not a text, which is a list of texts."""
    return isinstance(value, list | tuple)


def _is_named(value: object) -> bool:
    return isinstance(value, Mapping) and all(_is_word(name) for name in value)


def _is_context(value: object) -> bool:
    if not _is_named(value) or not isinstance(value, Mapping):
        return False
    environment = value.get("environment", {})
    named = _is_named(environment) and isinstance(environment, Mapping)
    return (
        named and all(map(_is_text, environment.values())) and isinstance(value.get("metadata", {}), Mapping)
    )


def _one_of(words: type[StrEnum]) -> _Rule:
    allowed = frozenset(words)
    return _Rule(f"one of {', '.join(words)}", lambda value: isinstance(value, str) and value in allowed)


_RULES: Final[Mapping[str, _Rule]] = {
    "model": _Rule("the name of a model", _is_word),
    "tools": _Rule("a list of functions decorated with @mb.tool", _is_list),
    "system_prompt": _Rule("a text without lone surrogates, or None", _or_none(_is_text)),
    "temperature": _Rule("a number from 0 to 100, or None", _or_none(lambda v: _is_number(v, 0, 100))),
    "max_output_tokens": _Rule(
        "a whole number of tokens from 1, or None", _or_none(lambda value: _is_whole(value, 1))
    ),
    "max_turns": _Rule("a whole number from 1", lambda value: _is_whole(value, 1)),
    "permission_mode": _one_of(PermissionMode),
    "permission_handler": _Rule("an async function, or None", _or_none(callable)),
    "confirmation_handler": _Rule("an async function, or None", _or_none(callable)),
    "on_lost_attempt": _one_of(OnLostAttempt),
    "priority": _one_of(Priority),
    "context": _Rule("a mapping with `environment` (text to text) and `metadata` (a mapping)", _is_context),
    "reason": _Rule("a text", lambda value: isinstance(value, str)),
    "metadata": _Rule("a mapping by names, or None", _or_none(_is_named)),
    "owner_id": _Rule(OWNER_ID, is_owner_id),
    "abort_timeout_s": _Rule(
        f"seconds above 0, at most {MAX_ABORT_TIMEOUT_S}",
        lambda value: _is_number(value, 0, MAX_ABORT_TIMEOUT_S) and value > 0,
    ),
    "lease": _Rule("mb.LeaseConfig(...)", lambda value: isinstance(value, LeaseConfig)),
    "probe": _Rule("a function that takes the name of a point", callable),
    "providers": _Rule("a mapping from names to providers", _is_named),
    "models": _Rule("a list of mb.ModelInfo(...) values", _is_list),
    "aliases": _Rule("a mapping from names to models", _is_named),
    "thinking": _Rule("mb.Thinking(...), or None", _or_none(lambda value: isinstance(value, Thinking))),
    "budget": _Rule("mb.Budget(...), or None", _or_none(lambda value: isinstance(value, Budget))),
    "output_fallback": _Rule(
        "refuse or instruct", lambda value: isinstance(value, str) and value in ("refuse", "instruct")
    ),
    "after": _Rule("mb.Cursor, or None", _or_none(lambda value: isinstance(value, Cursor))),
    "look_up_lost_attempts": _Rule("True or False", lambda value: type(value) is bool),
}

#: Options that other modules read: what may be in them is said there.
ELSEWHERE: Final = frozenset({"provider", "output_schema"})


def check_option(option: str, value: object) -> None:
    """Refuse a value that the option cannot be.

    Raises:
        InvalidOptions: the option's name, what is allowed, what was given.
    """
    rule = _RULES[option]
    if not rule.allows(value):
        raise InvalidOptions(option, rule.expected, value)


def check_options(config: object, names: Iterable[str]) -> None:
    """Check these options of a configuration. Raises InvalidOptions."""
    for option in names:
        if option not in ELSEWHERE:
            check_option(option, getattr(config, option))


def check_sending(priority: object, metadata: object, max_turns: object) -> None:
    """Check the options of one input. Raises InvalidOptions."""
    check_option("priority", priority)
    check_option("metadata", metadata)
    if max_turns is not None:
        check_option("max_turns", max_turns)
