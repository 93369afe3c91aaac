"""What honest validators can prove of others' misbehaviour, judged as a third party would: by keys and chain alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cluster.record import RunRecord, ValidatorRecord
from consensus.keys import ValidatorSet
from consensus.messages import Evidence, MessageError, decode_evidence, verify_evidence
from consensus.types import PublicKey


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof that a validator presented."""

    finder: str
    kind: str
    culprit: int | None
    """The index of the validator that it blames; ``None`` where it cannot be read."""
    view: int
    holds: bool
    """Whether a third party must believe it."""


def proofs(record: RunRecord) -> list[Proof]:
    """Every proof that a validator shows whose word counts; nothing that a byzantine one shows."""
    keys = tuple(PublicKey(key) for key in record.genesis.validators)
    validators = ValidatorSet(keys, record.scheme)
    namespace = record.genesis.chain_id.encode()
    honest = [validator for validator in record.validators if not validator.byzantine]
    return [_judge(validator, shown, validators, namespace) for validator in honest for shown in _shown(validator)]


def _shown(validator: ValidatorRecord) -> Iterator[dict[str, Any]]:
    shown = (validator.status or {}).get("evidence")
    yield from (each for each in shown if isinstance(each, dict)) if isinstance(shown, list) else ()


def _judge(finder: ValidatorRecord, shown: dict[str, Any], validators: ValidatorSet, namespace: bytes) -> Proof:
    try:
        evidence: Evidence = decode_evidence(bytes.fromhex(str(shown.get("data", ""))))
    except (MessageError, ValueError):
        return Proof(finder.name, str(shown.get("kind", "")), None, 0, holds=False)
    holds = verify_evidence(evidence, validators, namespace)
    return Proof(finder.name, type(evidence).__name__, evidence.first.signer, evidence.first.view, holds)
