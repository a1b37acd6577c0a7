"""Every error that the library raises on purpose.

The branches answer one question, what may the caller do next:

    Rejected          nothing was written; change the call and try again
    Conflict          nothing was written; read where things stand, then retry
    Fenced            this handle may write no more; open the session again
    OutcomeUnknown    it may or may not have been written; settle it first
    Corrupt           stop; the stored bytes are not what was written
    StoreFailure      the engine failed; the cause is kept
    RecoveryRequired  somebody has to say what happened

Each class has a stable `code`. Attributes carry the parts of the message.
"""

from __future__ import annotations

from typing import Any, ClassVar

from domain.preview import preview


class MinutebookError(Exception):
    """The root of the tree. `code` is stable; the text is for people."""

    code: ClassVar[str] = "MINUTEBOOK_ERROR"

    @property
    def details(self) -> dict[str, Any]:
        """The error's own attributes, as plain values."""
        return {k: v for k, v in vars(self).items() if not k.startswith("_")}


# --- nothing was written ---------------------------------------------------


class Rejected(MinutebookError):
    """Refused; nothing was written. Change the call."""

    code = "REJECTED"


class InvalidId(Rejected, ValueError):
    """An id is not one path segment of the allowed alphabet."""

    code = "INVALID_ID"

    def __init__(self, kind: str, value: object) -> None:
        self.kind, self.value = kind, preview(value)
        super().__init__(
            f"expected a {kind} id: a letter or digit, then up to 127 of A-Z a-z 0-9 . _ -, "
            f"without '..'; got {self.value}. Ids are refused, never cleaned up: choose another."
        )


class InvalidOptions(Rejected, ValueError):
    """A configuration that cannot work. Nothing was opened or sent."""

    code = "INVALID_OPTIONS"

    def __init__(self, option: str, expected: str, actual: object) -> None:
        self.option, self.expected, self.actual = option, expected, preview(actual)
        super().__init__(f"option {option!r}: expected {expected}, got {self.actual}")


class CapabilityUnsupported(InvalidOptions):
    """The provider's API cannot do what an option asks for. Nothing was opened or sent."""

    code = "CAPABILITY_UNSUPPORTED"


class AssemblyFailed(Rejected):
    """A model, an alias or a provider's name leads nowhere. Nothing was written; nothing changed."""

    code = "ASSEMBLY_FAILED"

    def __init__(self, what: str, name: object, known: str) -> None:
        self.what, self.name, self.known = what, preview(name), known
        super().__init__(f"no {what} {self.name} is configured; there are: {known}")


class ValueRefused(Rejected, ValueError):
    """A value cannot be kept in a journal; `path` says where in it."""

    code = "VALUE_REFUSED"

    def __init__(self, path: str, expected: str, actual: object) -> None:
        # Keys are whatever somebody chose: a path is shown like any other value.
        self.path, self.expected, self.actual = preview(path, 1000)[1:-1], expected, preview(actual)
        super().__init__(f"at {self.path}: expected {expected}, got {self.actual}")


class RuleViolated(Rejected):
    """An event may not follow the journal as it stands.

    Raised on writing (nothing is written) and on replay, where it means that
    the journal was not written by these rules (see `JournalBlocked`).
    """

    code = "DURABLE_EVENT_INVALID_TRANSITION"

    def __init__(self, rule: str, event_type: str, sequence: int | None = None) -> None:
        self.rule, self.event_type, self.sequence = rule, event_type, sequence
        where = f" at sequence {sequence}" if sequence is not None else ""
        super().__init__(f"{event_type}{where} is not allowed: {rule}")


class SendRejected(Rejected):
    """An input was not accepted. `reason` is one of a closed list of words."""

    code = "SEND_REJECTED"

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}: {message}")


class UnsettledEffectsFull(SendRejected):
    """Too many effects of unknown outcome; no new work until some are reconciled."""

    code = "UNSETTLED_EFFECTS_FULL"

    def __init__(self, count: int, limit: int) -> None:
        self.count, self.limit = count, limit
        told = f"{count} effects have an unknown outcome (limit {limit})"
        super().__init__(self.code, f"{told}; settle some with reconcile_tool_outcome")


class SessionNotFound(Rejected, LookupError):
    """No such session in this store, for this owner."""

    code = "SESSION_NOT_FOUND"

    def __init__(self, session_id: str, store: str) -> None:
        self.session_id, self.store = session_id, store
        super().__init__(
            f"no session {session_id!r} in {store} for this owner. Check the id, the owner, and which "
            "journal it is; one in memory is gone with its process."
        )


