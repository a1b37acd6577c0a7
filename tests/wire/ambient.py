"""One attempt with each provider type; run as a process of its own, whose environment the test chose.

python -m tests.wire.ambient PORT KEY
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import anyio

from adapters.providers import make_provider
from domain.model_ports import Parameters
from minutebook.provider_config import ProviderConfig
from minutebook.testing.attempts import attempt
from projections.transcript import UserItem

#: Each type in each of its dialects; `{}` is the server's address.
CONFIGURED: Final[dict[str, dict[str, Any]]] = {
    "anthropic": {"type": "anthropic", "base_url": "{}"},
    "openai": {"type": "openai", "base_url": "{}/v1"},
    "openai responses": {"type": "openai", "base_url": "{}/v1", "api": "responses"},
    "azure deployment": {
        "type": "azure-openai",
        "base_url": "{}",
        "deployment": "gpt",
        "api_version": "2024-10-21",
    },
    "azure v1": {"type": "azure-openai", "base_url": "{}"},
    "azure responses": {"type": "azure-openai", "base_url": "{}", "api": "responses"},
    "gemini": {"type": "gemini", "base_url": "{}"},
    "deepseek": {"type": "deepseek", "base_url": "{}"},
    "compatible": {"type": "openai-compatible", "base_url": "{}/v1"},
    "compatible responses": {"type": "openai-compatible", "base_url": "{}/v1", "api": "responses"},
}


async def ask(options: dict[str, Any], address: str, key: str | None) -> str:
    """The text that one provider answers with, or how it failed."""
    given = options | {"base_url": options["base_url"].format(address), "api_key": key}
    provider = make_provider(ProviderConfig(**given))
    items = [provider.encode(UserItem(1, "i", "hello"))]
    found = await attempt(provider, provider.body(items, [], Parameters("a-model", max_output_tokens=9)))
    await provider.aclose()
    return found.text if found.failure is None else str(found.failure)


async def main(*arguments: str) -> None:
    """Ask each provider once and print what they answered."""
    address, key = arguments
    answers = {name: await ask(options, address, key) for name, options in CONFIGURED.items()}
    print(json.dumps(answers))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
