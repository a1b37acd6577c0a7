"""Images and files in inputs: kept as blobs, sent as bytes, and never in the way of a text."""

from __future__ import annotations

import base64
import hashlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import minutebook as mb
from adapters.jsonl_reader import open_export
from adapters.memory_journal import MemoryStore
from adapters.sqlite_store import SqliteStore
from adapters.sqlite_survey import survey
from adapters.system import SystemIds
from domain.canonical import encode
from domain.errors import CommandConflict, ModelFailed, SendRejected
from domain.limits import MAX_PENDING_MEDIA_BYTES
from domain.model_ports import EVERYTHING, Capabilities, MediaLimits
from minutebook.attachments import REFUSED
from minutebook.session import Session
from minutebook.testing.chat_replies import chat_reply
from minutebook.testing.fake_server import Faults, serve_in_thread
from minutebook.testing.faulty_store import FaultyStore
from minutebook.testing.fork_server import ForkServer
from minutebook.testing.scripted import Gate, ScriptedProvider, Sent, call, fail, reply
from recovery.exporting import check_import, export_session, import_session
from recovery.pages import Pages
from recovery.replaying import replay
from recovery.report_history import print_replay
from recovery.terminal import console
from recovery.timeline import Timeline
from recovery.verify import Result, verify
from tests.media import PDF, PNG, png
from tests.session.harness import Hands, Place, data

pytestmark = pytest.mark.anyio

IMAGE = mb.ImagePart(PNG, "image/png")
DIGEST = hashlib.sha256(PNG).hexdigest()


def numbered(number: int, size: int = 0) -> bytes:
    """A picture that no other number has, of at least `size` bytes."""
    return png(1, 1, b"%d " % number + bytes([65 + number % 20]) * size)


def image(number: int, size: int = 0) -> mb.ImagePart:
    return mb.ImagePart(numbered(number, size), "image/png")


def answering(limits: MediaLimits = EVERYTHING.media) -> ScriptedProvider:
    """A provider that answers whatever it is asked."""
    return ScriptedProvider(lambda _: reply("ok"), capabilities=replace(EVERYTHING, media=limits))


def images_of(sent: Sent) -> list[bytes]:
    """The bytes of all images in a request."""
    return [base64.b64decode(url.partition(",")[2]) for url in _urls(sent.messages)]


def _urls(messages: list[dict[str, Any]]) -> list[str]:
    parts = [
        part for message in messages if isinstance(message["content"], list) for part in message["content"]
    ]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def text_of(sent: Sent) -> str:
    """All that a request says, without its images."""
    return orjson.dumps(sent.messages).decode()


# --- there ---------------------------------------------------------------------------------


async def test_an_image_reaches_the_model_and_its_blob_is_committed_with_the_event(any_place: Place) -> None:
    provider = answering()
    async with any_place.create(provider) as session:
        result = await session.run(["what is this?", IMAGE])
        assert result.status == "completed"
    assert images_of(provider.sent[0]) == [PNG]
    batch = next(batch for batch in any_place.store.batches if batch.blobs)
    assert b"input_accepted" in batch.events[0].envelope
    assert [(blob.digest, blob.data) for blob in batch.blobs] == [(DIGEST, PNG)]
    (accepted,) = data(await any_place.events(), "input_accepted")
    assert accepted.content[1] == {
        "type": "image",
        "media_type": "image/png",
        "blob": DIGEST,
        "size": len(PNG),
    }
    async with any_place.reader() as reader:
        assert await reader.blob(DIGEST) == PNG
        assert (await verify(reader, "s1")).result is Result.CONSISTENT


async def test_a_file_goes_with_its_name(place: Place) -> None:
    provider = answering()
    async with place.create(provider) as session:
        await session.run([mb.FilePart(PDF, "application/pdf", "bill.pdf")])
    assert "bill.pdf" in text_of(provider.sent[0])
    assert base64.b64encode(PDF).decode() in text_of(provider.sent[0])


async def test_the_same_bytes_twice_are_one_blob(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "j.db")
    provider = answering()
    async with Place(FaultyStore(store)).create(provider) as session:
        await session.run([IMAGE, IMAGE])
        await session.run(["again", IMAGE])
    with sqlite3.connect(tmp_path / "j.db") as connection:
        assert connection.execute("SELECT count(*) FROM minutebook_blobs").fetchone() == (1,)
    connection.close()
    assert images_of(provider.sent[1]) == [PNG] * 3


