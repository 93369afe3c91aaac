"""Verified signatures are remembered: a vote is in many certificates, since each validator collects another quorum."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from consensus.keys import SignatureScheme, Signer, ValidatorSet

REMEMBERED_SIGNATURES: Final = 1 << 12
"""Number of signatures whose verification is remembered: those of some views."""


class RememberingScheme:
    """A signature scheme that verifies the newest signatures once."""

    def __init__(self, scheme: SignatureScheme) -> None:
        self.name = scheme.name
        self.verify = lru_cache(REMEMBERED_SIGNATURES)(scheme.verify)
        self._scheme = scheme

    def signer(self, seed: bytes) -> Signer:
        """The signer whose secret is ``seed`` (32 bytes)."""
        return self._scheme.signer(seed)


def remembering(validators: ValidatorSet) -> ValidatorSet:
    """The same validators, with a scheme that remembers verified signatures."""
    return replace(validators, scheme=RememberingScheme(validators.scheme))
