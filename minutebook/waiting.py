"""Waiting for a request of one's own: from its input's receipt to how it ended.

Imported by `minutebook.session`. It watches; nothing here makes anything happen.
"""

from __future__ import annotations

from domain.envelope import Recorded
from domain.errors import StreamError
from domain.request import RequestState
from minutebook.feed import Feed
from minutebook.receipts import InputReceipt, RequestResult
from minutebook.stream_events import Error, Result, StreamEvent
from minutebook.streaming import RequestStream, SessionFeed
from minutebook.structured import Formats


class Unstreamed:
    """The requests of a handle that nobody has streamed yet, by where they were accepted.

    Args:
        active: the request that was open when the handle was made.
    """

    def __init__(self, active: RequestState | None) -> None:
        self.accepted = {active.request_id: active.accepted_sequence} if active is not None else {}

    def apply(self, event: Recorded) -> None:
        """Note a request."""
        if event.type == "request_accepted" and event.request_id is not None:
            self.accepted[event.request_id] = event.sequence


async def request_of(feed: Feed, receipt: InputReceipt) -> tuple[str, int]:
    """The request that an input becomes, and where it was accepted.

    Raises:
        StreamError: DETACHED, the session was left before that.
        MinutebookError: what stopped the session.
    """
    async for event in SessionFeed(feed, receipt.sequence - 1):
        if isinstance(event, StreamEvent) or event.type != "request_accepted":
            continue
        if event.data.input_id == receipt.input_id:
            assert event.request_id is not None
            return event.request_id, event.sequence
    raise StreamError("DETACHED", "the session was left before the request began; resume it")


async def result_of(feed: Feed, request_id: str, accepted: int, formats: Formats) -> RequestResult:
    """How a request ended, once it has. Raises as `RequestStream` does."""
    async for event in RequestStream(feed, request_id, accepted, False):
        if isinstance(event, Result):
            said = formats.read(request_id, event.content)
            return RequestResult(
                request_id,
                "completed",
                event.content,
                event.usage,
                parsed=said.parsed,
                output_error=said.error,
            )
        if isinstance(event, Error):
            status = "interrupted" if event.code == "REQUEST_INTERRUPTED" else "failed"
            return RequestResult(request_id, status, "", {}, event.code, event.message)
    raise AssertionError("a stream ends with Result or Error")
