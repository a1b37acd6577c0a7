"""`diff` says what two whole replays, held side by side, say."""

from __future__ import annotations

from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as st

from domain.ports import Journal
from minutebook.testing.histories import Walk, histories
from projections.transcript import Exchange, Item
from recovery.differing import Difference, difference
from recovery.replaying import Replay, plain, replay
from tests.journals import kept
from tests.property.examples import share


async def _compared(walk: Walk, first: int, last: int, page: int) -> None:
    async with kept(walk) as journal:
        found = await difference(journal, "s-walk", first, last, page=page)
        old = await replay(journal, "s-walk", upto=first)
        new = await replay(journal, "s-walk", upto=last)
        assert sum(found.events.values()) == last - first
        _same_facts(found, old, new)
        assert _told(found) == _expected(old.transcript.items, new.transcript.items)
        await _same_plans(journal, found, first, last)


def _same_facts(found: Difference, old: Replay, new: Replay) -> None:
    for point, whole in ((found.before, old), (found.after, new)):
        assert point.facts == whole.session.facts
        assert point.usage == whole.usage.session
        assert point.pending_inputs == tuple(i.input_id for i in whole.pending_inputs.items)
        asked = [each.tool_id for each in whole.interactions.permissions]
        assert [*point.interactions] == asked + [each.tool_id for each in whole.interactions.suspensions]
    before, after = plain(old.session.facts), plain(new.session.facts)
    assert found.facts == {n: (before[n], after[n]) for n in after if before[n] != after[n]}


def _told(found: Difference) -> list[tuple[Any, ...]]:
    assert found.left_out == 0
    return [
        (i.change, i.sequence, i.name, [(c.tool_id, c.before, c.after) for c in i.calls]) for i in found.items
    ]


def _expected(old: list[Item], new: list[Item]) -> list[tuple[Any, ...]]:
    was = {item.sequence: item for item in old}
    there = {item.sequence for item in new}
    removed: list[tuple[Any, ...]] = [
        ("removed", i.sequence, _name(i), []) for i in old if i.sequence not in there
    ]
    changed = []
    for item in new:
        before = was.get(item.sequence)
        if before != item:
            how = "added" if before is None else "changed"
            changed.append((how, item.sequence, _name(item), _calls(before, item)))
    return [*removed, *changed]


def _name(item: Item) -> str:
    return item.attempt_id if isinstance(item, Exchange) else item.input_id


def _calls(before: Item | None, after: Item) -> list[tuple[Any, ...]]:
    if not isinstance(after, Exchange):
        return []
    was = {c.tool_id: c.outcome for c in before.calls} if isinstance(before, Exchange) else {}
    return [
        (c.tool_id, was.get(c.tool_id), c.outcome) for c in after.calls if was.get(c.tool_id) != c.outcome
    ]


async def _same_plans(journal: Journal, found: Difference, first: int, last: int) -> None:
    for point, at in ((found.before, first), (found.after, last)):
        assert point.plan is not None
        assert point.plan.head_sequence <= at == point.sequence


@share(25)
@given(histories(), st.data())
def test_a_difference_is_that_of_two_replays(walk: Walk, data: st.DataObject) -> None:
    end = len(walk.events)
    first = data.draw(st.integers(1, end))
    last = data.draw(st.integers(first, end))
    anyio.run(_compared, walk, first, last, data.draw(st.sampled_from((1, 3, 1024))))
