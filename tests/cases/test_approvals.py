"""How users got hurt by approvals that were lost, doubled, swapped or stale."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from domain.errors import InteractionError
from domain.values import PermissionMode
from minutebook.interactions import Approve, ApproveCategory, Deny
from minutebook.testing.scripted import Gate, call, reply
from tests.session import order
from tests.session.harness import Hands, Place, asked, data

pytestmark = pytest.mark.anyio

RENT = reply("", call("pay", {"what": "rent"}))


@pytest.mark.parametrize("commits_after", [0, 1])
async def test_p35_a_decision_is_neither_lost_nor_asked_for_again(
    place: Place, hands: Hands, commits_after: int
) -> None:
    """The worker dies right after the decision, before or after the start was on record."""
    hands.gates["rent"] = Gate()
    async with place.create([RENT], tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        asked_at = len(place.store.batches)
    if commits_after == 0:
        async with place.coordinator() as coordinator:
            await coordinator.resolve_permission(question.id, "allow")
        plan = await place.plan()
        assert [(i.action, i.subject) for i in plan.items] == [("start_tool", question.tool_id)]
        hands.gates.clear()
        async with place.resume([reply("done")], tools=hands.tools()) as session:
            assert session.interactions == ()
            assert (await place.told(session.stream()))[-1].content == "done"
    else:
        async with place.resume([reply("done")], tools=hands.tools()) as session:
            await session.respond(question.id, Approve(), digest=question.digest)
            await hands.gates["rent"].reached()
            left = await place.killed_after(len(place.store.batches))
            hands.gates["rent"].open()
            await session.wait_idle()
        assert [i.action for i in (await left.plan()).items] == ["reconcile_tool_outcomes"]
        assert len(place.store.batches) > asked_at
    assert hands.done == ["rent"]
    assert (await place.types()).count("permission_requested") == 1


@pytest.mark.parametrize("answer", [Approve(), Deny("no"), ApproveCategory()])
async def test_p36_what_is_open_after_a_restart_is_what_was_open_before(
    any_place: Place, hands: Hands, answer: Any
) -> None:
    async with any_place.create([RENT], tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
    async with any_place.resume([reply("done")], tools=hands.tools()) as session:
        assert session.interactions == (question,)
        with pytest.raises(InteractionError, match="is not open"):
            await session.respond("r1.t1.a1.c0.p7", answer, digest=question.digest)
        decided = await session.respond(question.id, answer, digest=question.digest)
        assert decided.verdict == ("deny" if isinstance(answer, Deny) else "allow")
        assert (await any_place.told(session.stream()))[-1].content == "done"
    assert hands.done == ([] if isinstance(answer, Deny) else ["rent"])


@pytest.mark.parametrize("count", [1, 3, 60])
async def test_p37_stopping_closes_every_question_with_its_call_in_one_commit(
    any_place: Place, hands: Hands, count: int
) -> None:
    script = [reply("", *(call("pay", {"what": str(n)}) for n in range(count))), reply("hi")]
    async with any_place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await session.wait_idle()
        assert len(session.interactions) == count
        await session.abort()
        assert session.interactions == ()
        assert (await session.run("hi")).content == "hi"
    made = order.commits(await any_place.events())
    end = next(commit for commit in made if commit[-1].type == "request_interrupted")
    assert order.types(end).count("permission_cancelled") == count
    assert order.types(end).count("tool_cancelled") == count


async def test_p37_an_operator_finds_a_question_by_its_id_or_by_its_call(place: Place, hands: Hands) -> None:
    script = [reply("", call("pay", {"what": "a"}), call("pay", {"what": "b"}))]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await session.wait_idle()
        first, second = session.interactions
    async with place.coordinator() as coordinator:
        await coordinator.resolve_permission(first.id, "allow")
        await coordinator.resolve_permission(second.tool_id, "deny", message="too much")
    async with place.resume([reply("done")], tools=hands.tools()) as session:
        assert (await place.told(session.stream()))[-1].content == "done"
    assert hands.done == ["a"]


async def test_p39_an_answer_finds_its_question_by_id_and_never_by_object(place: Place, hands: Hands) -> None:
    async with place.create([RENT], tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
    fresh = f"{question.id}", f"{question.digest}"
    del question
    async with place.resume([reply("done")], tools=hands.tools()) as session:
        await session.respond(fresh[0], Approve(), digest=fresh[1])
        assert (await place.told(session.stream()))[-1].content == "done"
    assert hands.done == ["rent"]


@pytest.mark.parametrize("order_of_answers", list(permutations(range(3))))
async def test_p40_parallel_questions_have_ids_of_their_own_and_any_order_will_do(
    place: Place, hands: Hands, order_of_answers: tuple[int, ...]
) -> None:
    script = [reply("", *(call("pay", {"what": str(n)}) for n in range(3))), reply("done")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await session.wait_idle()
        questions = session.interactions
        assert len({question.id for question in questions}) == 3
        for number in order_of_answers:
            answer = Deny() if number == 1 else Approve()
            await session.respond(questions[number].id, answer, digest=questions[number].digest)
        assert (await place.told(session.stream()))[-1].content == "done"
    assert sorted(hands.done) == ["0", "2"]


@pytest.mark.parametrize("before", [PermissionMode.DEFAULT, PermissionMode.AUTO_EDIT])
@pytest.mark.parametrize("after", PermissionMode)
async def test_p43_a_decision_is_as_good_as_the_policy_it_was_made_under(
    place: Place, hands: Hands, before: PermissionMode, after: PermissionMode
) -> None:
    async with place.create([RENT], tools=hands.tools(), permission_mode=before) as session:
        await session.send("hello")
        question = await asked(session)
    async with place.coordinator() as coordinator:
        await coordinator.resolve_permission(question.id, "allow")
    async with place.resume([reply("done")], tools=hands.tools(), permission_mode=after) as session:
        assert (await place.told(session.stream()))[-1].content == "done"
    evaluated = data(await place.events(), "permission_evaluated")
    digests = [event.policy_digest for event in evaluated]
    assert len(evaluated) == (1 if after is before else 2)
    assert len(set(digests)) == len(digests)
    assert hands.done == ([] if after is PermissionMode.PLAN else ["rent"])
