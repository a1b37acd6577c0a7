"""One session with every kind of credential, everything that can go wrong, and everywhere one might stay."""

from __future__ import annotations

import base64
import copy
import dataclasses
import logging
import pickle
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import minutebook as mb
from domain import masking
from domain.errors import ModelFailed
from minutebook import known_secrets
from minutebook.provider_config import ProviderConfig, Secret
from minutebook.testing.chat_replies import chat_reply, error_reply, stream_reply
from minutebook.testing.fake_server import Cut, FakeServer, Faults, Reply, serve
from minutebook.testing.scripted import call
from minutebook.tool_result import ToolOutput, describe_exception, normalise
from tests.corpus.canary import RUN, Watch, canary
from tests.integration.command_line import call as command_line

pytestmark = pytest.mark.anyio

KEY, HEADER, PASSWORD, QUERY = (canary(name) for name in ("key", "header", "password", "query"))
EVERY = (KEY, HEADER, PASSWORD, QUERY)
#: The password in an address is not sent, so nobody can repeat it.
ALL = " ".join((KEY, HEADER, QUERY))


def config_for(server: FakeServer) -> ProviderConfig:
    """A credential in each place that takes one."""
    address = server.url.replace("//", f"//user:{PASSWORD}@")
    return ProviderConfig(
        "openai-compatible",
        f"{address}?token={QUERY}",
        KEY,
        headers={"X-Secret": HEADER},
        stream_idle_timeout_ms=200,
        credential_name="IN_A_VARIABLE",
    )


def leaks() -> dict[str, Reply]:
    """A server that repeats what it was given, in each way that a server has."""
    echoed = [("x-request-id", KEY), ("retry-after", HEADER), ("x-echo", ALL)]
    text = chat_reply("a few words").body
    return {
        "401 in the body": error_reply(401, {"message": f"Incorrect API key: {ALL}", "code": KEY}),
        "400 at the limit of a message": error_reply(400, {"message": "x" * 380 + ALL, "type": HEADER}),
        "403 in a header": error_reply(403, {"message": "no"}, echoed),
        "502 as HTML": Reply(f"<p>{ALL}".encode(), 502, (("content-type", "text/html"), *echoed)),
        "200 as HTML": Reply(f"<p>{ALL}".encode(), 200, (("content-type", "text/html"), *echoed)),
        "no JSON": Reply(f"data: {ALL}\n\n".encode(), 200, tuple(echoed)),
        "an error in a stream": stream_reply([{"error": {"message": ALL, "code": KEY, "type": HEADER}}]),
        "an error as a text": stream_reply([{"error": ALL}]),
        "base64": error_reply(400, {"message": base64.b64encode(f"user:{KEY}".encode()).decode()}),
        "in a URL": error_reply(400, {"message": f"POST /v1?token={quote(QUERY)}&key={quote(KEY)}"}),
        "redirected": Reply(b"", 307, (("location", f"http://other/{ALL}"),)),
        "a finish reason": stream_reply([{"choices": [{"index": 0, "delta": {}, "finish_reason": KEY}]}]),
        "a good answer with a key as its id": Reply(text, 200, (("x-request-id", KEY), *echoed[2:])),
        "a cut": Reply(text, faults=Faults(cut_after=30, cut=Cut.RESET)),
        "no answer": Reply(faults=Faults(drop_request=True, cut=Cut.RESET)),
        "a stall": Reply(text, faults=Faults(stall_after=20)),
    }


@asynccontextmanager
async def session(store: Any, server: FakeServer, **options: Any) -> AsyncIterator[mb.Session]:
    """A session at a server, with everything a credential can be in."""
    config = mb.SessionConfig(provider=config_for(server), model="m", **options)
    async with mb.create_session(config, store=store, session_id="s1") as opened:
        yield opened


