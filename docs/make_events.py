"""Writes `docs/events.md` from the catalogue: `python docs/make_events.py`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from domain.catalogue import CATALOGUE, RESERVED  # noqa: E402 - needs the path above
from domain.events import Payload  # noqa: E402

HEAD = """\
# Events

Made from `domain/catalogue.py` by `python docs/make_events.py`; do not edit by hand.

Every event has the envelope of `domain/envelope.py`: session, sequence, type and version, aggregate, the
ids of its scope, times, command and place in it, causation, who recorded it under which lease, actor, and a
commitment to its payload. Below is what each type's payload states. A field with a default is left out of
the stored bytes when it has that value.

Scope: R request, T turn, A model attempt, C call; lower case where it may be absent.
"""

LETTERS = {
    "session": "Session and inputs",
    "request": "Request",
    "turn": "Turn",
    "model_attempt": "Model attempt",
    "tool": "Tool",
    "permission": "Permission",
    "thread": "Thread",
}


def reference() -> str:
    """The whole page."""
    parts = [HEAD]
    for kind, title in LETTERS.items():
        parts.append(f"\n## {title}\n")
        parts += [_entry(cls) for cls in CATALOGUE.values() if cls.aggregate == kind]
    parts.append("\n## Reserved\n\n")
    parts.append("Names kept for later versions; a journal that holds one is blocked here.\n\n")
    parts.append(", ".join(f"`{name}`" for name in sorted(RESERVED)) + "\n")
    return "".join(parts)


def _entry(cls: type[Payload]) -> str:
    scope = f" · scope {cls.scope}" if cls.scope else ""
    lines = [f"\n### `{cls.type}@{cls.version}`{scope}\n\n{inspect.getdoc(cls)}\n"]
    if cls.model_fields:
        lines.append("\n| field | type | default |\n|---|---|---|\n")
        lines += [_row(name, field) for name, field in cls.model_fields.items()]
    return "".join(lines)


def _row(name: str, field: object) -> str:
    annotation = inspect.formatannotation(field.annotation)  # type: ignore[attr-defined]  # pydantic's FieldInfo
    annotation = annotation.replace("domain.values.", "").replace("domain.events.", "").replace("typing.", "")
    annotation = annotation.replace("|", "\\|")
    required = field.is_required()  # type: ignore[attr-defined]  # pydantic's FieldInfo
    default = "required" if required else f"`{field.get_default(call_default_factory=True)!r}`"  # type: ignore[attr-defined]  # pydantic's FieldInfo
    return f"| `{name}` | `{annotation}` | {default} |\n"


if __name__ == "__main__":
    (ROOT / "docs" / "events.md").write_text(reference(), encoding="utf-8")