class SessionExists(Rejected):
    """A session of that id is already there; resume it or choose another id."""

    code = "SESSION_EXISTS"

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r} exists: resume it, or choose another id")


class SessionClosed(Rejected):
    """The session or this handle is closed. Reads stay allowed."""

    code = "SESSION_CLOSED"

    def __init__(self, session_id: str, final: bool) -> None:
        self.session_id, self.final = session_id, final
        how = "is closed for good" if final else "was left by this handle; resume it"
        super().__init__(f"session {session_id!r} {how}")


class SessionSuspending(Rejected):
    """The session is being handed over; this handle takes no more work. Nothing was written."""

    code = "SESSION_SUSPENDING"

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"session {session_id!r} is being handed over to another worker; send it there, "
            "or call suspend_for_handoff again if it failed"
        )


class RuntimeQuarantined(Rejected):
    """This handle could not be closed and takes no more work: code of the application does not
    stop. Nothing was written. Close it again once that code has ended, or leave its block."""

    code = "RUNTIME_QUARANTINED"

    def __init__(self, session_id: str, pending_callbacks: tuple[str, ...]) -> None:
        self.session_id, self.pending_callbacks = session_id, pending_callbacks
        super().__init__(f"session {session_id!r} takes no more work: {', '.join(pending_callbacks)} goes on")


class StreamError(Rejected):
    """There is nothing to stream, or it would wait for itself. `reason` is a stable word."""

    code = "STREAM_ERROR"

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}: {message}")


class InteractionError(Rejected):
    """An answer does not fit an open interaction. `reason` is a stable word."""

    code = "INTERACTION_ERROR"

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}: {message}")


class RecoveryRejected(Rejected):
    """The plan does not call for this decision."""

    code = "DURABLE_RECOVERY_INVALID_STATE"

    def __init__(self, action: str, message: str) -> None:
        self.action = action
        super().__init__(f"{action}: {message}")


class UnsafeRollover(RecoveryRejected):
    """A rollover would forget a non-idempotent effect; `complete_turn` is the way on."""

    code = "UNSAFE_ROLLOVER"


# --- somebody else wrote first ---------------------------------------------


class Conflict(MinutebookError):
    """Nothing was written: the journal moved on. Read it again, then decide anew."""

    code = "CONFLICT"


class HeadConflict(Conflict):
    """The session's head is not the expected one."""

    code = "DURABLE_EVENT_SEQUENCE_CONFLICT"

    def __init__(self, session_id: str, expected: int, actual: int) -> None:
        self.session_id, self.expected, self.actual = session_id, expected, actual
        found = f"session {session_id!r}: expected head {expected}, found {actual}; "
        if actual > expected:
            super().__init__(f"{found}another writer was first. Read the journal again.")
        else:
            super().__init__(
                f"{found}the journal has lost its end, or is another one: a server took over that did not "
                "have it all, or a copy was restored. Read the journal again, and let go of what came of "
                "events that it does not have."
            )


class CursorMismatch(Conflict):
    """A reader would go on from a place that the journal does not have: what it has read is not what is
    there. Nothing is given out. Read the session again from its beginning.

    Args:
        expected: the reader's place; `actual`: what the journal has there.
    """

    code = "JOURNAL_CURSOR_MISMATCH"

    def __init__(self, session_id: str, expected: str, actual: str) -> None:
        self.session_id, self.expected, self.actual = session_id, expected, actual
        super().__init__(
            f"session {session_id!r}: expected {expected}, found {actual}; the journal was restored from a "
            "copy, lost its end, or is another one. Read it again from its beginning, and let go of what "
            "came of events that it does not have."
        )


class CommandConflict(Conflict):
    """A command id was used before, for something else."""

    code = "DURABLE_COMMAND_CONFLICT"

    def __init__(self, session_id: str, command_id: str) -> None:
        self.session_id, self.command_id = session_id, command_id
        super().__init__(
            f"session {session_id!r}: command {command_id!r} was used before with other "
            "content. Use a new command id for a new decision."
        )


