"""Where the calls of a response stand among its blocks.

A `Response` keeps blocks and calls apart. Where a dialect lets something follow a
call, its accumulator puts a mark in the call's place among the blocks: an opaque
block `<api>/calls/<index>`, whose text may hold provider material of that call.
Calls without a mark come after all blocks, in order. Pure; the accumulators and
encoders of the dialects import it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from domain.model_ports import Block
from projections.transcript import CallItem

_MARK: Final = re.compile(r"[a-z0-9-]+/calls/(\d{1,4})", re.ASCII)


def call_mark(api: str, index: int, material: str = "") -> Block:
    """The block that stands in the place of the call at `index`."""
    return Block("opaque", material, f"{api}/calls/{index}")


def marked_call(block: Block) -> int | None:
    """The index of the call that a block stands for, or None for any other block."""
    found = _MARK.fullmatch(block.format) if block.kind == "opaque" else None
    return int(found[1]) if found else None


def without_last_marks(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks without the marks that say nothing: those at the end, in order, of no material."""
    kept = list(blocks)
    while kept and marked_call(kept[-1]) is not None and not kept[-1].text:
        kept.pop()
    return tuple(kept)


def in_order(
    blocks: Sequence[Block], calls: Sequence[CallItem]
) -> Iterator[tuple[Block, CallItem | None] | tuple[None, CallItem]]:
    """Blocks and calls as the model wrote them: each call once, with its mark if it has one."""
    left = dict(enumerate(calls))
    for block in blocks:
        index = marked_call(block)
        if index is None:
            yield block, None
        elif index in left:
            yield block, left.pop(index)
    for call in left.values():
        yield None, call
