"""Whether a call may run, end to end: every mode, handler and own check, and what goes on record."""

from __future__ import annotations

from typing import Any, Final

import anyio
import pytest

from domain.canonical import digest
from domain.errors import InvalidOptions
from domain.values import ActorKind, PermissionMode, ToolKind, Verdict
from minutebook import stream_events as se
from minutebook.config import PermissionCall
from minutebook.interactions import Approve, ApproveCategory, Deny
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_definition import ToolDefinition, tool
from tests.session.harness import Hands, Place, asked, data

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

ALLOW, DENY, ASK = Verdict.ALLOW, Verdict.DENY, Verdict.ASK
KINDS: Final = {"read": ToolKind.READ_ONLY, "write": ToolKind.WRITE, "run": ToolKind.EXECUTE}
CHECKS: Final = {"": None, "_allow": ALLOW, "_deny": DENY, "_ask": ASK}


def every_tool(ran: list[str]) -> list[ToolDefinition]:
    """One of each kind, each destructive or not, each with each opinion of its own."""

    def make(name: str, kind: ToolKind, destructive: bool, opinion: Verdict | None) -> ToolDefinition:
        async def act() -> str:
            ran.append(name)
            return "acted"

        return tool(name=name, kind=kind, destructive=destructive, check=lambda _: opinion)(act)

    return [
        make(f"{word}{end}{suffix}", kind, bool(end), opinion)
        for word, kind in KINDS.items()
        for end in ("", "_hard")
        for suffix, opinion in CHECKS.items()
    ]


def expected(name: str, mode: PermissionMode, handler: Verdict | None) -> Verdict:
    """The order in words: deny, plan, handler, own ask, yolo, own allow, mode's default, ask."""
    word, *rest = name.split("_")
    opinion = rest[-1] if rest and rest[-1] in ("allow", "deny", "ask") else ""
    if opinion == "deny":
        return DENY
    if mode is PermissionMode.PLAN and word != "read":
        return DENY
    if handler is not None:
        return handler
    if opinion == "ask":
        return ASK
    if mode is PermissionMode.YOLO and "hard" not in rest:
        return ALLOW
    if opinion == "allow":
        return ALLOW
    quiet = {"read"} if mode is not PermissionMode.AUTO_EDIT else {"read", "write"}
    return ALLOW if word in quiet and mode is not PermissionMode.YOLO else ASK


async def _broken(_: PermissionCall) -> Verdict | None:
    raise RuntimeError("the policy server is down")


async def _garbage(_: PermissionCall) -> Any:
    return "perhaps"


def _says(verdict: Verdict | None) -> Any:
    async def handler(_: PermissionCall) -> Verdict | None:
        return verdict

    return handler


HANDLERS: Final[dict[str, tuple[Any, Verdict | None]]] = {
    "no handler": (None, None),
    "goes on": (_says(None), None),
    "allows": (_says(ALLOW), ALLOW),
    "denies": (_says(DENY), DENY),
    "asks": (_says(ASK), ASK),
    "raises": (_broken, ASK),
    "answers garbage": (_garbage, ASK),
}


@pytest.mark.parametrize("mode", PermissionMode)
@pytest.mark.parametrize(("handler", "verdict"), HANDLERS.values(), ids=HANDLERS.keys())
async def test_every_source_end_to_end(
    place: Place, mode: PermissionMode, handler: Any, verdict: Verdict | None
) -> None:
    ran: list[str] = []
    tools = every_tool(ran)
    wanted = {each.name: expected(each.name, mode, verdict) for each in tools}
    script = [reply("", *(call(each.name) for each in tools)), reply("done")]
    async with place.create(script, tools=tools, permission_mode=mode, permission_handler=handler) as session:
        await session.send("hello")
        await session.wait_idle()
        assert {each.name for each in session.interactions} == {n for n, v in wanted.items() if v is ASK}
        assert set(ran) == {name for name, v in wanted.items() if v is ALLOW}
        await session.abort()
    events = await place.events()
    names = {e.tool_id: e.data.name for e in events if e.type == "tool_scheduled"}
    evaluated = [e for e in events if e.type == "permission_evaluated"]
    assert {names[e.tool_id]: e.data.verdict for e in evaluated} == wanted
    assert all(e.actor.kind is ActorKind.POLICY and e.data.explanation for e in evaluated)
    assert {e.data.input_digest for e in evaluated} == {digest({})}
    assert len({e.data.policy_digest for e in evaluated}) == 1
    denied = {names[e.tool_id] for e in events if e.type == "tool_cancelled" and e.data.reason != "abort"}
    assert denied == {name for name, v in wanted.items() if v is DENY}


