"""Evidence of misbehaviour that validators present, verified as a third party would: by keys and chain alone.

Two contradictory votes convict by keys. A vote for an invalid block convicts if the block's header contradicts it, or
if the block does not execute on the run's own final blocks. These are executed again, up to the highest block on which
the run's evidence builds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cluster.audit.chains import longest_chain, read_blocks
from cluster.audit.reexecution.reexecutor import Reexecution
from cluster.record.run import RunRecord, ValidatorRecord
from cluster.scenario.genesis import validators_of
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


def proofs(record: RunRecord, execution: Reexecution) -> list[Proof]:
    """Judge every proof of misbehaviour on the status pages of validators that are not byzantine.

    ``execution`` is that of the run's final blocks.
    """
    shown = [each for validator in record.validators if not validator.byzantine for each in _shown_by(validator)]
    final = _Final.of(execution, shown)
    shown.sort(key=final.height_below)  # each final block is executed once
    return [_judged(record, execution, final, each) for each in shown]


def invalid_blocks(record: RunRecord) -> Iterator[tuple[int, bytes]]:
    """The blocks that honest validators blame on honest ones: the height of a final parent, and the encoded block."""
    byzantine = {validator.index for validator in record.validators if validator.byzantine}
    shown = [each for validator in record.validators if not validator.byzantine for each in _shown_by(validator)]
    final = _Final.of(Reexecution(record.genesis, longest_chain(record.lives)), shown)
    for each in shown:
        evidence = each.evidence
        if not isinstance(evidence, InvalidBlock) or each.base not in final.heights:
            continue
        if len(evidence.bodies) == 1 and evidence.vote.signer not in byzantine:
            yield final.height_below(each), evidence.bodies[0]


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


class _Final(NamedTuple):
    """What proofs need of the run's final blocks."""

    heights: Mapping[bytes, int]
    """The blocks' heights, keyed by digest, including the genesis block; empty if no proof builds on a block."""
    newest_view: int = 0

    @classmethod
    def of(cls, execution: Reexecution, shown: list[_Shown]) -> _Final:
        if all(each.base is None for each in shown):
            return cls({})
        blocks = read_blocks(execution.chain)
        digests = [execution.genesis_digest, *(block.block_hash for block in blocks)]
        return cls({digest: height for height, digest in enumerate(digests)}, blocks[-1].view if blocks else 0)

    def height_below(self, shown: _Shown) -> int:
        """The final height on whose state a proof builds; 0 if it needs none, or if that is unknown."""
        return 0 if shown.base is None else self.heights.get(shown.base, 0)


def _judged(record: RunRecord, execution: Reexecution, final: _Final, shown: _Shown) -> Proof:
    validators, namespace = validators_of(record.genesis, record.scheme), record.genesis.chain_id.encode()
    match shown.evidence:
        case None:
            return Proof(shown.finder, shown.kind, None, 0, holds=False)
        case InvalidBlock(vote) as evidence:
            election = ELECTIONS[record.scenario.consensus.leader_election](validators, namespace)
            holds: bool | None = True
            if not contradicts_its_vote(evidence, validators, namespace, election):
                is_known = shown.base in final.heights
                executor = execution.executor_at(final.height_below(shown)) if is_known else None
                holds = executor is not None and verify_misconduct(evidence, executor, validators, namespace)
                if shown.base is not None and not is_known and vote.view > final.newest_view:
                    holds = None
        case evidence:
            vote = evidence.first
            holds = verify_evidence(evidence, validators, namespace)
    return Proof(shown.finder, type(evidence).__name__, vote.signer, vote.view, holds)
