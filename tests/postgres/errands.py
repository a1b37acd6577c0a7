"""A worker of the restart tests: the example's, with errands of every kind, each with an effect outside.

    python -m tests.postgres.errands ADDRESS NAME TTL

An order is its name and the path of a witness. Its model looks (pure), books (idempotent), then pays (not
idempotent), and asks again for what did not come about. Says on stderr, a line each, in which
error a session ended here.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

import minutebook as mb
from minutebook.testing.crash import Witness
from minutebook.testing.scripted import Attempt, ScriptedProvider, Sent, call, reply

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from worker import Worker, log, serve  # the path is known only now

#: In this order, each once.
ERRANDS: Final = ("look", "book", "pay")
#: How the result of an errand begins that was done: in its own words, or in the operator's.
DONE: Final = (*(f"{errand}: " for errand in ERRANDS), "the bank says: completed")


def model(sent: Sent) -> Attempt:
    """The next errand, or the answer. The last message of a user is the order."""
    last = max(n for n, message in enumerate(sent.messages) if message["role"] == "user")
    order, witness = str(sent.messages[last]["content"]).split()
    results = [str(each["content"]) for each in sent.messages[last:] if each["role"] == "tool"]
    done = sum(each.startswith(DONE) for each in results)
    if done == len(ERRANDS):
        return reply(f"done: {order}")
    return reply("", call(ERRANDS[done], {"order": order, "witness": witness}))


async def _carry_out(errand: str, order: str, witness: str, ctx: mb.ToolContext) -> str:
    line = (ctx.session_id, ctx.tool_id, errand, order, ctx.idempotency_key)
    await anyio.to_thread.run_sync(Witness(witness).record, *line)
    return f"{errand}: {order}"


@mb.tool(side_effect=mb.SideEffect.PURE)
async def look(order: str, witness: str, ctx: mb.ToolContext) -> str:
    """Look something up."""
    return await _carry_out("look", order, witness, ctx)


@mb.tool(side_effect=mb.SideEffect.IDEMPOTENT)
async def book(order: str, witness: str, ctx: mb.ToolContext) -> str:
    """Book something; who is told twice under one key does it once."""
    return await _carry_out("book", order, witness, ctx)


@mb.tool
async def pay(order: str, witness: str, ctx: mb.ToolContext) -> str:
    """Pay for something; who is told twice pays twice."""
    return await _carry_out("pay", order, witness, ctx)


def config(name: str, ttl_s: float) -> mb.SessionConfig:
    """How a session is opened."""
    return mb.SessionConfig(
        provider=ScriptedProvider(model),
        model="scripted",
        tools=[look, book, pay],
        permission_mode=mb.PermissionMode.YOLO,
        on_lost_attempt="retry",
        lease=mb.LeaseConfig(ttl_s=ttl_s, worker_id=name),
    )


class Errors(logging.Formatter):
    """Of a message, the error in it."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        given = record.args if isinstance(record.args, tuple) else ()
        return " ".join(f"{type(each).__name__}: {each}" for each in given if isinstance(each, Exception))


def main() -> None:
    """Work until SIGTERM."""
    address, name, ttl = sys.argv[1:]
    said = logging.StreamHandler()
    said.setFormatter(Errors())
    log.addHandler(said)
    logging.basicConfig(handlers=[logging.NullHandler()])
    worker = Worker(
        mb.postgres(address), lambda: config(name, float(ttl)), name=name, every_s=0.2, pause_s=0.2
    )
    anyio.run(serve, worker)


if __name__ == "__main__":
    main()
