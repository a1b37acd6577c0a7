"""Values as messages show them: short, printable, whatever they are. Pure."""

from __future__ import annotations


def preview(value: object, limit: int = 80) -> str:
    """`repr` of a value, bounded and printable, safe to show in a message."""
    try:
        text = ascii(value[: limit + 1] if isinstance(value, str | bytes) else value)
    except Exception:  # too deep, too many digits, or a repr of somebody else's that fails
        text = f"<{ascii(type(value).__name__)[1:-1]} that cannot be shown>"
    return text if len(text) <= limit else text[: limit - 3] + "..."
