"""What may be on a disk after a power cut, shown on a few calls."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.images import SECTOR, SHARED_MEMORY, images
from tests.chaos.tracing import Call, parsed

DATABASE = "journal.db"


def call(name: str, file: str = DATABASE, data: bytes = b"", number: int = -1, *, begun: int = 0) -> Call:
    """A call that came back well."""
    result = len(data) if name == "pwrite64" else 0
    return Call(
        name, 0, file, data, number, "O_RDWR|O_CREAT" if name == "openat" else "", begun, result, False
    )


def in_order(*calls: Call) -> list[Call]:
    """Calls that came one after the other."""
    return [
        Call(c.name, c.thread, c.file, c.data, c.number, c.flags, place, c.result, c.injected)
        for place, c in enumerate(calls)
    ]


MADE = (call("openat"), call("fsync", ""))


def at_the_end(calls: list[Call], file: str = DATABASE) -> set[bytes | None]:
    """What a file may hold after the last call; None: it may be missing.

    Something is told then, so that no image has been seen before.
    """
    told = Call("write", 0, "acks", b"{}\n", -1, "", len(calls), 3, False)
    found = images([*calls, told], seed=1, subsets=40)
    return {image.files.get(file) for image in found if image.said}


def test_what_was_synced_is_there() -> None:
    found = in_order(*MADE, call("pwrite64", data=b"one", number=0), call("fsync"))
    assert at_the_end(found) == {b"one"}
    after = Call("pwrite64", 0, DATABASE, b"two", 3, "", len(found), 3, False)
    assert at_the_end([*found, after]) == {b"one", b"onetwo"}


def test_a_file_is_there_for_certain_once_its_directory_is_synced() -> None:
    written = in_order(call("openat"), call("pwrite64", data=b"one", number=0), call("fsync"))
    assert at_the_end(written) == {None, b"one"}
    assert at_the_end([*written, call("fsync", "", begun=3)]) == {b"one"}


def test_a_file_is_gone_for_certain_once_its_directory_is_synced() -> None:
    removed = in_order(*MADE, call("unlink"))
    assert at_the_end(removed) == {None, b""}
    assert at_the_end([*removed, call("fsync", "", begun=3)]) == {None}


def test_syncing_a_directory_does_not_sync_what_is_in_its_files() -> None:
    found = in_order(call("openat"), call("pwrite64", data=b"one", number=0), call("fsync", ""))
    assert at_the_end(found) == {b"", b"one"}


def test_writes_that_are_not_synced_may_be_lost_in_any_order() -> None:
    found = in_order(
        *MADE,
        call("pwrite64", data=b"a", number=0),
        call("pwrite64", data=b"b", number=1),
        call("pwrite64", data=b"c", number=2),
    )
    assert at_the_end(found) == {b"", b"a", b"\0b", b"\0\0c", b"ab", b"a\0c", b"\0bc", b"abc"}


def test_a_write_may_be_torn_between_sectors() -> None:
    first, second = bytes([1]) * SECTOR, bytes([2]) * SECTOR
    found = in_order(*MADE, call("pwrite64", data=first + second, number=0))
    assert at_the_end(found) == {b"", first, first + second, bytes(SECTOR) + second}


def test_a_truncation_may_be_lost() -> None:
    written = (call("pwrite64", data=b"abc", number=0), call("fsync"))
    assert at_the_end(in_order(*MADE, *written, call("ftruncate", number=1))) == {b"abc", b"a"}


def test_a_sync_covers_what_had_come_back_when_it_began() -> None:
    during = Call("pwrite64", 1, DATABASE, b"late", 0, "", 2, 4, False)
    sync = Call("fsync", 0, DATABASE, b"", -1, "", 2, 0, False)
    assert at_the_end([*in_order(*MADE), during, sync]) == {b"", b"late"}


def test_shared_memory_may_hold_anything() -> None:
    made = (call("openat", SHARED_MEMORY), call("fsync", ""))
    told = call("write", "acks", b"{}\n")
    found = in_order(*made, call("ftruncate", SHARED_MEMORY, number=9), call("fsync", SHARED_MEMORY), told)
    last = (list(images(found, seed, 0))[-1] for seed in range(20))
    assert len({image.files.get(SHARED_MEMORY) for image in last}) > 3


def test_promises_and_effects_are_known_by_their_moment() -> None:
    told = Call("write", 0, "acks", b'{"session":"a"}\n', -1, "", 2, 16, False)
    effect = Call("write", 0, "witness", b"t1\tpay\n", -1, "", 3, 7, False)
    last = list(images([*in_order(*MADE), told, effect], 1, 0))[-1]
    assert (last.said, last.witness, last.moment) == ([{"session": "a"}], [("t1", "pay")], 4)


def test_the_same_seed_gives_the_same_images() -> None:
    written = [call("pwrite64", data=bytes([n]) * 700, number=n * 700) for n in range(5)]
    found = in_order(*MADE, *written)
    one, same, other = (list(images(found, seed, 9)) for seed in (1, 1, 2))
    assert [image.files for image in one] == [image.files for image in same]
    assert [image.files for image in one] != [image.files for image in other]


def test_calls_of_two_threads_are_put_together(tmp_path: Path) -> None:
    path = "".join(f"\\x{b:02x}" for b in b"/p/journal.db")
    log = tmp_path / "log"
    log.write_text(
        f'7  pwrite64(3<{path}>, "\\x61", 1, 4 <unfinished ...>\n'
        f"8  fsync(3<{path}>) = 0\n"
        "7  <... pwrite64 resumed>) = 1\n"
        f"8  ftruncate(3<{path}>, 9) = -1 EIO (Input/output error) (INJECTED)\n"
    )
    sync, write, failed = parsed(log, Path("/p"))
    assert (sync.name, sync.thread, sync.begun) == ("fsync", 0, 0)
    assert (write.data, write.number, write.file, write.begun) == (b"a", 4, "journal.db", 0)
    assert (failed.result, failed.injected, failed.begun) == (-1, True, 2)
