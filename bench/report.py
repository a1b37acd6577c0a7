"""A run as text: the whole report, the comparison of two runs, the table of the README.

    python -m bench.report RUN.json             the report in Markdown
    python -m bench.report --readme RUN.json    writes README's table and the picture

Everything is made from the run's JSON; nothing is measured here.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench import goals as judging
from bench.cases import ROOT
from bench.figures import LIMITS, OURS
from bench.picture import picture

README: Final = ROOT / "README.md"
PICTURE: Final = ROOT / "docs" / "pictures" / "cost-per-request.svg"
BEGIN: Final = "<!-- bench: made by `python -m bench.report --readme` -->"
END: Final = "<!-- bench: end -->"

#: Said above a table whose times are worth little.
NOISY: Final = (
    "**This run was noisy: the machine was busy with other work. Only the counted columns "
    "(waits, bytes) can be trusted.**"
)

Run = dict[str, Any]

# --- figures --------------------------------------------------------------------------------


def samples(run: Run, case: str, figure: str) -> list[float]:
    """One value for each round; empty where it was not measured."""
    found: list[float] = run["samples"].get(case, {}).get(figure, [])
    return found


def median(run: Run, case: str, figure: str) -> float | None:
    """The median over the rounds."""
    values = samples(run, case, figure)
    return statistics.median(values) if values else None


def shown(value: float | None, digits: int = 3) -> str:
    """A figure with so many digits that count; a dash where there is none."""
    if value is None or math.isnan(value):
        return "-"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def ranged(values: Sequence[float]) -> str:
    """Median and what was seen at least and at most."""
    if not values:
        return "-"
    return f"{shown(statistics.median(values))} [{shown(min(values))}..{shown(max(values))}]"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; nothing where there is no row."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    if not lines:
        return []
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *lines, ""]


# --- the report -------------------------------------------------------------------------------


def report(run: Run) -> str:
    """The whole run in Markdown."""
    return "\n".join(
        [
            *_head(run),
            *_section("Limits of this machine", table(("what", "median [range]", ""), _figures(run, LIMITS))),
            *_section("minutebook", table(("what", "median [range]", ""), _figures(run, OURS))),
            *_section("T1 one request: one tool", _requests(run, "t1_", skip="_m4")),
            *_section("T1 one request: four tools", _requests(run, "t1_", only="_m4")),
            *_section("T1 long sessions: ms at that place of the history", _growth(run)),
            *_section("T2 many sessions in one event loop", _concurrent(run)),
            *_section("R1 getting a session back", _resumed(run)),
            *_section("Goals", _goals(run)),
            *_section("Left out", _left_out(run)),
        ]
    )


def _head(run: Run) -> Iterator[str]:
    machine = run["machine"]
    yield f"# Benchmark: suite {run['suite']}, profile {run['profile']}"
    yield ""
    yield (
        f"{run['rounds']} rounds in {run['wall_s']:.0f} s on {machine['system']}, {machine['processors']} "
        f"processors, Python {machine['python']}. Waits for the disk: {run['fsyncs']}."
    )
    spread = judging.spread(run["samples"])
    quiet = judging.is_quiet(run["samples"])
    word = "quiet" if quiet else "noisy: timed goals are not judged"
    yield f"The bare loop's rounds differ by a factor of {shown(spread)}: {word}."
    yield "Times compare within one run only."
    yield ""


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *lines] if lines else []


def _figures(run: Run, wanted: Iterable[tuple[str, str, str, str]]) -> Iterator[list[str]]:
    for case, figure, title, unit in wanted:
        values = samples(run, case, figure)
        if values:
            yield [title, ranged(values), unit]


def _cases(run: Run, prefix: str) -> list[str]:
    """Cases that were measured, the quickest first."""
    found = [case for case in run["samples"] if case.startswith(prefix) and samples(run, case, "ms")]
    return sorted(found, key=lambda case: median(run, case, "ms") or 0.0)


def _requests(run: Run, prefix: str, only: str = "", skip: str = "!") -> list[str]:
    head = (
        "system", "kept by", "ms [range]", "CPU ms", "first / last tenth", "opening, ms", "waits for disk",
        "KiB written", "peak MiB",
    )  # fmt: skip
    cases = [c for c in _cases(run, prefix) if c.endswith(only) and not c.endswith((skip, "_long"))]
    return table(head, (_request(run, case) for case in cases))


def _request(run: Run, case: str) -> list[str]:
    ends = f"{shown(median(run, case, 'first_ms'))} / {shown(median(run, case, 'last_ms'))}"
    return [
        title(run, case),
        run["facts"].get(case, {}).get("journal", "-"),
        ranged(samples(run, case, "ms")),
        shown(median(run, case, "cpu_ms")),
        ends,
        shown(median(run, case, "open_ms")),
        shown(median(run, case, "fsyncs")),
        shown(median(run, case, "written_kib")),
        shown(median(run, case, "peak_mib")),
    ]


def title(run: Run, case: str) -> str:
    """A case's title without the scenario's number."""
    first, _, rest = str(run["titles"][case]).partition(" ")
    numbered = first[0] in "TRCPM" and first[1:].isdigit()
    return rest if numbered or first == "growth" else f"{first} {rest}"


def at(curve: Sequence[Sequence[float]], position: float) -> float | None:
    """The curve's value nearest to a position; None beyond its end."""
    if not curve or position > curve[-1][0] * 1.1:
        return None
    return min(curve, key=lambda point: abs(point[0] - position))[1]


