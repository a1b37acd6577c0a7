"""The Anthropic SDK's client, with these values and no others.

Left to itself the SDK takes its key, address and headers from a dozen environment
variables and from profile files on disk, traces into whatever is installed, and
retries twice. Here every value is explicit, and each send is one send.
"""

from __future__ import annotations

from typing import Any, Final, Unpack

import anthropic
import httpx2
from anthropic import AsyncAnthropic

from adapters.connection import Connection, ConnectionOptions
from adapters.http_client import TIMEOUT

#: Given to the SDK where there is no key: without one it would go and look for it.
_NO_KEY: Final = "none"


def anthropic_connection(**options: Unpack[ConnectionOptions]) -> Connection:
    """A connection over which this SDK sends."""
    errors = (anthropic.APIStatusError, anthropic.AnthropicError)
    return Connection(*errors, anthropic.Omit(), "request-id", **options)


def anthropic_client(connection: Connection) -> AsyncAnthropic:
    """The SDK's client over a connection, with these values and no others.

    It sends the key as `Authorization: Bearer`. A `/v1` at the end of the address is taken
    off: the path `/v1/messages` is added to what is left.
    """
    client = AsyncAnthropic(
        api_key=connection.api_key or _NO_KEY,
        base_url=_without_version(connection.base_url),
        default_headers=connection.headers,
        timeout=TIMEOUT,
        max_retries=0,
        open_telemetry=False,
        http_client=connection.http,
    )
    # Headers from the environment were added, and a None was filled from there: put back.
    client._custom_headers = connection.headers
    client.webhook_key = None
    return client


async def post(client: AsyncAnthropic, body: bytes, headers: dict[str, Any]) -> httpx2.Response:
    """Send encoded bytes once; return the answer unread, once its head is there."""
    response: object = await client.post(
        "/v1/messages",
        cast_to=httpx2.Response,
        content=body,
        options={"headers": headers, "timeout": TIMEOUT, "follow_redirects": False},
        stream=True,
        stream_cls=anthropic.AsyncStream[Any],
    )
    # Asked to cast to the raw response, the SDK hands it over unread; its types do not say so.
    assert isinstance(response, httpx2.Response)
    return response


def _without_version(url: str) -> str:
    head, mark, query = url.partition("?")
    return head.rstrip("/").removesuffix("/v1") + mark + query