async def test_the_model_is_told_why_it_may_not(place: Place) -> None:
    provider = ScriptedProvider([reply("", call("run_deny")), reply("I see")])
    async with place.create(provider, tools=every_tool([])) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    result = next(event for event in told if isinstance(event, se.ToolResult))
    assert "permission_denied" in result.output
    assert "own check" in result.output
    assert provider.sent[1].messages[-1]["content"] == result.output


async def test_the_handler_sees_the_exact_call(place: Place, hands: Hands) -> None:
    seen: list[PermissionCall] = []

    async def handler(asked_about: PermissionCall) -> Verdict:
        seen.append(asked_about)
        return ALLOW

    script = [reply("", call("pay", {"what": "rent"})), reply("done")]
    async with place.create(script, tools=hands.tools(), permission_handler=handler) as session:
        await session.run("hello")
    (one,) = seen
    assert (one.session_id, one.request_id, one.tool_id, one.name) == ("s1", "r1", "r1.t1.a1.c0", "pay")
    assert (one.input, one.input_digest) == ({"what": "rent"}, digest({"what": "rent"}))
    assert (one.kind, one.category, one.destructive) == (ToolKind.EXECUTE, "money", False)
    evaluated = data(await place.events(), "permission_evaluated")
    assert [(event.verdict, event.source) for event in evaluated] == [(ALLOW, "handler")]


async def test_a_slow_handler_holds_up_its_call_alone(place: Place, hands: Hands) -> None:
    gate = Gate()

    async def handler(asked_about: PermissionCall) -> Verdict:
        if asked_about.input["what"] == "slow":
            await gate.pass_through()
        return ALLOW

    script = [reply("", call("look", {"what": "slow"}), call("look", {"what": "quick"})), reply("done")]
    async with place.create(script, tools=hands.tools(), permission_handler=handler) as session:
        await session.send("hello")
        stream = session.stream()
        while True:
            event = await anext(stream)
            if isinstance(event, se.ToolResult):
                break
        assert hands.done == ["quick"]
        gate.open()
        assert (await place.told(stream))[-1].content == "done"
    assert hands.done == ["quick", "slow"]


async def test_a_worker_that_dies_while_its_handler_thinks_asks_again(place: Place, hands: Hands) -> None:
    gate, seen = Gate(), []

    async def handler(asked_about: PermissionCall) -> Verdict:
        seen.append(asked_about.input_digest)
        if len(seen) == 1:
            await gate.pass_through()
        return ALLOW

    script = [reply("", call("pay", {"what": "rent"}))]
    async with place.create(script, tools=hands.tools(), permission_handler=handler) as session:
        await session.send("hello")
        await gate.reached()
        left = await place.killed_after(len(place.store.batches))
    async with left.resume([reply("done")], tools=hands.tools(), permission_handler=handler) as session:
        assert (await left.told(session.stream()))[-1].content == "done"
    assert hands.done == ["rent"]
    assert len(seen) == 2
    assert (await left.types()).count("permission_evaluated") == 1
    await left.check()


# --- the policy changes -----------------------------------------------------------------------


