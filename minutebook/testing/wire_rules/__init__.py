"""What a request has to be like for the strictest servers of each dialect to take it.

    CHECKS["openai-chat"](body)

Each check takes a whole body as plain values and raises AssertionError with what is
wrong. Pure; needs neither an SDK nor an encoder of ours. For tests of providers and
of whatever builds histories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from minutebook.testing.wire_rules import anthropic, openai_chat, openai_responses

Check = Callable[[dict[str, Any]], None]

#: By the word that a provider records as its `api`.
CHECKS: Final[Mapping[str, Check]] = {
    "anthropic-messages": anthropic.check,
    "openai-chat": openai_chat.check,
    "openai-responses": openai_responses.check,
}
