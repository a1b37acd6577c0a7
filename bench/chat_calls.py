"""One streamed model call, in the two ways that a bare loop can make it.

`SdkChat` is what every peer does below its own code: `create()` of the openai SDK,
which walks the whole history. `RawChat` is what is left without an SDK.
"""

from __future__ import annotations

from typing import Any

from bench.workload import TOOL_SPEC, model_name

Message = dict[str, Any]


def body_fields(tools: int, messages: list[Message]) -> dict[str, Any]:
    """The fields of a request body."""
    return {
        "model": model_name(tools),
        "messages": messages,
        "tools": [TOOL_SPEC],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


class _Answer:
    """An assistant message, put together from deltas as plain values."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, delta: dict[str, Any]) -> None:
        if delta.get("content"):
            self._text.append(delta["content"])
        for part in delta.get("tool_calls") or ():
            empty = {"name": "", "arguments": ""}
            call = self._calls.setdefault(
                part["index"], {"id": part.get("id"), "type": "function", "function": empty}
            )
            for name, value in part["function"].items():
                call["function"][name] += value or ""

    def message(self) -> Message:
        found: Message = {"role": "assistant", "content": "".join(self._text) or None}
        if self._calls:
            found["tool_calls"] = list(self._calls.values())
        return found


class SdkChat:
    """Through the SDK's `create()`."""

    def __init__(self, url: str) -> None:
        self._client = sdk_client(url)

    async def ask(self, tools: int, messages: list[Message]) -> Message:
        """One call; every delta is taken."""
        answer = _Answer()
        async for chunk in await self._client.chat.completions.create(**body_fields(tools, messages)):
            if chunk.choices:
                answer.add(_plain(chunk.choices[0].delta))
        return answer.message()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def sdk_client(url: str) -> Any:
    """The openai SDK's client for the fake model, as the peers use it."""
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=f"{url}/v1", api_key="not-a-key", max_retries=0)


def _plain(delta: Any) -> dict[str, Any]:
    calls = [
        {
            "index": c.index,
            "id": c.id,
            "function": {"name": c.function.name, "arguments": c.function.arguments},
        }
        for c in delta.tool_calls or ()
    ]
    return {"content": delta.content, "tool_calls": calls}


class RawChat:
    """With httpx2 and orjson alone."""

    def __init__(self, url: str) -> None:
        import httpx2

        limits = httpx2.Limits(max_connections=256, max_keepalive_connections=256)
        self._url = f"{url}/v1/chat/completions"
        self._client = httpx2.AsyncClient(timeout=60, limits=limits, trust_env=False)

    async def ask(self, tools: int, messages: list[Message]) -> Message:
        """One call; every delta is taken."""
        import orjson

        answer = _Answer()
        async for line in self.lines(orjson.dumps(body_fields(tools, messages))):
            chunk = orjson.loads(line)
            if chunk["choices"]:
                answer.add(chunk["choices"][0]["delta"])
        return answer.message()

    async def lines(self, body: bytes) -> Any:
        """The JSON of each event of the answer, as it comes."""
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        async with self._client.stream("POST", self._url, content=body, headers=headers) as response:
            rest = b""
            async for data in response.aiter_raw():
                *whole, rest = (rest + data).split(b"\n\n")
                for event in whole:
                    if event != b"data: [DONE]":
                        yield event[6:]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
