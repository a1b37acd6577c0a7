"""While the commit that says so is on its way, no model is asked and no tool runs."""

from __future__ import annotations

import anyio
import pytest

from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from tests.session.harness import Hands, Place

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_nothing_begins_while_its_start_is_on_its_way(place: Place, hands: Hands) -> None:
    provider = ScriptedProvider([reply("", call("look", {"what": "x"})), reply("done")])
    asking, running = Gate(), Gate()
    place.store.before = {3: asking, 4: running}
    async with place.create(provider, tools=hands.tools()) as session:
        await session.send("hello")
        await asking.reached()
        await anyio.wait_all_tasks_blocked()
        assert provider.sent == []
        asking.open()
        await running.reached()
        await anyio.wait_all_tasks_blocked()
        assert (len(provider.sent), hands.begun) == (1, [])
        running.open()
        await session.wait_idle()
    assert (len(provider.sent), hands.begun) == (2, ["x"])
