"""The forms in which a credential turns up in texts, and texts without them.

Imported by the edges that know credentials: `minutebook.known_secrets` for what tools
say, `adapters.credentials` for what servers and SDKs say; each has a `Lookout` of its own.
Knows exact texts, their base64 wherever they begin in it, and their forms in JSON and in
URLs; a credential that somebody changed in another way is not recognised. No I/O.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final
from urllib.parse import quote, quote_plus
from weakref import WeakValueDictionary

import orjson

MASK: Final = "(credential not shown)"

#: So many that nobody holds any more are still looked for: a key that a program dropped
#: may be in its environment all the same.
KEPT: Final = 64


def forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """Every text that gives one of the secrets away, the longest first; of an empty one none."""
    found = {form for secret in secrets if secret for form in _forms(secret)}
    return longest_first(found)


def masked(text: str, hidden: Iterable[str]) -> str:
    """`text` with `MASK` in place of each of the forms; the same object where there is none in it."""
    for form in hidden:
        if form in text:
            text = text.replace(form, MASK)
    return text


class Watched:
    """One credential. It is looked for at least as long as somebody holds this object."""

    __slots__ = ("__weakref__", "forms")

    def __init__(self, secret: str) -> None:
        self.forms = forms([secret])


class Lookout:
    """The credentials that one edge looks for: those that are held, and the `KEPT` latest others.

    Memory and time grow with what is in use at once, not with all that a process was ever
    given. May be used from several threads.

    Args:
        shortest: shorter ones are not looked for, because they would be found in ordinary words.
        lock: a thread's lock; held while a credential is added, never while texts are read.
    """

    def __init__(self, shortest: int, lock: AbstractContextManager[object]) -> None:
        self._shortest, self._lock = shortest, lock
        self._known: WeakValueDictionary[str, Watched] = WeakValueDictionary()
        self._latest: deque[Watched] = deque(maxlen=KEPT)
        #: Every form of all of them, the longest first: one may be a part of another.
        self.forms: tuple[str, ...] = ()
        self._in_bytes: tuple[bytes, ...] = ()

    def watch(self, secret: str) -> Watched | None:
        """Look for a credential from now on; hold what is returned. None: it is too short."""
        if len(secret) < self._shortest:
            return None
        with self._lock:
            known = self._known.get(secret)
            if known is None:
                known = self._known[secret] = Watched(secret)
                self._latest.append(known)
                found = {form for each in self._known.values() for form in each.forms}
                self.forms = longest_first(found)
                self._in_bytes = tuple(form.encode() for form in self.forms)
            return known

    def masked(self, text: str) -> str:
        """`text` without any of them; the same object where there is none in it."""
        return masked(text, self.forms)

    def masked_bytes(self, data: bytes) -> bytes:
        """As `masked`, of bytes."""
        for form in self._in_bytes:
            if form in data:
                data = data.replace(form, MASK.encode())
        return data

    def is_in(self, data: bytes) -> bool:
        """Whether the bytes hold one."""
        return self.masked_bytes(data) is not data


def longest_first(found: Iterable[str]) -> tuple[str, ...]:
    """Forms in the order in which they have to be replaced."""
    return tuple(sorted(found, key=lambda form: (-len(form), form)))


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
