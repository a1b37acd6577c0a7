"""A call of a session, cancelled wherever it waits: it counts once or not at all, and the session goes on."""

from __future__ import annotations

from functools import partial

import pytest

from minutebook.interactions import Approve
from minutebook.session import Session
from minutebook.testing.scripted import call, reply
from tests.session import order
from tests.session.harness import Hands, Place, asked
from tests.store.suspensions import cancelled_at

pytestmark = pytest.mark.anyio

MOST = 60


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_a_send_cancelled_anywhere_is_accepted_once_or_not_at_all() -> None:
    for n in range(MOST):
        place = Place()
        async with place.create([reply("first"), reply("second")]) as session:
            tried = await cancelled_at(n, lambda: session.send("one", input_id="i1"))
            assert tried.error is None
            receipt = await session.send("one", input_id="i1")
            assert receipt.input_id == "i1"
            await session.wait_idle()
            assert (await session.run("two")).content == "second"
        events = await place.events()
        assert order.types(events).count("input_accepted") == 2
        await place.check()
        if tried.suspensions < n:
            break
    assert 1 < n < MOST


async def approve(session: Session) -> None:
    """Answer the one open question."""
    (question,) = session.interactions
    await session.respond(question.id, Approve(), digest=question.digest)


async def test_an_answer_cancelled_anywhere_counts_once() -> None:
    for n in range(MOST):
        place, hands = Place(), Hands()
        script = [reply("", call("pay", {"what": "rent"})), reply("done")]
        async with place.create(script, tools=hands.tools()) as session:
            await session.send("hello")
            await asked(session)
            tried = await cancelled_at(n, partial(approve, session))
            assert tried.error is None
            if session.interactions:
                await approve(session)
            await session.wait_idle()
            assert (await place.told(session.stream()))[-1].content == "done"
        assert hands.done == ["rent"]
        await place.check()
        if tried.suspensions < n:
            break
    assert 1 < n < MOST
