"""Credentials that adapters send, kept out of what servers, SDKs and HTTP layers say about a request.

An SDK logs the URL of a request from INFO on, and the headers of its answer from DEBUG on; a
server may repeat what it was sent. `hide_in_logs` masks such records before any
handler sees them. Imported by `adapters.exchange` and the providers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from domain import masking

#: Shorter secrets are not looked for in log records: they would be found in ordinary words.
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


def hide_in_logs(secrets: Iterable[str]) -> None:
    """Mask these in the log records of SDKs and HTTP layers, for as long as the process lives."""
    _HIDING.add(secrets)
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_HIDING)  # a second time it is not added again


class _Hiding(logging.Filter):
    """Lets every record through, masked."""

    def __init__(self) -> None:
        super().__init__()
        self._secrets: set[str] = set()
        self._forms: tuple[str, ...] = ()

    def add(self, secrets: Iterable[str]) -> None:
        """Look for these too."""
        new = {secret for secret in secrets if len(secret) >= SHORTEST} - self._secrets
        if new:
            self._secrets |= new
            self._forms = masking.forms(self._secrets)

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the record's text, and its traceback, where a secret is in it."""
        text = record.getMessage()
        hidden = masking.masked(text, self._forms)
        if hidden is not text:
            record.msg, record.args = hidden, None
        if record.exc_info and record.exc_info[0] is not None:
            trace = logging.Formatter().formatException(record.exc_info)
            if masking.masked(trace, self._forms) is not trace:
                record.exc_info, record.exc_text = None, masking.masked(trace, self._forms)
        return True


_HIDING: Final = _Hiding()