async def test_a_sent_image_is_sent_once_by_its_input_id(place: Place) -> None:
    async with place.create(answering()) as session:
        first = await session.send(["look", IMAGE], input_id="i-1")
        assert await session.send(["look", IMAGE], input_id="i-1") == first
        with pytest.raises(CommandConflict):
            await session.send(["look", image(1)], input_id="i-1")
        await session.wait_idle()


async def test_a_session_says_what_its_inputs_may_be(place: Place) -> None:
    provider = ScriptedProvider([], capabilities=Capabilities(images=True))
    async with place.create(provider) as session:
        told = session.inputs.capabilities()
        assert (told.images, told.files, told.durable_ack) == (True, False, True)


@pytest.mark.parametrize("part", [mb.FilePart(PDF, "application/pdf"), mb.ImagePart(b"x", "image/png"), 5])
async def test_what_is_refused_leaves_no_trace(place: Place, part: Any) -> None:
    provider = ScriptedProvider([reply("done")], capabilities=Capabilities(images=True))
    async with place.create(provider) as session:
        with pytest.raises(SendRejected):
            await session.send(["look", part])
        assert await place.types() == ["session_created", "lease_acquired"]
        assert (await session.run("hello")).content == "done"
    assert not any(batch.blobs for batch in place.store.batches)


# --- memory ----------------------------------------------------------------------------------


async def test_no_bytes_are_held_once_they_are_encoded(place: Place) -> None:
    async with place.create(answering()) as session:
        for number in range(3):
            await session.run([image(number, 100_000)])
            assert session._parts.conversation.attachments.held_bytes == 0


async def test_bytes_of_a_waiting_input_are_held_until_it_is_applied_or_cancelled(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("first")], reply("second")]) as session:
        await session.send("one")
        await gate.reached()
        kept = await session.send([image(1)])
        gone = await session.send([image(2)])
        held = session._parts.conversation.attachments
        assert held.held_bytes == held.waiting_bytes == len(numbered(1)) + len(numbered(2))
        await session.cancel_input(gone.input_id)
        assert held.held_bytes == len(numbered(1))
        gate.open()
        await session.wait_idle()
        assert (held.held_bytes, held.waiting_bytes) == (0, 0)
        assert [item.input_id for item in session.messages if isinstance(item, mb.UserItem)][
            1
        ] == kept.input_id


