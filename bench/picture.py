"""The picture: what a request costs against the length of the history, as SVG written by hand.

Pure: a run in, text out. Readable on light and dark pages; no fonts, no scripts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 60, 190, 48, 48
_LABEL_GAP: Final = 15

#: (case, name, colour, dashes). Ours is the strongest line.
_LINES: Final = (
    ("growth_floor", "bare loop", "#8a8a8a", "2 3"),
    ("growth_ours", "minutebook", "#0a84c6", ""),
    ("growth_ours_create", "minutebook, SDK create()", "#0a84c6", "6 4"),
    ("growth_openai_agents", "openai-agents", "#d9730d", ""),
    ("growth_eventsourcing", "eventsourcing", "#8c8c1a", ""),
    ("growth_langgraph", "LangGraph", "#2e9e5b", ""),
    ("growth_dbos", "DBOS", "#b5539c", ""),
    ("growth_pydantic_ai", "pydantic-ai + DBOS", "#c94f4f", ""),
    ("growth_adk", "google-adk", "#7a5fd0", ""),
)

_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#333}.grid{stroke:#ddd}.title{font-size:15px}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}}"
)

Point = tuple[float, float]


def picture(run: dict[str, Any]) -> str:
    """The SVG of a run; axes without lines where the run has no long sessions."""
    curves = {case: [(x, y) for x, y in run["curves"].get(case, [])] for case, *_ in _LINES}
    scale = _Scale([point for curve in curves.values() for point in curve])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Milliseconds for one request against the number of requests before it">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="24">Milliseconds for one request (log scale)</text>',
        *_grid(scale),
        *(_line(scale, curves[case], colour, dashes) for case, _, colour, dashes in _LINES if curves[case]),
        *_labels(scale, curves),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Scale:
    """Where a (request, ms) pair is drawn: the first straight, the second by its logarithm."""

    def __init__(self, points: list[Point]) -> None:
        self.longest = max((x for x, _ in points), default=1.0)
        values = [y for _, y in points] or [1.0, 10.0]
        self.low = 10 ** math.floor(math.log10(min(values)))
        self.high = 10 ** math.ceil(math.log10(max(values)))

    def x(self, requests: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * requests / self.longest

    def y(self, ms: float) -> float:
        share = math.log10(ms / self.low) / math.log10(self.high / self.low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def _grid(scale: _Scale) -> Iterator[str]:
    decade = scale.low
    while decade <= scale.high:
        for factor in (1, 2, 5):
            ms = decade * factor
            if ms <= scale.high:
                y = scale.y(ms)
                yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
                yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{ms:g}</text>'
        decade *= 10
    for share in range(5):
        requests = scale.longest * share / 4
        place = f'x="{scale.x(requests):.1f}" y="{HEIGHT - BOTTOM + 20}"'
        yield f'<text {place} text-anchor="middle">{requests:.0f}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    place = f'x="{middle:.0f}" y="{HEIGHT - 8}"'
    yield f'<text {place} text-anchor="middle">requests so far in the session</text>'


def _line(scale: _Scale, curve: list[Point], colour: str, dashes: str) -> str:
    points = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in curve)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>'


def _labels(scale: _Scale, curves: dict[str, list[Point]]) -> Iterator[str]:
    """A name beside the end of each line, moved apart where they would overlap."""
    ends = sorted(
        (scale.y(curves[case][-1][1]), scale.x(curves[case][-1][0]), name, colour)
        for case, name, colour, _ in _LINES
        if curves[case]
    )
    lowest = -math.inf
    for end, x, name, colour in ends:
        y = max(end, lowest + _LABEL_GAP)
        lowest = y
        start = WIDTH - RIGHT + 14
        place = f'x1="{x:.1f}" y1="{end:.1f}" x2="{start - 3}" y2="{y:.1f}"'
        yield f'<line {place} stroke="{colour}" opacity=".5"/>'
        yield f'<text x="{start}" y="{y + 4:.1f}" style="fill:{colour}">{name}</text>'
