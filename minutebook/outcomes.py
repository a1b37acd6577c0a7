"""What to record of a flight that has ended: a response, a look-up, a tool's run.

Pure: from what came to the command that records it. Imported by `minutebook.flights`.
"""

from __future__ import annotations

from domain import model_attempt, tool
from domain.canonical import encode
from domain.decider import Command
from domain.errors import ModelFailed, ValueRefused
from domain.limits import MAX_CALLS_PER_RESPONSE, MAX_PAYLOAD_BYTES
from domain.model_ports import Response
from domain.ports import Blob
from domain.values import Interrupt, SideEffect
from minutebook import known_secrets
from minutebook.carrying import RunTool
from minutebook.tool_runner import Cancelled, Completed, Failed, Finished, TimedOut


def defect(error: BaseException) -> ModelFailed:
    """A provider that raised what its port does not promise: nobody has masked that yet."""
    told = known_secrets.masked(f"{type(error).__name__}: {error}")
    return ModelFailed("provider_error", told[:2000])


def checked(response: Response) -> Command:
    """A response, unless it is more than an event may hold."""
    count = len(response.calls)
    if count > MAX_CALLS_PER_RESPONSE:
        message = f"{count} calls in one response, the limit is {MAX_CALLS_PER_RESPONSE}"
        return model_attempt.Fail(ModelFailed("too_many_calls", message))
    finish = model_attempt.Finish(response)
    try:
        size = len(encode(model_attempt.keep(response).model_dump(mode="python")))
    except ValueRefused as e:
        return model_attempt.Fail(ModelFailed("unusable_response", str(e)))
    if size > MAX_PAYLOAD_BYTES - 1024:
        message = f"a response of {size} bytes, the limit is {MAX_PAYLOAD_BYTES - 1024}"
        return model_attempt.Fail(ModelFailed("response_too_large", message))
    return finish


def kept(command: model_attempt.Reconcile) -> Command:
    """What was looked up, unless it is more than an event may hold."""
    if command.response is None:
        return command
    end = checked(command.response)
    if not isinstance(end, model_attempt.Fail):
        return command
    return model_attempt.Reconcile("failed", command.evidence, message=end.error.message)


def cut_off(launch: RunTool, reason: str) -> tool.Command:
    """A tool that was cancelled while it ran: did it stop before its effect?"""
    harmless = launch.side_effect is SideEffect.PURE
    if harmless or (launch.definition.interrupt is Interrupt.CANCEL and launch.definition.is_async):
        return tool.Cancel(reason)
    return tool.LoseSight(f"{reason}: cancelled while it ran")


def recorded(launch: RunTool, finished: Finished) -> tuple[tool.Command, tuple[Blob, ...]]:
    """The end of a tool's run, and the blobs that its result refers to."""
    match finished:
        case Completed():
            outcome = finished.outcome
            fields = {
                "output": outcome.output_text,
                "value": None if outcome.value == outcome.output_text else outcome.value,
                "kept": outcome.kept.value,
                "display": outcome.display,
                "messages": list(outcome.messages),
                "notes": list(outcome.notes),
                "blobs": [blob.digest for blob in outcome.blobs],
                "raw_digest": outcome.raw_digest,
                "original_bytes": outcome.original_bytes,
            }
            return tool.Complete(fields), outcome.blobs
        case Failed():
            return tool.Fail(finished.error["type"], finished.error["message"]), ()
        case Cancelled():  # at a place of its own choosing
            return tool.Cancel(finished.reason), ()
        case TimedOut():
            text = f"it did not end within {finished.timeout_s:g} s"
            if launch.side_effect is SideEffect.NON_IDEMPOTENT or finished.still_running:
                return tool.LoseSight(f"timeout: {text}"), ()
            return tool.Fail("Timeout", text), ()
