"""The demo's agent, run as a process of its own: `python -m minutebook.demo.agent start|resume ...`.

`start` asks for a refund and is killed (SIGKILL, by its own tool) right after the
money moved and before anybody could write that down. `resume` goes on.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

import minutebook as mb
from recovery.escape import visible

QUESTION = "Order 17 arrived broken. Please refund it and tell the customer."


def tools(bank: Path, deadly: bool) -> list[mb.ToolDefinition]:
    """What the agent can do. `bank` is the world outside: one line per transfer."""

    @mb.tool(kind=mb.ToolKind.READ_ONLY, side_effect=mb.SideEffect.PURE)
    async def look_up_order(order: str) -> dict[str, object]:
        """Look up an order by its number."""
        return {"order": order, "item": "lamp", "paid_cents": 4200, "state": "arrived broken"}

    @mb.tool(side_effect=mb.SideEffect.NON_IDEMPOTENT, category="money")
    async def refund(order: str, cents: int, ctx: mb.ToolContext) -> str:
        """Refund an order, in cents."""
        with bank.open("a", encoding="utf-8") as file:
            file.write(f"order {order}: {cents} cents out, key {ctx.idempotency_key}\n")
            file.flush()
            os.fsync(file.fileno())
        if deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"refunded {cents} cents for order {order}"

    return [look_up_order, refund]


def told(who: str, text: str) -> None:
    """Print what a model or a tool says, so that it can do nothing to the terminal."""
    lines = (visible(line) for line in text.split("\n"))
    print(f"{who:8}" + f"\n{'':8}".join(lines), flush=True)


async def show(session: mb.Session, events: AsyncIterator[mb.StreamEvent]) -> None:
    """Print a stream, approving what it asks for."""
    text = ""
    async for event in events:
        if isinstance(event, mb.ContentDelta):
            text += event.delta
            continue
        if text:
            told("model", text.strip())
            text = ""
        match event:
            case mb.ToolUse():
                told("call", f"{event.name}({event.input})")
            case mb.InteractionOpened():
                await approve(session, event)
            case mb.ToolResult():
                told("result", f"{event.outcome}: {event.output}")
            case mb.Result():
                told("answer", event.content)
            case mb.Error():
                told("error", f"{event.code}: {event.message}")


async def approve(session: mb.Session, asked: mb.InteractionOpened) -> None:
    """Answer a question, unless it was answered before the process died."""
    if any(open_.id == asked.interaction_id for open_ in session.interactions):
        told("asks", f"may it run {asked.summary}?  -> yes, this once")
        await session.respond(asked.interaction_id, mb.Approve(), digest=asked.digest)
    else:
        told("asked", f"may it run {asked.summary}?  (answered before)")


async def work(options: argparse.Namespace) -> None:
    """Start the session, or go on with it."""
    config = mb.SessionConfig(
        provider=mb.ProviderConfig("openai-compatible", base_url=options.base_url, api_key=options.api_key),
        model=options.model,
        system_prompt="You refund orders. Look an order up before you refund it.",
        tools=tools(options.bank, deadly=options.step == "start"),
    )
    store = mb.sqlite(options.journal)
    if options.step == "start":
        async with mb.create_session(config, store=store, session_id=options.session) as session:
            await session.send(QUESTION)
            await show(session, session.stream())
    else:
        async with mb.resume_session(options.session, config, store=store) as session:
            await show(session, session.stream())


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(prog="python -m minutebook.demo.agent")
    parser.add_argument("step", choices=("start", "resume"))
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--bank", type=Path, required=True)
    parser.add_argument("--session", required=True)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--api-key")
    anyio.run(work, parser.parse_args())


if __name__ == "__main__":
    main()
