"""Taking groups of errors apart."""

from __future__ import annotations

from collections.abc import Iterator


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, however deep; an error that is none is its own leaf."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for inner in error.exceptions:
        yield from leaves(inner)
