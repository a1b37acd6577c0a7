"""Recordings by name, and the real adapter in front of a loopback server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.openai_chat import OpenAIChatProvider
from minutebook.testing.fake_server import FakeServer, Replies, serve
from tests.corpus.canary import canary

Recording = dict[str, Any]
Connected = Callable[..., AbstractAsyncContextManager[tuple[OpenAIChatProvider, FakeServer]]]


@pytest.fixture(scope="session")
def recording(wire_dir: Path) -> Callable[[str], Recording]:
    """One recorded exchange, by the name of its file."""

    def read(name: str) -> Recording:
        found: Recording = json.loads((wire_dir / f"{name}.json").read_text(encoding="utf-8"))
        return found

    return read


@pytest.fixture(scope="session")
def chat_recordings(wire_dir: Path) -> dict[str, Recording]:
    """Every recording of the chat dialect that is there, known to these tests or not."""
    files = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(wire_dir.glob("*.json"))
    }
    return {name: found for name, found in files.items() if found.get("api") == "chat"}


@pytest.fixture(scope="session")
def connected() -> Connected:
    """`async with connected(replies, **options) as (provider, server)`."""

    @asynccontextmanager
    async def connect(
        replies: Replies, **options: Any
    ) -> AsyncIterator[tuple[OpenAIChatProvider, FakeServer]]:
        async with serve(replies) as server:
            given = {"provider": "openai-compatible", "base_url": server.url, "api_key": canary("chat")}
            provider = OpenAIChatProvider(**(given | options))
            try:
                yield provider, server
            finally:
                await provider.aclose()

    return connect
