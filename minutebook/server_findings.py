"""What may be wrong with a journal on a server, for `minutebook doctor`.

Imported by `minutebook.doctor`. What only the engine knows is handed in, so no
engine is imported here, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from domain.errors import MinutebookError
from minutebook.findings import Finding, Grade, some
from recovery.addresses import shown

#: More than the network and a well-kept clock explain.
_CLOCK_APART_S: Final = 5.0


class ServerFacts(Protocol):
    """What a server says about itself and a journal in it.

    `name`: what to call it; `version`: the server's own; `format_version`: the journal's;
    `standby`: whether it only follows another one; `not_durable`: settings with which a
    crash loses acknowledged commits, as `name=value`; `clock_ahead_s`: how far its clock is
    ahead of this machine's; `orphaned_blobs`: digests (hex) that no event refers to.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def format_version(self) -> int: ...
    @property
    def standby(self) -> bool: ...
    @property
    def not_durable(self) -> Sequence[str]: ...
    @property
    def clock_ahead_s(self) -> float: ...
    @property
    def orphaned_blobs(self) -> Sequence[str]: ...


def server_findings(journal: str, survey: Callable[[str], ServerFacts]) -> Iterator[Finding]:
    """Look at a journal on a server; its typed errors become findings."""
    try:
        facts = survey(journal)
    except MinutebookError as error:
        remedy = f"Check the address {shown(journal)}; nothing was changed."
        yield Finding("journal", Grade.ERROR, f"{error.code}: {error}", remedy)
        return
    yield Finding("journal", Grade.OK, f"{facts.name}: journal format {facts.format_version}.")
    yield _server(facts)
    yield _durability(facts)
    yield _clock(facts)
    yield orphans(facts.orphaned_blobs)


def orphans(blobs: Sequence[str]) -> Finding:
    """Blobs that belong to no event."""
    if not blobs:
        return Finding("blobs", Grade.OK, "Every blob belongs to an event.")
    return Finding(
        "blobs",
        Grade.WARN,
        f"{len(blobs)} of the journal's blobs belong to no event: {some(blobs)}",
        "A crash between a blob and its event leaves these; they do no harm.",
    )


def _server(facts: ServerFacts) -> Finding:
    if facts.standby:
        return Finding(
            "server",
            Grade.WARN,
            f"PostgreSQL {facts.version}, a standby: it can be looked at, and takes no events.",
            "Give sessions the address of the primary.",
        )
    return Finding("server", Grade.OK, f"PostgreSQL {facts.version}.")


def _durability(facts: ServerFacts) -> Finding:
    if facts.not_durable:
        return Finding(
            "durability",
            Grade.ERROR,
            f"The server is set up to lose acknowledged commits in a crash: {some(facts.not_durable)}.",
            "Switch these on, for the server or for this role and database.",
        )
    return Finding("durability", Grade.OK, "What the server acknowledges is on its disk.")


def _clock(facts: ServerFacts) -> Finding:
    apart = facts.clock_ahead_s
    if abs(apart) < _CLOCK_APART_S:
        return Finding("clock", Grade.OK, "The server's clock and this machine's agree.")
    direction = "ahead of" if apart > 0 else "behind"
    return Finding(
        "clock",
        Grade.WARN,
        f"The server's clock is {abs(apart):.0f} s {direction} this machine's. Leases go by the server's.",
        "Set the clock that is wrong: times in a journal come from the machine that recorded them.",
    )
