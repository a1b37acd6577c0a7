"""Which family a model belongs to, and encoded items that hold what only one family takes back.

A signature that one model wrote is refused by another, and with it the whole history.
So an item that holds such material carries its form without it, and the body takes the
one that fits the model it is for. Pure; the encoders of all dialects import it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from domain.model_ports import Block
from projections.transcript import Exchange

_VENDOR: Final = re.compile(r"[A-Za-z]+\.(?=.)")
_FAMILY: Final = re.compile(r"[A-Za-z]+")


def model_family(model: str) -> str:
    """The family of a model by its name, without vendor, version and size.

    "anthropic/claude-sonnet-4.5", "us.anthropic.claude-opus-4" and "claude-sonnet-4-6"
    are all "claude". A name without letters is its own family.
    """
    name = model.rpartition("/")[2] or model
    while vendor := _VENDOR.match(name):
        name = name[vendor.end() :]
    found = _FAMILY.search(name)
    return (found[0] if found else name).lower()


class OfFamily(bytes):
    """An encoded item that holds material of one family; `without` is the item without it."""

    family: str
    without: bytes

    @classmethod
    def of(cls, encoded: bytes, family: str, without: bytes) -> bytes:
        """The encoded item, marked where the two forms differ."""
        if encoded == without:
            return encoded
        item = cls(encoded)
        item.family, item.without = family, without
        return item


def encoded(
    exchange: Exchange, encode: Callable[[Sequence[Block]], bytes], is_bound: Callable[[Block], bool]
) -> bytes:
    """An exchange in a dialect's form; with its form without the blocks that are bound to a family.

    Args:
        encode: the form of the exchange with these blocks of it.
    """
    others = [block for block in exchange.blocks if not is_bound(block)]
    whole = encode(exchange.blocks)
    if len(others) == len(exchange.blocks):
        return whole
    return OfFamily.of(whole, model_family(exchange.model), encode(others))


def for_model(items: Iterable[bytes], model: str) -> list[bytes]:
    """The items in the form that fits `model`, those that are empty left out.

    No function is called for an item that is plain: a request must not walk the history.
    """
    family = model_family(model)
    fitting = [_fitting(item, family) if item.__class__ is OfFamily else item for item in items]
    return [item for item in fitting if item]


def _fitting(item: bytes, family: str) -> bytes:
    return item.without if isinstance(item, OfFamily) and item.family != family else item
