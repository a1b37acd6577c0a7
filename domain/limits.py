"""The fixed limits of the journal and the session. Beyond each lies a typed refusal."""

from __future__ import annotations

from typing import Final

MAX_EVENTS_PER_COMMIT: Final = 128
SNAPSHOT_INTERVAL: Final = 128
#: One snapshot and at most this many events are read to know where a session stands.
MAX_TAIL_EVENTS: Final = SNAPSHOT_INTERVAL + MAX_EVENTS_PER_COMMIT

MAX_PAYLOAD_BYTES: Final = 1024 * 1024
MAX_BLOB_BYTES: Final = 64 * 1024 * 1024
MAX_TOOL_OUTPUT_BYTES: Final = 10 * 1024 * 1024
MAX_JSON_DEPTH: Final = 100

MAX_PENDING_INPUTS: Final = 32
MAX_PENDING_INPUT_BYTES: Final = 1024 * 1024
#: Images and files of inputs that wait; their bytes are in memory until they are applied.
MAX_PENDING_MEDIA_BYTES: Final = 64 * 1024 * 1024
MAX_UNSETTLED_EFFECTS: Final = 64
MAX_CALLS_PER_RESPONSE: Final = 60
MAX_RESPONSE_ID_CHARACTERS: Final = 512

MAX_ATTEMPTS_PER_TURN: Final = 4
MAX_RUNS_PER_CALL: Final = 3
MAX_TURNS: Final = 200

#: How long a call waits for a store that is busy or away, in seconds.
STORE_TIMEOUT_S: Final = 15.0
MAX_STORE_TIMEOUT_S: Final = 30.0
