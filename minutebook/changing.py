"""Changing what a session runs under: its settings, its model, its reasoning, its budget.

Imported by `minutebook.session`, which offers all of it. A change is checked against
the configuration and the provider's API, then recorded; what cannot work leaves
everything as it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from domain import budget as budget_rules
from domain import session as session_rules
from domain.decider import Command
from domain.errors import InvalidOptions
from domain.model_ports import ModelProvider
from domain.settings import Settings
from domain.state import State
from domain.values import Effective
from minutebook.budget import Budget, check_unspent
from minutebook.carrying import fallback_note
from minutebook.config import SessionConfig
from minutebook.models import (
    ModelBinding,
    ModelInfo,
    Providers,
    Thinking,
    check_capabilities,
    instructs,
    pair,
    thinking_settings,
)
from minutebook.parts import Parts
from minutebook.session_options import check_option

#: What `change` takes. The others have calls of their own, or are of the configuration.
CHANGEABLE: Final = frozenset(
    {
        "model",
        "system_prompt",
        "max_turns",
        "permission_mode",
        "temperature",
        "max_output_tokens",
        "on_lost_attempt",
        "context",
    }
)

Do = Callable[..., Awaitable[Any]]


class SessionModel:
    """`session.model`: which model answers, which ones there are, and another one from now on."""

    def __init__(self, changes: Changes, config: SessionConfig) -> None:
        self._changes, self._config = changes, config

    @property
    def current(self) -> str:
        """What the provider calls the model that the next turn asks."""
        return self.binding.model

    @property
    def binding(self) -> ModelBinding:
        """The model that the next turn asks, with its provider and what it takes in."""
        settings = self._changes.next_turn()
        return ModelBinding(self._changes.provider_of(settings), settings.model, settings.context_window)

    @property
    def active(self) -> str | None:
        """The model of the turn in progress; None between turns."""
        settings = self._changes.this_turn()
        return settings.model if settings is not None else None

    @property
    def is_selected(self) -> bool:
        """Whether there is a model to ask. A configuration always names one."""
        return bool(self.current)

    @property
    def display_name(self) -> str:
        """The last segment of the model's id."""
        return self.current.rpartition("/")[2] or "unknown"

    async def available(self) -> tuple[ModelInfo, ...]:
        """The models of the configuration; where it lists none, the present one."""
        if self._config.models:
            return tuple(self._config.models)
        now = self.binding
        return (ModelInfo(now.model, self.display_name, now.provider, now.context_window),)

    async def switch(self, model: str | ModelBinding) -> ModelBinding:
        """Ask another model from the next turn on, also within the request that runs.

        A turn in progress, its further attempts included, stays with the model it began
        with. The conversation is encoded anew for another provider; what only the provider
        it came from can read is left out there.

        Args:
            model: an alias, a model's id, or a binding. Without a `context_window` in it,
                the one known so far counts no more.

        Raises:
            AssemblyFailed: it stands for nothing that is configured. Nothing was written.
            CapabilityUnsupported: its provider cannot do what the settings ask for. Likewise.
            SessionClosed, Fenced, StoreFailure: see their classes.
        """
        return await self._changes.switch(model)


