"""The demo's tour: run, kill, inspect, reconcile, resume, look back. Every step is a real process."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule

from minutebook.testing.fake_server import Received, Reply, serve_in_thread
from recovery.arguments import Parser

SESSION: Final = "order-17"
KILLED: Final = -9
STEPS: Final = 6


class Tour:
    """One run of the demo in a directory of its own."""

    def __init__(self, directory: Path, base_url: str, model: str, api_key: str | None) -> None:
        self.console = Console(highlight=False)
        self.journal = directory / "journal.db"
        self.bank = directory / "bank.txt"
        self._model = ["--base-url", base_url, "--model", model]
        self._model += ["--api-key", api_key] if api_key else []
        self._step = 0

    def run(self) -> int:
        """Walk through it. Returns 0 if everything was as it has to be."""
        self.step("an agent works; its tool is killed while it refunds")
        code = self.agent("start")
        if code != KILLED:
            self.console.print("[yellow]The model did not call `refund`, so nothing was killed.[/]")
            return 1
        self.console.print(f"[red]killed with SIGKILL[/]; meanwhile at the bank: {self.transfers()}")
        self.step("what does the journal say? (from the file alone, nothing is written)")
        if self.recovery("inspect", str(self.journal)) != 1:
            return self.failed("inspect should have said that somebody has to decide")
        self.step("somebody looks at the bank and says what happened")
        call, head = self.unknown_call()
        settled = self.recovery(
            *("reconcile", str(self.journal), SESSION, "tool", call),
            *("--outcome", "completed", "--output", "refunded 4200 cents for order 17"),
            *("--evidence", f"bank statement: {self.transfers()}"),
        )
        if settled != 0:
            return self.failed("the decision was refused")
        self.step("another process goes on with the same request")
        if self.agent("resume") != 0:
            return self.failed("the session did not go on")
        self.step("the whole story: conversation and timeline")
        self.recovery("replay", str(self.journal), SESSION)
        self.recovery("timeline", str(self.journal), SESSION)
        self.step("is the record whole? (against the head that step 2 printed)")
        proven = self.recovery("verify", str(self.journal), SESSION, "--expect-head", head)
        return self.verdict(proven)

    def verdict(self, verified: int) -> int:
        """The last panel: one refund, and a chain that holds."""
        transfers = self.bank.read_text(encoding="utf-8").splitlines()
        good = len(transfers) == 1 and verified == 0
        text = (
            "One refund was made, one is on record, and nothing was changed since."
            if good
            else f"Something is wrong: {len(transfers)} refunds, verify said {verified}."
        )
        self.console.print(Panel(text, border_style="green" if good else "red"))
        return 0 if good else 1

    def step(self, title: str) -> None:
        """Say what comes next."""
        self._step += 1
        self.console.print()
        self.console.print(Rule(f"[bold]{self._step}/{STEPS}  {title}[/]", align="left"))

    def agent(self, step: str) -> int:
        """Run the agent in a process of its own."""
        paths = ["--journal", str(self.journal), "--bank", str(self.bank), "--session", SESSION]
        return self.process(["-m", "minutebook.demo.agent", step, *paths, *self._model])

    def recovery(self, *arguments: str) -> int:
        """Run `python -m recovery ...` in a process of its own."""
        shown = " ".join(a if " " not in a else repr(a) for a in arguments)
        self.console.print(f"[dim]$ python -m recovery {shown}[/]", soft_wrap=True)
        return self.process(["-m", "recovery", *arguments])

    def process(self, arguments: Sequence[str]) -> int:
        """Run Python with our output as its own."""
        sys.stdout.flush()
        return subprocess.run([sys.executable, *arguments], check=False).returncode

    def transfers(self) -> str:
        """What the bank knows."""
        return self.bank.read_text(encoding="utf-8").strip()

    def unknown_call(self) -> tuple[str, str]:
        """The call that somebody has to decide about, and the head, from `inspect --json`."""
        command = [sys.executable, "-m", "recovery", "inspect", str(self.journal), "--json"]
        told = subprocess.run(command, check=False, capture_output=True)
        (plan,) = json.loads(told.stdout)["plans"]
        decision = next(i for i in plan["items"] if i["action"] == "reconcile_tool_outcomes")
        return decision["subject"], plan["head"]["hash"]

    def failed(self, why: str) -> int:
        """Say what went wrong."""
        self.console.print(Panel(why, border_style="red"))
        return 1


def recorded_reply(request: Received) -> Reply:
    """The recording that answers a request: by how many results the model has seen."""
    seen = sum(message["role"] == "tool" for message in request.parsed["messages"])
    folder = resources.files("minutebook.demo") / "recordings"
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".sse"))
    return Reply((folder / names[min(seen, len(names) - 1)]).read_bytes())


@contextmanager
def _provider(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    if options.base_url:
        yield options.base_url, options.model
        return
    with serve_in_thread(recorded_reply) as server:
        yield server.url, "demo-model"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `minutebook demo`. Returns its exit code."""
    parser = Parser(prog="minutebook demo", description=__doc__)
    parser.add_argument("--base-url", help="of a real OpenAI-compatible server; default: recordings")
    parser.add_argument("--model", help="the model's name there")
    parser.add_argument("--api-key", help="its key, if it wants one")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave journal and bank in this directory")
    options = parser.parse_args(arguments)
    if bool(options.base_url) != bool(options.model):
        parser.error("--base-url and --model go together")
    with tempfile.TemporaryDirectory(prefix="minutebook-demo-") as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / "journal.db").exists():
            parser.error(f"{directory} has a journal already; name an empty directory")
        with _provider(options) as (base_url, model):
            source = options.base_url or "recordings of our own making, replayed by a loopback server"
            tour = Tour(directory, base_url, model, options.api_key)
            tour.console.print(f"[bold]minutebook[/]: model answers come from {source}")
            return tour.run()
