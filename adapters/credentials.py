"""Credentials that adapters send, kept out of what servers, SDKs and HTTP layers say about a request.

An SDK logs the URL of a request from INFO on, and the headers of its answer from DEBUG on; a
server may repeat what it was sent. `hide_in_logs` masks such records before any
handler sees them. Imported by `adapters.exchange` and the providers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from domain.masking import Lookout, Watched

#: Shorter secrets are not looked for: they would be found in ordinary words.
SHORTEST: Final = 8
#: Filters are not inherited, so each logger that the SDKs and their HTTP layers write to is named.
LOGGERS: Final = (
    "httpx2",
    "httpcore2.connection",
    "httpcore2.http11",
    "httpcore2.http2",
    "httpcore2.proxy",
    "httpcore2.socks",
    "openai",
    "openai._base_client",
    "openai._response",
    "openai._legacy_response",
    "anthropic",
    "anthropic._base_client",
    "anthropic._response",
    "anthropic._legacy_response",
)


def secrets_in(url: str) -> tuple[str, ...]:
    """The values of an address's query: whoever puts one there means a credential."""
    return tuple(value for _, value in parse_qsl(urlsplit(url).query))


def hide_in_logs(secrets: Iterable[str]) -> tuple[Watched, ...]:
    """Mask these in the log records of SDKs and HTTP layers, at least while the result is held."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_HIDING)  # a second time it is not added again
    found = (_LOOKOUT.watch(secret) for secret in secrets)
    return tuple(watched for watched in found if watched is not None)


class _Hiding(logging.Filter):
    """Lets every record through, masked."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the record's text, and its traceback, where a secret is in it."""
        text = record.getMessage()
        hidden = _LOOKOUT.masked(text)
        if hidden is not text:
            record.msg, record.args = hidden, None
        if record.exc_info and record.exc_info[0] is not None:
            trace = logging.Formatter().formatException(record.exc_info)
            without = _LOOKOUT.masked(trace)
            if without is not trace:
                record.exc_info, record.exc_text = None, without
        return True


_LOOKOUT: Final = Lookout(SHORTEST, threading.Lock())
_HIDING: Final = _Hiding()
