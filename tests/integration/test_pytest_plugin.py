"""The fixtures in a project of somebody else, with minutebook installed and nothing configured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

USES = """
import pytest
import minutebook as mb
from minutebook.testing import ScriptedProvider, chat_reply, replay_of, reply

pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"

async def test_scripted(scripted_session, journal_of):
    async with scripted_session(reply("hello")) as session:
        assert session.id == "s1"
        assert (await session.run("hi")).content == "hello"
        assert (await journal_of(session))[-1].type == "request_completed"

async def test_again(scripted_session, sqlite_store, tmp_path):
    async with scripted_session(reply("one"), store=sqlite_store) as session:
        await session.run("hi")
    assert (tmp_path / "journal.db").exists()
    async with scripted_session(provider=await replay_of(sqlite_store), store=mb.memory()) as session:
        assert (await session.run("hi")).content == "one"
    async with scripted_session(reply("two"), store=sqlite_store, resume=True) as session:
        assert len(session.messages) == 2

async def test_memory_is_the_test_s_own(scripted_session, memory_store):
    async with scripted_session(reply("one")) as session:
        await session.run("hi")
    async with memory_store.open() as journal:
        assert await journal.session("s1")

async def test_memory_is_empty_again(memory_store):
    async with memory_store.open() as journal:
        assert await journal.sessions() == []

def test_server(fake_model_server):
    import urllib.request
    one, two = fake_model_server(chat_reply("x")), fake_model_server(lambda request: chat_reply(request.path))
    assert one.port != two.port
    for server in (one, two):
        with urllib.request.urlopen(urllib.request.Request(server.url, data=b"{}")) as answer:
            assert answer.status == 200
    assert two.requests[0].path == "/v1"

def test_crash(crash_probe):
    lives = []
    for life in crash_probe(__file__.replace("test_uses", "child"), first=2, step=6):
        lives.append(life)
        assert life.run().completed().told("answer") == ["done"]
    assert [life.number for life in lives] == [2, 8, 14]
    assert len({life.directory for life in lives}) == 3
    with pytest.raises(AssertionError, match="is over"):
        lives[0].run()
"""

CHILD = """
from pathlib import Path
import anyio
import minutebook as mb
from minutebook.testing import KillAt, ScriptedProvider, reply

def work(tell, directory, kill_at):
    anyio.run(_work, tell, directory, kill_at)

async def _work(tell, directory, kill_at):
    probe = KillAt(kill_at, tell)
    provider = ScriptedProvider(lambda sent: reply("done"))
    config = mb.SessionConfig(provider, model="m", on_lost_attempt="retry", probe=probe)
    store = mb.sqlite(Path(directory) / "j.db", probe=probe)
    async with store.open() as journal:
        there = await journal.session("s1") is not None
    opened = mb.resume_session("s1", config, store=store) if there else None
    async with opened or mb.create_session(config, store=store, session_id="s1") as session:
        await session.send("hi", input_id="i-1")
        await session.wait_idle()
        tell(answer=session.messages[-1].text)
"""

CONTRACT = """
from contextlib import asynccontextmanager
from dataclasses import dataclass
import pytest
import minutebook as mb
from minutebook.testing import StoreContract

class Forgetful:
    def __init__(self, journal): self._journal = journal
    def __getattr__(self, name): return getattr(self._journal, name)
    async def blob(self, digest): return None

@dataclass
class ForgetfulStore:
    inner: object
    durable: bool = False
    @asynccontextmanager
    async def open(self, *, owner_id="local"):
        async with self.inner.open(owner_id=owner_id) as journal:
            yield Forgetful(journal)

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
class TestForgetful(StoreContract):
    def make_store(self, clock):
        return ForgetfulStore(mb.memory(clock=clock))
"""


def run_pytest(installed: Path, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *arguments],
        cwd=project,
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_fixtures_are_there_and_work(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_uses.py").write_text(USES)
    (tmp_path / "child.py").write_text(CHILD)
    done = run_pytest(installed, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_the_fixtures_are_told_of(installed: Path, tmp_path: Path) -> None:
    told = run_pytest(installed, tmp_path, "--fixtures").stdout.splitlines()
    fixtures = "scripted_session memory_store sqlite_store fake_model_server crash_probe journal_of"
    for name in fixtures.split():
        (at,) = [at for at, line in enumerate(told) if line.startswith(f"{name} -- ")]
        assert "minutebook/testing/pytest_plugin.py" in told[at]
        assert told[at + 1].startswith("    ")
        assert "no docstring" not in told[at + 1]


def test_a_store_that_breaks_its_contract_is_shown_where(installed: Path, tmp_path: Path) -> None:
    """With the values that were compared: the suite's assertions are rewritten like one's own."""
    (tmp_path / "test_contract.py").write_text(CONTRACT)
    done = run_pytest(installed, tmp_path)
    assert done.returncode == 1
    assert "assert None == b'blob'" in done.stdout
