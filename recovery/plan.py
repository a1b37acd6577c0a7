"""The recovery plan of one session: what comes next, who does it, why, how, at what risk.

Made from a folded state alone; reading is `recovery.reading`, printing is
`recovery.report`. `RecoveryPlan.to_json` is a versioned document for other
programs, described in `docs/recovery-plan.md`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from domain import model_attempt
from domain.errors import MinutebookError
from domain.next_steps import Action, Step, Who, next_steps
from domain.ports import LeaseRow
from domain.state import State
from recovery import facts as facts_of
from recovery import items as items_of
from recovery.facts import Details, EffectFact, Facts, LeaseFact, PendingFact, PermissionFact, SuspensionFact
from recovery.items import BLOCKED, PlanItem
from recovery.problem import Blocked
from recovery.reading import Loaded

FORMAT: Final = "minutebook.recovery-plan/1"
#: Heading of everything inside a turn that is not waiting for its model attempt.
RESUME_TURN: Final = "resume_turn"


class Kind(StrEnum):
    """What a plan asks for, as a whole."""

    NOTHING = "nothing"
    AUTOMATIC = "automatic"  # resuming goes on by itself
    WAITING = "waiting"  # only answers of people are missing
    DECISION = "decision"  # somebody has to say what happened
    BLOCKED = "blocked"  # the journal cannot be followed


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """Everything that can be said about how a session goes on.

    Args:
        journal: what shell commands call the journal.
        status: of the session: none, open or closed.
        heading: `resume_turn` inside a turn, otherwise the first item's action.
        head_sequence, head_hash: where the plan was made; the hash in hex.
        verified: first and last sequence whose links were proved; (1, 0) if none.
        snapshot_sequence: where folding began; 0 if at the beginning.
        items: in the order of the plan's table; the blocking one first.
        alternatives: what an operator may do instead, at any time.
        problem: what blocks, if anything does; the items after it are then the plan
            as of the last whole command.
    """

    session_id: str
    journal: str
    owner_id: str
    status: str
    kind: Kind
    heading: str
    head_sequence: int
    head_hash: str
    verified: tuple[int, int]
    snapshot_sequence: int
    items: tuple[PlanItem, ...]
    alternatives: tuple[PlanItem, ...]
    pending_inputs: tuple[PendingFact, ...]
    permissions: tuple[PermissionFact, ...]
    suspensions: tuple[SuspensionFact, ...]
    unsettled_effects: tuple[EffectFact, ...]
    lease: LeaseFact | None
    problem: Blocked | None
    notes: tuple[str, ...]

    def item(self, action: str, subject: str | None = None) -> PlanItem | None:
        """The first item of that action (about that subject)."""
        fits = (i for i in self.items if i.action == action and subject in (None, i.subject))
        return next(fits, None)

    def to_json(self) -> dict[str, Any]:
        """The plan as a document of plain values; `format` names its version."""
        plain = asdict(self)
        head = {"sequence": plain.pop("head_sequence"), "hash": plain.pop("head_hash")}
        first, last = plain.pop("verified")
        verified = {"first": first, "last": last, "from_snapshot": plain.pop("snapshot_sequence")}
        problem = self.problem.to_plain() if self.problem else None
        kind = self.kind.value
        return {
            "format": FORMAT,
            **plain,
            "kind": kind,
            "head": head,
            "verified": verified,
            "problem": problem,
        }


class RecoveryRequired(MinutebookError):
    """Somebody has to say what happened before the session can go on.

    `plan` lists the decisions; `RecoveryCoordinator` and `python -m recovery
    reconcile` take them. Nothing was changed.
    """

    code = "DURABLE_SESSION_RECOVERY_REQUIRED"

    def __init__(self, plan: RecoveryPlan) -> None:
        self.plan = plan
        decisions = [i for i in plan.items if i.who in (Who.HOST, Who.OPERATOR)]
        first = decisions[0] if decisions else plan.items[0]
        more = f" ({len(decisions) - 1} more)" if len(decisions) > 1 else ""
        how = f" Decide with: {first.shell}" if first.shell else ""
        super().__init__(f"session {plan.session_id!r}: {first.action} is due{more}. {first.reason}{how}")

    @property
    def details(self) -> dict[str, Any]:
        """The plan as plain values."""
        return {"plan": self.plan.to_json()}


def plan_of(
    loaded: Loaded,
    *,
    journal: str = "JOURNAL",
    lease: LeaseRow | None = None,
    lease_lives: bool | None = None,
    details: Details | None = None,
) -> RecoveryPlan:
    """The plan of a session that was loaded.

    Args:
        lease: where it is newer than the loaded row's.
        journal, lease_lives, details: as in `Facts`.
    """
    known = details or Details()
    facts = Facts(
        loaded.head,
        loaded.verified,
        loaded.snapshot_sequence,
        loaded.problem,
        loaded.notes + known.notes,
        lease or loaded.row.lease,
        lease_lives,
        journal,
        known,
    )
    return make_plan(loaded.state, facts)


def make_plan(state: State, facts: Facts | None = None) -> RecoveryPlan:
    """The plan that a state calls for, with nothing in flight.

    Args:
        state: as folded from the journal.
        facts: what is known besides.

    Guarantees: pure, total, deterministic; the first item is the headline of
    `domain.next_steps`, unless something blocks.
    """
    facts = facts or Facts()
    steps = next_steps(state)
    items = tuple(items_of.item(state, step, facts) for step in steps)
    if facts.problem is not None:
        items = (items_of.blocked(state, facts, facts.problem), *items)
    session = state.session
    return RecoveryPlan(
        session_id=state.session_id,
        journal=facts.journal,
        owner_id=session.owner_id if session else "",
        status=session.status.value if session else "none",
        kind=Kind.BLOCKED if facts.problem else kind_of(steps),
        heading=BLOCKED if facts.problem else _heading(state, steps),
        head_sequence=state.sequence,
        head_hash=facts.head.hex(),
        verified=facts.verified,
        snapshot_sequence=facts.snapshot_sequence,
        items=items,
        alternatives=tuple(items_of.alternatives(state, facts)),
        pending_inputs=tuple(facts_of.pending_inputs(state, facts.details)),
        permissions=tuple(facts_of.open_permissions(state, facts.details)),
        suspensions=tuple(facts_of.open_suspensions(state, facts.details)),
        unsettled_effects=tuple(facts_of.unsettled(state, facts.journal)),
        lease=facts_of.lease(facts.lease, facts.lease_lives),
        problem=facts.problem,
        notes=facts.notes,
    )


def kind_of(steps: tuple[Step, ...]) -> Kind:
    """What steps ask for as a whole: automatic if any is, waiting if only people are missing."""
    who = {step.who for step in steps}
    if Who.AUTOMATIC in who:
        return Kind.AUTOMATIC
    if who & {Who.HOST, Who.OPERATOR}:
        return Kind.DECISION
    return Kind.WAITING if Who.PERSON in who else Kind.NOTHING


def _heading(state: State, steps: tuple[Step, ...]) -> str:
    attempt = state.attempt
    running = attempt is not None and attempt.status is model_attempt.Status.STARTED
    first = steps[0].action
    if state.active_turn is None or running or first is Action.FINISH_ABORT:
        return first.value
    return RESUME_TURN