async def test_a_changed_mode_counts_at_once_and_what_was_asked_is_decided_again(
    any_place: Place, hands: Hands
) -> None:
    provider = ScriptedProvider([reply("", call("pay", {"what": "rent"})), reply("I see")])
    async with any_place.create(provider, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        await session.change(permission_mode=PermissionMode.PLAN)
        await session.respond(question.id, Approve(), digest=question.digest)
        await session.wait_idle()
    assert hands.done == []
    evaluated = [e for e in await any_place.events() if e.type == "permission_evaluated"]
    assert [e.data.verdict for e in evaluated] == [ASK, DENY]
    assert evaluated[0].data.policy_digest != evaluated[1].data.policy_digest


async def test_what_a_person_allowed_is_not_asked_again_under_another_policy(
    place: Place, hands: Hands
) -> None:
    script = [reply("", call("pay", {"what": "rent"})), reply("done")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        await session.change(permission_mode=PermissionMode.AUTO_EDIT)
        await session.respond(question.id, Approve(), digest=question.digest)
        await session.wait_idle()
    assert hands.done == ["rent"]
    evaluated = data(await place.events(), "permission_evaluated")
    assert [(event.verdict, event.source) for event in evaluated] == [(ASK, "default"), (ALLOW, "person")]


async def test_the_mode_of_a_resumed_session_is_its_configuration_s(place: Place, hands: Hands) -> None:
    script = [reply("", call("put", {"what": "x"}))]
    async with place.create(script, tools=hands.tools(), permission_mode=PermissionMode.PLAN) as session:
        await session.send("hello")
        await session.wait_idle()
    async with place.resume([reply("", call("put", {"what": "y"}))], tools=hands.tools()) as session:
        await session.send("again")
        assert (await asked(session)).input == {"what": "y"}
        await session.abort()
    assert [e.data.mode for e in await place.events() if e.type == "permission_mode_changed"] == ["default"]


# --- standing answers ------------------------------------------------------------------------------


async def test_allowing_a_category_is_on_record_and_counts_for_the_next_call(
    any_place: Place, hands: Hands
) -> None:
    script = [
        reply("", call("put", {"what": "a"})),
        reply("", call("put", {"what": "b"}), call("pay", {"what": "rent"})),
        reply("done"),
    ]
    async with any_place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        await session.respond(question.id, ApproveCategory(), digest=question.digest)
        while not (session.interactions and session.interactions[0].name == "pay"):
            await session.wait_idle()
        assert hands.done == ["a", "b"]
        question = session.interactions[0]
        await session.respond(question.id, Deny("not today"), digest=question.digest)
        await session.wait_idle()
    events = await any_place.events()
    (grant,) = data(events, "permission_granted")
    assert (grant.scope_of, grant.name) == ("category", "files")
    sources = [(e.verdict, e.source) for e in data(events, "permission_evaluated")]
    assert (ALLOW, "grant") in sources


async def test_a_grant_survives_a_restart(place: Place, hands: Hands) -> None:
    script = [reply("", call("put", {"what": "a"})), reply("done")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        await session.respond(question.id, ApproveCategory(), digest=question.digest)
        await session.wait_idle()
    script = [reply("", call("put", {"what": "b"})), reply("done")]
    async with place.resume(script, tools=hands.tools()) as session:
        assert (await session.run("again")).content == "done"
    assert hands.done == ["a", "b"]


async def test_a_tool_without_a_category_is_granted_by_name(place: Place) -> None:
    ran: list[str] = []
    script = [reply("", call("write")), reply("", call("write")), reply("done")]
    async with place.create(script, tools=every_tool(ran)) as session:
        await session.send("hello")
        question = await asked(session)
        await session.respond(question.id, ApproveCategory(), digest=question.digest)
        await session.wait_idle()
    assert ran == ["write", "write"]
    (grant,) = data(await place.events(), "permission_granted")
    assert (grant.scope_of, grant.name) == ("tool", "write")


async def test_handlers_that_are_no_functions_are_refused_before_anything_is_opened(place: Place) -> None:
    for option in ("permission_handler", "confirmation_handler"):
        with pytest.raises(InvalidOptions, match=option):
            place.create([], **{option: "yes"})
    async with place.reader() as reader:
        assert list(await reader.sessions()) == []


async def test_many_questions_at_once(place: Place, hands: Hands) -> None:
    script = [reply("", *(call("pay", {"what": str(n)}) for n in range(30))), reply("done")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await session.wait_idle()
        questions = session.interactions
        assert len({question.id for question in questions}) == 30

        async def answer(number: int) -> None:
            question = questions[number]
            await session.respond(question.id, Approve(), digest=question.digest)

        async with anyio.create_task_group() as tasks:
            for number in (7 * n % 30 for n in range(30)):
                tasks.start_soon(answer, number)
        await session.wait_idle()
    assert sorted(hands.done, key=int) == [str(n) for n in range(30)]
