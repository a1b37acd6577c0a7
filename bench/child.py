"""One case, in a process of its own: told what to do in JSON, tells its figures in JSON.

Run by `bench.runner` with the case's interpreter; it must need nothing but the
standard library and what the case itself imports.

    python -m bench.child '{"program": "bench.limits.disk:probe", "arguments": {}, ...}'
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any, Final

from bench.conversations import Place, loaded
from bench.workload import NotHereError

#: What the line with the figures begins with; anything else that a library prints is ignored.
RESULT: Final = "BENCH-RESULT "
SKIPPED: Final = "BENCH-SKIPPED "


def run(order: dict[str, Any]) -> str:
    """The line that tells how a case went."""
    place = Place(Path(order["directory"]), order["url"], order["journals"])
    arguments: dict[str, Any] = order["arguments"]
    try:
        program = loaded(order["program"])
        if "system" in arguments:
            loaded(arguments["system"])
    except ImportError as e:
        if not order["optional"]:
            raise
        return SKIPPED + str(e)
    try:
        return RESULT + json.dumps(_rounded(program(place, **arguments)))
    except NotHereError as e:
        return SKIPPED + " ".join(str(e).split())


def _rounded(value: Any) -> Any:
    """Four digits: nothing here is known better."""
    match value:
        case float():
            return float(f"{value:.4g}")
        case dict():
            return {key: _rounded(each) for key, each in value.items()}
        case list():
            return [_rounded(each) for each in value]
    return value


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of other people's libraries; ours are tested with errors
    print("\n" + run(json.loads(sys.argv[1])), flush=True)
    os._exit(0)  # some libraries keep threads that would not end