def check(directory: Path, *texts: str) -> None:
    """No canary in any file below, nor in the texts."""
    watch = Watch()
    watch.add(RUN)
    for secret in EVERY:
        watch.add(secret)
    watch.look_in_files(directory)
    for number, text in enumerate(texts):
        watch.look(text, f"text {number}")
    assert watch.hits == []
    assert watch.files > 0


async def test_nothing_that_a_server_repeats_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One session: each attempt of each request gets the next of the answers."""
    caplog.set_level(logging.DEBUG)
    store, told, answers = mb.sqlite(tmp_path / "journal.db"), [], list(leaks().values())
    async with serve([*answers, chat_reply("done")]) as server:
        async with session(store, server) as opened:
            while len(server.requests) <= len(answers):
                told.append(repr(await opened.run("go")))
            told += [repr(opened), repr(opened.recovery_plan()), repr(opened.messages)]
            told += [repr(event) for event in await opened.recorded()]
            check(tmp_path, *told)  # while the journal is open: with its side files
        assert KEY in server.requests[0].headers["authorization"]
    for command in ("inspect", "verify", "timeline", "replay", "export"):
        shown = await _command(command, tmp_path / "journal.db")
        told.append(shown)
    check(tmp_path, *told, caplog.text)


async def _command(name: str, journal: Path) -> str:
    import anyio.to_thread

    ran = await anyio.to_thread.run_sync(lambda: command_line(name, journal, "s1"))
    return ran.out + ran.err


# --- tools ----------------------------------------------------------------------------------


class Quoting(Exception):
    """An exception that repeats a request."""


TOOLS = ("raises", "raises a group", "returns text", "returns values", "returns bytes", "returns a key",
         "returns much", "returns an output", "returns base64", "chains")  # fmt: skip


def misbehave(which: str) -> Any:
    """What careless tools do with the environment they see."""
    match which:
        case "raises":
            raise Quoting(f"GET /?token={KEY}")
        case "raises a group":
            raise ExceptionGroup("all failed", [Quoting(KEY), Quoting(HEADER)])
        case "chains":
            raise Quoting("outer") from Quoting(KEY)
        case "returns text":
            return f"OPENAI_API_KEY={KEY}\nX={HEADER}"
        case "returns values":
            return {"env": [{"OPENAI_API_KEY": KEY}, quote(HEADER)]}
        case "returns bytes":
            return b"\x00\xff" + KEY.encode()
        case "returns a key":
            return {KEY: 1, "bad": {HEADER: object()}}
        case "returns much":
            return "x" * 300_000 + KEY + "y" * 300_000
        case "returns base64":
            return [
                base64.b64encode(b"u:" + KEY.encode()).decode(),
                base64.b64encode(HEADER.encode()).decode(),
            ]
    return ToolOutput(f"a {KEY}", display={"b": KEY}, messages=[f"c {HEADER}"])


async def test_nothing_that_a_tool_prints_or_raises_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    @mb.tool(kind=mb.ToolKind.READ_ONLY)
    async def tell(which: str) -> Any:
        """Do what a careless tool does."""
        return misbehave(which)

    asked = [call("tell", {"which": which}, f"call_{at}") for at, which in enumerate(TOOLS)]
    replies = [*(chat_reply("", [one]) for one in asked), chat_reply("done")]
    told = []
    async with (
        serve(replies) as server,
        session(mb.sqlite(tmp_path / "j.db"), server, tools=[tell]) as opened,
    ):
        assert (await opened.run("go")).content == "done"
        told = [repr(opened.messages), *(repr(event) for event in await opened.recorded())]
        sent = [request.body.decode() for request in server.requests]
        check(tmp_path, *told)
    check(tmp_path, *told, *sent, caplog.text)
    assert "".join(told).count(masking.MASK) >= len(TOOLS)


def test_a_masked_result_says_so_and_others_are_untouched() -> None:
    Secret(KEY)
    assert normalise(f"key {KEY}").notes == (known_secrets.NOTE,)
    assert normalise([f"key {KEY}"]).value == [f"key {masking.MASK}"]
    assert normalise({"a": "nothing"}).notes == ()
    text = "nothing at all"
    assert known_secrets.masked(text) is text
    assert describe_exception(Quoting(KEY))["message"] == masking.MASK


@pytest.mark.parametrize(
    "secret", ['with "quotes" and \\ in it', "with space and tab\t in it", "plus+slash/equals=and more"]
)
def test_a_credential_of_any_characters_is_masked_in_every_form(secret: str) -> None:
    Secret(secret)
    coded = base64.b64encode(f"ab{secret}cd".encode()).decode()
    for value in (
        secret,
        [secret],
        {secret: secret},
        secret.encode(),
        [secret.encode()],
        quote(secret),
        [coded],
    ):
        kept = normalise(value)
        assert secret not in repr(kept)
        assert secret.encode() not in repr(kept).encode()
        assert coded not in repr(kept)
        assert known_secrets.NOTE in kept.notes


def test_words_are_no_credentials() -> None:
    Secret("not-needed")
    assert normalise("a key is not-needed here").output_text == "a key is not-needed here"


# --- objects and tracebacks -------------------------------------------------------------------


def test_a_configuration_shows_no_credential_in_any_way() -> None:
    config = ProviderConfig(
        "openai-compatible", f"http://u:{PASSWORD}@h/v1?token={QUERY}", KEY, headers={"X-Secret": HEADER}
    )
    made = mb.SessionConfig(provider=config, model="m")
    shown = [
        repr(config),
        str(config),
        f"{config!r:>5}",
        repr(made),
        repr(config.public()),
        repr(made.settings()),
    ]
    shown += [repr(dataclasses.replace(config)), repr(copy.copy(config)), repr(copy.deepcopy(config))]
    shown += [repr(config.api_key), repr(config.headers), ascii(config)]
    for text in shown:
        assert RUN not in text
    for thing in (config, made, config.api_key):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(thing)


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": f"{KEY} with spaces\n"},
        {"api_key": 5, "headers": {"X": HEADER}},
        {"headers": {"X-Secret": f"{HEADER}\r\nInjected: yes"}},
        {"headers": {"bad name": HEADER}},
        {"headers": [(HEADER, "x\n")]},
        {"headers": [("X", HEADER, "more")]},
        {"base_url": f"ftp://u:{PASSWORD}@h/?token={QUERY}"},
        {"base_url": f"http://u:{PASSWORD}@/?token={QUERY}"},
        {"base_url": f"http://u:{PASSWORD}@h:notaport/"},
        {"credential_name": f"from {KEY}"},
    ],
    ids=range(10),
)
def test_a_refused_configuration_shows_no_credential(options: dict[str, Any]) -> None:
    given = {"type": "openai-compatible", "base_url": "http://h/v1", "api_key": KEY} | options
    with pytest.raises(mb.errors.InvalidOptions) as refused:
        ProviderConfig(**given)
    shown = [str(refused.value), repr(refused.value), repr(refused.value.details)]
    if options.get("headers") != [(HEADER, "x\n")]:  # a header's name is no secret
        assert not [text for text in shown if RUN in text]


async def test_a_traceback_with_local_variables_shows_no_credential(tmp_path: Path) -> None:
    """As crash reporters write it: every frame of ours, every variable in it."""
    found = []
    for name, reply in leaks().items():
        async with serve([reply]) as server:
            from adapters.providers import make_provider

            provider = make_provider(config_for(server))
            try:
                async for _ in provider.send(b"{}", attempt_id="r1.t1.a1"):
                    pass
            except ModelFailed as failure:
                found.append((name, list(_locals(failure)), repr(failure.details), repr(provider)))
            await provider.aclose()
    assert len(found) > 10
    for name, *texts in found:
        assert RUN not in repr(texts), name


def _locals(error: BaseException) -> Iterator[str]:
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    for frame in shown.stack:
        if Path(frame.filename) != Path(__file__):
            yield f"{frame.name}: {frame.locals}"
    yield from shown.format_exception_only()
