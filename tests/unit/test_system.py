"""The machine underneath: clocks, ids, and which process is alive."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.system import ProcessIdentity, SystemClock, SystemIds, provably_dead, this_process
from domain import ids
from domain.envelope import SALT_BYTES

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="liveness is known from /proc only")


def dead(identity: ProcessIdentity) -> bool:
    return provably_dead(identity.boot_id, identity.process_id, identity.process_started)


def test_the_clock_is_aware_and_the_monotonic_one_goes_on() -> None:
    clock = SystemClock()
    assert clock.now().utcoffset() == timedelta(0)
    assert clock.monotonic() <= clock.monotonic()
    assert clock == SystemClock()


def test_ids_are_ids_and_differ() -> None:
    made = {SystemIds().new("session") for _ in range(1000)}
    assert len(made) == 1000
    for one in made:
        assert re.fullmatch(r"session-[a-z2-7]{20}", one)
        assert ids.session_id(one) == one


def test_salts_have_their_length_and_differ() -> None:
    salts = {SystemIds().salt() for _ in range(100)}
    assert len(salts) == 100
    assert {len(salt) for salt in salts} == {SALT_BYTES}


@needs_proc
def test_we_are_alive() -> None:
    us = this_process()
    assert us.process_id == os.getpid()
    assert us.boot_id is not None
    assert us.process_started is not None
    assert not dead(us)


@needs_proc
def test_a_process_that_ended_is_dead_even_before_it_is_buried() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = replace(this_process(), process_id=child.pid, process_started=None)
    assert not dead(identity)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert dead(identity), "a zombie runs nothing"
    child.communicate()
    assert dead(identity)


@needs_proc
def test_a_number_used_again_is_another_process() -> None:
    assert dead(replace(this_process(), process_started="1"))


@needs_proc
@pytest.mark.parametrize("boot_id", [None, "another boot", "another boot/pid:[1]"])
def test_nobody_is_dead_who_may_be_elsewhere(boot_id: str | None) -> None:
    assert not provably_dead(boot_id, 2**22 + 1, "1")


@needs_proc
def test_containers_of_one_machine_are_told_apart() -> None:
    boot_id = this_process().boot_id
    assert boot_id is not None
    assert re.fullmatch(r"[0-9a-f-]{36}/pid:\[\d+\]/time:\[\d*\]", boot_id)


@needs_proc
def test_a_clock_that_counts_from_another_moment_makes_nobody_unknown() -> None:
    kernel, processes, _ = str(this_process().boot_id).split("/")
    for written in (f"{kernel}/{processes}/time:[1]", f"{kernel}/{processes}"):
        assert dead(replace(this_process(), boot_id=written, process_started="1"))
    assert not dead(replace(this_process(), boot_id=f"{kernel}/pid:[1]", process_started="1"))


def test_without_a_process_nobody_is_dead() -> None:
    assert not provably_dead(this_process().boot_id, None, None)
