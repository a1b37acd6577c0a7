"""Writes `docs/coverage.md` and its picture from `docs/coverage.toml`: `python docs/make_coverage.py`."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent

HEAD = """\
# What exists

Made from `docs/coverage.toml` by `python docs/make_coverage.py`; do not edit by hand.

Before the first line was written, {total} things were listed that such a library could do. This page says
of each whether it can be done today.

| state | what it means |
|---|---|
| done | the call exists, its event is in the journal, it is there after a kill, and the named tests show it |
| partly | some of that; the row says what is missing |
| not yet | nothing that a user could call; the name in the row is kept for it |
| refused | left out on purpose; the row says why |

<img src="pictures/coverage.svg" alt="{alt}">

"""

STATES = ("done", "partly", "not yet", "refused")
WORDS = {"missing": "missing", "reason": "because"}
COLOURS = {"done": "#2e7d32", "partly": "#f9a825", "not yet": "#bdbdbd", "refused": "#6d4c41"}

BAR_LEFT, BAR_WIDTH, ROW_HEIGHT = 340, 520, 26


def sections() -> list[dict[str, Any]]:
    """The file's sections, each with its rows."""
    with (DOCS / "coverage.toml").open("rb") as file:
        found: list[dict[str, Any]] = tomllib.load(file)["section"]
    return found


def page() -> str:
    """The whole page."""
    all_sections = sections()
    counts = _counts(row for section in all_sections for row in section["row"])
    total = sum(counts.values())
    alt = ", ".join(f"{counts[state]} {state}" for state in STATES)
    parts = [HEAD.format(total=total, alt=f"Of {total}: {alt}"), _table(all_sections, counts)]
    for section in all_sections:
        parts.append(
            f"\n## {section['title']}\n\n| row | what | call | state | shown by, or what is missing |\n"
        )
        parts.append("|---|---|---|---|---|\n")
        parts += [_row(row) for row in section["row"]]
    return "".join(parts)


def _counts(rows: Any) -> Counter[str]:
    return Counter(row["state"] for row in rows)


def _table(all_sections: list[dict[str, Any]], counts: Counter[str]) -> str:
    lines = ["| section | " + " | ".join(STATES) + " | all |", "|---|" + "---|" * (len(STATES) + 1)]
    for section in all_sections:
        of = _counts(section["row"])
        lines.append(_count_line(f"[{section['title']}](#{_anchor(section['title'])})", of))
    lines.append(_count_line("all", counts))
    return "\n".join(lines) + "\n"


def _count_line(title: str, of: Counter[str]) -> str:
    return f"| {title} | " + " | ".join(str(of[state]) for state in STATES) + f" | {sum(of.values())} |"


def _anchor(title: str) -> str:
    return "".join(c for c in title.lower() if c.isalnum() or c in " -").replace(" ", "-")


def _row(row: dict[str, Any]) -> str:
    call = f"`{row['api']}`".replace("|", "\\|") if "api" in row else ""
    said = [f"*{word}:* {row[key]}" for key, word in WORDS.items() if key in row]
    said += [f"`{_short(test)}`" for test in row.get("tests", ())]
    shown = "<br>".join(said)
    return f"| {row['id']} | {row['item']} | {call} | {row['state']} | {shown} |\n"


def _short(test: str) -> str:
    return test.removeprefix("tests/")


def picture() -> str:
    """A bar for each section, as SVG."""
    all_sections = sections()
    widest = max(len(section["row"]) for section in all_sections)
    height = ROW_HEIGHT * (len(all_sections) + 1) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{BAR_LEFT + BAR_WIDTH + 60}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="100%" height="{height}" fill="#ffffff"/>',
    ]
    for number, section in enumerate(all_sections):
        lines += _bar(number, section, BAR_WIDTH / widest)
    lines += _legend(ROW_HEIGHT * len(all_sections) + 20)
    return "\n".join([*lines, "</svg>", ""])


def _bar(number: int, section: dict[str, Any], scale: float) -> list[str]:
    top, left, counts = number * ROW_HEIGHT + 4, float(BAR_LEFT), _counts(section["row"])
    lines = [f'<text x="{BAR_LEFT - 10}" y="{top + 14}" text-anchor="end">{_xml(section["title"])}</text>']
    for state in STATES:
        width = counts[state] * scale
        if width:
            lines.append(
                f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="18" fill="{COLOURS[state]}">'
                f"<title>{counts[state]} {state}</title></rect>"
            )
        left += width
    lines.append(f'<text x="{left + 6:.1f}" y="{top + 14}">{sum(counts.values())}</text>')
    return lines


def _legend(top: int) -> list[str]:
    lines = []
    for number, state in enumerate(STATES):
        left = BAR_LEFT + number * 100
        lines.append(f'<rect x="{left}" y="{top - 10}" width="12" height="12" fill="{COLOURS[state]}"/>')
        lines.append(f'<text x="{left + 18}" y="{top}">{state}</text>')
    return lines


def _xml(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


if __name__ == "__main__":
    (DOCS / "coverage.md").write_text(page(), encoding="utf-8")
    (DOCS / "pictures" / "coverage.svg").write_text(picture(), encoding="utf-8")
