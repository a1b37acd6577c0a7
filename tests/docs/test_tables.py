"""Tables of the documentation that repeat what the code says: limits, failures, words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median

import pytest

from adapters import anthropic_messages, openai_responses
from adapters.model_failures import KINDS
from adapters.openai_chat_types import CHAT_TYPES
from domain import limits
from domain.model_ports import Capabilities, MediaLimits
from domain.next_steps import Action
from minutebook.provider_options import ProviderType

DOCS = Path(__file__).parents[2] / "docs"
LIMITS = {name: value for name, value in vars(limits).items() if name.isupper()}
UNITS = {"MiB": 1024 * 1024, "KiB": 1024}


def rows(page: str) -> list[list[str]]:
    """The cells of every table row of a page, without marks."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_told_as_it_is(name: str) -> None:
    (told,) = (cells[1] for cells in rows("operations.md") if cells[0] == f"`{name}`")
    number, _, unit = told.partition(" ")
    assert int(number) * UNITS.get(unit, 1) == LIMITS[name]


def test_failures_are_told_as_they_are() -> None:
    told = {cells[0]: cells[1:] for cells in rows("providers.md") if cells[0].strip("`") in KINDS}
    assert told == {
        f"`{kind}`": ["yes" if retryable else "no", todo] for kind, (retryable, todo) in KINDS.items()
    }


@pytest.mark.parametrize("kind", ProviderType)
def test_every_provider_type_is_told(kind: ProviderType) -> None:
    assert any(cells[0] == f"`{kind}`" for cells in rows("providers.md"))


@pytest.mark.parametrize(
    ("told", "has"),
    [
        ("anthropic messages", anthropic_messages.CAPABILITIES),
        *(
            (f"{kind} responses", openai_responses.capabilities_of(kind))
            for kind in ("openai", "azure-openai", "deepseek", "openai-compatible")
        ),
        *((f"{kind} chat", known.capabilities) for kind, known in CHAT_TYPES.items()),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_a_type_can_do_is_told(told: str, has: Capabilities) -> None:
    (cells,) = (cells[1:] for cells in rows("providers.md") if cells[0] == told)
    can = (has.structured_output, has.thinking, has.images, has.files)
    assert cells == ["yes" if each else "no" for each in can]


def test_how_much_goes_out_is_told() -> None:
    limits = MediaLimits()
    text = " ".join((DOCS / "providers.md").read_text(encoding="utf-8").split())
    assert f"At most {limits.count} images and files" in text
    assert f"at most {limits.request_bytes // 1_000_000} MB together" in text
    assert f"One image may have {limits.image_bytes / 1024 / 1024:.2f} MiB" in text
    assert f"one file {limits.file_bytes // 1_000_000} MB" in text


@pytest.mark.parametrize("action", [each for each in Action if each not in (Action.INTERRUPT, Action.AWAIT)])
def test_every_action_is_in_the_table_of_the_plan(action: Action) -> None:
    assert any(f"`{action}`" in cell for cells in rows("recovery.md") for cell in cells)


def test_the_glossary_is_in_order_and_names_each_word_once() -> None:
    words = [cells[0] for cells in rows("glossary.md")[1:]]
    plain = [re.sub(r" \(.*\)", "", word) for word in words]
    assert plain == sorted(set(plain), key=str.lower)


def test_waits_for_the_disk_are_those_of_the_last_run() -> None:
    samples = json.loads((DOCS.parent / "bench" / "results.json").read_text(encoding="utf-8"))["samples"]
    names = {
        'LangGraph, `durability="exit"`': "t1_langgraph_sqlite_exit",
        "openai-agents": "t1_openai_agents",
        "eventsourcing, in a loop of one page": "t1_eventsourcing",
        "**minutebook**": "t1_ours",
        "LangGraph": "t1_langgraph",
        "google-adk": "t1_adk",
        "DBOS, history kept outside": "t1_dbos",
        "Pydantic AI with DBOS": "t1_pydantic_ai",
    }
    told = {cells[0]: cells[1].strip("*") for cells in rows("comparison.md") if cells[0] in names}
    found = {name: f"{median(samples[case]['fsyncs']):.0f}" for name, case in names.items()}
    assert {name: told[name] for name in found} == found
