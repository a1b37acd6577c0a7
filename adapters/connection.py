"""Where a provider's server is, who asks it and how long it may take: the same for every dialect.

The adapters of all dialects take `ConnectionOptions` beside their own options and make a
`Connection` of them. Knows no SDK: what a dialect's SDK needs of it is in its client module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import httpx2

from adapters.credentials import secrets_in
from adapters.exchange import Exchange, no_probe
from adapters.http_client import explicit_http_client, without_userinfo
from domain.ports import Probe


class ConnectionOptions(TypedDict):
    """The options that the adapters of all dialects have.

    Args:
        base_url: what the dialect's path is added to; a user name and password in it are dropped.
        api_key: the credential; "" sends none.
        headers: pairs, sent with every request.
        request_timeout_ms: limit until the answer begins, and for one that is not streamed.
        stream_idle_timeout_ms: limit for the next piece of a streamed answer.
        http_client: used instead of our own, and not closed by us.
        probe: called at `before_send` and, for every piece that arrives, `mid_stream`.
    """

    base_url: str
    api_key: str
    headers: NotRequired[Sequence[tuple[str, str]]]
    request_timeout_ms: NotRequired[int]
    stream_idle_timeout_ms: NotRequired[int]
    http_client: NotRequired[httpx2.AsyncClient | None]
    probe: NotRequired[Probe]


class Connection:
    """One provider's connection: its HTTP client, and how exchanges over it are carried out.

    Args:
        status_error, sdk_error, request_id_header: see `Exchange`.
        omit: what the SDK takes in the place of a header that is not to be sent.

    The others: see `ConnectionOptions`.
    """

    def __init__(
        self,
        status_error: type[Exception],
        sdk_error: type[Exception],
        omit: object,
        request_id_header: str = "x-request-id",
        *,
        base_url: str,
        api_key: str,
        headers: Sequence[tuple[str, str]] = (),
        request_timeout_ms: int = 600_000,
        stream_idle_timeout_ms: int = 300_000,
        http_client: httpx2.AsyncClient | None = None,
        probe: Probe = no_probe,
    ) -> None:
        self.base_url, self.api_key, self.headers = without_userinfo(base_url), api_key, dict(headers)
        self.http = http_client or explicit_http_client()
        self._owns_http = http_client is None
        # Compressed, an event stream waits in buffers, and a small answer can unfold into a huge one.
        self._sent: dict[str, Any] = {"Accept-Encoding": "identity"}
        if not api_key and not any(name.lower() == "authorization" for name, _ in headers):
            self._sent["Authorization"] = omit
        self.exchange = Exchange(
            status_error,
            sdk_error,
            secrets=(api_key, *(value for _, value in headers), *secrets_in(base_url)),
            request_timeout_s=request_timeout_ms / 1000,
            stream_idle_timeout_s=stream_idle_timeout_ms / 1000,
            request_id_header=request_id_header,
            probe=probe,
        )

    @property
    def shown_url(self) -> str:
        """The address as it may be shown: a query may hold a credential."""
        return self.base_url.partition("?")[0]

    def headers_of(self, attempt_id: str | None = None) -> dict[str, Any]:
        """The headers of one request beside those of the client."""
        return self._sent | ({"X-Client-Request-Id": attempt_id} if attempt_id is not None else {})

    async def aclose(self) -> None:
        """Release connections, unless they belong to the caller's client."""
        if self._owns_http:
            await self.http.aclose()
