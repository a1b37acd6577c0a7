"""Journals of sessions that changed their provider from turn to turn, and met with odd material.

Legal histories are taken as they come from the generators; then who spoke, what was
sent in and what tools gave back is told anew, with what real providers and users bring:
foreign ids and names, empty and broken texts, media, material that only its provider
understands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hypothesis import strategies as st

from domain import events as ev
from domain.envelope import Recorded
from domain.model_ports import Block, DeclaredCall, Parameters, Response, ToolSpec
from domain.values import Stop, Verdict
from minutebook.testing.histories import Walk, histories
from minutebook.testing.scenario import Called, response
from minutebook.testing.world import World
from projections import anthropic_wire, openai_chat_wire, openai_responses_wire
from projections.openai_chat_body import PLAIN, Server
from projections.transcript import Item, Transcript, UserItem
from projections.wire_families import model_family
from projections.wire_order import call_mark
from tests.property.scripts import Fate, Place, Script, play, resumed, scripts


@dataclass(frozen=True)
class Speaker:
    """A provider and a model, and how histories are written for it."""

    provider: str
    api: str
    model: str
    server: Server = PLAIN

    def encode(self, item: Item) -> bytes:
        """One item in the speaker's dialect."""
        match self.api:
            case "openai-chat":
                return openai_chat_wire.encode_item(item, self.provider, self.server)
            case "openai-responses":
                return openai_responses_wire.encode_item(item, self.provider)
        return anthropic_wire.encode_item(item, self.provider)

    def body(self, items: Sequence[bytes], tools: Sequence[ToolSpec], asked: Parameters) -> bytes:
        """A whole request in the speaker's dialect."""
        match self.api:
            case "openai-chat":
                return openai_chat_wire.request_body(items, tools, asked, self.server)
            case "openai-responses":
                return openai_responses_wire.request_body(items, tools, asked)
        return anthropic_wire.request_body(items, tools, asked)

    def knows(self, other: Speaker) -> bool:
        """Whether what only `other` understands may go back to this one."""
        return (self.provider, self.api) == (other.provider, other.api) and (
            self.api != "openai-chat" or model_family(self.model) == model_family(other.model)
        )


SPEAKERS: Final[Mapping[str, Speaker]] = {
    "router": Speaker("openai-compatible", "openai-chat", "anthropic/claude-sonnet-4.5"),
    "other-family": Speaker("openai-compatible", "openai-chat", "google/gemini-3-flash"),
    "deepseek": Speaker("deepseek", "openai-chat", "deepseek-v4-flash", Server(wants_reasoning=True)),
    "gemini": Speaker("gemini", "openai-chat", "gemini-3-pro"),
    "responses": Speaker("openai", "openai-responses", "gpt-5.6"),
    "chat": Speaker("openai", "openai-chat", "gpt-5.6"),
    "anthropic": Speaker("anthropic", "anthropic-messages", "claude-opus-5"),
}

# --- odd material -------------------------------------------------------------------------

TEXTS = (
    "",
    " ",
    "\n\t",
    "plain",
    "\x00",
    "a\x1b[31m",
    "\ud800",
    "\ud83d\ude00",
    "\u2028",
    "{}",
    '"',
    "é" * 70,
)
IDS = (
    "",
    "call_0",
    "call_0",
    "call_" + "x" * 94,
    "call_1|fc_2",
    "functions.x:3",
    "r1.t1.a1.c0",
    "é",
    "\ud800",
)
#: Tools that exist, with their arguments, and calls that nobody can carry out.
KNOWN = (Called("look", '{"at":1}'), Called("functions.x:3", '{"a":"\\u00e9"}'), Called("é" * 80, "{}"))
UNKNOWN = (
    Called("", '{"a":'),
    Called("gone", '{"path":"a","content":"x'),
    Called("torn", "[1]"),
    Called("nan", '{"a":NaN}'),
    Called("half", '{"a":"\\ud83d"}'),
    Called("\ud800", "\ud800"),
    Called("deep", "[" * 2000),
    Called("spaced", ' {"a" : 1e2,\n"b":1} '),
)
OUTPUTS = (*TEXTS, "long " * 50)
PICTURE = {"type": "image", "media_type": "image/png", "blob": "0" * 64, "size": 3}
CONTENTS: tuple[Any, ...] = (
    *TEXTS,
    [],
    [{"type": "text", "text": ""}],
    [{"type": "text", "text": "see"}, PICTURE],
    [{"type": "file", "media_type": "application/pdf", "blob": "1" * 64, "size": 3, "filename": "é.pdf"}],
    [{"type": "file", "media_type": "text/plain", "blob": "2" * 64, "size": 3}],
    [{"type": "image", "media_type": "image/gif", "blob": "9" * 64, "size": 5, "filename": "gone.gif"}],
)
MEDIA: Final = {"0" * 64: b"png", "1" * 64: b"pdf", "2" * 64: b"hi\n"}


