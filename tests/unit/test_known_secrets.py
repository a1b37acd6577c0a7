"""Credentials of this process: how long they are looked for, and in what."""

from __future__ import annotations

import gc

from domain.masking import KEPT, MASK
from minutebook import known_secrets
from minutebook.outcomes import defect
from minutebook.provider_config import ProviderConfig, Secret


def test_a_credential_is_looked_for_as_long_as_its_configuration_lives() -> None:
    config = ProviderConfig("openai", api_key="sk-of-a-configuration-that-lives")
    for number in range(2 * KEPT):
        Secret(f"sk-of-a-configuration-that-is-gone-{number}")
    gc.collect()
    assert known_secrets.masked("x sk-of-a-configuration-that-lives y") == f"x {MASK} y"
    assert config.credential == "sk-of-a-configuration-that-lives"


def test_what_a_provider_raises_against_its_port_is_kept_without_credentials() -> None:
    secret = Secret("sk-quoted-by-an-exception")
    failure = defect(ValueError(f"no such key {secret.reveal()}"))
    assert failure.message == f"ValueError: no such key {MASK}"
