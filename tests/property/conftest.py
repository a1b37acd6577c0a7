"""The executable model of the rules and the plan, loaded from where it is."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.limits import MAX_ATTEMPTS_PER_TURN, MAX_RUNS_PER_CALL
from tests.property.twin import Model

_MODULES = ("model", "rules", "step", "explore")


@pytest.fixture(scope="session")
def model(model_dir: Path) -> Iterator[Model]:
    """The model's modules, with our limits in place of theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(model_dir))
        patch.setattr(sys, "dont_write_bytecode", True)
        loaded = {name: importlib.import_module(name) for name in _MODULES}
        for name in ("model", "rules", "step"):
            patch.setattr(loaded[name], "MAX_ATTEMPTS", MAX_ATTEMPTS_PER_TURN)
        patch.setattr(loaded["step"], "MAX_RUNS", MAX_RUNS_PER_CALL)
        yield Model(**loaded)
        for name in _MODULES:
            del sys.modules[name]
