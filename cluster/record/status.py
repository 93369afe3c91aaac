"""A validator's status page (``docs/http.md``), the same from both drivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cluster.misbehaviour.planted import RunCounter
from cluster.scenario.sections.faults import FIRST_VERSION
from validator.chain.receipts import NOTHING_BURNED, Burned
from validator.node.assembly import Validator
from validator.node.events import (
    BlockFinal,
    Diverged,
    Dropped,
    EvidenceFound,
    PeerFault,
    TransactionDropped,
    TransactionRefused,
)

if TYPE_CHECKING:
    from cluster.misbehaviour.byzantine.base import Score

MAX_EVIDENCE_OF_A_KIND: Final = 4
"""Proofs of one kind against one validator on a status page; further ones are only counted."""
MAX_EVIDENCE: Final = 1_024
"""The most proofs on a status page."""


Counted = BlockFinal | PeerFault | Dropped | EvidenceFound | Diverged | TransactionRefused | TransactionDropped


@dataclass(slots=True)
class Tally:
    """A driver's counters for one validator, from the events that the validator reports."""

    starts: int = 1
    version: str = FIRST_VERSION
    """The version of the code that the validator runs."""
    executed_transactions: int = 0
    fires: int = 0
    burned: Burned = NOTHING_BURNED
    """The amounts burned in the blocks that became final at this validator since its start."""
    pending_timers: int = 0
    backlog: int = 0
    newest: BlockFinal | None = None
    faults: Counter[str] = field(default_factory=Counter)
    """Dropped messages that no honest peer sends, by reason."""
    faults_by_peer: Counter[int] = field(default_factory=Counter)
    """The number of the messages in ``faults`` whose sender is known, by sender."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Dropped messages that honest peers send too, by reason."""
    dropped_by_peer: Counter[int] = field(default_factory=Counter)
    """The messages of ``dropped``, by sender: a flood of individually harmless messages shows here."""
    transactions_refused: Counter[str] = field(default_factory=Counter)
    """Transactions from clients and peers that the mempool rejected, by reason."""
    transactions_dropped: Counter[str] = field(default_factory=Counter)
    """Transactions that left the mempool without becoming final, by reason."""
    chunks: dict[int, int] = field(default_factory=dict)
    """The number of chunks of the snapshot with which the validator joined, by sender."""
    mutant_runs: RunCounter = field(default_factory=RunCounter)
    """How often a planted bug's line ran."""
    byzantine: Score | None = None
    """The effects of the validator's byzantine behaviours; ``None`` if it is not byzantine."""
    evidence: list[EvidenceFound] = field(default_factory=list)
    """The proofs of misbehaviour that the validator found: the first ones of each kind and culprit."""
    crimes: Counter[tuple[str, int]] = field(default_factory=Counter)
    """The number of proofs of misbehaviour that the validator found, by kind and culprit."""
    diverged: Diverged | None = None
    """The first block whose execution differed from its header; kept even after a restart that heals the validator."""
    keep_divergence: Callable[[Diverged], None] | None = None
    """A callback that gets the divergence when it happens, for a driver that ends with the validator."""

    def note(self, effect: Counted) -> None:
        """Count one event that the validator reported."""
        match effect:
            case BlockFinal():
                self.newest = effect
                self.executed_transactions += effect.transactions
                self.fires += effect.fires
                self.burned = self.burned.plus(effect.burned)
                self.pending_timers, self.backlog = effect.pending_timers, effect.backlog
            case PeerFault():
                self.note_refusal(effect.reason)
                self.faults_by_peer[effect.peer] += 1
            case Dropped():
                self.dropped[effect.reason] += 1
                self.dropped_by_peer[effect.peer] += 1
            case EvidenceFound():
                crime = (effect.kind, effect.culprit)
                self.crimes[crime] += 1
                if self.crimes[crime] <= MAX_EVIDENCE_OF_A_KIND and len(self.evidence) < MAX_EVIDENCE:
                    self.evidence.append(effect)
            case Diverged() if self.diverged is None:
                self.diverged = effect
                if self.keep_divergence is not None:
                    self.keep_divergence(effect)
            case TransactionRefused():
                self.transactions_refused[effect.reason] += 1
            case TransactionDropped():
                self.transactions_dropped[effect.reason] += 1

    def note_refusal(self, reason: str) -> None:
        self.faults[reason] += 1


def status_page(
    name: str, index: int, validator: Validator, tally: Tally, peers: list[int], process: dict[str, Any]
) -> dict[str, Any]:
    """Build a validator's status page. ``process`` holds ``pid`` and ``hash_seed``."""
    node, executor = validator.node, validator.executor
    header = executor.final_header
    return {
        "name": name,
        "index": index,
        "chain_id": executor.genesis.chain_id,
        "height": header.height,
        "block_hash": executor.final_digest.hex(),
        "state_root": header.state_root.hex(),
        "view": node.view,
        "final_view": node.final_view,
        "pending_transactions": len(node.mempool),
        "pending_timers": tally.pending_timers,
        "backlog": tally.backlog,
        "peers": peers,
        "recovered_height": executor.recovered_height,
        "snapshot_height": executor.archive.joined_height,
        "first_block": executor.pages.first_block,
        "prunable_height": executor.prunable_height,
        "disk_bytes": executor.used_bytes,
        "replayed_blocks": executor.replayed_blocks,
        "starts": tally.starts,
        "version": tally.version,
        "executed_transactions": tally.executed_transactions,
        "fires": tally.fires,
        "burned": tally.burned._asdict(),
        "burned_since_genesis": executor.pages.burned(),
        "diverged": None if tally.diverged is None else _divergence_page(tally.diverged),
        "faults": dict(sorted(tally.faults.items())),
        "faults_by_peer": {str(peer): count for peer, count in sorted(tally.faults_by_peer.items())},
        "dropped": dict(sorted(tally.dropped.items())),
        "dropped_by_peer": {str(peer): count for peer, count in sorted(tally.dropped_by_peer.items())},
        "transactions_refused": dict(sorted(tally.transactions_refused.items())),
        "transactions_dropped": dict(sorted(tally.transactions_dropped.items())),
        "mutant_runs": tally.mutant_runs.runs,
        "byzantine": None if tally.byzantine is None else _byzantine_page(tally.byzantine),
        "evidence": [{"kind": found.kind, "data": found.data.hex()} for found in tally.evidence],
        **process,
    }


def _byzantine_page(score: Score) -> dict[str, Any]:
    return {"took_effect": dict(sorted(score.effects.items())), "expected_evidence": score.expected_evidence}


def _divergence_page(diverged: Diverged) -> dict[str, Any]:
    return {
        "height": diverged.height,
        "block_hash": diverged.digest.hex(),
        "reason": diverged.reason,
        "expected_root": diverged.expected_root.hex(),
        "computed_root": diverged.computed_root.hex(),
        "receipts": diverged.receipts.hex(),
    }
