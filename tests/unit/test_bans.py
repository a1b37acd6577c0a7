"""What the code may not use: checked by the linter's list, and by one rule of our own.

The linter's list is switched off for adapters, which are the edge. The
environment and the working directory are off limits for them too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("domain", "projections", "adapters", "recovery", "minutebook")
AMBIENT = {"environ", "environb", "getenv", "getenvb", "getcwd", "getcwdb", "cwd", "putenv"}


def ambient_uses(text: str) -> Iterator[tuple[int, str]]:
    """(line, name) of each use of the environment or the working directory, by attribute or import."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(value=ast.Name(id="os" | "Path" | "pathlib"), attr=name) if name in AMBIENT:
                yield node.lineno, name
            case ast.ImportFrom(module="os", names=names):
                yield from ((node.lineno, alias.name) for alias in names if alias.name in AMBIENT)


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_reads_the_environment_or_the_working_directory(package: str) -> None:
    uses = [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for line, name in ambient_uses(file.read_text())
    ]
    assert uses == []


@pytest.mark.parametrize("text", ["import os; os.environ['A']", "from os import getcwd", "Path.cwd()"])
def test_the_rule_sees_a_use(text: str) -> None:
    assert list(ambient_uses(text))


@pytest.mark.parametrize(
    "text",
    [
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime\ndatetime.now()",
        "import time\ntime.time()",
        "from uuid import uuid4",
        "import random",
        "import os\nos.environ",
        "import os\nos.getcwd()",
        "import asyncio\nasyncio.create_task",
        "import json\njson.dumps({})",
    ],
)
@pytest.mark.parametrize("place", ["domain/x.py", "minutebook/x.py"])
def test_the_linter_refuses(text: str, place: str) -> None:
    child = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--no-cache",
            "--select=TID251",
            f"--stdin-filename={place}",
            "-",
        ],
        input=text,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 1
    assert "TID251" in child.stdout
