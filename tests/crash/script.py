"""What the application that is killed talks about: a scripted model, and tools with effects.

The answers of the model depend on request and turn alone, so that a process that
starts again finds its place. The tools are made when this is imported, before
any fork; the world they touch is put here by each process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

import minutebook as mb
from domain.errors import ModelFailed
from domain.ports import Probe
from minutebook.testing.crash import Witness
from minutebook.testing.scripted import Attempt, Gate, call, reply

SESSION = "s-crash"
STEER = "i-now"
INPUTS = {"i-1": "look, put, pay, mail, wipe", "i-2": "watch until I say stop", "i-3": "goodbye"}


# --- the model: by request and turn, whatever the attempt -----------------------------------


def answer(attempt_id: str, steered: bool = False) -> Attempt:
    """What the model says. The same to every attempt of a turn, except that one fails once.

    Where the session is steered, the second request's first answer never comes.
    """
    request, turn, attempt = attempt_id.split(".")
    match request, turn:
        case "r1", "t1":
            calls = call("look", {"at": 1}), call("put", {"key": "k"}), call("pay", {"cents": 5})
            return reply("I look, I put, I pay.", *calls, pieces=2)
        case "r1", "t2":
            return reply("", call("wipe"), call("ban"), call("mail", "{"), call("mail", {"to": "ada"}))
        case "r1", "t3" if attempt == "a1":
            return [ModelFailed("overloaded", "try again", retryable=True, retry_after_s=0.0)]
        case "r1", "t3":
            return reply("All done.", pieces=2)
        case "r2", "t1" if steered:
            return [Gate()]
        case "r2", "t1":
            return reply("", call("watch"), call("pay", {"cents": 7}))
    return reply("Goodbye.")


# --- the tools ---------------------------------------------------------------------------------


@dataclass(slots=True)
class World:
    """What the tools touch: a witness of effects, and what the application let them know."""

    witness: Witness
    probe: Probe
    looked: anyio.Event = field(default_factory=anyio.Event)

    def effect(self, name: str, ctx: mb.ToolContext) -> None:
        """Have an effect: from here on it has happened."""
        self.witness.record(ctx.tool_id, name, ctx.run, ctx.idempotency_key)
        self.probe("effect")


#: The one world of this process. The tools are made before the fork, it comes after.
worlds: list[World] = []


@mb.tool(kind=mb.ToolKind.READ_ONLY, side_effect=mb.SideEffect.PURE)
async def look(at: int, ctx: mb.ToolContext) -> str:
    """Pure, allowed by the mode."""
    worlds[0].effect("look", ctx)
    return f"seen {at}"


@mb.tool(kind=mb.ToolKind.WRITE, side_effect=mb.SideEffect.IDEMPOTENT)
async def put(key: str, ctx: mb.ToolContext) -> str:
    """Idempotent, allowed by the mode; ends after something else has."""
    await worlds[0].looked.wait()
    worlds[0].effect("put", ctx)
    return f"put {key}"


@mb.tool(check=lambda arguments: mb.Verdict.ALLOW)
async def pay(cents: int, ctx: mb.ToolContext) -> str:
    """Not to be done twice; allowed by its own check; ends after something else has."""
    await worlds[0].looked.wait()
    worlds[0].effect("pay", ctx)
    return f"paid {cents}"


@mb.tool
async def mail(to: str, ctx: mb.ToolContext) -> str:
    """Not to be done twice; a person allows it."""
    worlds[0].effect("mail", ctx)
    return f"mailed {to}"


@mb.tool(destructive=True)
async def wipe(ctx: mb.ToolContext) -> str:
    """A person denies it."""
    worlds[0].effect("wipe", ctx)
    return "wiped"


@mb.tool(check=lambda arguments: mb.Verdict.DENY)
async def ban(ctx: mb.ToolContext) -> str:
    """Its own check denies it."""
    worlds[0].effect("ban", ctx)
    return "banned"


@mb.tool(kind=mb.ToolKind.READ_ONLY, side_effect=mb.SideEffect.PURE, interrupt=mb.Interrupt.CANCEL)
async def watch(ctx: mb.ToolContext) -> str:
    """Never ends by itself."""
    await ctx.progress("watching")
    await anyio.sleep_forever()
    return "unreachable"


TOOLS = (look, put, pay, mail, wipe, ban, watch)


#: What each call returns, by request, turn and index.
OUTPUTS = {
    ("r1", "t1", "c0"): "seen 1",
    ("r1", "t1", "c1"): "put k",
    ("r1", "t1", "c2"): "paid 5",
    ("r1", "t2", "c3"): "mailed ada",
    ("r2", "t1", "c1"): "paid 7",
}


def output_of(tool_id: str) -> str:
    """What a call returns that has had its effect."""
    request, turn, _, index = tool_id.split(".")
    return OUTPUTS[request, turn, index]
