"""For tests of applications built on minutebook: doubles, crash tests, contract suites, wire rules.

    from minutebook.testing import ScriptedProvider, call, reply

Every name is loaded when it is first used, so importing this package needs neither
pytest nor a provider's SDK. The fixtures are in `minutebook.testing.pytest_plugin`, which
pytest finds by itself where minutebook is installed. Nothing in here opens a connection
beyond loopback; what stands for a port passes that port's own suite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # the same names once more, for type checkers and editors
    from minutebook.testing.attempts import Attempted as Attempted
    from minutebook.testing.attempts import attempt as attempt
    from minutebook.testing.chat_replies import chat_reply as chat_reply
    from minutebook.testing.chat_replies import error_reply as error_reply
    from minutebook.testing.clock import ManualClock as ManualClock
    from minutebook.testing.crash import NEVER as NEVER
    from minutebook.testing.crash import Ended as Ended
    from minutebook.testing.crash import KillAt as KillAt
    from minutebook.testing.crash import Tell as Tell
    from minutebook.testing.crash import Witness as Witness
    from minutebook.testing.crash import every_kill as every_kill
    from minutebook.testing.durable_contract import DurableContract as DurableContract
    from minutebook.testing.fake_server import Cut as Cut
    from minutebook.testing.fake_server import FakeServer as FakeServer
    from minutebook.testing.fake_server import Faults as Faults
    from minutebook.testing.fake_server import Reply as Reply
    from minutebook.testing.fake_server import serve as serve
    from minutebook.testing.fake_server import serve_in_thread as serve_in_thread
    from minutebook.testing.faulty_store import Fault as Fault
    from minutebook.testing.faulty_store import FaultyStore as FaultyStore
    from minutebook.testing.fork_server import ForkServer as ForkServer
    from minutebook.testing.lives import Life as Life
    from minutebook.testing.lives import every_life as every_life
    from minutebook.testing.looking import journal_of as journal_of
    from minutebook.testing.looking import replay_of as replay_of
    from minutebook.testing.postgres_cluster import Cluster as Cluster
    from minutebook.testing.postgres_programs import server_programs as server_programs
    from minutebook.testing.postgres_standby import Standby as Standby
    from minutebook.testing.replay import ReplayProvider as ReplayProvider
    from minutebook.testing.scenario import Scenario as Scenario
    from minutebook.testing.scenario import given as given
    from minutebook.testing.scripted import Attempt as Attempt
    from minutebook.testing.scripted import Gate as Gate
    from minutebook.testing.scripted import ScriptedProvider as ScriptedProvider
    from minutebook.testing.scripted import Sent as Sent
    from minutebook.testing.scripted import call as call
    from minutebook.testing.scripted import fail as fail
    from minutebook.testing.scripted import reply as reply
    from minutebook.testing.store_contract import StoreContract as StoreContract
    from minutebook.testing.wire_rules import CHECKS as CHECKS

#: Where each name lives.
_EXPORTS: Final = {
    "attempts": ("Attempted", "attempt"),
    "chat_replies": ("chat_reply", "error_reply"),
    "clock": ("ManualClock",),
    "crash": ("NEVER", "Ended", "KillAt", "Tell", "Witness", "every_kill"),
    "durable_contract": ("DurableContract",),
    "fake_server": ("Cut", "FakeServer", "Faults", "Reply", "serve", "serve_in_thread"),
    "faulty_store": ("Fault", "FaultyStore"),
    "fork_server": ("ForkServer",),
    "lives": ("Life", "every_life"),
    "looking": ("journal_of", "replay_of"),
    "postgres_cluster": ("Cluster",),
    "postgres_programs": ("server_programs",),
    "postgres_standby": ("Standby",),
    "replay": ("ReplayProvider",),
    "scenario": ("Scenario", "given"),
    "scripted": ("Attempt", "Gate", "ScriptedProvider", "Sent", "call", "fail", "reply"),
    "store_contract": ("StoreContract",),
    "wire_rules": ("CHECKS",),
}
_HOMES: Final = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'minutebook.testing' has no attribute {name!r}")
    value = getattr(__import__(f"{__name__}.{home}", fromlist=(name,)), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
