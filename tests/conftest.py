"""What every test may use: the event loop, Hypothesis profiles, the recordings.

Recordings of real providers are not part of the repository. A test that asks for
`wire_dir` runs where they are, and is left out, counted and reported where they
are not. This is the only place in the project that reads an environment variable.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

_ROOT = Path(__file__).parent.parent
_LEFT_OUT = pytest.StashKey[int]()

settings.register_profile("dev", deadline=None)
# No luck in a gate: the same examples every time, and more of them.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=200)
settings.load_profile("dev")


@pytest.fixture
def anyio_backend() -> str:
    """The loop under a test marked `anyio`; parametrize this name to run on others too."""
    return "asyncio"


@pytest.fixture(scope="session")
def wire_dir(pytestconfig: pytest.Config) -> Path:
    """The directory of recordings: one JSON file for each exchange with a provider."""
    found = recordings(pytestconfig)
    assert found is not None, "tests that need recordings are left out where there are none"
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--wire",
        metavar="DIR",
        default=os.environ.get("MINUTEBOOK_WIRE") or str(_ROOT.parent / "shared" / "wire"),
        help="directory of provider recordings (default: $MINUTEBOOK_WIRE, then ../shared/wire)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if recordings(config) is not None:
        return
    left_out = [item for item in items if "wire_dir" in getattr(item, "fixturenames", ())]
    config.stash[_LEFT_OUT] = len(left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    count = config.stash.get(_LEFT_OUT, 0)
    if count:
        terminalreporter.write_line(
            f"{count} wire tests left out: no recordings in {config.getoption('wire')} "
            "(name their directory: MINUTEBOOK_WIRE or --wire)",
            yellow=True,
        )


def recordings(config: pytest.Config) -> Path | None:
    """The directory of recordings if it holds any."""
    place = Path(config.getoption("wire"))
    return place if any(place.glob("*.json")) else None
