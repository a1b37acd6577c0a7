"""A page of documentation as something that can be carried out, and carrying it out.

Blocks marked `python` run in order, in one namespace, in a directory of their own. One
whose first line is `# name.py` is written to that file instead. `await` at the top
level runs as in `python -m asyncio`. Blocks marked `console` run line by line, and what
they print is compared with what the page shows: `...` stands for any text within a
line, a line of `...` for any lines. A block inside an HTML comment runs too: that is
how a page prepares what it does not show.
"""

from __future__ import annotations

import ast
import asyncio
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from inspect import CO_COROUTINE
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: What a fenced block may call itself.
LANGUAGES = frozenset({"python", "console", "sh", "text", "json", "toml", "markdown"})

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w-]+\.py)\n")
_LINK = re.compile(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
#: The commands that a page may show besides those of the system.
_COMMANDS = {
    "python": f'exec {shlex.quote(sys.executable)} "$@"',
    "minutebook": f"exec {shlex.quote(sys.executable)} -c "
    '"import sys; from minutebook.cli import main; sys.exit(main())" "$@"',
}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `line` is that of its first line in the page."""

    language: str
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    """Every fenced block of a page, in order."""
    found = _BLOCK.finditer(text)
    return [Block(each[1], each[2], text[: each.start(2)].count("\n") + 1) for each in found]


def links(text: str) -> list[str]:
    """Where a page's links and pictures lead, as written; none inside fenced blocks."""
    prose = _BLOCK.sub("", text)
    return [inside or picture for inside, picture in _LINK.findall(prose)]


def anchors(text: str) -> set[str]:
    """The names under which a page's headings can be linked to."""
    prose = _BLOCK.sub("", text)
    return {_anchor(heading) for heading in _HEADING.findall(prose)}


def _anchor(heading: str) -> str:
    plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return plain.replace(" ", "-")


@dataclass(slots=True)
class Reader:
    """Somebody who does what a page says.

    Args:
        page: for messages and tracebacks.
        directory: where everything happens; it has to be the working directory.
        names: what the page's examples may use without having made it.
    """

    page: Path
    directory: Path
    names: dict[str, Any]
    ran: list[Block] = field(default_factory=list)

    def read(self) -> None:
        """Carry out the page from its beginning to its end."""
        module = ModuleType(f"page_{self.page.stem}")
        sys.modules[module.__name__] = module  # where annotations of the examples are resolved
        try:
            vars(module).update(self.names)
            with asyncio.Runner() as runner:
                for block in blocks(self.page.read_text(encoding="utf-8")):
                    self._carry_out(block, vars(module), runner)
        finally:
            del sys.modules[module.__name__]

    def _carry_out(self, block: Block, names: dict[str, Any], runner: asyncio.Runner) -> None:
        file = _FILE.match(block.text)
        if block.language == "console":
            self._console(block)
        elif block.language == "python" and file:
            (self.directory / file[1]).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            self._python(block, names, runner)
        else:
            return
        self.ran.append(block)

    def _python(self, block: Block, names: dict[str, Any], runner: asyncio.Runner) -> None:
        source = "\n" * (block.line - 1) + block.text
        code = compile(source, str(self.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        made = eval(code, names)
        if code.co_flags & CO_COROUTINE:
            runner.run(made)

    def _console(self, block: Block) -> None:
        for command, expected in commands(block.text):
            printed = self._run(command)
            assert fits(printed, expected), (
                f"{self.page.name}, block at line {block.line}: $ {command}\n"
                f"--- the page shows ---\n{expected}\n--- it prints ---\n{printed}"
            )

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", self._shell() + command],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout

    def _shell(self) -> str:
        """The beginning of every command line: our commands, and the same width everywhere."""
        place = self.directory / ".commands"
        place.mkdir(exist_ok=True)
        for name, script in _COMMANDS.items():
            file = place / name
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)
        paths = f"PATH={shlex.quote(str(place))}:$PATH PYTHONPATH={shlex.quote(str(ROOT))}"
        return f"export {paths} COLUMNS=100 NO_COLOR=1\n"


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what is shown under it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        command = [lines.pop(0)]
        while command[-1].endswith("\\"):
            command.append(lines.pop(0))
        yield "\n".join(command), "\n".join(lines)


def fits(printed: str, expected: str) -> bool:
    """Whether what was printed is what a page shows; nothing shown fits anything."""
    if not expected.strip():
        return True
    pattern = "".join(_line(line) for line in expected.strip("\n").splitlines())
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def _line(shown: str) -> str:
    if shown.strip() == "...":
        return r"(?:.*\n)*?"
    return r".*?".join(re.escape(part) for part in shown.rstrip().split("...")) + r"\n"
