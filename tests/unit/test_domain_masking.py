"""Credentials that are looked for: how long, in which order, by how many threads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

from domain.masking import KEPT, MASK, Lookout


def lookout(shortest: int = 8) -> Lookout:
    return Lookout(shortest, threading.Lock())


def test_what_is_held_is_found_however_many_came_after_it() -> None:
    looking = lookout()
    held = looking.watch("the-first-credential")
    for number in range(10 * KEPT):
        looking.watch(f"a-later-credential-{number}")
    assert held is not None
    assert looking.masked("x the-first-credential y") == f"x {MASK} y"
    assert looking.masked_bytes(b"x the-first-credential y") == f"x {MASK} y".encode()
    assert looking.is_in(b"the-first-credential")


def test_of_those_that_nobody_holds_only_the_latest_are_kept() -> None:
    looking = lookout()
    for number in range(100 * KEPT):
        looking.watch(f"a-dropped-credential-{number}")
    gc.collect()
    looking.watch("one-more-credential")
    plain = [form for form in looking.forms if form.startswith("a-dropped-credential-")]
    assert len(plain) < 2 * KEPT
    assert not looking.is_in(b"a-dropped-credential-0;")
    assert looking.is_in(f"a-dropped-credential-{100 * KEPT - 1}".encode())


def test_a_credential_that_holds_another_is_replaced_whole() -> None:
    looking = lookout()
    held = [looking.watch("short-one"), looking.watch("short-one-and-its-tail")]
    assert all(held)
    assert looking.masked("short-one-and-its-tail") == MASK


def test_short_ones_are_words_and_an_untouched_text_is_the_same_object() -> None:
    looking = lookout(shortest=8)
    assert looking.watch("1234567") is None
    text, data = "1234567", b"1234567"
    assert looking.masked(text) is text
    assert looking.masked_bytes(data) is data
    assert looking.forms == ()


def test_the_same_credential_is_watched_once() -> None:
    looking = lookout()
    assert looking.watch("the-same-credential") is looking.watch("the-same-credential")


def test_none_is_lost_where_several_threads_add() -> None:
    looking = lookout()
    held: list[object] = []
    begin = threading.Barrier(8)

    def add(thread: int) -> Callable[[], None]:
        def run() -> None:
            begin.wait()
            held.extend(looking.watch(f"credential-{thread}-{number}") for number in range(20))

        return run

    threads = [threading.Thread(target=add(thread)) for thread in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(looking.is_in(f"credential-{t}-{n}".encode()) for t in range(8) for n in range(20))
