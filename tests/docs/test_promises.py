"""Small things that the documentation says in passing and that no other suite shows."""

from __future__ import annotations

from pathlib import Path

import pytest

import minutebook as mb
from minutebook.testing import Gate, ScriptedProvider, call, reply
from tests.session.harness import Place

pytestmark = pytest.mark.anyio


@mb.tool(side_effect=mb.SideEffect.PURE, kind=mb.ToolKind.READ_ONLY)
async def look(what: str) -> str:
    """Look at something."""
    return f"{what} is there"


def config(*script: object) -> mb.SessionConfig:
    return mb.SessionConfig(provider=ScriptedProvider(script), model="m", tools=[look])  # type: ignore[arg-type]  # attempts, as the tests write them


async def test_without_a_store_a_session_is_in_memory_and_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with mb.create_session(config(reply("", call("look", {"what": "it"})), reply("done"))) as session:
        assert (await session.run("hello")).content == "done"
        kept = session.id
    assert _files(tmp_path) == []
    with pytest.raises(mb.errors.SessionNotFound, match="in memory is gone with its process"):
        async with mb.resume_session(kept, config(), store=mb.memory()):
            pass


def _files(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_an_id_that_is_not_given_is_made_and_stays(tmp_path: Path) -> None:
    store = mb.sqlite(tmp_path / "journal.db")
    async with mb.create_session(config(reply("done")), store=store) as session:
        await session.run("hello")
        kept = session.id
    assert kept.startswith("s-")
    async with mb.resume_session(kept, config(), store=store) as session:
        assert (session.id, len(session.messages)) == (kept, 2)


async def test_while_a_request_is_being_stopped_the_session_says_so() -> None:
    gate = Gate()
    async with mb.create_session(config([gate, *reply("never")])) as session:
        await session.send("hello")
        await gate.reached()
        assert not session.is_aborting
        await session.abort(wait=False)
        assert session.is_aborting
        await session.wait_idle()
        assert not session.is_aborting


async def test_the_owner_and_the_provider_are_on_record_and_its_secrets_are_not(tmp_path: Path) -> None:
    provider = mb.ProviderConfig(
        "openai-compatible", base_url="http://127.0.0.1:9/v1?key=k", api_key="canary-1"
    )
    settings = mb.SessionConfig(provider=provider, model="m", owner_id="ann")
    async with mb.create_session(settings, store=mb.sqlite(tmp_path / "journal.db")) as session:
        created, _ = await session.recorded()
    assert created.data.owner_id == "ann"
    recorded = created.data.settings["provider"]
    assert (recorded["type"], recorded["id"]) == ("openai-compatible", "openai-compatible")
    assert recorded["base_url"] == "http://127.0.0.1:9/v1"
    assert "canary" not in repr(created)


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("anthropic", "https://api.anthropic.com"),
        ("openai", "https://api.openai.com/v1"),
    ],
)
def test_types_know_their_address(kind: str, url: str) -> None:
    assert mb.ProviderConfig(kind).url == url


async def test_the_input_of_an_accepted_request_is_pending_until_it_is_applied() -> None:
    place = Place()
    async with place.create([reply("done")]) as session:
        receipt = await session.send("hello")
        await session.wait_idle()
    left = await place.killed_after(2)  # the session's and the input's: nothing has run
    async with left.resume([reply("done")]) as session:
        assert [each.input_id for each in session.pending_inputs] == [receipt.input_id]
        await session.wait_idle()
        assert session.pending_inputs == ()
    await left.check()