def _growth(run: Run) -> list[str]:
    places = (10, 50, 100, 200)
    rows = []
    for case in run["curves"]:
        if case.startswith("growth_") or case.endswith("_long"):
            values = [at(run["curves"][case], place) for place in places]
            rows.append([title(run, case), *(shown(value) for value in values)])
    return table(("system", *(f"request {place}" for place in places)), rows)


def _concurrent(run: Run) -> list[str]:
    rows = [
        [
            title(run, case),
            ranged(samples(run, case, "per_s")),
            shown(median(run, case, "p99_ms")),
            shown(median(run, case, "cpu_ms")),
        ]
        for case in _cases(run, "t2_")
    ]
    return table(("system", "requests/s [range]", "99 of 100 within, ms", "CPU ms"), rows)


def _resumed(run: Run) -> list[str]:
    rows = [
        [title(run, case), ranged(samples(run, case, "ms")), shown(median(run, case, "kept_kib"))]
        for case in _cases(run, "r1_")
    ]
    return table(("system", "ms [range]", "KiB stored"), rows)


def _goals(run: Run) -> list[str]:
    rows = [
        [g["id"], g["kind"], g["title"], _valued(g), g["bound"], _verdict(g), g["compared"]]
        for g in run["goals"]
    ]
    return table(("goal", "kind", "what", "value [range]", "bound", "verdict", "compared with"), rows)


def _valued(goal: dict[str, Any]) -> str:
    if goal["value"] is None:
        return "-"
    return f"{shown(goal['value'])} [{shown(goal['low'])}..{shown(goal['high'])}]"


def _verdict(goal: dict[str, Any]) -> str:
    if goal["verdict"] == judging.Verdict.MISSED:
        return "**MISSED**"
    if goal["verdict"] == judging.Verdict.NOT_MEASURED:
        return f"not measured: {goal['why']}"
    return str(goal["verdict"])


def _left_out(run: Run) -> list[str]:
    lines = [f"- {run['titles'].get(case, case)}: skipped: {why}" for case, why in run["skipped"].items()]
    lines += [f"- {run['titles'].get(case, case)}: FAILED: {why}" for case, why in run["failed"].items()]
    return [*lines, ""] if lines else []


# --- two runs ---------------------------------------------------------------------------------


def comparison(before: Run, now: Run) -> str:
    """What became of each goal's ratio. Absolute times are never compared."""
    earlier = {goal["id"]: goal["value"] for goal in before["goals"]}
    rows = []
    for goal in now["goals"]:
        was, value = earlier.get(goal["id"]), goal["value"]
        if was and value is not None:
            rows.append(
                [goal["id"], shown(was), shown(value), f"{(value / was - 1) * 100:+.0f} %", goal["bound"]]
            )
    return "\n".join(table(("goal", "before", "now", "change", "bound"), rows))


