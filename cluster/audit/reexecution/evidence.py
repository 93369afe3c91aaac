"""Evidence of misbehaviour that validators present, verified as a third party would: by keys and chain alone.

Two contradictory votes convict by keys. A vote for an invalid block convicts if the block's header contradicts it, or
if the block does not execute on the run's own final blocks. These are executed again, once, up to the highest block on
which the run's evidence builds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from cluster.audit.reexecution.reexecutor import Reexecution
from cluster.audit.served.chains import ServedBlock, longest_chain, read_blocks
from cluster.record.run import RunRecord, ValidatorRecord
from cluster.scenario.genesis import validators_of
from consensus.keys import ValidatorSet
from consensus.leader import ELECTIONS
from consensus.messages import Evidence, MessageError, decode_evidence, verify_evidence
from validator.node.evidence import (
    INVALID_BLOCK,
    InvalidBlock,
    base_digest,
    contradicts_its_vote,
    decode_misconduct,
    verify_misconduct,
)
from validator.primitives.codec import CodecError
from validator.primitives.types import Hash


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof that a validator presented."""

    finder: str
    kind: str
    culprit: int | None
    """The index of the accused validator; ``None`` if the evidence cannot be read."""
    view: int
    holds: bool | None
    """Whether a third party must accept the proof; ``None`` if it builds on a block newer than all served blocks."""


class _Shown(NamedTuple):
    finder: str
    kind: str
    evidence: Evidence | InvalidBlock | None
    """``None`` if the evidence cannot be read."""

    @property
    def base(self) -> Hash | None:
        """The digest of the final block on which an invalid block builds; ``None`` if the proof needs or names none."""
        return base_digest(self.evidence) if isinstance(self.evidence, InvalidBlock) else None


def proofs(record: RunRecord) -> list[Proof]:
    """Judge every proof of misbehaviour on the status pages of validators that are not byzantine."""
    honest = [validator for validator in record.validators if not validator.byzantine]
    shown = [each for validator in honest for each in _shown_by(validator)]
    chain, validators = _Chain(record), validators_of(record.genesis, record.scheme)
    return [_judged(record, chain, validators, each) for each in sorted(shown, key=chain.base_height)]


def invalid_blocks(record: RunRecord) -> Iterator[tuple[int, bytes]]:
    """The blocks that honest validators blame on honest ones: the height of a final parent, and the encoded block."""
    byzantine = {validator.index for validator in record.validators if validator.byzantine}
    heights = _Chain(record).heights
    for validator in record.validators:
        for shown in () if validator.byzantine else _shown_by(validator):
            evidence, height = shown.evidence, heights.get(shown.base) if shown.base is not None else None
            if not isinstance(evidence, InvalidBlock) or height is None:
                continue
            if len(evidence.bodies) == 1 and evidence.vote.signer not in byzantine:
                yield height, evidence.bodies[0]


def _shown_by(validator: ValidatorRecord) -> Iterator[_Shown]:
    page = (validator.status or {}).get("evidence")
    for each in page if isinstance(page, list) else ():
        if isinstance(each, dict):
            yield _Shown(validator.name, str(each.get("kind", "")), _read(each))


def _read(shown: dict[str, Any]) -> Evidence | InvalidBlock | None:
    try:
        data = bytes.fromhex(str(shown.get("data", "")))
        return decode_misconduct(data) if shown.get("kind") == INVALID_BLOCK else decode_evidence(data)
    except (MessageError, CodecError, ValueError):
        return None


def _judged(record: RunRecord, chain: _Chain, validators: ValidatorSet, shown: _Shown) -> Proof:
    """Judge a proof. Proofs must be given in ascending order of the heights on which they build."""
    namespace = record.genesis.chain_id.encode()
    match shown.evidence:
        case None:
            return Proof(shown.finder, shown.kind, None, 0, holds=False)
        case InvalidBlock(vote) as evidence:
            election = ELECTIONS[record.scenario.consensus.leader_election](validators, namespace)
            holds: bool | None = True
            if not contradicts_its_vote(evidence, validators, namespace, election):
                is_known = shown.base is not None and shown.base in chain.heights
                executor = chain.execution.executor_at(chain.base_height(shown)) if is_known else None
                holds = executor is not None and verify_misconduct(evidence, executor, validators, namespace)
                if shown.base is not None and not is_known and vote.view > chain.newest_view:
                    holds = None
        case evidence:
            vote = evidence.first
            holds = verify_evidence(evidence, validators, namespace)
    return Proof(shown.finder, type(evidence).__name__, vote.signer, vote.view, holds)


class _Chain:
    """The run's final blocks and their execution. Only a proof that builds on one of them needs either."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    @cached_property
    def _blocks(self) -> list[ServedBlock]:
        return read_blocks(longest_chain(self._record.lives))

    @cached_property
    def execution(self) -> Reexecution:
        return Reexecution(self._record.genesis, longest_chain(self._record.lives))

    @property
    def newest_view(self) -> int:
        return self._blocks[-1].view if self._blocks else 0

    @cached_property
    def heights(self) -> dict[bytes, int]:
        """The heights of the run's final blocks, keyed by digest, including the genesis block."""
        genesis = self.execution.executor_at(0)
        assert genesis is not None, "it needs no block"
        digests = [genesis.final_digest, *(block.block_hash for block in self._blocks)]
        return {digest: height for height, digest in enumerate(digests)}

    def base_height(self, shown: _Shown) -> int:
        """The final height on whose state a proof builds; 0 if it needs none, or if that is unknown."""
        return 0 if shown.base is None else self.heights.get(shown.base, 0)
