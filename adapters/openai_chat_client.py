"""The OpenAI SDK's client, told everything and left to guess nothing.

The SDK reads nine environment variables and retries twice; here every value is
explicit, retries are off, redirects are not followed (a redirect would be a second
send), proxies and certificate paths from the environment do not count.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from functools import cache
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import httpx2
from openai import AsyncOpenAI

CONNECT_TIMEOUT_S: Final = 5.0

#: The body of an error is read by the SDK, whole; this is what keeps it from being endless.
MAX_BODY_BYTES: Final = 80 * 1024 * 1024

#: Only the connection is timed here. Waiting for an answer is timed by the adapter, around
#: single awaits, which also works over a transport that knows no timeouts.
TIMEOUT: Final = httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S)

#: A connection is kept while a turn's tools run, which takes longer than the usual 5 s.
_CONNECTIONS: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30)

#: Sent to the SDK where there is no key, because it refuses to be without one.
_NO_KEY: Final = "none"


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


def openai_client(
    http: httpx2.AsyncClient,
    *,
    base_url: str,
    api_key: str,
    headers: Sequence[tuple[str, str]],
    organization: str | None,
    project_id: str | None,
) -> AsyncOpenAI:
    """The SDK's client over `http`, with these values and no others."""
    client = AsyncOpenAI(
        api_key=api_key or _NO_KEY,
        base_url=without_userinfo(base_url),
        organization=organization,
        project=project_id,
        default_headers=dict(headers),
        timeout=TIMEOUT,
        max_retries=0,
        http_client=http,
    )
    # A None was filled from the environment, and headers from there were added: put back.
    client.organization, client.project = organization, project_id
    client.admin_api_key = client.webhook_secret = None
    client._custom_headers = dict(headers)
    return client


def without_userinfo(url: str) -> str:
    """`url` without a user name and password, which would go out as a credential."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class CappedTransport(httpx2.AsyncBaseTransport):
    """A transport whose answers end with an error when they get too long."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, limit_bytes: int = MAX_BODY_BYTES) -> None:
        self._inner, self._limit_bytes = inner, limit_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _CappedStream(response.stream, self._limit_bytes)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _CappedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, limit_bytes: int) -> None:
        self._inner, self._left = inner, limit_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._inner:
            self._left -= len(data)
            if self._left < 0:
                raise httpx2.ReadError("the answer is longer than any answer should be")
            yield data

    async def aclose(self) -> None:
        await self._inner.aclose()
