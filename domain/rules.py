"""How a rule is stated: `need(holds, "what must hold", event)`."""

from __future__ import annotations

from domain.envelope import Recorded
from domain.errors import RuleViolated


def need(holds: bool, rule: str, event: Recorded) -> None:
    """Refuse `event` unless the rule holds."""
    if not holds:
        raise RuleViolated(rule, event.type, event.sequence)
