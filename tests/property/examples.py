"""How many examples a law gets: a share of what the Hypothesis profile allows."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A history is dozens of choices: slower and larger than what Hypothesis expects of an example.
_LARGE = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


def share(percent: int) -> settings:
    """Settings for a law: `percent` of the profile's examples."""
    count = max(1, settings().max_examples * percent // 100)
    return settings(max_examples=count, suppress_health_check=_LARGE)
