"""The seeded bugs, read from `bugs.toml`, and what is wrong with the list itself.

A bug is a change of one text in one file of ours, and the one test that has to fail because of it.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
LIST: Final = Path(__file__).with_name("bugs.toml")


@dataclass(frozen=True, slots=True)
class Bug:
    """One mistake that somebody could make.

    Args:
        name: what is wrong, in a few words.
        file: the module it is made in, from the repository's root.
        old, new: the text that is there once, and what stands there instead.
        test: the id of the test that has to fail.
    """

    name: str
    file: str
    old: str
    new: str
    test: str

    def made_in(self, text: str) -> str:
        """The module's text with the mistake in it."""
        return text.replace(self.old, self.new)


def bugs() -> list[Bug]:
    """The whole list."""
    return [Bug(**each) for each in tomllib.loads(LIST.read_text())["bug"]]


def rotten(found: Sequence[Bug], root: Path = ROOT) -> list[str]:
    """What is wrong with bugs whose place in the code is no longer there, or that are none."""
    wrong = []
    for bug in found:
        path = root / bug.file
        text = path.read_text() if path.is_file() else ""
        times = text.count(bug.old)
        if times != 1:
            wrong.append(f"{bug.name}: expected its text once in {bug.file}, found it {times} times")
        elif bug.old == bug.new or _same_program(text, bug.made_in(text)):
            wrong.append(f"{bug.name}: it changes nothing in {bug.file}")
    return wrong


def _same_program(before: str, after: str) -> bool:
    """Whether two texts are one program. Raises SyntaxError where the second is none."""
    return ast.dump(ast.parse(before)) == ast.dump(ast.parse(after))
