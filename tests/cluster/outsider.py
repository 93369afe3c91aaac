"""A scenario with an external validator, whose key the test has."""

from __future__ import annotations

from typing import Any

from cluster.scenario import Scenario
from consensus.keys import Ed25519Scheme

SECRET = b"\x07" * 32


def scenario_with(port: int, secret: bytes = SECRET) -> Scenario:
    key = bytes(Ed25519Scheme().signer(secret).public_key).hex()
    nodes: list[dict[str, Any]] = [{}, {}, {}, {"external": {"public_key": key, "address": f"127.0.0.1:{port}"}}]
    return Scenario.model_validate({"name": "outsider", "validators": nodes})
