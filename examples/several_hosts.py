"""Two hosts, one PostgreSQL: a worker is killed, stands still, or loses its network. Takes half a minute.

    python examples/several_hosts.py            as root with iproute2: network namespaces
    python examples/several_hosts.py --plain    two processes, and nobody's cable is pulled

Starts a PostgreSQL server of its own (its programs have to be installed). Each act has sessions with
orders; anna works on them, something happens to her, and bert, who can only see that her leases run
out, takes over. Then she comes back, where she can, and may change nothing any more.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
from bills import Story, order, settle, story, table
from hosts import Host, can_have_namespaces, two_hosts

import minutebook as mb
from domain.ports import Journal, StoreDescription
from minutebook.testing import Witness
from minutebook.testing.postgres_cluster import Cluster

SESSIONS: Final = [f"bills-{n}" for n in range(3)]
INPUTS: Final = 2
ACTS: Final = ("killed", "paused", "cut off")
LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Act:
    """What came of one act.

    Args:
        taken: sessions that somebody took from her.
        took_s: the longest time from what happened to the next holder's first event.
        busy: whether this machine had more to do than it has processors; then `took_s` says little.
        twice: payments of one call that were made twice.
        stale: events under a token lower than one before them.
        wrote_after: events that came after everything was done, when she was back.
    """

    what: str
    ttl_s: float
    taken: int
    took_s: float
    busy: bool
    orders: int
    ended_once: int
    twice: int
    stale: int
    wrote_after: int

    @property
    def good(self) -> bool:
        """Whether nothing was lost, doubled or late."""
        in_time = self.taken > 0 and (self.busy or self.took_s <= self.ttl_s + 1.0)
        harmless = not (self.twice or self.stale or self.wrote_after)
        return in_time and harmless and self.ended_once == self.orders


class Stage:
    """A database with orders, and what is known about it from outside."""

    def __init__(self, url: str, place: Path, ttl_s: float) -> None:
        self.url, self.ttl_s = url, ttl_s
        self.store: StoreDescription = mb.postgres(url)
        self.bank, self.log = place / "bank.txt", place / "workers.log"

    def start(self, host: Host) -> None:
        """Start a worker."""
        options = ["--agent", "bills:config", "--ttl", str(self.ttl_s)]
        options += ["--every", str(LOOK_S), "--pause", "0.5"]
        host.start(self.url, options, self.log)

    async def stories(self) -> list[Story]:
        """Every session, verified."""
        return [await story(self.store, each, self.bank) for each in SESSIONS]

    async def until_said(self, words: str) -> None:
        """Wait until a worker has said something."""
        while not self.log.exists() or words not in self.log.read_text():  # noqa: ASYNC110  # a file
            await anyio.sleep(LOOK_S / 20)

    async def until_paid(self, worker: str, payments: int) -> None:
        """Wait until a worker has made so many payments."""
        while sum(who == worker for *_, who in Witness(self.bank).lines()) < payments:  # noqa: ASYNC110  # a file
            await anyio.sleep(LOOK_S / 20)

    async def until_done(self, journal: Journal) -> None:
        """Wait until nothing is left to do; ask the bank where nobody knows."""
        while True:
            for row in await journal.leases.free({mb.Action.RECONCILE_TOOL_OUTCOMES}):
                await settle(self.store, row.session_id, self.bank)
            idle = await journal.leases.free({mb.Action.NONE})
            if len(idle) == len(SESSIONS):
                return
            await anyio.sleep(LOOK_S)


async def play(what: str, stage: Stage, anna: Host, bert: Host, payments: int) -> tuple[Act, list[Story]]:
    """One act. Something happens to anna after so many payments of hers.

    Bert is there from the beginning, and stands still until then, so that the work is hers.
    """
    async with stage.store.open() as journal:
        stage.start(bert)
        await stage.until_said("bert looks for work")
        bert.send(signal.SIGSTOP)
        await order(stage.store, SESSIONS, stage.bank, INPUTS)
        stage.start(anna)
        await stage.until_paid("anna", payments)
        _hit(what, anna)
        happened = datetime.now(UTC)
        bert.send(signal.SIGCONT)
        await stage.until_done(journal)
        found = await stage.stories()
        _bring_back(what, anna)
        anna.ended()
        bert.send(signal.SIGTERM)
        bert.ended()
        after = await stage.stories()
    return _act(what, stage, happened, found, after), after


def _hit(what: str, host: Host) -> None:
    if what == "cut off":
        host.pull()
    else:
        host.send(signal.SIGKILL if what == "killed" else signal.SIGSTOP)


def _bring_back(what: str, host: Host) -> None:
    """Let a worker that is there go on, and ask it to stop: it has nothing to hand back any more."""
    if what == "killed":
        return
    if what == "cut off":
        host.plug()
    else:
        host.send(signal.SIGCONT)
    host.send(signal.SIGTERM)


def _act(what: str, stage: Stage, happened: datetime, found: Sequence[Story], after: Sequence[Story]) -> Act:
    took = [(taken - happened).total_seconds() for each in after for taken in each.taken_from("anna")[:1]]
    return Act(
        what,
        stage.ttl_s,
        len(took),
        round(max(took, default=0.0), 2),
        os.getloadavg()[0] > (os.cpu_count() or 1),
        sum(each.accepted for each in after),
        sum(times == 1 for each in after for times in each.ended),
        sum(each.twice for each in after),
        sum(each.stale for each in after),
        sum(len(a.events) - len(b.events) for a, b in zip(after, found, strict=True)),
    )


@contextmanager
def server_for(hosts: Sequence[Host]) -> Iterator[Cluster]:
    """A PostgreSQL server that listens to every host."""
    with tempfile.TemporaryDirectory(prefix="several-hosts-") as place:
        os.chmod(place, 0o755)  # the server has an account of its own
        rules = Path(place, "hba.conf")
        rules.write_text(
            "host all all 127.0.0.1/32 scram-sha-256\nhost all all 10.213.0.0/16 scram-sha-256\n"
        )
        addresses = ",".join({"127.0.0.1": None, **{host.address: None for host in hosts}})
        with Cluster(settings={"listen_addresses": addresses, "hba_file": str(rules)}) as cluster:
            yield cluster


async def run(options: argparse.Namespace) -> int:
    """Play the acts; 0 if nothing was lost, doubled, stale or late."""
    namespaces = not options.plain and can_have_namespaces()
    acts = [each for each in options.acts or ACTS if namespaces or each != "cut off"]
    dice = random.Random(options.seed)
    if options.random:
        acts = [dice.choice(acts) for _ in range(options.random)]
    played: list[Act] = []
    with two_hosts(namespaces) as hosts, server_for(hosts) as cluster:
        _say(options, f"two hosts: {'network namespaces' if namespaces else 'plain processes on loopback'}")
        for what in acts:
            with tempfile.TemporaryDirectory(prefix="several-hosts-") as place:
                stage = Stage(cluster.new_database(), Path(place), options.ttl)
                act, stories = await play(what, stage, hosts[0], hosts[1], dice.randint(2, 6))
                played.append(act)
            _say(options, f"\nanna is {what}; what was hers is somebody else's after {act.took_s} s at most")
            _say(options, table(stories))
    if options.json:
        acts_told = [asdict(act) | {"good": act.good} for act in played]
        print(json.dumps({"namespaces": namespaces, "acts": acts_told}))
    else:
        print(f"\n{_table(played)}")
    return 0 if all(act.good for act in played) else 1


def _say(options: argparse.Namespace, text: str) -> None:
    if not options.json:
        print(text, flush=True)


def _table(acts: Sequence[Act]) -> str:
    words = (
        "anna is",
        "lease s",
        "taken",
        "within s",
        "orders",
        "ended once",
        "paid twice",
        "stale",
        "after",
    )
    lines = ["  ".join(words)]
    for a in acts:
        values = (a.what, a.ttl_s, a.taken, a.took_s, a.orders, a.ended_once, a.twice, a.stale, a.wrote_after)
        cells = (f"{value:>{len(word)}}" for value, word in zip(values, words, strict=True))
        busy = "   (a busy machine: time not judged)" if a.busy else ""
        lines.append("  ".join(cells) + ("" if a.good else "   WRONG") + busy)
    return "\n".join(lines)


def main() -> int:
    """Parse the options and run."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--plain", action="store_true", help="no namespaces")
    parser.add_argument("--ttl", type=float, default=2.0, metavar="SECONDS", help="the length of a lease")
    parser.add_argument("--acts", nargs="+", choices=ACTS, help="only these")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="so many acts at random instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="numbers for programs")
    return anyio.run(run, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
