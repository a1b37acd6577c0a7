"""Two workers on one journal; one is killed with SIGKILL in the middle of its work. Takes a few seconds.

    python examples/two_workers.py

Real processes: `worker.py`, twice, on one SQLite file. What the killed one held, the other one goes on
with at once. Where the kill hit a payment, nobody can know whether it was made, so the journal says
"somebody has to decide"; this program asks the bank, says so, and the worker goes on.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import anyio
from bills import Story, order, settle, story, table

import minutebook as mb
from domain.ports import StoreDescription
from minutebook.testing import Witness

SESSIONS: Final = [f"bills-{n}" for n in range(6)]
WORKER: Final = Path(__file__).with_name("worker.py")
LOOK_S: Final = 0.1


def start(name: str, journal: Path) -> subprocess.Popen[bytes]:
    """A worker in a process of its own."""
    print(f"{name} starts")
    options = ["--journal", str(journal), "--agent", "bills:config", "--name", name, "--every", str(LOOK_S)]
    options += ["--most", "3", "--pause", str(LOOK_S), "--quiet"]
    return subprocess.Popen([sys.executable, str(WORKER), *options])


async def stories(store: StoreDescription, bank: Path) -> list[Story]:
    """How every session stands."""
    return [await story(store, each, bank) for each in SESSIONS]


async def until_paid(bank: Path, worker: str, payments: int) -> None:
    """Wait until a worker has made so many payments."""
    while sum(who == worker for *_, who in Witness(bank).lines()) < payments:  # noqa: ASYNC110  # a file
        await anyio.sleep(LOOK_S / 20)


async def until_done(store: StoreDescription, bank: Path) -> list[Story]:
    """Wait for the end of every order; decide what has to be decided."""
    while True:
        for each in await undecided(store):
            for call in await settle(store, each, bank):
                print(f"  nobody knew about {call} of {each}; the bank was asked, the answer is on record")
        found = await stories(store, bank)
        if all(each.done for each in found):
            return found
        await anyio.sleep(LOOK_S)


async def undecided(store: StoreDescription) -> list[str]:
    """Sessions that wait for somebody to say what happened, and that no worker has."""
    async with store.open() as journal:
        return [row.session_id for row in await journal.leases.free({mb.Action.RECONCILE_TOOL_OUTCOMES})]


async def main() -> int:
    """Run it. 0: every order ended once and nothing was paid twice."""
    with tempfile.TemporaryDirectory(prefix="two-workers-") as place:
        journal, bank = Path(place, "journal.db"), Path(place, "bank.txt")
        store = mb.sqlite(journal)
        await order(store, SESSIONS, bank)
        print(f"{len(SESSIONS)} sessions have an order each, and nobody works")
        first, second = start("anna", journal), start("bert", journal)
        await until_paid(bank, "anna", 4)
        first.send_signal(signal.SIGKILL)
        first.wait()
        paid = len(Witness(bank).lines())
        print(f"anna is killed with SIGKILL while she pays; {paid} payments were made so far")
        found = await until_done(store, bank)
        second.send_signal(signal.SIGTERM)
        print(f"bert is asked to stop and ends with {second.wait()}\n")
        print(table(found))
        good = all(each.good for each in found)
        print(
            "\nEvery order ended exactly once; nothing was paid twice." if good else "\nSOMETHING IS WRONG."
        )
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(anyio.run(main))
