"""A model without thoughts: a chat-completions server in a process of its own.

It never looks at the history, only at the last role in the body, so that it takes
the same time at any length. The model's name says what to answer (see
`workload.model_name`). `minutebook.testing.fake_server` is not used here: it can
break replies in every way, which costs more than the systems that are measured.

    python -m bench.fake_model      prints its port, and serves until its input ends
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from functools import cache
from typing import Any, Final

from bench.workload import TOOL_NAME, piece

_ID: Final = b"fake-id-00000000"
_MODEL: Final = re.compile(rb'"fake-(\d+)-(\d+)"')
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_USAGE: Final = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def answer_to(body: bytes, number: int) -> bytes:
    """The event stream for one request: tools first, text once the last message is a result."""
    found = _MODEL.search(body)
    tools, pieces = (int(found[1]), int(found[2])) if found else (1, 20)
    role = body[body.rfind(b'"role"') + 6 :][:12]
    template = _text(tools, pieces) if tools == 0 or b'"tool"' in role else _calls(tools, pieces)
    return template.replace(_ID, b"fake-id-%08d" % number)


@cache
def _text(tools: int, pieces: int) -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece(n)} for n in range(pieces)]
    return _stream(f"fake-{tools}-{pieces}", deltas, "stop")


@cache
def _calls(tools: int, pieces: int) -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    for n in range(tools):
        head = {"name": TOOL_NAME, "arguments": ""}
        call = {"index": n, "id": f"call-{_ID.decode()}-{n}", "type": "function", "function": head}
        deltas.append({"tool_calls": [call]})
        deltas.append({"tool_calls": [{"index": n, "function": {"arguments": '{"what": "this"}'}}]})
    return _stream(f"fake-{tools}-{pieces}", deltas, "tool_calls")


def _stream(model: str, deltas: list[dict[str, Any]], finish: str) -> bytes:
    endings: list[tuple[dict[str, Any], str | None]] = [(delta, None) for delta in deltas]
    endings.append(({}, finish))
    choices = [[{"index": 0, "delta": delta, "finish_reason": end}] for delta, end in endings]
    head: dict[str, Any] = {
        "id": _ID.decode(),
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
    }
    chunks = [{**head, "choices": each} for each in choices] + [{**head, "choices": [], "usage": _USAGE}]
    lines = [f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


class Connection(asyncio.Protocol):
    """One client's connection: requests with a content length, one after the other."""

    _answered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = bytearray()
        self._body_from = self._ends_at = 0

    def data_received(self, data: bytes) -> None:
        self._received += data
        while self._whole():
            body = bytes(self._received[self._body_from : self._ends_at])
            del self._received[: self._ends_at]
            self._ends_at = 0
            self._answer(body)

    def _whole(self) -> bool:
        if not self._ends_at:
            head_end = self._received.find(b"\r\n\r\n")
            if head_end < 0:
                return False
            length = _LENGTH.search(self._received, 0, head_end)
            self._body_from = head_end + 4
            self._ends_at = self._body_from + (int(length[1]) if length else 0)
        return len(self._received) >= self._ends_at

    def _answer(self, body: bytes) -> None:
        Connection._answered += 1
        answer = answer_to(body, Connection._answered)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(answer) + answer)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Its parent holds the other end: whatever becomes of it, this process does not outlive it.
    await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(_serve())
