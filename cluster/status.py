"""A validator's status page (``docs/http.md``), the same from both drivers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cluster.mutants.base import RunCounter
from validator.assembly import Validator
from validator.events import BlockFinal, Diverged, PeerFault


@dataclass(slots=True)
class Tally:
    """What a driver counts of one validator, from the effects that it performs."""

    starts: int = 1
    executed_transactions: int = 0
    fires: int = 0
    pending_timers: int = 0
    backlog: int = 0
    newest: BlockFinal | None = None
    faults: dict[str, int] = field(default_factory=dict)
    chunks: dict[int, int] = field(default_factory=dict)
    """Chunks of the snapshot with which it joined, by the peer that sent them."""
    mutant_runs: RunCounter = field(default_factory=RunCounter)
    """How often a planted bug's line ran."""

    def note_final(self, block: BlockFinal) -> None:
        self.newest = block
        self.executed_transactions += block.transactions
        self.fires += block.fires
        self.pending_timers, self.backlog = block.pending_timers, block.backlog

    def note_fault(self, fault: PeerFault) -> None:
        self.faults[fault.reason] = self.faults.get(fault.reason, 0) + 1


def status_page(
    name: str, index: int, validator: Validator, tally: Tally, peers: list[int], process: dict[str, Any]
) -> dict[str, Any]:
    """The page. ``process`` holds ``pid`` and ``hash_seed``."""
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
        "snapshot_height": executor.archive.first_height,
        "replayed_blocks": executor.replayed_blocks,
        "starts": tally.starts,
        "executed_transactions": tally.executed_transactions,
        "fires": tally.fires,
        "diverged": None if node.diverged is None else _divergence_page(node.diverged),
        "faults": dict(sorted(tally.faults.items())),
        "mutant_runs": tally.mutant_runs.runs,
        **process,
    }


def _divergence_page(diverged: Diverged) -> dict[str, Any]:
    return {
        "height": diverged.height,
        "block_hash": diverged.digest.hex(),
        "reason": diverged.reason,
        "expected_root": diverged.expected_root.hex(),
        "computed_root": diverged.computed_root.hex(),
        "receipts": diverged.receipts.hex(),
    }
