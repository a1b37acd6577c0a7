"""What the provider types of the chat dialect differ in: capabilities, and names of fields.

Pure. A server that nobody here knows ("openai-compatible") is credited with what nearly
all have; the rest is switched on by its configuration. Imported by `adapters.providers`
and by the adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from domain.model_ports import Capabilities
from projections.openai_chat_body import Server


@dataclass(frozen=True, slots=True)
class ChatType:
    """What servers of one type have, and how they want to be asked."""

    server: Server
    capabilities: Capabilities


#: Images are common, and a server without them says so; forced output and reasoning are
#: not, and a server without them may answer as if it had never been asked.
COMPATIBLE: Final = ChatType(Server(thinking_field=None), Capabilities(images=True))

CHAT_TYPES: Final[Mapping[str, ChatType]] = {
    "openai": ChatType(
        Server("max_completion_tokens", "reasoning_effort"),
        Capabilities(structured_output=True, thinking=True, images=True, files=True),
    ),
    "azure-openai": ChatType(
        Server("max_completion_tokens", "reasoning_effort"),
        Capabilities(structured_output=True, thinking=True, images=True),
    ),
    "gemini": ChatType(
        Server(thinking_field="google"), Capabilities(structured_output=True, thinking=True, images=True)
    ),
    # Its only forced output is "some JSON object".
    "deepseek": ChatType(
        Server(thinking_field="thinking", wants_reasoning=True), Capabilities(thinking=True)
    ),
    "openai-compatible": COMPATIBLE,
}


def chat_type(kind: str) -> ChatType:
    """What is known of a type; of others as much as of a compatible server."""
    return CHAT_TYPES.get(kind, COMPATIBLE)
