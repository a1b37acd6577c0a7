"""Lost attempts that their provider can be asked about, by an open session.

Imported by the opening of a session and by its loop. What a provider says is made a
decision in `domain.model_attempt`; operators ask through `recovery.coordinator`.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain import model_attempt
from domain.errors import AssemblyFailed
from domain.model_ports import AttemptLookup, LostAttempt
from domain.next_steps import Action, Step, next_steps
from domain.state import State
from minutebook.models import Providers


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask a provider what became of an attempt."""

    attempt_id: str
    lost: LostAttempt
    provider: AttemptLookup


class Lookups:
    """Which lost attempts there are to be looked up, each once in a run.

    Args:
        wanted: the session's `look_up_lost_attempts`; False asks about none.
    """

    def __init__(self, providers: Providers, wanted: bool) -> None:
        self._providers, self._wanted = providers, wanted
        self._asked: set[str] = set()

    def can_ask(self, state: State) -> bool:
        """Whether the plan's decision is about an attempt that can be looked up."""
        return self._wanted and self._look_up(state, next_steps(state)[0]) is not None

    def due(self, state: State, step: Step) -> LookUp | None:
        """The look-up to begin in place of a step, if one is due; it is not due again."""
        found = self._look_up(state, step) if self._wanted else None
        if found is None or found.attempt_id in self._asked:
            return None
        self._asked.add(found.attempt_id)
        return found

    def _look_up(self, state: State, step: Step) -> LookUp | None:
        if step.action is not Action.RECONCILE_MODEL_OUTCOME:
            return None
        assert state.attempt is not None
        lost, provider = model_attempt.asked_about(state.attempt), self._provider(state)
        if provider is None or not provider.finds(lost):
            return None
        return LookUp(state.attempt.attempt_id, lost, provider)

    def _provider(self, state: State) -> AttemptLookup | None:
        assert state.request is not None
        settings = state.request.turn_settings or state.request.settings
        if settings is None:
            return None
        try:
            provider = self._providers.of(settings)
        except AssemblyFailed:
            return None  # the opening says so; here nobody is asked
        return provider if isinstance(provider, AttemptLookup) else None
