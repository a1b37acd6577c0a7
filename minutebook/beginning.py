"""What the opening of a session records, and what it refuses before anything is written.

Imported by `minutebook.opening`. Pure: from a configuration and the state that the
journal left to commands, or to an error that names the option.
"""

from __future__ import annotations

from collections.abc import Iterator

from domain import budget, session
from domain.budget import Limits, SetBudget
from domain.decider import Command
from domain.lease import AcquireLease
from domain.model_ports import ModelProvider
from domain.settings import Settings
from domain.state import State
from minutebook.budget import check_unspent
from minutebook.config import SessionConfig
from minutebook.models import Providers, check_capabilities


def created(config: SessionConfig, tools: dict[str, str], holds: AcquireLease) -> Iterator[Command]:
    """The commands that make a session.

    Args:
        tools: digests of definitions by name.
        holds: says who holds the session.
    """
    yield session.Create(config.owner_id, config.settings(), tools)
    if config.budget is not None:
        yield SetBudget(config.budget.limits())
    yield holds


def resumed(
    state: State, config: SessionConfig, tools: dict[str, str], holds: AcquireLease | None
) -> Iterator[Command]:
    """The commands by which another worker goes on with a session. `holds`: None where that is on record."""
    assert state.session is not None
    if holds is not None:
        yield holds
    yield session.Resume(state.session.settings_digest, tools)
    wanted = config.settings()
    changed = state.session.settings.changes_to(wanted)
    if not session.PAIR.isdisjoint(changed):
        changed |= {name: getattr(wanted, name) for name in session.PAIR}
    if changed:
        yield session.Change(changed)
    limits = _other_limits(state, config)
    if limits is not None:
        yield SetBudget(limits)


def _other_limits(state: State, config: SessionConfig) -> Limits | None:
    """The configured limits where they are not those of the journal. None configured: the journal's stay."""
    limits = config.budget.limits() if config.budget is not None else None
    return limits if limits != state.spending.limits else None


def asked_next(state: State, settings: Settings, providers: Providers) -> list[ModelProvider]:
    """The providers of the open request and of the next one, in the order they will be asked.

    Raises:
        AssemblyFailed: the open request's is not configured.
        CapabilityUnsupported, InvalidOptions: one cannot do what it will be asked for.
    """
    found = []
    open_ = state.request.settings if state.request is not None else None
    for each in (open_, settings):
        if each is not None:
            provider = providers.of(each)
            check_capabilities(each, provider)
            found.append(provider)
    return found


def check_budget(state: State, config: SessionConfig) -> None:
    """Refuse to go on with nothing to spend. An open request may still be brought to its end.

    Raises:
        InvalidOptions: the budget is used up already.
    """
    limits = _other_limits(state, config)
    if limits is not None:
        check_unspent(budget.after(state.spending, budget.decide(SetBudget(limits))))
    elif state.request is None:
        check_unspent(state.spending)
