"""The Anthropic SDK's client, with these values and no others.

Left to itself the SDK takes its key, address and headers from a dozen environment
variables and from profile files on disk, traces into whatever is installed, and
retries twice. Here every value is explicit, and each send is one send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anthropic
import httpx2
from anthropic import AsyncAnthropic

from adapters.http_client import TIMEOUT, without_userinfo

#: Given to the SDK where there is no key: without one it would go and look for it.
_NO_KEY: Final = "none"


def anthropic_client(
    http: httpx2.AsyncClient, *, base_url: str, api_key: str, headers: Sequence[tuple[str, str]]
) -> AsyncAnthropic:
    """The SDK's client over `http`, with these values and no others.

    Args:
        base_url: what the path `/v1/messages` is added to; a `/v1` at its end is taken off.
        api_key: the credential; the SDK sends it as `Authorization: Bearer`.
    """
    client = AsyncAnthropic(
        api_key=api_key or _NO_KEY,
        base_url=_without_version(without_userinfo(base_url)),
        default_headers=dict(headers),
        timeout=TIMEOUT,
        max_retries=0,
        open_telemetry=False,
        http_client=http,
    )
    # Headers from the environment were added, and a None was filled from there: put back.
    client._custom_headers = dict(headers)
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