async def test_the_queue_of_images_is_bounded(place: Place) -> None:
    gate = Gate()
    huge = MediaLimits(request_bytes=10**9, image_bytes=10**9)
    provider = ScriptedProvider([[gate, *reply("first")]], capabilities=replace(EVERYTHING, media=huge))
    async with place.create(provider) as session:
        await session.send("one")
        await gate.reached()
        await session.send([image(1, MAX_PENDING_MEDIA_BYTES // 2)])
        at = session.head_sequence
        with pytest.raises(SendRejected, match="QUEUE_FULL"):
            await session.send([image(2, MAX_PENDING_MEDIA_BYTES // 2)])
        assert session.head_sequence == at
        await session.close(final=True)


# --- resuming -----------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_resumed_session_sends_the_same_bytes(any_place: Place) -> None:
    whole, resumed = answering(), answering()
    async with any_place.create(whole, "s2") as session:
        await _two_rounds(session)
        await session.run("and?")
    async with any_place.create(answering()) as session:
        await _two_rounds(session)
    async with any_place.resume(resumed) as session:
        await session.run("and?")
    assert resumed.sent[-1].body == whole.sent[-1].body
    assert images_of(resumed.sent[-1]) == [PNG, numbered(7)]


async def _two_rounds(session: Session) -> None:
    await session.run(["look", IMAGE])
    await session.run(["and this", image(7), mb.FilePart(PDF, "application/pdf")])


async def test_an_image_that_waited_over_a_kill_is_sent(any_place: Place) -> None:
    gate = Gate()
    async with any_place.create([[gate, *reply("first")]]) as session:
        await session.send("one")
        await gate.reached()
        await session.send(["look", IMAGE])
    resumed = answering()
    async with any_place.resume(resumed, on_lost_attempt=mb.OnLostAttempt.RETRY) as session:
        await session.wait_idle()
    assert images_of(resumed.sent[-1]) == [PNG]


async def test_an_answer_that_begins_the_next_request_at_once_sends_the_image(
    place: Place, hands: Hands
) -> None:
    """The request is put together while the answer is: there is no time to read a blob then."""
    async with place.create([reply("", call("pay", {"what": "x"}))], tools=hands.tools()) as session:
        await session.send(["pay this", IMAGE])
        await session.wait_idle()
    resumed = ScriptedProvider({"r1.t2.a1": reply("not paid")})
    async with place.resume(resumed, tools=hands.tools()) as session:
        question = session.interactions[0]
        await session.respond(question.id, mb.Deny("no"), digest=question.digest)
        await session.wait_idle()
    assert images_of(resumed.sent[0]) == [PNG]


#: An input: its images (number, size; 99 is refused), and whether the session is opened again before it.
INPUTS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from([1, 2, 3, 4, 5, 99]), st.sampled_from([0, 300, 900])), max_size=3),
        st.booleans(),
    ),
    min_size=2,
    max_size=7,
)
TIGHT = MediaLimits(count=3, request_bytes=2000)


@settings(max_examples=40)
@given(INPUTS)
@example([([(1, 900)], False), ([(99, 900)], False), ([(2, 900)], True)])  # what was refused weighs on
def test_what_is_sent_does_not_depend_on_when_a_session_was_opened_again(
    told: list[tuple[list[tuple[int, int]], bool]],
) -> None:
    sent = anyio.run(_sent_by, told)
    for images in map(images_of, sent):
        assert len(images) <= TIGHT.count
        assert sum(map(len, images)) <= TIGHT.request_bytes
    without = anyio.run(_sent_by, [(images, False) for images, _ in told])
    assert [request.body for request in sent] == [request.body for request in without]


async def _sent_by(inputs: list[tuple[list[tuple[int, int]], bool]]) -> list[Sent]:
    """Every request of a session that is opened again where it says so."""
    place, sent = Place(), list[Sent]()

    def script(request: Sent) -> Any:
        sent.append(request)
        bad = any(b"99 " in data for data in images_of(request))
        return fail("bad_request", retryable=False) if bad else reply("ok")

    async def ask(session: Session, images: list[tuple[int, int]]) -> None:
        await session.run(["look", *(image(*each) for each in images)])

    def provider() -> ScriptedProvider:
        return ScriptedProvider(script, capabilities=replace(EVERYTHING, media=TIGHT))

    async with AsyncExitStack() as first:
        session = await first.enter_async_context(place.create(provider()))
        for images, again in inputs:
            if again:
                await first.aclose()
                session = await first.enter_async_context(place.resume(provider()))
            with suppress(SendRejected):  # too much for one input: the same each time
                await ask(session, images)
    return sent


def test_a_killed_process_resumes_with_its_image_and_sends_the_same_bytes(tmp_path: Path) -> None:
    """With the real adapter over a real socket."""
    journal = str(tmp_path / "j.db")
    stalled = replace(chat_reply("never"), faults=Faults(stall_after=10))
    with (
        serve_in_thread([stalled, chat_reply("a grey square"), chat_reply("still grey")]) as server,
        ForkServer(Path(__file__).with_name("media_child.py")) as processes,
    ):
        child = processes.start("begin", journal=journal, url=server.url)
        child.wait_for("sent")
        while not server.requests:
            assert processes.running is child
        child.kill()
        child.ended()
        ended = processes.run("go_on", journal=journal, url=server.url).completed()
        assert (ended.told("answer"), ended.told("second")) == (["a grey square"], ["still grey"])
        bodies = [request.parsed["messages"] for request in server.requests]
    assert len(bodies) == 3
    assert bodies[0] == bodies[1]
    assert bodies[2][:1] == bodies[0]
    assert [base64.b64decode(url.partition(",")[2]) for url in _urls(bodies[2])] == [PNG]


# --- blobs that are gone -----------------------------------------------------------------------

DAMAGE = {
    "deleted": "DELETE FROM minutebook_blobs WHERE digest = ?",
    "others": "UPDATE minutebook_blobs SET data = x'00' WHERE digest = ?",
    "empty": "UPDATE minutebook_blobs SET data = x'' WHERE digest = ?",
}


@asynccontextmanager
async def damaged(path: Path, how: str) -> AsyncIterator[Place]:
    """A journal in a file whose first of two images is not what it was."""
    place = Place(FaultyStore(SqliteStore(path)))
    async with place.create(answering()) as session:
        await session.run(["first", IMAGE])
        await session.run(["second", image(1)])
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(DAMAGE[how], (DIGEST,)).rowcount == 1
    connection.close()
    yield place
    await place.check()


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_lost_blob_is_a_line_of_text_and_a_warning(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with damaged(tmp_path / "j.db", how) as place:
        resumed = answering()
        async with place.resume(resumed) as session:
            assert (await session.run("go on")).status == "completed"
        assert images_of(resumed.sent[0]) == [numbered(1)]
        assert f"[image, image/png, {len(PNG)} bytes: not sent again]" in text_of(resumed.sent[0])
        assert DIGEST in caplog.text


@pytest.mark.parametrize("how", DAMAGE)
async def test_verifying_names_the_lost_blob(tmp_path: Path, how: str) -> None:
    async with damaged(tmp_path / "j.db", how) as place, place.reader() as reader:
        found = await verify(reader, "s1")
        assert found.result is Result.BROKEN
        (problem,) = found.problems
        assert problem.check == ("missing blob" if how == "deleted" else "damaged blob")
        assert DIGEST in problem.expected
        (accepted, *_) = [e for e in await place.events() if e.type == "input_accepted"]
        assert problem.sequence == accepted.sequence
        assert (await verify(reader, "s1", rules=False)).result is Result.CONSISTENT


async def test_a_blob_of_an_input_is_no_orphan(tmp_path: Path) -> None:
    async with damaged(tmp_path / "j.db", "others"):
        assert survey(tmp_path / "j.db").orphaned_blobs == ()


# --- what a provider takes -----------------------------------------------------------------------


async def test_p57_the_newest_images_stay_and_older_ones_are_named(place: Place) -> None:
    provider = answering()
    async with place.create(provider) as session:
        for number in range(21):
            await session.run([f"number {number}", mb.ImagePart(png(2001, 10, b"%d" % number), "image/png")])
        sent = images_of(provider.sent[-1])
        assert sent == [png(2001, 10, b"%d" % number) for number in range(1, 21)]
        assert text_of(provider.sent[-1]).count("not sent again") == 1
        assert (await session.run("only text")).status == "completed"
    assert images_of(provider.sent[-1]) == sent


async def test_p57_a_request_holds_no_more_bytes_than_the_provider_takes(any_place: Place) -> None:
    limits = MediaLimits(request_bytes=250_000)
    whole, resumed = answering(limits), answering(limits)
    async with any_place.create(whole) as session:
        for number in range(5):
            await session.run([image(number, 100_000)])
            assert sum(map(len, images_of(whole.sent[-1]))) <= 250_000
    assert images_of(whole.sent[-1]) == [numbered(3, 100_000), numbered(4, 100_000)]
    async with any_place.resume(resumed) as session:
        await session.run("only text")
    assert images_of(resumed.sent[-1]) == images_of(whole.sent[-1])


async def test_only_what_will_be_sent_is_read_again(any_place: Place) -> None:
    limits = MediaLimits(count=2)
    async with any_place.create(answering(limits)) as session:
        for number in range(5):
            await session.run([image(number)])
    async with any_place.resume(answering(limits)):
        read = any_place.store.blobs_read
    assert read == [hashlib.sha256(numbered(number)).hexdigest() for number in (4, 3)]


@pytest.mark.parametrize("kind", sorted(REFUSED))
async def test_p57_an_image_that_the_provider_refuses_is_not_sent_again(
    any_place: Place, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def script(sent: Sent) -> Any:
        bad = numbered(9) in images_of(sent)
        return fail(kind, retryable=False) if bad else reply("ok")

    provider, resumed = ScriptedProvider(script), ScriptedProvider(script)
    async with any_place.create(provider) as session:
        assert (await session.run(["good", image(1)])).status == "completed"
        assert (await session.run(["bad", image(9)])).status == "failed"
        assert hashlib.sha256(numbered(9)).hexdigest()[:12] in caplog.text
        assert (await session.run("only text")).status == "completed"
        assert images_of(provider.sent[-1]) == [numbered(1)]
        assert (await session.run("more")).status == "completed"
    async with any_place.resume(resumed) as session:
        assert (await session.run("more")).status == "completed"
    assert images_of(resumed.sent[-1]) == [numbered(1)]
    answered = {"role": "assistant", "content": "ok"}
    assert resumed.sent[-1].messages[:-1] == [*provider.sent[-1].messages, answered]


async def test_p57_a_text_gets_through_where_an_old_image_is_refused_by_now(place: Place) -> None:
    """A model changed, or its limits did: what was answered once is refused."""
    refusing = Gate()

    def script(sent: Sent) -> Any:
        if refusing._opened.is_set() and images_of(sent):
            return [ModelFailed("bad_request", "an image is too large")]
        return reply("ok")

    async with place.create(ScriptedProvider(script)) as session:
        await session.run(["look", IMAGE])
        refusing.open()
        assert (await session.run("only text")).status == "failed"
        assert (await session.run("only text")).status == "completed"


async def test_a_text_that_is_filtered_is_no_picture_s_fault(place: Place) -> None:
    script = [reply("ok"), fail("content_filtered", retryable=False), reply("ok")]
    provider = ScriptedProvider(script)
    async with place.create(provider) as session:
        await session.run(["look", IMAGE])
        assert (await session.run("something bad")).status == "failed"
        await session.run("something good")
    assert images_of(provider.sent[-1]) == [PNG]


@pytest.mark.parametrize(
    "has", [Capabilities(), replace(EVERYTHING, media=MediaLimits(image_bytes=1))], ids=["none", "small ones"]
)
async def test_a_provider_that_takes_no_such_images_goes_on_with_the_text(
    any_place: Place, has: Capabilities
) -> None:
    async with any_place.create(answering()) as session:
        await session.run(["look", IMAGE])
    resumed = ScriptedProvider([reply("ok")], capabilities=has)
    async with any_place.resume(resumed) as session:
        assert (await session.run("and?")).status == "completed"
    assert images_of(resumed.sent[0]) == []
    assert "not sent again" in text_of(resumed.sent[0])
    assert any_place.store.blobs_read == []


# --- copies ----------------------------------------------------------------------------------------


async def _exported(place: Place, path: Path) -> None:
    async with place.reader() as reader:
        with path.open("wb") as file:
            await export_session(reader, "s1", file.write)


async def test_images_travel_with_an_export(tmp_path: Path) -> None:
    place = Place()
    async with place.create(answering()) as session:
        await _two_rounds(session)
    await _exported(place, tmp_path / "e.jsonl")
    copy, resumed = Place(), answering()
    async with open_export(str(tmp_path / "e.jsonl")) as reader, copy.reader() as journal:
        await import_session(reader, await check_import(reader, "s1"), journal, SystemIds())
        assert (await verify(journal, "s1")).result is Result.CONSISTENT
    async with copy.resume(resumed) as session:
        await session.run("and?")
    assert images_of(resumed.sent[0]) == [PNG, numbered(7)]


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_lost_blob_is_listed_in_the_export_and_the_rest_is_copied(tmp_path: Path, how: str) -> None:
    async with damaged(tmp_path / "j.db", how) as place:
        await _exported(place, tmp_path / "e.jsonl")
    lines = [orjson.loads(line) for line in (tmp_path / "e.jsonl").read_bytes().splitlines()]
    assert [line for line in lines if "blob" in line and "missing" in line] == [
        {"blob": DIGEST, "missing": True}
    ]
    copy = Place()
    async with open_export(str(tmp_path / "e.jsonl")) as reader, copy.reader() as journal:
        found = await verify(reader, "s1")
        assert [problem.check for problem in found.problems] == ["missing blob"]
        await import_session(reader, await check_import(reader, "s1"), journal, SystemIds())
    resumed = answering()
    async with copy.resume(resumed) as session:
        await session.run("and?")
    assert images_of(resumed.sent[0]) == [numbered(1)]


# --- looking ----------------------------------------------------------------------------------------


async def test_people_see_names_and_sizes(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    async with place.create(answering()) as session:
        await session.run(["look at", IMAGE, mb.FilePart(PDF, "application/pdf", "bill.pdf")])
    async with place.reader() as reader:
        timeline, told = Timeline(), list[str]()
        async for rows in Pages(reader, "s1"):
            told += [timeline.moment(row).what for row in rows]
        print_replay(await replay(reader, "s1"), console(200))
    shown = capsys.readouterr().out
    picture, bill = (
        f"[image, image/png, {len(PNG)} bytes]",
        f"[file bill.pdf, application/pdf, {len(PDF)} bytes]",
    )
    assert f"next: look at\n{picture}\n{bill}" in told
    assert DIGEST not in shown
    assert "bill.pdf" in shown


def test_what_an_input_weighs_in_its_event_is_little() -> None:
    """A queue of images is bounded by their bytes, not by those of the event."""
    plain = [{"type": "image", "media_type": "image/png", "blob": DIGEST, "size": 10**7}] * 20
    assert len(encode(plain)) < 4096


async def test_the_image_is_in_the_memory_store_too() -> None:
    place = Place(FaultyStore(MemoryStore()))
    async with place.create(answering()) as session:
        with anyio.fail_after(10):
            await session.run([IMAGE])
    async with place.reader() as reader:
        assert await reader.blob(DIGEST) == PNG
