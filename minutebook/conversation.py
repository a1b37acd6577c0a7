"""The conversation of a session, and its form for each provider in use.

What is here follows the journal, event by event, also before it is durable. How a
request is put together without walking the history is in `minutebook.wire`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from domain import events as ev
from domain.envelope import Recorded
from domain.model_ports import ModelProvider, Parameters, ToolSpec
from domain.ports import Blob, JournalReader
from minutebook.attachments import REFUSED, Attachments
from minutebook.interactions import Decision
from minutebook.wire import Wire
from projections.transcript import Transcript, UserItem


class Conversation:
    """A transcript and its wire forms: of the provider that is asked, and of one that will be.

    Args:
        provider: the one that is asked first.
    """

    def __init__(self, provider: ModelProvider) -> None:
        self.transcript = Transcript()
        #: Inputs that a person changed, by call, while the call is open.
        self.updated_inputs: dict[str, dict[str, Any]] = {}
        #: Metadata of inputs that wait, by input.
        self.metadata: dict[str, dict[str, Any]] = {}
        #: Answers given in this session, by interaction.
        self.decisions: dict[str, Decision] = {}
        first = Wire(provider, self.transcript.items, Attachments(provider.capabilities))
        #: The conversation as each provider in use gets it.
        self._wires = [first]
        #: The one that was got ready and not asked yet.
        self._next: Wire | None = first

    def check(self, content: str | list[dict[str, Any]]) -> None:
        """Refuse an input that could never be sent. Raises ValueRefused."""
        self._upcoming.provider.encode(UserItem(0, "", content))

    def give(self, blobs: Iterable[Blob]) -> None:
        """Take the bytes of an input that was just accepted."""
        kept = tuple(blobs)
        for wire in self._wires:
            wire.attachments.give(kept)

    @property
    def _upcoming(self) -> Wire:
        """The form that what comes in now will be sent in."""
        return self._next or self._wires[0]

    @property
    def attachments(self) -> Attachments:
        """Bytes of images and files, while they are needed."""
        return self._upcoming.attachments

    def apply(self, event: Recorded) -> None:
        """Fold one event."""
        self.transcript.apply(event)
        self._attach(event)
        match event.data:
            case ev.PermissionResolved():
                self._resolved(event, event.data)
            case ev.ToolResumed():
                assert event.tool_id is not None
                self.decisions[event.tool_id] = Decision(event.tool_id, "answered", event.sequence)
            case ev.InputAccepted() if event.data.metadata:
                self.metadata[event.data.input_id] = event.data.metadata
            case ev.RequestAccepted() | ev.InputCancelled():
                self.metadata.pop(event.data.input_id, None)
            case ev.TurnCompleted() | ev.TurnAborted():
                self.updated_inputs.clear()

    def _attach(self, event: Recorded) -> None:
        for attachments in (wire.attachments for wire in self._wires):
            match event.data:
                case ev.InputAccepted():
                    attachments.accepted(event.data.input_id, event.data.content)
                case ev.InputApplied():
                    attachments.applied(event.data.input_id)
                case ev.InputCancelled():
                    attachments.cancelled(event.data.input_id)
                case ev.ModelRequestFailed() if event.data.error_code in REFUSED:
                    attachments.refused(self.transcript.items, event.data.error_code)

    def _resolved(self, event: Recorded, data: ev.PermissionResolved) -> None:
        assert event.tool_id is not None
        decision = Decision(data.permission_id, data.verdict, event.sequence)
        self.decisions[data.permission_id] = decision
        if data.updated_input is not None:
            self.updated_inputs[event.tool_id] = data.updated_input

    # --- what goes out -------------------------------------------------------------------

    def request(
        self, provider: ModelProvider, tools: Sequence[ToolSpec], parameters: Parameters
    ) -> tuple[bytes, str]:
        """The body to send next to this provider, and its digest; see `Wire.request`."""
        asked = self._wire(provider)
        if self._next is asked:
            self._next = None
        self._note_changed()
        # What is not asked any more and not asked next would only hold memory.
        self._wires = [wire for wire in self._wires if wire in (asked, self._next)]
        return asked.request(tools, parameters)

    async def prepare(self, provider: ModelProvider, journal: JournalReader) -> None:
        """Get ready to ask this provider next, with the images and files that it takes.

        Raises:
            StoreFailure: the store cannot be read.
        """
        wire = self._wire(provider)
        self._note_changed()
        await wire.load_media(journal)
        self._next = wire

    def _wire(self, provider: ModelProvider) -> Wire:
        found = next((wire for wire in self._wires if wire.provider is provider), None)
        if found is None:
            found = Wire(provider, self.transcript.items, self.attachments.beside(provider.capabilities))
            self._wires.append(found)
        return found

    def _note_changed(self) -> None:
        changed = self.transcript.take_changed()
        for wire in self._wires:
            wire.note(changed)