class LeaseConflict(Conflict):
    """Another live holder has the session.

    Args:
        expires_at: until when, by the wall clock of the store; ISO 8601.
        judged_by: which clock decides, as part of a sentence.
    """

    code = "DURABLE_EXECUTION_LEASE_CONFLICT"

    def __init__(
        self, session_id: str, holder: str, expires_at: str, judged_by: str = "by the store's clock"
    ) -> None:
        self.session_id, self.holder, self.expires_at = session_id, holder, expires_at
        self.judged_by = judged_by
        super().__init__(
            f"session {session_id!r} is held by {holder} until {expires_at}, {judged_by}. "
            "Wait, stop that holder, or use another session."
        )


# --- this handle may write no more -----------------------------------------


class Fenced(MinutebookError):
    """This handle may write no more. Open the session again."""

    code = "JOURNAL_FENCED"
    #: The end of the message, where there is more to say than `why`.
    way_on: ClassVar[str] = ""

    def __init__(self, session_id: str, why: str) -> None:
        self.session_id, self.why = session_id, why
        super().__init__(f"session {session_id!r} takes no more events from here: {why}{self.way_on}")


class LeaseLost(Fenced):
    """The lease is not ours any more, or it ran out."""

    code = "DURABLE_EXECUTION_LEASE_LOST"


class LeaseRequired(Fenced):
    """The session has been leased before; writing needs a lease."""

    code = "DURABLE_EXECUTION_LEASE_REQUIRED"


class OutcomeUnknown(Fenced):
    """A commit may or may not have happened. Fenced until that is settled, by `Journal.settle` or by
    whoever opens the session next: then it is there, or cannot come any more."""

    code = "DURABLE_COMMIT_OUTCOME_UNKNOWN"
    way_on = "; whether it was written is settled when the session is next opened"


# --- closing and handing over ------------------------------------------------


class CloseError(MinutebookError):
    """A handle was not closed: code of the application goes on although it was told to stop.

    The lease is kept and nothing new begins. Close it again once that code has ended, or leave
    the session's block.

    Args:
        retryable: True: `close` may be called again on this handle.
        pending_callbacks: calls and questions whose code goes on.
    """

    code = "SESSION_CLOSE_PENDING_CALLBACKS"
    retryable: ClassVar[bool] = True

    def __init__(self, session_id: str, pending_callbacks: tuple[str, ...]) -> None:
        self.session_id, self.pending_callbacks = session_id, pending_callbacks
        told = f"{', '.join(pending_callbacks)} goes on although told to stop"
        super().__init__(f"session {session_id!r} was not closed: {told}; close it again once that has ended")


class HandoffError(MinutebookError):
    """A session was not handed over. `code` is that of the class; see there for what to do.

    Args:
        retryable: whether `suspend_for_handoff` may be called again on this handle.
        closed: whether this handle is closed now; where the session stands is in its journal.
        active_subagent_ids, active_shell_ids: what runs in the background.
        pending_callbacks: calls and questions whose code goes on although it was told to stop.
    """

    code = "SESSION_HANDOFF_FAILED"
    retryable: ClassVar[bool] = False
    closed: ClassVar[bool] = False

    def __init__(
        self,
        session_id: str,
        why: str,
        *,
        active_subagent_ids: tuple[str, ...] = (),
        active_shell_ids: tuple[str, ...] = (),
        pending_callbacks: tuple[str, ...] = (),
    ) -> None:
        self.session_id, self.why = session_id, why
        self.active_subagent_ids, self.active_shell_ids = active_subagent_ids, active_shell_ids
        self.pending_callbacks = pending_callbacks
        super().__init__(f"session {session_id!r} was not handed over: {why}")


class HandoffNotConfigured(HandoffError):
    """The store does not outlive this process: nobody could go on. The session runs as before."""

    code = "SESSION_HANDOFF_NOT_CONFIGURED"


class HandoffActiveWork(HandoffError):
    """Work runs in the background. The session runs as before; stop that work, then call again."""

    code = "SESSION_HANDOFF_ACTIVE_WORK"
    retryable = True


class HandoffPending(HandoffError):
    """Code of the application goes on although it was told to stop. The lease is kept and nothing
    new begins; call again once that code has ended."""

    code = "SESSION_HANDOFF_PENDING_CALLBACKS"
    retryable = True


class HandoffFailed(HandoffError):
    """It failed after things had been stopped, `__cause__` says why. This handle is closed; resume
    the session from its journal, here or elsewhere."""

    code = "SESSION_HANDOFF_FAILED"
    closed = True


# --- the stored bytes are not what was written ------------------------------


