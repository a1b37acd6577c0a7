"""What is run: one list for every suite and profile.

A case is a program with its arguments; each round of it is a process of its own.
Its id is what `goals.toml` and the report call it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
TALK: Final = "bench.conversations:talk"
RESUME: Final = "bench.conversations:resume"
FLOOR: Final = "bench.floor:Floor"
OURS: Final = "bench.ours.talking:Ours"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure.

    Args:
        id: a Python name, so that goals can speak of it.
        title: what a reader of the progress and the tables sees.
        program: `module:function`, called with a `Place` and `arguments`.
        interpreter: a key of `peers.toml`; "" for the one that runs the benchmark.
        once: counted or slow, so one round is enough.
        optional: left out, not failed, where its library is missing.
        counts_fsyncs: whether it is also run under `strace`, twice, for fsyncs per request.
    """

    id: str
    title: str
    program: str
    arguments: dict[str, Any] = field(default_factory=dict)
    interpreter: str = ""
    once: bool = False
    optional: bool = False
    counts_fsyncs: bool = False


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal that is made before the first case; see `bench.journals.make`."""

    name: str
    requests: int
    copies: int = 0
    left_open: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """How much of everything. `quick` is for every day, `full` for the tables."""

    rounds: int
    commits: int
    writers: tuple[int, ...]
    commits_each: int
    base: int
    many_tools: int
    long: int
    long_peers: int
    concurrent: int
    sessions: tuple[int, ...]
    leases: int
    pieces: int
    counted: int
    memory: int
    resumed: tuple[int, int]
    journals: tuple[Journal, ...]
    create_long: int
    counts_more: bool = False


def _journals(large: int, copies: int, resumed: tuple[int, int]) -> tuple[Journal, ...]:
    return (
        Journal("small", 56, left_open=True),
        Journal("large", large, copies, left_open=True),
        *(Journal(f"resume_{n}", n) for n in resumed),
    )


QUICK: Final = Profile(
    rounds=2,
    commits=60,
    writers=(16, 64),
    commits_each=12,
    base=10,
    many_tools=4,
    long=50,
    long_peers=30,
    concurrent=2,
    sessions=(16, 64),
    leases=64,
    pieces=300,
    counted=100,
    memory=100,
    resumed=(20, 200),
    journals=_journals(300, 10, (20, 200)),
    create_long=20,
)
FULL: Final = replace(
    QUICK,
    rounds=5,
    commits=300,
    commits_each=50,
    base=30,
    many_tools=12,
    long=200,
    long_peers=100,
    concurrent=5,
    pieces=2000,
    counted=200,
    memory=2000,
    resumed=(200, 2000),
    journals=_journals(1400, 39, (200, 2000)),
    create_long=100,
    counts_more=True,
)
TINY: Final = replace(
    QUICK,
    rounds=1,
    commits=10,
    writers=(4,),
    commits_each=2,
    base=4,
    many_tools=2,
    long=10,
    long_peers=4,
    concurrent=1,
    sessions=(4,),
    leases=4,
    pieces=20,
    counted=22,
    memory=20,
    resumed=(2, 4),
    journals=_journals(12, 1, (2, 4)),
    create_long=4,
)


def core(profile: Profile) -> Iterator[Case]:
    """The limits of the machine, the floor, and ours."""
    yield from _limits(profile)
    yield from _storing(profile)
    yield from _on_postgres(profile)
    yield from _leases(profile)
    yield from _talking(profile)
    yield from _reading(profile)


def _limits(p: Profile) -> Iterator[Case]:
    yield Case("disk", "limit: fsync, bare commit", "bench.limits.disk:probe", {"times": p.commits})
    yield Case("decoding", "limit: read, decode", "bench.limits.decoding:probe", {"journal": "large"})
    for n in p.writers:
        arguments = {"writers": n, "commits": p.commits_each}
        yield Case(f"group_{n}", f"limit: {n} writers", "bench.limits.group_commit:probe", arguments)


def _storing(p: Profile) -> Iterator[Case]:
    sizes = {"sizes": [1, 3, 5, 20], "commits": p.commits}
    yield Case("c1", "C1, C3 commit through the port", "bench.ours.commit:one_writer", sizes)
    for n in p.writers:
        arguments = {"writers": n, "commits": p.commits_each}
        yield Case(f"c2_{n}", f"C2 {n} sessions commit", "bench.ours.commit:many_writers", arguments)
    for tools in (1, 4):
        counted = {"requests": p.counted, "tools": tools}
        yield Case(
            f"count_{tools}", f"counts, {tools} tools", "bench.ours.counts:requests", counted, once=True
        )
    plans = {"journals": ["small", "large"]}
    yield Case("count_plan", "rows of a plan", "bench.ours.counts:plan_rows", plans, once=True)


def _on_postgres(p: Profile) -> Iterator[Case]:
    """Each with a server of its own; left out where there is none."""
    one = {"commits": p.commits}
    yield Case("postgres", "C1 PostgreSQL", "bench.ours.postgres:one_writer", one, optional=True)
    for n in p.writers:
        arguments = {"writers": n, "commits": p.commits_each}
        many = "bench.ours.postgres:many_sessions"
        yield Case(f"postgres_{n}", f"C2 PostgreSQL, {n} sessions", many, arguments, optional=True)
    for n in (1, *p.sessions):
        requests = p.base if n == 1 else p.concurrent
        title = f"T2 PostgreSQL, {n} sessions" if n > 1 else "T1 PostgreSQL"
        yield talk(f"postgres_t_{n}", title, OURS, "postgres", requests, sessions=n, optional=True)


def _leases(p: Profile) -> Iterator[Case]:
    for engine, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        arguments = {"engine": engine, "sessions": p.leases, "times": p.commits_each}
        title = f"L1 leases, {p.leases} sessions, {name}"
        yield Case(f"lease_{engine}", title, "bench.ours.leases:many_sessions", arguments, optional=True)


def talk(id_: str, title: str, system: str, mode: str, requests: int, **more: Any) -> Case:
    """A case that has the conversation."""
    arguments: dict[str, Any] = {"system": system, "mode": mode, "requests": requests}
    arguments |= {name: more.pop(name) for name in ("tools", "sessions") if name in more}
    return Case(id_, title, TALK, arguments, **more)


def _talking(p: Profile) -> Iterator[Case]:
    yield talk("t1_floor", "T1 bare loop, HTTP", FLOOR, "raw-full4", p.base, counts_fsyncs=True)
    yield talk("t1_floor_memory", "T1 bare loop, HTTP, not kept", FLOOR, "raw-memory", p.base)
    yield talk("t1_create", "T1 bare loop, SDK create()", FLOOR, "full4", p.base)
    yield talk("t1_ours", "T1 minutebook as shipped", OURS, "sqlite", p.base, counts_fsyncs=True)
    yield talk("t1_ours_memory", "T1 minutebook, not kept", OURS, "memory", p.base)
    yield talk("t1_ours_create", "T1 minutebook, SDK create()", OURS, "sqlite-create", p.base)
    yield talk("t1_floor_m4", "T1 bare loop, HTTP, 4 tools", FLOOR, "raw-full4", p.many_tools, tools=4)
    yield talk(
        "t1_ours_m4",
        "T1 minutebook, 4 tools",
        OURS,
        "sqlite",
        p.many_tools,
        tools=4,
        counts_fsyncs=p.counts_more,
    )
    yield talk("t1_floor_long", "T1 bare loop, HTTP, long", FLOOR, "raw-full4", p.long)
    yield talk("t1_ours_long", "T1 minutebook, long", OURS, "sqlite", p.long)
    for n in p.sessions:
        yield talk(
            f"t2_floor_{n}",
            f"T2 bare loop, HTTP, {n} sessions",
            FLOOR,
            "raw-group4",
            p.concurrent,
            sessions=n,
        )
        yield talk(f"t2_ours_{n}", f"T2 minutebook, {n} sessions", OURS, "sqlite", p.concurrent, sessions=n)
    pieces = {"pieces": p.pieces}
    yield Case("t4_fan_out", "T4 pieces to 1 and 8 readers", "bench.ours.pieces:fan_out", pieces)
    yield Case("t4_first", "T4 first piece", "bench.ours.pieces:first_piece")


def _reading(p: Profile) -> Iterator[Case]:
    for name, n in zip(("short", "long"), p.resumed, strict=True):
        ours = {"journal": f"resume_{n}"}
        yield Case(f"r1_{name}", f"R1 minutebook, {n} requests", "bench.ours.reading:resume", ours)
    floor = {"system": FLOOR, "mode": "raw-full4", "requests": p.resumed[1]}
    yield Case("r1_floor_long", f"R1 bare loop, {p.resumed[1]} requests", RESUME, floor)
    for name in ("small", "large"):
        yield Case(f"r2_{name}", f"R2 plan, {name} journal", "bench.ours.reading:plan", {"journal": name})
    large = {"journal": "large"}
    yield Case("p1", "P1 replay and verify", "bench.ours.reading:replay", large)
    yield Case("p3", "P3 inspect, cold", "bench.ours.reading:inspect", large)
    yield Case("i1", "I1 import", "bench.ours.reading:importing")
    yield Case("m1", "M1 memory", "bench.ours.pieces:memory", {"requests": p.memory}, once=True)


def peers(profile: Profile) -> Iterator[Case]:
    """The floor and ours again at the peers' sizes, and every peer."""
    p = profile
    yield talk("growth_floor", "growth bare loop, HTTP", FLOOR, "raw-full4", p.long_peers)
    yield talk("growth_ours", "growth minutebook", OURS, "sqlite", p.long_peers)
    yield talk("growth_ours_create", "growth minutebook, SDK create()", OURS, "sqlite-create", p.create_long)
    for key, peer in described()["peers"].items():
        yield from _peer(key, peer, p)


