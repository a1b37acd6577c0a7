"""Lost attempts that their provider can be asked about: found, given up, or as open as before."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from domain.errors import InvalidOptions
from domain.model_ports import DeclaredCall, Identified, Text
from domain.values import OnLostAttempt
from minutebook.testing.chat_replies import error_reply
from minutebook.testing.fake_server import Cut, Faults, Reply, serve
from minutebook.testing.responses_replies import document_reply
from minutebook.testing.scripted import Gate, ScriptedProvider, reply
from recovery.plan import RecoveryRequired
from tests.session.harness import Hands, Place, data
from tests.session.storing_server import Storing, chat, lost, responses, stall_after

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

EVENTS = len(Storing().events())
LOOK = DeclaredCall("call_1", "look", '{"what":"x"}')


# --- recording the id -----------------------------------------------------------------------


async def test_the_id_is_recorded_while_the_response_comes(place: Place) -> None:
    async with serve(stall_after(Storing(), 1)) as server, lost(place, server, responses, identified=True):
        pass
    (identified,) = data(await place.events(), "model_response_identified")
    assert identified.response_id == "resp_0"


async def test_nothing_more_is_recorded_where_nothing_is_kept(place: Place) -> None:
    def without(url: str) -> Any:
        return responses(url, store=False)

    async with serve(Storing()) as server:
        async with place.create(without(server.url)) as session:
            assert (await session.run("hello")).content == "found again"
        assert server.requests[0].parsed["store"] is False
    commits = len(place.store.batches)
    assert "model_response_identified" not in await place.types()
    offline = Place()
    async with offline.create([reply("found again")]) as session:
        await session.run("hello")
    assert commits == len(offline.store.batches)


async def test_a_commit_of_the_id_holds_nothing_up(place: Place) -> None:
    """The commit waits at a gate; the text is shown all the same."""
    before = Gate()
    more = Gate()
    script: Any = [[Identified("resp-1"), more, Text("shown"), *reply("shown")[1:]]]
    place.store.before[4] = before
    async with place.create(script) as session:
        await session.send("hello")
        async for event in session.stream():
            if event.type == "turn_start":
                await before.reached()
                more.open()
            elif event.type == "content":
                assert "model_response_identified" not in await place.types()
                before.open()
    types = await place.types()
    assert types.index("model_response_identified") < types.index("model_request_completed")


async def test_an_attempt_that_ends_first_is_not_identified(place: Place) -> None:
    async with place.create([[Identified("resp-1"), *reply("at once")]]) as session:
        await session.run("hello")
    assert "model_response_identified" not in await place.types()


@pytest.mark.parametrize("name", ["", "x" * 513])
async def test_an_id_that_is_none_is_not_recorded(place: Place, name: str) -> None:
    gate = Gate()
    async with place.create([[Identified(name), Text("a"), gate, *reply("a")[1:]]]) as session:
        await session.send("hello")
        await gate.reached()
        await anyio.wait_all_tasks_blocked()
        gate.open()
        async for _ in session.stream():
            pass
    assert "model_response_identified" not in await place.types()


# --- found ------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", range(1, EVENTS))
async def test_a_response_is_found_wherever_it_was_cut(place: Place, events: int) -> None:
    storing = stall_after(Storing(), events)
    async with serve(storing) as server:
        async with lost(place, server, responses, identified=True) as killed:
            pass
        async with killed.resume(responses(server.url)) as session:
            told = await killed.told(session.stream())
        assert told[-1].content == "found again"
        assert len(storing.posts) == 1, "nothing was asked of the model again"
    await killed.check()
    (settled,) = data(await killed.events(), "model_outcome_reconciled")
    assert settled.outcome == "completed"
    assert settled.evidence == (
        "looked up: asked openai (openai-responses) for response resp_0; it is completed"
    )
    assert settled.response.usage["total_tokens"] > 0
    assert '"encrypted_content":"gAAAAfake=="' in settled.response.blocks[0].text
    (event,) = [e for e in await killed.events() if e.type == "model_outcome_reconciled"]
    assert event.actor.kind == "recovery"


async def test_its_calls_are_carried_out_and_the_request_goes_on(place: Place, hands: Hands) -> None:
    storing = stall_after(Storing(["let me see", "done"], calls=(LOOK,)), 1)
    async with serve(storing) as server:
        options: dict[str, Any] = {"tools": hands.tools()}
        async with lost(place, server, responses, identified=True, **options) as killed:
            pass
        async with killed.resume(responses(server.url), **options) as session:
            told = await killed.told(session.stream())
    assert (hands.done, told[-1].content, len(storing.posts)) == (["x"], "done", 2)
    types = [item.get("type", item.get("role")) for item in storing.posts[1]["input"]]
    assert types == ["user", "reasoning", "message", "function_call", "function_call_output"]
    await killed.check()


async def test_one_that_runs_in_the_background_is_waited_for(place: Place) -> None:
    storing = stall_after(Storing(background=True, status="in_progress"), 1)
    async with serve(storing) as server:
        async with lost(place, server, responses, identified=True) as killed:
            pass
        async with killed.resume(responses(server.url)) as session:
            assert (await killed.told(session.stream()))[-1].content == "found again"
    assert storing.questions[-1] == "/v1/responses/resp_0?stream=true&starting_after=0"
    assert len(storing.posts) == 1


@pytest.mark.parametrize("events", [0, 1, 2])
async def test_a_completion_is_found_by_its_attempt(place: Place, events: int) -> None:
    """Even where no byte of it came back."""
    whole = Storing().answered("/v1/chat/completions", 0).body
    ends = [0] + [place + 2 for place, two in enumerate(itertools.pairwise(whole)) if two == (10, 10)]
    storing = Storing(first=Faults(stall_after=ends[events]))
    async with serve(storing) as server:
        async with lost(place, server, chat, identified=events > 0) as killed:
            pass
        async with killed.resume(chat(server.url)) as session:
            assert (await killed.told(session.stream()))[-1].content == "found again"
    assert len(storing.posts) == 1
    assert storing.posts[0]["metadata"] == {"minutebook_attempt": "s1/r1.t1.a1"}
    assert len(storing.questions) == (1 if events else 2), "by id, or by key and then by id"
    await killed.check()


async def test_a_connection_that_broke_before_the_answer_is_found_too(place: Place) -> None:
    storing = Storing(first=Faults(drop_request=True, cut=Cut.CLOSE, delay_s=20))
    async with serve(storing) as server:
        async with lost(place, server, chat, identified=False) as killed:
            pass
        async with killed.resume(chat(server.url)) as session:
            assert (await killed.told(session.stream()))[-1].content == "found again"
    assert len(storing.posts) == 1


# --- given up, failed ----------------------------------------------------------------------------


async def test_what_the_server_gave_up_is_asked_again(place: Place) -> None:
    storing = stall_after(Storing(status="cancelled"), 1)
    async with serve(storing) as server:
        async with lost(place, server, responses, identified=True) as killed:
            pass
        async with killed.resume(responses(server.url)) as session:
            assert (await killed.told(session.stream()))[-1].content == "asked again"
    assert len(storing.posts) == 2
    assert [e.outcome for e in data(await killed.events(), "model_outcome_reconciled")] == ["lost"]
    await killed.check()


async def test_what_failed_there_fails_here(place: Place) -> None:
    storing = stall_after(Storing(status="failed"), 1)
    async with serve(storing) as server:
        async with lost(place, server, responses, identified=True) as killed:
            pass
        async with killed.resume(responses(server.url)) as session:
            told = await killed.told(session.stream())
    assert told[-1].type == "error"
    assert len(storing.posts) == 1
    await killed.check()


# --- as open as before -------------------------------------------------------------------------------

UNSETTLED: dict[str, Callable[[str], Reply]] = {
    "404": lambda _: error_reply(404, {"message": "no such response"}),
    "401": lambda _: error_reply(401, {}),
    "500": lambda _: error_reply(500, {}),
    "529": lambda _: error_reply(529, {}),
    "html": lambda _: Reply(b"<html>", 200, (("content-type", "text/html"),)),
    "cut": lambda _: Reply(b'{"id":"resp_0","status":"comp', 200),
    "dropped": lambda _: Reply(faults=Faults(drop_request=True, cut=Cut.RESET)),
    "running": lambda _: document_reply({"id": "resp_0", "status": "in_progress", "output": []}),
    "odd": lambda _: document_reply({"id": "resp_0", "status": 7, "output": None}),
    "empty": lambda _: document_reply({"id": "resp_0", "status": "completed", "output": []}),
    "none": lambda _: document_reply({}),
    "stream": lambda _: Reply(b"data: {}\n\n", 200),
}


@pytest.mark.parametrize("what", UNSETTLED)
async def test_a_look_up_that_settles_nothing_writes_nothing(
    place: Place, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    storing = stall_after(Storing(looked=UNSETTLED[what]), 1)
    async with serve(storing) as server:
        async with lost(place, server, responses, identified=True) as killed:
            pass
        caplog.set_level(logging.WARNING, "minutebook")
        async with killed.resume(responses(server.url)) as session:
            with pytest.raises(RecoveryRequired) as required:
                await killed.told(session.stream())
            # It is asked once; another action does not ask again.
            with pytest.raises(RecoveryRequired):
                await session.send("later")
    assert len(storing.questions) == 1
    assert len(storing.posts) == 1
    (item,) = required.value.plan.items
    assert (item.action, item.word, item.who) == ("reconcile_model_outcome", "findable", "host")
    expected = "running" if what == "running" else "unknown"
    assert f"stays {expected}: looked up: asked openai" in caplog.text
    assert "sk-test-key" not in caplog.text
    assert (await killed.types())[-1] == "session_resumed"
    await killed.check()


async def test_without_an_id_nobody_is_asked(place: Place) -> None:
    storing = stall_after(Storing(), 0)
    async with serve(storing) as server:
        async with lost(place, server, responses, identified=False) as killed:
            pass
        with pytest.raises(RecoveryRequired) as required:
            async with killed.resume(responses(server.url)):
                pass
    assert required.value.plan.items[0].word == "outcome_unknown"
    assert storing.questions == []


async def test_looking_up_can_be_switched_off(place: Place) -> None:
    storing = stall_after(Storing(), 1)
    async with serve(storing) as server:
        async with lost(place, server, responses, identified=True) as killed:
            pass
        with pytest.raises(RecoveryRequired):
            async with killed.resume(responses(server.url), look_up_lost_attempts=False):
                pass
    assert storing.questions == []
    with pytest.raises(InvalidOptions, match="look_up_lost_attempts"):
        place.config([], look_up_lost_attempts=1)


@pytest.mark.parametrize("other", ["provider", "dialect", "none"])
async def test_another_provider_is_not_asked(place: Place, other: str) -> None:
    storing = stall_after(Storing(), 1)
    async with serve(storing) as server:
        async with lost(place, server, responses, identified=True) as killed:
            pass
        made: dict[str, Callable[[], Any]] = {
            "provider": lambda: responses(server.url, provider="elsewhere"),
            "dialect": lambda: chat(server.url),
            "none": lambda: ScriptedProvider([]),
        }
        with pytest.raises(RecoveryRequired):
            async with killed.resume(made[other]()):
                pass
    assert storing.questions == []


async def test_it_comes_before_a_retry_that_is_allowed(place: Place) -> None:
    storing = stall_after(Storing(), 1)
    options = {"on_lost_attempt": OnLostAttempt.RETRY}
    async with serve(storing) as server:
        async with lost(place, server, responses, identified=True, **options) as killed:
            pass
        async with killed.resume(responses(server.url), **options) as session:
            assert (await killed.told(session.stream()))[-1].content == "found again"
        assert len(storing.posts) == 1


async def test_a_retry_that_is_allowed_follows_one_that_settles_nothing(place: Place) -> None:
    storing = stall_after(Storing(looked=UNSETTLED["404"]), 1)
    options = {"on_lost_attempt": OnLostAttempt.RETRY}
    async with serve(storing) as server:
        async with lost(place, server, responses, identified=True, **options) as killed:
            pass
        async with killed.resume(responses(server.url), **options) as session:
            assert (await killed.told(session.stream()))[-1].content == "asked again"
    assert len(storing.posts) == 2
