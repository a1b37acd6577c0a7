"""The chain over stored bytes, followed row by row at hashing speed.

No payload is decoded and no rule is known here: it proves that the rows are
those that were sealed, in their order, each with its own content, and that the
envelopes fit together. Holds nothing but the last row's place.
"""

from __future__ import annotations

from typing import Any

import orjson

from domain.envelope import Stored, commitment, genesis, link
from domain.errors import Corrupt


class ChainCheck:
    """Follows one session's rows from the first.

    `sequence` and `head` stand at the last row that fits; `redacted` counts rows
    without content; `command_id`, `first`, `is_whole` say where the last row is in
    its command.
    """

    __slots__ = (
        "command_id",
        "first",
        "head",
        "index",
        "redacted",
        "sequence",
        "session_id",
        "size",
        "token",
    )

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.sequence = 0
        self.head = genesis(session_id)
        self.token = 0
        self.redacted = 0
        self.command_id = ""
        self.index, self.size, self.first = 0, 1, 0

    @property
    def is_whole(self) -> bool:
        """Whether the last row ends its command."""
        return self.index == self.size - 1

    def follow(self, row: Stored) -> None:
        """Check one more row.

        Raises:
            Corrupt: naming the sequence and the check: sequence, chain, envelope,
                payload, causation, token or command. The place stays as it was.
        """
        if row.sequence != self.sequence + 1:
            raise Corrupt("sequence", str(self.sequence + 1), row.sequence, self.sequence + 1)
        head = link(self.head, row.envelope)
        if head != row.head:
            raise Corrupt("chain", "the head that follows from the rows before", row.head.hex(), row.sequence)
        try:
            plain = orjson.loads(row.envelope)
            self._check_content(row, plain)
            self._check_place(row, plain)
            self._check_command(row.sequence, plain["command"])
        except (ValueError, KeyError, TypeError) as e:
            raise Corrupt("envelope", "an envelope of this format", row.envelope[:80], row.sequence) from e
        self.sequence, self.head = row.sequence, head

    def _check_content(self, row: Stored, plain: dict[str, Any]) -> None:
        payload, salt = row.payload, row.salt
        if payload is None or salt is None:
            if payload is not None or salt is not None:
                raise Corrupt("payload", "payload and salt removed together", "one of them", row.sequence)
            self.redacted += 1
            return
        if commitment(salt, payload).hex() != plain["payload"]["commitment"]:
            raise Corrupt("payload", "the content the envelope commits to", payload[:80], row.sequence)

    def _check_place(self, row: Stored, plain: dict[str, Any]) -> None:
        topic = f"{plain['type']}@{plain['version']}"
        if topic != row.topic or plain["sequence"] != row.sequence or plain["session_id"] != self.session_id:
            expected = f"the row's own {(self.session_id, row.sequence, row.topic)}"
            raise Corrupt("envelope", expected, (plain["session_id"], plain["sequence"], topic), row.sequence)
        cause = plain["causation"]
        if cause is not None and not 0 < cause < row.sequence:
            raise Corrupt("causation", f"a sequence below {row.sequence}", cause, row.sequence)
        fence = plain["recorded_by"]
        token = fence["token"] if fence is not None else 0
        if token < self.token:
            raise Corrupt("token", f"a fencing token of at least {self.token}", token, row.sequence)
        self.token = token

    def _check_command(self, sequence: int, command: dict[str, Any]) -> None:
        id_, index, size = command["id"], command["index"], command["size"]
        whole = self.index == self.size - 1
        if type(id_) is not str:
            raise TypeError("a command id is text")
        if index == 0 and whole and id_ != self.command_id and size > 0:
            self.first = sequence
        elif id_ != self.command_id or index != self.index + 1 or size != self.size or index >= size:
            expected = f"event {self.index + 1} of {self.size} of command {self.command_id}"
            if whole:
                expected = "the first event of a new command"
            raise Corrupt("command", expected, f"event {index} of {size} of command {id_}", sequence)
        self.command_id, self.index, self.size = id_, index, size