def token(speaker: str, number: int) -> str:
    """A text that only this speaker's material holds."""
    return f"token-of-{speaker}-{number}-é=="


def _chat(said: str) -> list[Block]:
    details = [{"type": "reasoning.text", "text": f"{said} a", "signature": f"{said} b", "index": 0}]
    fields = {
        "reasoning_content": f"{said} c",
        "reasoning": f"{said} d",
        "reasoning_details": json.dumps(details),
        "extra_content": json.dumps({"google": {"thought_signature": f"{said} e"}}),
        "tool_calls/0/extra_content": json.dumps({"google": {"thought_signature": f"{said} f"}}),
    }
    return [Block("opaque", text, f"openai-chat/{name}") for name, text in fields.items()]


def _responses(said: str) -> list[Block]:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": f"{said} a"}
    asked = {"type": "search", "query": f"{said} b"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": asked}
    items = [
        Block("opaque", json.dumps(item), openai_responses_wire.ITEM_FORMAT) for item in (thought, search)
    ]
    return [*items, call_mark("openai-responses", 0)]


def _anthropic(said: str) -> list[Block]:
    blocks = (
        {"type": "thinking", "thinking": "", "signature": f"{said} a"},
        {"type": "redacted_thinking", "data": f"{said} b"},
        {"type": "thinking", "thinking": f"{said} c"},  # never signed: it was cut
    )
    found = [Block("opaque", json.dumps(block), f"anthropic-messages/{block['type']}") for block in blocks]
    return [*found, call_mark("anthropic-messages", 0)]


_MATERIAL: Final[Mapping[str, Callable[[str], list[Block]]]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic-messages": _anthropic,
}


@st.composite
def answers(draw: st.DrawFn) -> Response:
    """What one of the speakers says; who it was stands in its ids."""
    name = draw(st.sampled_from(sorted(SPEAKERS)))
    material = _MATERIAL[SPEAKERS[name].api](token(name, draw(st.integers(0, 9))))
    some = st.sampled_from((0, 1, 2))
    opaque = draw(st.lists(st.sampled_from(material), min_size=draw(some), max_size=3, unique=True))
    texts = [Block("text", text) for text in draw(st.lists(st.sampled_from(TEXTS), max_size=2))]
    called = draw(st.lists(st.sampled_from((*KNOWN, *KNOWN, *UNKNOWN)), min_size=draw(some), max_size=3))
    calls = tuple(DeclaredCall(draw(st.sampled_from(IDS)), c.name, c.arguments) for c in called)
    stop = draw(st.sampled_from((*[Stop.TOOL_CALLS] * 5, *Stop)))
    blocks = tuple(draw(st.permutations([*opaque, *texts])))
    return Response(blocks, calls, stop, {"input_tokens": 1}, {"speaker": name})


class Dialogue(list[list[Recorded]]):
    """The commits of a session."""

    def __repr__(self) -> str:
        shown = [[_shown(event) for event in commit] for commit in self]
        return "\n".join(" | ".join(commit) for commit in shown)


def _shown(event: Recorded) -> str:
    match event.data:
        case ev.ModelRequestStarted():
            return f"{event.data.provider} {event.data.model} begins"
        case ev.InputAccepted() | ev.ModelRequestCompleted() | ev.ToolCompleted():
            return repr(event.data)
    return event.type


@st.composite
def dialogues(draw: st.DrawFn) -> Dialogue:
    """The commits of a session that changed its provider from turn to turn."""
    walk = draw(st.one_of(_played(), _lost(), _wandered()))
    speakers = dict(_speakers(walk.events))
    return Dialogue([_retold(draw, event, speakers) for event in commit] for commit in walk.commits)


@st.composite
def _wandered(draw: st.DrawFn) -> Walk:
    """Anything may happen, crashes and lost outcomes too; most of these end early."""
    said = draw(st.lists(answers(), min_size=2, max_size=4))
    return draw(histories(st.just(World(responses=tuple(said), tools=KNOWN))))


@st.composite
def _played(draw: st.DrawFn) -> Walk:
    """Sessions that go on to their end: several turns, most with calls."""
    script = draw(_scripts())
    return play(script, Walk(script.world))


@st.composite
def _lost(draw: st.DrawFn) -> Walk:
    """The same, but of one tool that ran nobody knows what became of it, until somebody looks."""
    script = draw(_scripts())
    whole = play(script, Walk(script.world))
    begun = [n for n, entry in enumerate(whole.entries, 1) if entry.events[-1].type == "tool_started"]
    if not begun:
        return whole
    walk = resumed(script, whole.entries[: draw(st.sampled_from(begun))])
    walk.in_flight = frozenset({str(walk.events[-1].tool_id)})
    losing = [move for move in walk.landing() if "LoseSight" in repr(move.writings)]
    walk.go_on(losing[0])
    return play(script, walk)


@st.composite
def _scripts(draw: st.DrawFn) -> Script:
    base = draw(scripts())
    places: tuple[Place, ...] = ((1, 1), (1, 2), (1, 3), (2, 1))
    said = {place: draw(answers()) for place in places}
    calls: list[Place] = [
        (*place, index) for place, answer in said.items() for index in range(len(answer.calls))
    ]
    world = World(responses=(*said.values(), response()), tools=KNOWN, updates=False, max_turns=6)
    fates = {place: draw(_fates) for place in calls}
    return replace(base, answers=said, fates=fates, world=world)


_fates = st.builds(
    Fate, st.sampled_from((*[Verdict.ALLOW] * 3, *Verdict)), st.sampled_from((Verdict.ALLOW, Verdict.DENY))
)


def _speakers(events: Sequence[Recorded]) -> Iterator[tuple[str, str]]:
    """Who answered, by attempt."""
    for event in events:
        response = getattr(event.data, "response", None)
        if response is not None and event.model_attempt_id is not None:
            yield event.model_attempt_id, response.provider_ids.get("speaker", "chat")


def _retold(draw: st.DrawFn, event: Recorded, speakers: Mapping[str, str]) -> Recorded:
    match event.data:
        case ev.ModelRequestStarted():
            speaker = SPEAKERS[speakers.get(event.model_attempt_id or "", "chat")]
            return _with(event, provider=speaker.provider, api=speaker.api, model=speaker.model)
        case ev.InputAccepted():
            return _with(event, content=draw(st.sampled_from(CONTENTS)))
        case ev.ToolCompleted():
            return _with(event, output=draw(st.sampled_from(OUTPUTS)))
        case ev.ToolFailed():
            return _with(event, message=draw(st.sampled_from(OUTPUTS)))
    return event


def _with(event: Recorded, **changes: Any) -> Recorded:
    return replace(event, data=event.data.model_copy(update=changes))


# --- cutting them -------------------------------------------------------------------------


@dataclass
class Reader:
    """A journal as it is read: the conversation so far, with the bytes of its media."""

    transcript: Transcript = field(default_factory=Transcript)

    def take(self, commit: Sequence[Recorded]) -> list[Item]:
        """Read one more commit; return the conversation."""
        for event in commit:
            self.transcript.apply(event)
        return [self._with_media(item) for item in self.transcript.items]

    def _with_media(self, item: Item) -> Item:
        if not isinstance(item, UserItem) or isinstance(item.content, str):
            return item
        named = {part.get("blob", "") for part in item.content}
        return replace(item, media={digest: MEDIA[digest] for digest in named & MEDIA.keys()})