class Changes:
    """Makes the changes of one session.

    Args:
        do: commits commands as one entry; `do(kind, *commands)`.
    """

    def __init__(self, parts: Parts, config: SessionConfig, do: Do) -> None:
        self._parts, self._config, self._do = parts, config, do
        self._registry = config.registry()

    # --- what counts ----------------------------------------------------------------------

    @property
    def _state(self) -> State:
        return self._parts.book.state

    @property
    def _providers(self) -> Providers:
        return self._parts.providers

    def _settings(self) -> Settings:
        assert self._state.session is not None
        return self._state.session.settings

    def this_turn(self) -> Settings | None:
        """The settings of the turn in progress."""
        state = self._parts.book.durable
        return state.request.turn_settings if state.request and state.active_turn else None

    def next_turn(self) -> Settings:
        """The settings of the next turn: the open request's, or the session's."""
        state = self._parts.book.durable
        assert state.session is not None
        open_ = state.request.settings if state.request is not None else None
        return open_ or state.session.settings

    def provider_of(self, settings: Settings) -> str:
        """The name of a provider in the configuration."""
        return self._providers.name_for(settings)

    # --- changes --------------------------------------------------------------------------

    async def change(self, values: dict[str, Any]) -> None:
        """See `Session.change`."""
        unknown = sorted(values.keys() - CHANGEABLE)
        if unknown or not values:
            raise InvalidOptions("change", f"names among {', '.join(sorted(CHANGEABLE))}", unknown)
        for option, value in values.items():
            if option != "model":
                check_option(option, value)
        wanted = {**values, **(self._pair_of(values["model"]) if "model" in values else {})}
        await self._prepare(wanted)
        plain = self._changed(wanted).to_plain()
        recorded = {name: plain.get(name) for name in wanted}
        await self._do("change", session_rules.Change(recorded))

    def _pair_of(self, model: Any) -> dict[str, Any]:
        if not isinstance(model, str | ModelBinding):
            raise InvalidOptions("model", "the name of a model, or a ModelBinding", model)
        return pair(self._registry.resolve(model, self._providers.name_for(self._settings())))

    async def _prepare(self, values: dict[str, Any]) -> None:
        if "model" in values:
            provider = self._providers.of(self._changed(values))
            await self._parts.conversation.prepare(provider, self._parts.journal)

    def _changed(self, values: dict[str, Any]) -> Settings:
        """The session's settings with these values, checked."""
        try:
            changed = self._settings().changed(values)
            changed.digest()
        except ValueError as e:
            raise InvalidOptions("change", "allowed values", str(e)) from None
        check_capabilities(changed, self._providers.of(changed))
        return changed

    async def switch(self, model: str | ModelBinding) -> ModelBinding:
        """See `SessionModel.switch`."""
        binding = self._registry.resolve(model, self._providers.name_for(self._settings()))
        values = pair(binding)
        await self._prepare(values)
        commands = list(self._for_next_turn(values))
        if commands:
            await self._do("switch_model", *commands)
        return binding

    async def set_thinking(self, thinking: Thinking | None) -> None:
        """See `Session.set_thinking`."""
        settings = thinking_settings(thinking)
        commands = list(self._for_next_turn({"thinking": _plain(settings)}))
        if commands:
            await self._do("set_thinking", *commands)

    def _for_next_turn(self, values: dict[str, Any]) -> list[Command]:
        """Commands for values that count from the next turn on; none where nothing changes."""
        changed = self._changed(values)
        active = self._state.request
        open_ = active.settings if active is not None else None
        if open_ is not None and active is not None and not active.aborting:
            there = open_.changed(values)
            check_capabilities(there, self._providers.of(there))
        else:
            there = None
        if changed == self._settings() and there in (None, open_):
            return []
        commands: list[Command] = [session_rules.Change(values, Effective.NEXT_TURN)]
        if there is not None and open_ is not None and self._falls_back(open_, there):
            commands.append(fallback_note(self._providers.of(there)))
        return commands

    def _falls_back(self, before: Settings, after: Settings) -> bool:
        """Whether a running request leaves a provider that can force its schema."""
        began: ModelProvider = self._providers.of(before)
        if self._state.turn is None:
            return False  # its first attempt says so itself
        return instructs(after, self._providers.of(after)) and not instructs(before, began)

    async def set_budget(self, budget: Budget | None) -> None:
        """See `Session.set_budget`."""
        if budget is not None and not isinstance(budget, Budget):
            raise InvalidOptions("budget", "mb.Budget(...), or None", budget)
        limits = budget.limits() if budget is not None else None
        spending = self._state.spending
        if limits == spending.limits:
            return
        command = budget_rules.SetBudget(limits)
        check_unspent(budget_rules.after(spending, budget_rules.decide(command)))
        await self._do("set_budget", command)


def _plain(settings: Any) -> dict[str, Any] | None:
    if settings is None:
        return None
    return {"budget_tokens": settings.budget_tokens, "effort": settings.effort}
