"""The HTTP client that the provider SDKs are given: told everything, left to guess nothing.

Redirects are not followed (a redirect would be a second send), proxies and
certificate paths from the environment do not count, an answer cannot be endless.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import cache
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx2

CONNECT_TIMEOUT_S: Final = 5.0

#: The body of an error is read by the SDK, whole; this is what keeps it from being endless.
MAX_BODY_BYTES: Final = 80 * 1024 * 1024

#: What can be unpacked, and at most how much of it at once.
_PACKED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_UNPACKED_BYTES: Final = 256 * 1024
_ANY_HEADER: Final = 32  # zlib's flag for "gzip or zlib, see what comes"

#: Only the connection is timed here. Waiting for an answer is timed by the adapter, around
#: single awaits, which also works over a transport that knows no timeouts.
TIMEOUT: Final = httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S)

#: A connection is kept while a turn's tools run, which takes longer than the usual 5 s.
_CONNECTIONS: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30)


def explicit_http_client() -> httpx2.AsyncClient:
    """An HTTP client that takes nothing from the environment and follows no redirect."""
    return httpx2.AsyncClient(
        transport=CappedTransport(
            httpx2.AsyncHTTPTransport(verify=trust(), trust_env=False, limits=_CONNECTIONS)
        ),
        trust_env=False,
        timeout=TIMEOUT,
        follow_redirects=False,
    )


@cache
def trust() -> ssl.SSLContext:
    """The system's certificates, read once in a process: reading them takes longer than a request."""
    return httpx2.create_ssl_context(trust_env=False)


def without_userinfo(url: str) -> str:
    """`url` without a user name and password, which would go out as a credential."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class CappedTransport(httpx2.AsyncBaseTransport):
    """A transport whose answers end with an error when they get too long.

    An answer that is compressed although nobody asked for it is unpacked here, bit by bit: the
    HTTP layer would unpack whatever arrives at once, and a little can unfold into a lot.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, limit_bytes: int = MAX_BODY_BYTES) -> None:
        self._inner, self._limit_bytes = inner, limit_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        encoding = response.headers.pop("content-encoding", "identity").strip().lower()
        response.stream = _CappedStream(response.stream, self._limit_bytes, encoding)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _CappedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, limit_bytes: int, encoding: str) -> None:
        self._inner, self._left, self._encoding = inner, limit_bytes, encoding
        self._packed = zlib.decompressobj(zlib.MAX_WBITS | _ANY_HEADER) if encoding in _PACKED else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = aiter(self._inner)
        try:
            async for packed in received:
                for data in self._unpacked(packed):
                    self._left -= len(data)
                    if self._left < 0:
                        raise httpx2.ReadError("the answer is longer than any answer should be")
                    yield data
        except httpx2.HTTPError:
            await self._give_up(received)
            raise

    async def _give_up(self, received: AsyncIterator[bytes]) -> None:
        """Close the connection, and let the generators over it end, as they do at the next read.

        One read and no more: a transport that goes on after it was closed must not be endless.
        """
        with anyio.CancelScope(shield=True), suppress(httpx2.HTTPError, OSError):
            await self._inner.aclose()
            await anext(received, b"")

    def _unpacked(self, data: bytes) -> Iterator[bytes]:
        if self._packed is None:
            if self._encoding not in ("", "identity"):
                raise httpx2.DecodingError(f"the answer is in {self._encoding}, which nobody asked for")
            yield data
            return
        try:
            while data:
                if piece := self._packed.decompress(data, _UNPACKED_BYTES):
                    yield piece
                data = self._packed.unconsumed_tail
        except zlib.error as e:
            raise httpx2.DecodingError(f"the answer is no {self._encoding}: {e}") from None

    async def aclose(self) -> None:
        await self._inner.aclose()