class Corrupt(MinutebookError):
    """The journal cannot be trusted from `sequence` on. Stop; nothing was changed."""

    code = "SESSION_STORE_CORRUPT"

    def __init__(self, where: str, expected: str, actual: object, sequence: int | None = None) -> None:
        self.where, self.expected, self.actual = where, expected, preview(actual)
        self.sequence = sequence
        at = f" at sequence {sequence}" if sequence is not None else ""
        super().__init__(f"{where}{at}: expected {expected}, got {self.actual}")


class JournalBlocked(Corrupt):
    """The journal holds something that these rules cannot fold: an unknown type,
    a newer version, a broken rule. It is shown raw, never skipped."""

    code = "JOURNAL_BLOCKED"


# --- the engine --------------------------------------------------------------


class StoreFailure(MinutebookError):
    """The storage engine failed. `__cause__` is the engine's own error."""

    code = "SESSION_STORE_FAILED"

    def __init__(self, store: str, message: str) -> None:
        self.store = store
        super().__init__(f"{store}: {message}")


class StoreReadFailed(StoreFailure):
    """Reading failed."""

    code = "SESSION_STORE_READ_FAILED"


class StoreWriteFailed(StoreFailure):
    """Writing failed and nothing was written."""

    code = "SESSION_STORE_WRITE_FAILED"


class StoreTimeout(StoreFailure):
    """The store did not answer in time; nothing was written."""

    code = "SESSION_STORE_LOCK_TIMEOUT"


class StoreUnsupported(StoreFailure):
    """The file is there but this library cannot use it as it is."""

    code = "STORE_UNSUPPORTED"


class NotAJournal(StoreUnsupported):
    """The path is no journal: missing, a directory, not SQLite, another schema."""

    code = "NOT_A_JOURNAL"


class NewerFormat(StoreUnsupported):
    """The journal was written by a newer version; it was not touched."""

    code = "JOURNAL_FORMAT_NEWER"


class OlderFormat(StoreUnsupported):
    """The journal was written by an older version: it can be read, and written once it is migrated."""

    code = "JOURNAL_FORMAT_OLDER"


# --- what is shown of a session ---------------------------------------------


class StaleView(MinutebookError):
    """Something that shows a session could not take an event. The journal has it, and the session goes
    on; resume the session to see it again.

    Args:
        sequence: the last event that was taken.
        cause: what it failed with; a defect.
    """

    code = "VIEW_STALE"

    def __init__(self, session_id: str, sequence: int, cause: Exception) -> None:
        self.session_id, self.sequence = session_id, sequence
        self.__cause__ = cause
        super().__init__(
            f"session {session_id!r}: this view of it ends at event {sequence}; the next commit could not be "
            f"shown: {preview(cause)}. All of it is in the journal; resume the session to see it again."
        )


# --- models and tools ----------------------------------------------------------


class ModelFailed(MinutebookError):
    """A model attempt ended without a usable response.

    Args:
        kind: a stable word, e.g. `rate_limited`, `stream_cut`, `bad_request`.
        retryable: whether a new attempt may succeed.
        bytes_sent: whether the request may have reached the provider (and been billed).
        retry_after_s: seconds the provider asked us to wait, if it said so.
        received_digest: SHA-256 (hex) of what had arrived, if anything had.
    """

    code = "MODEL_FAILED"

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        retryable: bool = False,
        bytes_sent: bool = True,
        retry_after_s: float | None = None,
        received_digest: str | None = None,
        status: int | None = None,
    ) -> None:
        self.kind, self.message = kind, message
        self.retryable, self.bytes_sent = retryable, bytes_sent
        self.retry_after_s, self.received_digest, self.status = retry_after_s, received_digest, status
        super().__init__(f"{kind}: {message}")


class ReplayMiss(MinutebookError):
    """An offline replay was asked for an attempt that the journal does not hold."""

    code = "REPLAY_MISS"

    def __init__(self, attempt_id: str) -> None:
        self.attempt_id = attempt_id
        super().__init__(f"the recording holds no model attempt {attempt_id!r}; replay opens no socket")


class ArgumentsRefused(Rejected, ValueError):
    """A call's raw argument text is not one JSON object that fits the tool."""

    code = "MALFORMED_ARGUMENTS"

    def __init__(self, reason: str, raw: str) -> None:
        self.reason, self.raw = reason, preview(raw, 200)
        super().__init__(f"{reason}; got {self.raw}")
