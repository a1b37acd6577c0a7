"""Control state to bytes and back, for the snapshot beside the journal.

Snapshots are outside the chain: a reader may ignore them and fold everything,
and `verify` does that to compare. A version that is not ours is ignored.
"""

from __future__ import annotations

from typing import Final

from pydantic import TypeAdapter, ValidationError

from domain import canonical
from domain.errors import Corrupt
from domain.limits import SNAPSHOT_INTERVAL
from domain.ports import Snapshot
from domain.state import State

VERSION: Final = 3

_ADAPTER: Final = TypeAdapter(State)


def is_due(before: int, after: int) -> bool:
    """Whether a commit from sequence `before` to `after` crosses a boundary."""
    return before // SNAPSHOT_INTERVAL < after // SNAPSHOT_INTERVAL


def take(state: State, head: bytes) -> Snapshot:
    """The snapshot of a state at the end of a command."""
    data = canonical.encode(_ADAPTER.dump_python(state))
    return Snapshot(state.session_id, state.sequence, VERSION, head, data)


def restore(snapshot: Snapshot) -> State | None:
    """The state in a snapshot, or None where its version is not ours.

    Raises:
        Corrupt: it is of our version and does not parse, or contradicts its row.
    """
    if snapshot.version != VERSION:
        return None
    try:
        state = _ADAPTER.validate_python(canonical.decode(snapshot.state))
    except ValidationError as e:
        raise Corrupt("snapshot", "a control state", str(e), snapshot.sequence) from e
    if (state.session_id, state.sequence) != (snapshot.session_id, snapshot.sequence):
        raise Corrupt("snapshot", "the state at its sequence", state.sequence, snapshot.sequence)
    return state
