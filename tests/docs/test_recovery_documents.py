"""Every field of the documents that other programs read is described."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from recovery import facts, plan, verify
from recovery.items import PlanItem
from recovery.problem import Blocked
from tests.journals import three_calls

TEXT = (Path(__file__).parents[2] / "docs" / "recovery-plan.md").read_text()


def test_every_field_of_a_plan_is_described() -> None:
    for name in plan.make_plan(three_calls().state).to_json():
        assert f"`{name}`" in TEXT, name


@pytest.mark.parametrize(
    "of",
    [
        PlanItem,
        Blocked,
        facts.PendingFact,
        facts.PermissionFact,
        facts.SuspensionFact,
        facts.EffectFact,
        facts.LeaseFact,
    ],
)
def test_every_field_inside_is_described(of: type) -> None:
    for field in fields(of):
        assert f"`{field.name}`" in TEXT, field.name


@pytest.mark.parametrize("word", [*plan.Kind, *verify.Result, plan.FORMAT, verify.FORMAT])
def test_every_word_is_described(word: str) -> None:
    assert f"`{word}`" in TEXT