# --- the README -------------------------------------------------------------------------------


def readme_block(run: Run) -> str:
    """What stands between README's markers."""
    requests = run["requests"]["t1_ours"]
    rows = [_row(run, case) for case in _cases(run, "t1_") if _belongs(run, case)]
    long = run["requests"].get("growth_ours", 0)
    head = (
        "system",
        f"ms for a request, session of {requests}",
        f"ms for request {long}",
        "keeping costs, CPU ms",
        "waits for the disk",
        "KiB written",
        "kept by",
    )
    spread = judging.spread(run["samples"])
    lines = [
        BEGIN,
        "",
        f"One request is two streamed model calls, one tool and its result, against a fake model on loopback "
        f"({run['rounds']} rounds, medians; the bare loop's rounds differ by a factor of {shown(spread)}).",
        "",
        *([] if judging.is_quiet(run["samples"]) else [NOISY, ""]),
        *table(head, rows),
        *_best(run),
        "",
        "![Cost of a request against the length of the history](docs/pictures/cost-per-request.svg)",
        "",
        END,
    ]
    return "\n".join(lines)


def _best(run: Run) -> Iterator[str]:
    """Who is best at what, whoever it is."""
    kept = [case for case in _cases(run, "t1_") if _belongs(run, case) and not _is_bare(case)]
    for what, figure, unit in (
        ("Fewest waits for the disk", "fsyncs", ""),
        ("Least written", "written_kib", " KiB"),
        ("Least memory", "peak_mib", " MiB"),
    ):
        yield from _winner(run, kept, "t1_ours", what, figure, unit)
    back = [case for case in _cases(run, "r1_") if case.endswith("_long") and not _is_bare(case)]
    yield from _winner(run, back, "r1_long", "Quickest to get a long session back", "ms", " ms")


def _is_bare(case: str) -> bool:
    return case in ("t1_floor", "t1_create", "r1_floor_long")


def _winner(run: Run, cases: Iterable[str], ours: str, what: str, figure: str, unit: str) -> Iterator[str]:
    values = {case: median(run, case, figure) for case in cases}
    known = {case: value for case, value in values.items() if value is not None}
    if known.get(ours) is None or len(known) < 2:
        return
    best = min(known, key=lambda case: known[case])
    own = "" if best == ours else f"; minutebook {shown(known[ours])}{unit}"
    yield f"- {what}: {title(run, best)}, {shown(known[best])}{unit}{own}."


def _belongs(run: Run, case: str) -> bool:
    """Whether a case is a row of the README: what keeps, with one tool, at the common length."""
    if case.endswith(("_m4", "_long")):
        return False
    return bool(run["facts"].get(case, {}).get("journal", "none") != "none")


def _row(run: Run, case: str) -> list[str]:
    system = case.removeprefix("t1_")
    durable, plain = median(run, case, "cpu_ms"), median(run, f"{case}_memory", "cpu_ms")
    costs = durable - plain if durable is not None and plain is not None else None
    curve = run["curves"].get(f"growth_{system}", [])
    return [
        title(run, case),
        ranged(samples(run, case, "ms")),
        shown(curve[-1][1] if curve else None),
        "in the noise" if costs is not None and costs <= 0 else shown(costs, 2),
        shown(median(run, case, "fsyncs")),
        shown(median(run, case, "written_kib")),
        run["facts"].get(case, {}).get("journal", "-"),
    ]


def with_block(text: str, block: str) -> str:
    """A text whose part between the markers is replaced.

    Raises:
        ValueError: the markers are not there, once each and in their order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"expected one part between {BEGIN!r} and {END!r} in the text")
    return before + block + after


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("--readme", action="store_true", help="write README's table and the picture")
    parser.add_argument("run", type=Path, help="the JSON of a run")
    options = parser.parse_args(arguments)
    run = json.loads(options.run.read_text())
    if not options.readme:
        print(report(run))
        return 0
    README.write_text(with_block(README.read_text(), readme_block(run)))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture(run))
    print(f"wrote {README.name} and {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
