"""The OpenAI SDK's client, with these values and no others.

The SDK reads nine environment variables and retries twice; here every value is
explicit and retries are off. Shared by the adapters of both OpenAI dialects.
"""

from __future__ import annotations

from typing import Any, Final, Unpack
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import httpx2
import openai
from openai import AsyncOpenAI

from adapters.connection import Connection, ConnectionOptions
from adapters.http_client import TIMEOUT

#: Sent to the SDK where there is no key, because it refuses to be without one.
_NO_KEY: Final = "none"


def openai_connection(**options: Unpack[ConnectionOptions]) -> Connection:
    """A connection over which this SDK sends."""
    return Connection(openai.APIStatusError, openai.OpenAIError, openai.Omit(), **options)


def openai_client(
    connection: Connection, *, organization: str | None = None, project_id: str | None = None
) -> AsyncOpenAI:
    """The SDK's client over a connection, with these values and no others.

    A query in the address goes out with every request, behind the path.
    """
    address = urlsplit(connection.base_url)
    client = AsyncOpenAI(
        api_key=connection.api_key or _NO_KEY,
        base_url=urlunsplit(address._replace(query="")),
        default_query=dict(parse_qsl(address.query, keep_blank_values=True)),
        organization=organization,
        project=project_id,
        default_headers=connection.headers,
        timeout=TIMEOUT,
        max_retries=0,
        http_client=connection.http,
    )
    # A None was filled from the environment, and headers from there were added: put back.
    client.organization, client.project = organization, project_id
    client.admin_api_key = client.webhook_secret = None
    client._custom_headers = connection.headers
    return client


async def post(client: AsyncOpenAI, path: str, body: bytes, headers: dict[str, Any]) -> httpx2.Response:
    """Send encoded bytes once; return the answer unread, once its head is there."""
    response: object = await client.post(
        path,
        cast_to=httpx2.Response,
        content=body,
        options={"headers": headers, "timeout": TIMEOUT, "follow_redirects": False},
        stream=True,
        stream_cls=openai.AsyncStream[Any],
    )
    # Asked to cast to the raw response, the SDK hands it over unread; its types do not say so.
    assert isinstance(response, httpx2.Response)
    return response


async def get(
    client: AsyncOpenAI, path: str, query: dict[str, object], headers: dict[str, Any]
) -> httpx2.Response:
    """Ask once for something that is stored; return the answer unread, once its head is there."""
    response: object = await client.get(
        path,
        cast_to=httpx2.Response,
        options={"params": query, "headers": headers, "timeout": TIMEOUT, "follow_redirects": False},
        stream=True,
        stream_cls=openai.AsyncStream[Any],
    )
    assert isinstance(response, httpx2.Response)  # as in `post`
    return response
