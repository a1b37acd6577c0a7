"""One question, one answer: a session that is made, used and closed by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from domain import events as ev
from domain.ports import StoreDescription
from minutebook.config import SessionConfig
from minutebook.input_parts import Content
from minutebook.provider_registry import ProviderRegistry
from minutebook.receipts import RequestResult
from minutebook.session import Session
from projections.transcript import Exchange


@dataclass(frozen=True, slots=True)
class ToolExecutionRecord:
    """One call. `duration_ms` is from its start to its end, 0 if it never started."""

    id: str
    name: str
    input: str
    output: str
    duration_ms: float
    is_error: bool


@dataclass(frozen=True, slots=True)
class PromptResult:
    """What came of a prompt. `duration_ms`: from acceptance to the end of the request;
    `parsed` and `output_error` as in `RequestResult`."""

    session_id: str
    result: str
    status: str
    tool_calls: tuple[ToolExecutionRecord, ...]
    usage: dict[str, int]
    duration_ms: float
    turns_count: int
    error_code: str | None = None
    message: str = ""
    parsed: Any = None
    output_error: str | None = None


async def prompt(
    message: Content,
    config: SessionConfig,
    *,
    store: StoreDescription | None = None,
    providers: ProviderRegistry | None = None,
) -> PromptResult:
    """Make a session, send one message, wait for the end, close for good.

    Args:
        store: where its journal goes; memory if not given.
        providers: provider types of your own, for `ProviderConfig(type=...)`.

    Raises:
        RecoveryRequired, Fenced, StoreFailure: as for `Session.run`; the session then
            stays open in its store.
    """
    from minutebook.compose import create_session

    async with create_session(config, store=store, providers=providers) as session:
        ended = await session.run(message)
        result = await _summary(session, ended)
        await session.close(final=True)
        return result


async def _summary(session: Session, ended: RequestResult) -> PromptResult:
    times = await _times(session)
    exchanges = [item for item in session.messages if isinstance(item, Exchange)]
    calls = tuple(
        ToolExecutionRecord(
            call.tool_id,
            call.name,
            call.arguments,
            call.output,
            times.of(call.tool_id),
            call.outcome != "completed",
        )
        for exchange in exchanges
        for call in exchange.calls
    )
    return PromptResult(
        session.id,
        ended.content,
        ended.status,
        calls,
        ended.usage,
        times.whole_ms,
        times.turns,
        ended.error_code,
        ended.message,
        ended.parsed,
        ended.output_error,
    )


class _Times:
    """Durations of one request, from the times of its events."""

    def __init__(self) -> None:
        self.turns = 0
        self.whole_ms = 0.0
        self._begun: dict[str, float] = {}
        self._took: dict[str, float] = {}
        self._accepted = 0.0

    def of(self, tool_id: str) -> float:
        return self._took.get(tool_id, 0.0)

    def apply(self, event: Any) -> None:
        now = event.recorded_at.timestamp() * 1000
        match event.data:
            case ev.InputAccepted():
                self._accepted = now
            case ev.TurnStarted():
                self.turns += 1
            case ev.ToolStarted():
                self._begun[event.tool_id] = now
            case ev.ToolCompleted() | ev.ToolFailed() | ev.ToolCancelled() | ev.ToolOutcomeUnknown():
                if event.tool_id in self._begun:
                    self._took[event.tool_id] = now - self._begun[event.tool_id]
        self.whole_ms = now - self._accepted


async def _times(session: Session) -> _Times:
    times = _Times()
    for event in await session.recorded():
        times.apply(event)
    return times
