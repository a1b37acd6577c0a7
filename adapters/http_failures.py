"""What the HTTP layer raises, as failures of a model attempt.

Shared by the adapters that send with `httpx2`, alone or under a provider's SDK.
The failures hold no exception and no request, because requests hold credentials.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Final

import anyio
import httpx2

from adapters.model_failures import failed
from domain.errors import ModelFailed

#: Everything the network and the HTTP layer raise, wrapped by an SDK or not.
TRANSPORT_ERRORS: Final = (
    httpx2.HTTPError,
    httpx2.StreamError,
    OSError,
    ssl.SSLError,
    anyio.EndOfStream,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)

_NOT_SENT: Final = (httpx2.ConnectError, httpx2.ProxyError, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


def from_transport(error: BaseException, *, answering: bool) -> ModelFailed:
    """The failure that an exception of the HTTP layer stands for.

    Args:
        error: as raised, or an SDK's error with it as cause.
        answering: whether the answer had begun; then it was cut.
    """
    chain = list(_causes(error))
    what = f"expected an answer, got {type(chain[-1]).__name__}"
    if any(isinstance(e, ssl.SSLCertVerificationError) for e in chain):
        return failed("tls_failed", what, bytes_sent=False)
    if any(isinstance(e, httpx2.ConnectTimeout) for e in chain):
        return failed("connect_timeout", what, bytes_sent=False)
    if any(isinstance(e, _NOT_SENT) for e in chain):
        return failed("connect_failed", what, bytes_sent=False)
    if any(isinstance(e, httpx2.LocalProtocolError) for e in chain):
        return failed("bad_request", what, bytes_sent=False)
    if any(isinstance(e, httpx2.DecodingError) for e in chain):
        return failed("invalid_response", what)
    if any(isinstance(e, httpx2.TimeoutException) for e in chain):
        return failed("stream_idle_timeout" if answering else "request_timeout", what)
    return failed("stream_cut" if answering else "connection_lost", what)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it came from, outermost first."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
