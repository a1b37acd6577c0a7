"""The request body of the next model attempt, without walking the history.

Each transcript item is encoded once and kept as bytes; a request splices those
bytes. An item that changed (a call settled later) is encoded again, alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from domain import canonical
from domain import events as ev
from domain.envelope import Recorded
from domain.ports import ModelProvider, Parameters, ToolSpec
from minutebook.interactions import Decision
from projections.transcript import Transcript, UserItem


class Conversation:
    """A transcript and its wire form for one provider."""

    def __init__(self, provider: ModelProvider) -> None:
        self.transcript = Transcript()
        #: Inputs that a person changed, by call, while the call is open.
        self.updated_inputs: dict[str, dict[str, Any]] = {}
        #: Metadata of inputs that wait, by input.
        self.metadata: dict[str, dict[str, Any]] = {}
        #: Answers given in this session, by interaction.
        self.decisions: dict[str, Decision] = {}
        self._provider = provider
        self._encoded: list[bytes] = []
        self._chain: list[bytes] = []

    def check(self, content: str | list[dict[str, Any]]) -> None:
        """Refuse an input that could never be sent. Raises ValueRefused."""
        self._provider.encode(UserItem(0, "", content))

    def apply(self, event: Recorded) -> None:
        """Fold one event."""
        self.transcript.apply(event)
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

    def _resolved(self, event: Recorded, data: ev.PermissionResolved) -> None:
        assert event.tool_id is not None
        decision = Decision(data.permission_id, data.verdict, event.sequence)
        self.decisions[data.permission_id] = decision
        if data.updated_input is not None:
            self.updated_inputs[event.tool_id] = data.updated_input

    def request(self, tools: Sequence[ToolSpec], parameters: Parameters) -> tuple[bytes, str]:
        """The body to send next, and its digest.

        The digest (SHA-256, hex) chains the digests of the encoded items and ends
        with the tools and parameters, so it is found without hashing the history again.
        """
        self._encode_changed()
        rest = canonical.encode(
            {
                "tools": [[t.name, t.description, t.parameters] for t in tools],
                "model": parameters.model,
                "system_prompt": parameters.system_prompt,
                "temperature": parameters.temperature,
                "max_output_tokens": parameters.max_output_tokens,
                "extra": parameters.extra,
            }
        )
        head = self._chain[-1] if self._chain else b""
        digest = hashlib.sha256(head + hashlib.sha256(rest).digest()).hexdigest()
        return self._provider.body(self._encoded, tools, parameters), digest

    def _encode_changed(self) -> None:
        changed = self.transcript.take_changed()
        if not changed:
            return
        for position in changed:
            encoded = self._provider.encode(self.transcript.items[position])
            if position == len(self._encoded):
                self._encoded.append(encoded)
            else:
                self._encoded[position] = encoded
        self._link_from(changed[0])

    def _link_from(self, position: int) -> None:
        del self._chain[position:]
        head = self._chain[-1] if self._chain else b""
        for encoded in self._encoded[position:]:
            head = hashlib.sha256(head + hashlib.sha256(encoded).digest()).digest()
            self._chain.append(head)
