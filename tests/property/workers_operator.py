"""The operator beside the workers: what is decided, and always by what really happened."""

from __future__ import annotations

from recovery.coordinator import RecoveryCoordinator
from tests.property.books import Books
from tests.property.workers import Effects


async def decided(coordinator: RecoveryCoordinator, what: str, books: Books, effects: Effects) -> str:
    """Decide one thing; `what` is preferred. Returns what it was."""
    if what == "abandon" and books.place.request:
        await coordinator.abandon_request(reason="enough", evidence="nobody wants it")
        return "abandoned"
    if what == "automatic" and await coordinator.apply_automatic():
        return "what is automatic"
    for action, subject in books.plan:
        if action == "reconcile_model_outcome":
            await coordinator.reconcile_model_outcome(subject, outcome="lost", evidence="no answer")
            return "a model's outcome"
        if action == "reconcile_tool_outcomes":
            return await _tells_the_truth(coordinator, subject, effects, "a tool's outcome")
    for subject in sorted(books.unsettled):
        return await _tells_the_truth(coordinator, subject, effects, "an unsettled effect")
    return "nothing to decide"


async def _tells_the_truth(
    coordinator: RecoveryCoordinator, subject: str, effects: Effects, what: str
) -> str:
    did = subject in effects.done
    outcome, output = ("completed", "did it") if did else ("cancelled", "")
    await coordinator.reconcile_tool_outcome(
        subject, outcome=outcome, evidence="the bank says so", output=output
    )
    return what
