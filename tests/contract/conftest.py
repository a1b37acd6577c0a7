"""Contract suites live in the package; their assertions explain themselves here too."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "minutebook.testing.commit_contract",
    "minutebook.testing.lease_contract",
    "minutebook.testing.read_contract",
    "minutebook.testing.subscription_contract",
)
