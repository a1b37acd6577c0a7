"""Whatever a user sends, with whatever metadata and ids: taken as it is, or refused with nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import minutebook as mb
from adapters.sqlite_store import SqliteStore
from domain import canonical, ids
from domain.errors import InvalidId, InvalidOptions, MinutebookError
from domain.values import ToolKind
from minutebook.config import SessionConfig
from minutebook.lease_config import LeaseConfig
from minutebook.session import Session
from minutebook.testing.scripted import ScriptedProvider, call, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import tool
from tests.corpus.sessions import Refusal, in_both, typed
from tests.corpus.texts import TEXTS
from tests.corpus.values import BAD_IDS, GOOD_IDS, Make, groups, plain_values
from tests.property.values import same

pytestmark = pytest.mark.anyio

VALUES = plain_values()


@pytest.mark.parametrize("names", groups(TEXTS, 30), ids=lambda names: f"from {names[0]}")
@pytest.mark.parametrize("shape", ["text", "part"])
async def test_any_text_is_an_input(tmp_path: Path, names: list[str], shape: str) -> None:
    def content(name: str) -> Any:
        return TEXTS[name] if shape == "text" else [mb.TextPart(TEXTS[name])]

    def recorded(name: str) -> Any:
        return TEXTS[name] if shape == "text" else [{"type": "text", "text": TEXTS[name]}]

    async def use(session: Session) -> list[Any]:
        return [await typed(_sent(session, at, content(name))) for at, name in enumerate(names)]

    async def _sent(session: Session, at: int, given: Any) -> str:
        return (await session.run(given, input_id=f"i-{at}")).content

    taken_up = [name for name in names if TEXTS[name]]
    came = await in_both(tmp_path, use, [reply("ok")] * len(taken_up))
    for name, outcome in zip(names, came.outcome, strict=True):
        taken = outcome == "ok"
        assert taken or (name == "empty" and outcome == Refusal("SendRejected", "SEND_REJECTED"))
    kept = [event.content for event in came.data("input_accepted")][:-1]
    assert kept == [recorded(name) for name in taken_up]


@pytest.mark.parametrize("names", groups(VALUES, 25), ids=lambda names: f"from {names[0]}")
@pytest.mark.parametrize("shape", ["in a part", "as a part"])
async def test_a_value_where_an_input_belongs_is_refused_or_kept(
    tmp_path: Path, names: list[str], shape: str
) -> None:
    """Refused with nothing written, or a text that is on record as it was given and answered."""

    def content(name: str) -> Any:
        return [mb.TextPart(VALUES[name]()) if shape == "in a part" else VALUES[name]()]

    async def use(session: Session) -> list[Any]:
        outcomes = []
        for at, name in enumerate(names):
            before = session.head_sequence
            outcomes.append(await typed(_sent(session, at, name)))
            assert isinstance(outcomes[-1], Refusal) is (session.head_sequence == before), name
        return outcomes

    async def _sent(session: Session, at: int, name: str) -> str:
        return (await session.run(content(name), input_id=f"i-{at}")).status

    came = await in_both(tmp_path, use, lambda _: reply("on"))
    taken_up = [n for n, o in zip(names, came.outcome, strict=True) if not isinstance(o, Refusal)]
    kept = [event.content for event in came.data("input_accepted")][:-1]
    assert same(kept, [[{"type": "text", "text": VALUES[name]()}] for name in taken_up])


@pytest.mark.parametrize("names", groups(list(VALUES)[::2], 30), ids=lambda names: f"from {names[0]}")
async def test_any_metadata_reaches_the_tool_as_it_was_given_or_is_refused(
    tmp_path: Path, names: list[str]
) -> None:
    seen: list[Any] = []

    @tool(kind=ToolKind.READ_ONLY)
    async def look(ctx: ToolContext) -> str:
        seen.append(ctx.metadata["given"])
        return "seen"

    async def use(session: Session) -> list[Any]:
        seen.clear()
        outcomes = []
        for at, name in enumerate(names):
            before = len(seen)
            outcome = await typed(_run(session, at, name))
            if not isinstance(outcome, Refusal):
                assert same(seen[before], VALUES[name]()), name
            outcomes.append(outcome)
        return outcomes

    async def _run(session: Session, at: int, name: str) -> str:
        metadata = {"given": VALUES[name](), name: 1}
        return (await session.run("go", metadata=metadata, input_id=f"i-{at}")).content

    taken_up = [name for name in names if _kept(VALUES[name])]
    provider = [step for _ in taken_up for step in (reply("", call("look")), reply("ok"))]
    came = await in_both(tmp_path, use, provider, [look])
    assert [not isinstance(o, Refusal) for o in came.outcome] == [_kept(VALUES[name]) for name in names]


def _kept(make: Make) -> bool:
    """Whether a payload can hold a value two levels below its own."""
    try:
        canonical.encode({"metadata": {"given": make()}})
    except MinutebookError:
        return False
    return True


@pytest.mark.parametrize("name", VALUES)
def test_any_context_is_a_setting_or_a_typed_refusal(name: str) -> None:
    for context in ({"metadata": {"given": VALUES[name]()}}, {"environment": {name: VALUES[name]()}}):
        message = ""
        try:
            SessionConfig(ScriptedProvider([]), "m", context=context)
        except InvalidOptions as refused:
            message = str(refused)
        assert message.isprintable()
        assert len(message) < 1000


@pytest.mark.parametrize("options", [("model", "system_prompt"), ("owner_id", "worker_id")], ids="/".join)
async def test_any_text_is_a_setting_or_a_typed_refusal(tmp_path: Path, options: tuple[str, ...]) -> None:
    for at, (name, text) in enumerate(list(TEXTS.items())[::2]):
        store = SqliteStore(tmp_path / f"{at}.db")
        given: dict[str, Any] = {"model": "m", **dict.fromkeys(options, text)}
        assert await typed(_used(given, store)) in (True, Refusal("InvalidOptions", "INVALID_OPTIONS")), name


async def _used(options: dict[str, Any], store: SqliteStore) -> bool:
    lease = LeaseConfig(worker_id=options.pop("worker_id", None))
    config = SessionConfig(ScriptedProvider([reply("ok")]), lease=lease, **options)
    async with mb.create_session(config, store=store, session_id="s1") as session:
        assert (await session.run("hello")).content == "ok"
        before = session.messages
    async with mb.resume_session("s1", config, store=store) as session:
        return session.messages == before


# --- ids ----------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", GOOD_IDS)
async def test_one_path_segment_is_an_id(tmp_path: Path, id_: str) -> None:
    async def use(session: Session) -> Any:
        receipt = await session.send("hello", input_id=id_)
        await session.wait_idle()
        return receipt.input_id

    came = await in_both(tmp_path, use, [reply("ok")])
    assert came.outcome == id_
    config = SessionConfig(ScriptedProvider([reply("ok")]), "m")
    store = SqliteStore(tmp_path / "named.db")
    async with mb.create_session(config, store=store, session_id=id_) as session:
        assert session.id == id_
    async with mb.resume_session(id_, config, store=store) as session:
        assert session.id == id_


@pytest.mark.parametrize("id_", BAD_IDS.values(), ids=BAD_IDS.keys())
async def test_anything_else_is_no_id_of_anything(id_: Any) -> None:
    for parse in (ids.session_id, ids.input_id, ids.command_id):
        with pytest.raises(InvalidId) as refused:
            parse(id_)
        assert str(refused.value).isprintable()
    config = SessionConfig(ScriptedProvider([]), "m")
    if id_ is not None:
        with pytest.raises(InvalidId):
            mb.create_session(config, session_id=id_)
        with pytest.raises(InvalidId):
            mb.resume_session(id_, config, store=mb.memory())


async def test_a_bad_input_id_is_refused_with_nothing_written(tmp_path: Path) -> None:
    async def use(session: Session) -> list[Any]:
        at = session.head_sequence
        outcomes = [
            await typed(session.send("hello", input_id=id_)) for id_ in BAD_IDS.values() if id_ is not None
        ]
        assert session.head_sequence == at
        return outcomes

    came = await in_both(tmp_path, use)
    assert set(came.outcome) == {Refusal("InvalidId", "INVALID_ID")}


@pytest.mark.parametrize("name", TEXTS)
def test_a_tool_of_any_other_name_is_refused(name: str) -> None:
    if name == "device":
        return
    with pytest.raises(InvalidOptions) as refused:
        tool(name=TEXTS[name])(len)
    assert str(refused.value).isprintable()
