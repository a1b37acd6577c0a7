"""The forms in which a credential turns up in texts, and texts without them. Pure.

Imported by the edges that know credentials: `minutebook.known_secrets` for what tools
say, `adapters.credentials` for what servers and SDKs say. Knows exact texts, their
base64 wherever they begin in it, and their forms in JSON and in URLs; a credential that
somebody changed in another way is not recognised.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

import orjson

MASK: Final = "(credential not shown)"


def forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """Every text that gives one of the secrets away, the longest first; of an empty one none."""
    found = {form for secret in secrets if secret for form in _forms(secret)}
    return tuple(sorted(found, key=lambda form: (-len(form), form)))


def masked(text: str, hidden: Iterable[str]) -> str:
    """`text` with `MASK` in place of each of the forms; the same object where there is none in it."""
    for form in hidden:
        if form in text:
            text = text.replace(form, MASK)
    return text


def _forms(secret: str) -> set[str]:
    in_json = orjson.dumps(secret)[1:-1].decode()
    in_urls = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    return {secret, in_json, *in_urls, *_in_base64(secret.encode())}


def _in_base64(raw: bytes) -> set[str]:
    """What every base64 of something that holds `raw` holds: no character that depends on its neighbours.

    Of short texts too little is left to be told from other text.
    """
    coded = (base64.b64encode(bytes(shift) + raw).decode() for shift in range(3))
    inner = {text[4 * bool(shift) : len(text) // 4 * 4 - 4] for shift, text in enumerate(coded)}
    long_enough = {text for text in inner if len(text) >= 12}
    return long_enough | {text.replace("+", "-").replace("/", "_") for text in long_enough}
