"""Questions and their answers: by people, by the application, by another process."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from domain.canonical import digest
from domain.errors import ArgumentsRefused, InteractionError, ValueRefused
from domain.values import PermissionMode, Verdict
from minutebook import stream_events as se
from minutebook.config import PermissionCall
from minutebook.interactions import Answer, Approve, Deny, Interaction
from minutebook.session import Session
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_definition import tool
from tests.session import order
from tests.session.harness import Hands, Place, approving, asked, data

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

RENT = [reply("", call("pay", {"what": "rent"})), reply("done")]
BOTH = [reply("", call("pay", {"what": "a"}), call("pay", {"what": "b"})), reply("done")]


async def two(session: Session) -> tuple[Interaction, ...]:
    """Both questions of `BOTH`."""
    await session.send("hello")
    await session.wait_idle()
    assert len(session.interactions) == 2
    return session.interactions


async def test_a_question_waits_until_somebody_answers(any_place: Place, hands: Hands) -> None:
    async with any_place.create(RENT, tools=hands.tools()) as session:
        await session.send("hello")
        told = await any_place.told(approving(session))
    opened = next(event for event in told if isinstance(event, se.InteractionOpened))
    assert opened.summary == "pay(what='rent')"
    assert opened.digest == digest({"what": "rent"})
    assert hands.done == ["rent"]
    assert told[-1].content == "done"


async def test_an_answer_and_what_it_lets_go_on_are_one_commit(place: Place, hands: Hands) -> None:
    async with place.create(RENT, tools=hands.tools()) as session:
        await session.send("hello")
        await place.told(approving(session))
    made = [order.types(commit) for commit in order.commits(await place.events())]
    assert ["permission_resolved", "tool_started"] in made


async def test_two_questions_have_their_own_ids_and_are_answered_in_any_order(
    place: Place, hands: Hands
) -> None:
    async with place.create(BOTH, tools=hands.tools()) as session:
        first, second = await two(session)
        decided = await session.respond(second.id, Approve(), digest=second.digest)
        assert (decided.interaction_id, decided.verdict) == (second.id, "allow")
        assert [question.id for question in session.interactions] == [first.id]
        await session.respond(first.id, Deny("no"), digest=first.digest)
        told = await place.told(session.stream())
    outcomes = {event.id: event.outcome for event in told if isinstance(event, se.ToolResult)}
    assert outcomes == {"r1.t1.a1.c0": "cancelled", "r1.t1.a1.c1": "completed"}
    assert hands.done == ["b"]


async def test_an_answer_names_its_question_and_repeats_its_digest(place: Place, hands: Hands) -> None:
    async with place.create(BOTH, tools=hands.tools()) as session:
        first, second = await two(session)
        refused: list[tuple[str | None, Any, str | None, str]] = [
            (None, Approve(), first.digest, "AMBIGUOUS"),
            (first.id, Approve(), second.digest, "DIGEST_MISMATCH"),
            (first.id, Approve(), None, "DIGEST_REQUIRED"),
            ("r9.t1.a1.c0.p1", Approve(), first.digest, "NOT_OPEN"),
            (first.tool_id, Approve(), first.digest, "NOT_OPEN"),
            (first.id, Answer("yes"), first.digest, "WRONG_ANSWER"),
            (first.id, "yes", first.digest, "WRONG_ANSWER"),
            (first.id, None, first.digest, "WRONG_ANSWER"),
            (first.id, Deny("x" * 2_000_000), first.digest, "TOO_LARGE"),
        ]
        for interaction_id, answer, repeated, reason in refused:
            with pytest.raises(InteractionError) as error:
                await session.respond(interaction_id, answer, digest=repeated)
            assert error.value.reason == reason
        assert [question.id for question in session.interactions] == [first.id, second.id]
        await session.respond(first.id, Deny(), digest=first.digest)
        await session.respond(None, Approve(), digest=second.digest)
        await session.wait_idle()
    assert hands.done == ["b"]


async def test_the_first_answer_wins_and_the_second_gets_it(place: Place, hands: Hands) -> None:
    decisions = []
    async with place.create(RENT, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)

        async def answer(given: Any) -> None:
            decisions.append(await session.respond(question.id, given, digest=question.digest))

        async with anyio.create_task_group() as tasks:
            for given in (Approve(), Deny("no"), Approve()):
                tasks.start_soon(answer, given)
        await session.wait_idle()
        decisions.append(await session.respond(question.id, Deny("no"), digest=question.digest))
    assert len(set(decisions)) == 1
    assert (await place.types()).count("permission_resolved") == 1
    assert hands.done == (["rent"] if decisions[0].verdict == "allow" else [])


async def test_the_second_answer_gets_the_first_one_when_that_is_durable(place: Place, hands: Hands) -> None:
    place.store.before[5] = gate = Gate()
    decisions = []
    async with place.create(RENT, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)

        async def answer(given: Any) -> None:
            decisions.append(await session.respond(question.id, given, digest=question.digest))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, Approve())
            await gate.reached()
            tasks.start_soon(answer, Deny())
            await anyio.wait_all_tasks_blocked()
            assert decisions == []
            gate.open()
        await session.wait_idle()
    assert [decision.verdict for decision in decisions] == ["allow", "allow"]


async def test_the_model_is_told_what_a_person_said(place: Place, hands: Hands) -> None:
    provider = ScriptedProvider([RENT[0], reply("I see")])
    async with place.create(provider, tools=hands.tools()) as session:
        await session.send("hello")
        await place.told(approving(session, Deny("wait for my salary")))
    assert "wait for my salary" in provider.sent[1].messages[-1]["content"]
    assert hands.begun == []


# --- another input in its place ------------------------------------------------------------------


async def test_a_person_may_put_another_input_in_its_place(any_place: Place, hands: Hands) -> None:
    async with any_place.create(RENT, tools=hands.tools()) as session:
        await session.send("hello")
        told = await any_place.told(approving(session, Approve(updated_input={"what": "half"})))
    assert hands.done == ["half"]
    assert told[-1].content == "done"
    events = await any_place.events()
    (started,) = data(events, "tool_started")
    assert (started.input, started.input_digest) == ({"what": "half"}, digest({"what": "half"}))
    evaluated = data(events, "permission_evaluated")
    assert [(e.input_digest, e.verdict) for e in evaluated] == [
        (digest({"what": "rent"}), Verdict.ASK),
        (digest({"what": "half"}), Verdict.ALLOW),
    ]


@pytest.mark.parametrize(
    ("updated", "error"),
    [
        ({"what": 3}, ArgumentsRefused),
        ({}, ArgumentsRefused),
        ({"what": "a", "why": "b"}, ArgumentsRefused),
        ({"what": object()}, (ArgumentsRefused, ValueRefused)),
        ({"what": "x" * 1_100_000}, InteractionError),
    ],
    ids=["type", "missing", "unknown", "no value", "too large"],
)
async def test_an_input_that_does_not_fit_leaves_the_question_open(
    place: Place, hands: Hands, updated: Any, error: Any
) -> None:
    async with place.create(RENT, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        with pytest.raises(error):
            await session.respond(question.id, Approve(updated_input=updated), digest=question.digest)
        assert session.interactions == (question,)
        await session.respond(question.id, Approve(), digest=question.digest)
        await session.wait_idle()
    assert hands.done == ["rent"]


async def test_another_input_goes_through_the_deny_rules_again(place: Place) -> None:
    ran: list[str] = []

    @tool(check=lambda a: Verdict.DENY if a["what"] == "yacht" else None)
    async def buy(what: str) -> str:
        ran.append(what)
        return "bought"

    provider = ScriptedProvider([reply("", call("buy", {"what": "rope"})), reply("done")])
    async with place.create(provider, tools=[buy]) as session:
        await session.send("hello")
        await place.told(approving(session, Approve(updated_input={"what": "yacht"})))
    assert ran == []
    assert "own check" in provider.sent[1].messages[-1]["content"]


async def test_another_input_is_shown_to_the_handler_too(place: Place, hands: Hands) -> None:
    seen: list[str] = []

    async def handler(asked_about: PermissionCall) -> Verdict:
        seen.append(asked_about.input["what"])
        return Verdict.ASK if asked_about.input["what"] == "rent" else Verdict.DENY

    async with place.create(RENT, tools=hands.tools(), permission_handler=handler) as session:
        await session.send("hello")
        await place.told(approving(session, Approve(updated_input={"what": "half"})))
    assert seen == ["rent", "half"]
    assert hands.done == []


# --- the application answers for a person -----------------------------------------------------------


async def _raises(_: Interaction) -> Any:
    raise RuntimeError("nobody there")


def _answers(answer: Any) -> Any:
    async def handler(_: Interaction) -> Any:
        return answer

    return handler


@pytest.mark.parametrize(
    ("handler", "done"),
    [
        (_answers(Approve()), ["rent"]),
        (_answers(Approve({"what": "half"})), ["half"]),
        (_answers(Deny()), []),
    ],
    ids=["allows", "changes", "denies"],
)
async def test_a_confirmation_handler_answers(
    place: Place, hands: Hands, handler: Any, done: list[str]
) -> None:
    async with place.create(RENT, tools=hands.tools(), confirmation_handler=handler) as session:
        assert (await session.run("hello")).status == "completed"
    assert hands.done == done


@pytest.mark.parametrize(
    "handler",
    [_answers(None), _raises, _answers("yes"), _answers(Approve({"what": 3})), _answers(Answer(1))],
    ids=["nothing", "raises", "garbage", "does not fit", "wrong kind"],
)
async def test_a_confirmation_that_is_none_leaves_the_question_open(
    place: Place, hands: Hands, handler: Any
) -> None:
    async with place.create(RENT, tools=hands.tools(), confirmation_handler=handler) as session:
        await session.send("hello")
        await session.wait_idle()
        (question,) = session.interactions
        await session.respond(question.id, Approve(), digest=question.digest)
        await session.wait_idle()
    assert hands.done == ["rent"]


async def test_a_person_may_be_faster_than_the_confirmation_handler(place: Place, hands: Hands) -> None:
    answered = anyio.Event()

    async def handler(_: Interaction) -> Any:
        await answered.wait()
        return Deny("too late")

    async with place.create(RENT, tools=hands.tools(), confirmation_handler=handler) as session:
        await session.send("hello")
        question = await asked(session)
        await session.respond(question.id, Approve(), digest=question.digest)
        answered.set()
        await session.wait_idle()
    assert hands.done == ["rent"]


# --- another process ---------------------------------------------------------------------------------


async def test_open_questions_are_answered_after_a_restart(any_place: Place, hands: Hands) -> None:
    async with any_place.create(BOTH, tools=hands.tools()) as session:
        before = await two(session)
    async with any_place.resume([reply("done")], tools=hands.tools()) as session:
        assert session.interactions == before
        for question in reversed(before):
            await session.respond(question.id, Approve(), digest=question.digest)
        assert (await any_place.told(session.stream()))[-1].content == "done"
    assert sorted(hands.done) == ["a", "b"]


async def test_an_operator_answers_while_nobody_has_the_session_open(any_place: Place, hands: Hands) -> None:
    async with any_place.create(RENT, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
    assert (await any_place.plan()).items[0].action == "resolve_permissions"
    async with any_place.coordinator() as coordinator:
        await coordinator.resolve_permission(question.id, "allow", digest=question.digest)
    async with any_place.resume([reply("done")], tools=hands.tools()) as session:
        again = await session.respond(question.id, Deny("too late"), digest=question.digest)
        assert again.verdict == "allow"
        assert (await any_place.told(session.stream()))[-1].content == "done"
    assert hands.done == ["rent"]


async def test_an_operator_s_input_that_does_not_fit_the_tool_is_denied(place: Place, hands: Hands) -> None:
    async with place.create(RENT, tools=hands.tools()) as session:
        await session.send("hello")
        await asked(session)
    async with place.coordinator() as coordinator:
        await coordinator.resolve_permission("r1.t1.a1.c0", "allow", updated_input={"what": 3})
    provider = ScriptedProvider([reply("I see")])
    async with place.resume(provider, tools=hands.tools()) as session:
        assert (await place.told(session.stream()))[-1].content == "I see"
    assert hands.done == []
    assert "do not fit" in provider.sent[0].messages[-1]["content"]


async def test_approved_and_then_killed_runs_once_and_is_not_asked_again(place: Place, hands: Hands) -> None:
    async with place.create(RENT, tools=hands.tools()) as session:
        await session.send("hello")
        await asked(session)
        commits = len(place.store.batches)
    left = await place.killed_after(commits)
    async with left.coordinator() as coordinator:
        await coordinator.resolve_permission("r1.t1.a1.c0", "allow")
    assert [item.action for item in (await left.plan()).items] == ["start_tool"]
    async with left.resume([reply("done")], tools=hands.tools()) as session:
        assert session.interactions == ()
        assert (await left.told(session.stream()))[-1].content == "done"
    assert hands.done == ["rent"]
    assert (await left.types()).count("permission_requested") == 1
    await left.check()


async def test_a_stricter_mode_after_the_restart_denies_what_was_approved(place: Place, hands: Hands) -> None:
    async with place.create(RENT, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
    async with place.coordinator() as coordinator:
        await coordinator.resolve_permission(question.id, "allow")
    plan = PermissionMode.PLAN
    async with place.resume([reply("I see")], tools=hands.tools(), permission_mode=plan) as session:
        assert (await place.told(session.stream()))[-1].content == "I see"
    assert hands.done == []
