"""The closed list of event types: the first file to read.

A stored `type@version` maps to one payload class here, and to nothing else: a
name in a journal is never a Python path. Older versions are raised step by step
by upcasters before they are validated. What is not listed is shown raw and
blocks; it is never skipped and never imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from pydantic import ValidationError

from domain import canonical, events
from domain.envelope import Recorded, Stored, open_envelope
from domain.errors import Corrupt, JournalBlocked
from domain.events import Payload


def _payloads(base: type[Payload] = Payload) -> Iterator[type[Payload]]:
    for cls in base.__subclasses__():
        yield cls
        yield from _payloads(cls)


#: Stored name -> the class of its newest version, in the order of `domain.events`.
CATALOGUE: Final[dict[str, type[Payload]]] = {
    cls.type: cls for cls in _payloads() if cls.__module__ == events.__name__
}

#: Names kept for types whose rules do not exist yet. A journal that holds one is newer than us.
RESERVED: Final = frozenset(
    {
        "mode_changed",
        "resource_changed",
        "state_changed",
        "subagent_model_set",
        "memory_model_set",
        "memory_threshold_set",
        "hook_started",
        "hook_completed",
        "mcp_status_changed",
        "subagent_registered",
        "workspace_bound",
        "channel_bound",
        "payload_redacted",
        "seal_recorded",
        "thread_created",
        "thread_bound",
        "thread_unbound",
        "thread_renamed",
        "thread_deleted",
        "thread_setting_set",
        "thread_setting_deleted",
        "compaction_rejected",
        "tool_outputs_trimmed",
        "checkpoint_created",
        "checkpoint_imported",
        "checkpoint_deleted",
        "history_restored",
        "tasks_updated",
        "observation_started",
        "observation_completed",
        "observation_failed",
        "reflection_started",
        "reflection_completed",
        "reflection_failed",
        "tool_context_patched",
        "tool_runtime_patched",
        "tool_messages_added",
        "permission_updates_applied",
    }
)

_MAX_VERSION_DIGITS: Final = 9

#: (type, version) -> plain payload of that version to plain payload of the next one.
UPCASTERS: Final[dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]]] = {}


def encode(payload: Payload) -> bytes:
    """A payload's stored bytes. Raises ValueRefused with the path of what cannot be kept."""
    return canonical.encode(payload.to_plain())


def payload_class(type_: str, version: int, sequence: int | None = None) -> type[Payload]:
    """The class of a stored name.

    Raises:
        JournalBlocked: an unknown type, or a version newer than this library's.
    """
    cls = CATALOGUE.get(type_)
    if cls is None:
        kind = "reserved for a later version" if type_ in RESERVED else "unknown"
        raise JournalBlocked(
            "event type", "a type of this version's catalogue", f"{type_} ({kind})", sequence
        )
    if version > cls.version or version < 1:
        raise JournalBlocked(
            "event version", f"{type_}@1 to {type_}@{cls.version}", f"{type_}@{version}", sequence
        )
    return cls


def decode(type_: str, version: int, payload: bytes, sequence: int | None = None) -> Payload:
    """The typed payload behind stored bytes.

    Raises:
        JournalBlocked: unknown, newer, or not of the type's shape.
        Corrupt: the bytes are no canonical JSON.
    """
    cls = payload_class(type_, version, sequence)
    try:
        plain = canonical.decode(payload)
    except Corrupt as e:
        raise Corrupt("payload", e.expected, payload[:80], sequence) from e
    try:
        for step in range(version, cls.version):
            plain = UPCASTERS[type_, step](plain)
        return cls.model_validate(plain)
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        found = f"{where}: {first['msg']}"
        raise JournalBlocked("payload", f"the shape of {type_}@{version}", found, sequence) from e
    except (AttributeError, LookupError, TypeError, ValueError) as e:
        # An upcaster takes the old shape for granted; a stranger's payload need not have it.
        raise JournalBlocked("payload", f"the shape of {type_}@{version}", repr(e), sequence) from e


def open_stored(stored: Stored) -> Recorded:
    """Decode a row wholly: envelope, then typed payload."""
    type_, _, version = stored.topic.rpartition("@")
    if not version.isdecimal() or len(version) > _MAX_VERSION_DIGITS:
        raise JournalBlocked("event type", "type@version", stored.topic, stored.sequence)
    if stored.payload is None:
        raise JournalBlocked("payload", "a payload", "nothing (redacted)", stored.sequence)
    data = decode(type_, int(version), stored.payload, stored.sequence)
    return open_envelope(stored, data)
