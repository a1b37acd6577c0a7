"""Where the command line prints: one console, a few shapes, everything escaped.

Text from a journal gets here as `Text` made by `shown`, never as markup, so that
square brackets in it mean nothing. What is printed is decided in `recovery.report`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from recovery.escape import brief, visible

#: For output that goes to a file or a pipe.
PLAIN_WIDTH: Final = 100


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise what happened; rich would exit with a code that means something else here."""
        raise BrokenPipeError


def console(width: int | None = None) -> Console:
    """A console on standard output, as wide as the terminal; 100 columns where there is none."""
    plain = PLAIN_WIDTH if not sys.stdout.isatty() else None
    return _Console(width=width or plain, highlight=False, markup=False, emoji=False)


def shown(value: object, style: str = "") -> Text:
    """A value of a journal as text that can do nothing to a terminal."""
    return Text(
        value if isinstance(value, str) and value.isascii() and value.isprintable() else visible(str(value)),
        style,
    )


def short(value: object, limit: int = 200, style: str = "") -> Text:
    """The beginning of a value on one line."""
    return Text(brief(value, limit), style)


def table(title: str | None, *columns: str, ratios: Sequence[int] = ()) -> Table:
    """An empty table. `ratios`: how the columns share the width, 0 for no more than they need."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        ratio = ratios[index] if index < len(ratios) else 0
        made.add_column(column, overflow="fold", ratio=ratio or None, no_wrap=False)
    return made


def pairs(rows: Iterable[tuple[str, Text]]) -> Table:
    """Names and values, one pair a line."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(f"  {name}", value)
    return made


def line(to: Console, *parts: Text | str) -> None:
    """One line, never broken: for what people copy."""
    to.print(Text.assemble(*parts), soft_wrap=True)
