"""Token counts of an Anthropic message under the names that every provider's counts have.

Pure. Anthropic counts what came from the cache and what went into it apart from
`input_tokens`; here `input_tokens` holds all of it, as OpenAI's count does, so that
one name means one thing. The parts are beside it.
"""

from __future__ import annotations

from typing import Any

from adapters.answer_facts import count, given_counts, within


def counts(usage: dict[str, Any]) -> dict[str, int]:
    """Counts by name, those that were given.

    Where the provider made several passes over the input (a compaction), its totals are
    of the last one only; what is billed is the sum over all of them.
    """
    passes = usage.get("iterations")
    if isinstance(passes, list) and passes and all(isinstance(one, dict) for one in passes):
        return _named({**usage, **_summed(passes)})
    return _named(usage)


_PASS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _summed(passes: list[dict[str, Any]]) -> dict[str, int]:
    given = {name: [count(one.get(name)) for one in passes] for name in _PASS}
    return {name: sum(found or 0 for found in values) for name, values in given.items()}


def _named(usage: dict[str, Any]) -> dict[str, int]:
    plain, output = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
    read = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    whole = None if plain is None else plain + (read or 0) + (written or 0)
    served = usage.get("server_tool_use")
    named = {
        "input_tokens": whole,
        "output_tokens": output,
        "total_tokens": None if whole is None or output is None else whole + output,
        "cached_input_tokens": read,
        "cache_write_tokens": written,
        "reasoning_tokens": within(usage.get("output_tokens_details"), "thinking_tokens"),
        **(_served(served) if isinstance(served, dict) else {}),
    }
    return given_counts(named)


def _served(served: dict[str, Any]) -> dict[str, int | None]:
    """Requests of the provider's own tools, which are billed one by one."""
    return {name: count(value) or None for name, value in served.items() if name.endswith("_requests")}
