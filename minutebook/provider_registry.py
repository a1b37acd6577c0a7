"""`ProviderRegistry`: provider types of an application's own, beside the built-in ones.

An instance, never a module-level list: what one part of a program registers, another
does not see. Must never import an adapter; `minutebook.compose` makes the built-in types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from domain.errors import InvalidOptions
from domain.model_ports import ModelProvider
from minutebook.provider_config import WORD, ProviderConfig, is_word
from minutebook.provider_options import ProviderType

#: Makes the provider that a configuration describes. Nothing is sent yet.
Maker = Callable[[ProviderConfig], ModelProvider]

_BUILT_IN: Final = tuple(sorted(str(kind) for kind in ProviderType))


class ProviderRegistry:
    """Provider types by name: the built-in ones, and those that were registered here.

    registry = mb.ProviderRegistry()
    registry.register("in-house", make_in_house)
    mb.create_session(config, store=store, providers=registry)
    """

    def __init__(self) -> None:
        self._makers: dict[str, Maker] = {}

    @property
    def types(self) -> tuple[str, ...]:
        """Every type that `make` knows, sorted."""
        return tuple(sorted((*_BUILT_IN, *self._makers)))

    def register(self, type: str, maker: Maker) -> None:
        """Add a type.

        Args:
            type: as in `ProviderConfig(type=...)`; not a built-in one.
            maker: called with the configuration each time a session is opened. The
                provider belongs to that session, which closes it.

        Raises:
            InvalidOptions: the type is there already, or `maker` cannot be called.
        """
        if not is_word(type):
            raise InvalidOptions("type", WORD, type)
        if type in self.types:
            raise InvalidOptions("type", f"a new one, not one of {', '.join(self.types)}", type)
        if not callable(maker):
            raise InvalidOptions("maker", "a function from a ProviderConfig to a ModelProvider", maker)
        self._makers[type] = maker

    def make(self, config: ProviderConfig) -> ModelProvider:
        """The provider that a configuration describes. Nothing is sent yet.

        Raises:
            InvalidOptions: no such type, its SDK is not installed, or it cannot do
                without a credential.
        """
        maker = self._makers.get(config.type)
        if maker is not None:
            return maker(config)
        if config.type not in _BUILT_IN:
            raise InvalidOptions("type", f"one of {', '.join(self.types)}", config.type)
        from minutebook.compose import built_in_provider

        return built_in_provider(config)