def _peer(key: str, peer: dict[str, Any], p: Profile) -> Iterator[Case]:
    name, system, durable = peer["name"], peer["system"], peer["durable"]
    more: dict[str, Any] = {"interpreter": peer["interpreter"], "optional": True}
    yield talk(f"t1_{key}", f"T1 {name}", system, durable, p.base, counts_fsyncs=True, **more)
    if peer["plain"]:
        yield talk(f"t1_{key}_memory", f"T1 {name}, not kept", system, peer["plain"], p.base, **more)
    for mode in peer.get("more", ()):
        id_ = f"t1_{key}_{mode.replace('-', '_')}"
        yield talk(id_, f"T1 {name}, {mode}", system, mode, p.base, counts_fsyncs=True, **more)
    options = {**more, "tools": 4, "counts_fsyncs": p.counts_more}
    yield talk(f"t1_{key}_m4", f"T1 {name}, 4 tools", system, durable, p.many_tools, **options)
    yield talk(f"growth_{key}", f"growth {name}", system, durable, p.long_peers, once=True, **more)
    for n in (n for n in p.sessions if n <= peer.get("most_sessions", n)):
        once = n != p.sessions[0]  # half a minute each
        more_of = {**more, "once": once, "sessions": n}
        yield talk(f"t2_{key}_{n}", f"T2 {name}, {n} sessions", system, durable, p.concurrent, **more_of)
    if peer.get("resumes"):
        for length, requests in zip(("short", "long"), p.resumed, strict=True):
            arguments = {"system": system, "mode": durable, "requests": requests}
            title = f"R1 {name}, {requests} requests"
            yield Case(f"r1_{key}_{length}", title, RESUME, arguments, once=True, **more)


def described() -> dict[str, Any]:
    """The content of `peers.toml`."""
    return tomllib.loads((ROOT / "bench" / "peers.toml").read_text())


def interpreters() -> dict[str, Path]:
    """Where each environment's Python would be, whether it exists or not."""
    return {key: ROOT / path for key, path in described()["interpreters"].items()}
