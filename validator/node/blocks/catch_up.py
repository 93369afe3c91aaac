"""Catching up: missing blocks are requested from one peer after the other.

A single block is requested by digest, while the engine waits for it or for a block above it. While the block of a
finalization cannot be reached, ranges of final blocks are requested instead, each proved by a finalization certificate.

A validator whose peers have pruned the blocks it needs cannot catch up: it stops with an error. It believes that when
at most ``f`` peers have not reported it. Each must report it several times, so that the others were asked in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from consensus.keys import ValidatorSet
from consensus.types import fault_bound
from validator.chain import messages
from validator.chain.block import decode_block, header_hash
from validator.node.blocks.block_tree import BlockTree, HeldBlock
from validator.node.blocks.finality import Finality
from validator.node.events import SetTimer, TimerName
from validator.node.outbox import Outbox
from validator.primitives.types import Hash, ValidatorError
from validator.storage.finality_proof import MAX_LINKS, is_proved

TIMES_PRUNED: Final = 3
"""Number of reports that a peer must send of pruned blocks until it is believed."""
SYNC_TIMER: Final = TimerName("sync")


class BlocksGone(ValidatorError):
    """The peers have pruned the blocks that this validator needs next. The message names them and the remedy."""


@dataclass(slots=True)
class CatchUp:
    """Requests the blocks that a node misses from its peers, one request at a time."""

    index: int
    """The node's own validator index."""
    validators: ValidatorSet
    namespace: bytes
    tree: BlockTree
    finality: Finality
    effects: Outbox
    retry_ms: int
    """Time to wait for an answer before the next peer is asked."""
    max_proven_ahead: int
    """The limit of this name in :class:`~validator.node.limits.BlockLimits`."""
    _peers: Iterator[int] = field(init=False)
    _is_asking: bool = False
    _wanted: Hash | None = None
    """Digest of a missing block that the node needs."""
    _asked: Hash | None = None
    """The block that was requested last; another one may be needed by now."""
    _bad_givers: set[int] = field(default_factory=set)
    """Peers that sent an invalid range of final blocks; their ranges are ignored until the next tick."""
    _pruned: Counter[int] = field(default_factory=Counter)
    """Number of reports from each peer that the requested blocks were pruned, since the last final blocks arrived."""

    def __post_init__(self) -> None:
        count = len(self.validators)
        self._peers = cycle((self.index + offset) % count for offset in range(1, count))

    def tick(self) -> None:
        self._bad_givers.clear()

    def want(self, digest: Hash) -> None:
        """Note that the engine waits for a missing block, and request it."""
        self._wanted = digest
        self.ask(is_block_awaited=True)

    def ask(self, *, is_block_awaited: bool) -> None:
        """Request the missing blocks from the next peer, unless an answer is pending."""
        request = None if self._is_asking else self._next_request(is_block_awaited)
        peer = None if request is None else next(self._peers, None)
        if request is None or peer is None:
            return
        self._is_asking = True
        self._asked = self._wanted if isinstance(request, messages.BlockRequest) else None
        self.effects.send(peer, request)
        self.effects.append(SetTimer(SYNC_TIMER, self.retry_ms))

    def ask_next(self, *, is_block_awaited: bool) -> None:
        """Request the missing blocks from the next peer, since no answer came in time."""
        self._is_asking = False
        self.ask(is_block_awaited=is_block_awaited)

    def take_block(self, sender: int, body: bytes) -> bool:
        """Take a peer's block. Returns whether it is the requested one."""
        block = decode_block(body)
        if block is None:
            self.effects.fault(sender, "bad_block")
            return False
        if header_hash(block.header) != self._asked:
            return False  # late: another block was requested since
        self.tree.add(block, body, is_asked_for=True)
        self._is_asking = False
        return True

    def take_final_blocks(self, sender: int, response: messages.FinalBlocksResponse) -> bool:
        """Take a peer's range of final blocks. Returns whether it proves more blocks final.

        The range proves itself, whichever peer sends it, so an answer after the timeout is still useful.
        """
        if self.finality.target is None or sender in self._bad_givers:
            return False  # the blocks have come another way, or the peer's last range was invalid
        proven = self.finality.proven
        if not self._take_if_proved(response):
            self._bad_givers.add(sender)
            self.effects.fault(sender, "bad_final_blocks")
            return False
        if self.finality.proven == proven:
            return False
        self._is_asking = False
        self._pruned.clear()
        return True

    def take_pruned(self, sender: int, begins_at: int) -> None:
        """Take a peer's report that its blocks begin at a height. Raises :class:`BlocksGone` after enough reports."""
        needed = self.finality.proven_height + 1
        if self.finality.target is None or begins_at <= needed:
            return  # an answer to an older request
        self._pruned[sender] += 1
        certain = [peer for peer, times in self._pruned.items() if times >= TIMES_PRUNED]
        count = len(self.validators)
        if len(certain) >= max(count - 1 - fault_bound(count), 1):
            raise BlocksGone(
                f"the peers have pruned block {needed:,}, the next one needed here ({len(certain)} of {count - 1} say"
                " so): without its data folder the validator joins by a snapshot"
            )

    def _take_if_proved(self, response: messages.FinalBlocksResponse) -> bool:
        """Hold a response's blocks if its links and its finalization prove them. Returns whether they do."""
        if not 1 <= len(response.bodies) <= messages.MAX_BLOCKS_ASKED or len(response.links) > MAX_LINKS:
            return False
        blocks = [decode_block(body) for body in response.bodies]
        headers = [block.header for block in blocks if block is not None]
        if len(headers) < len(blocks) or not is_proved(
            [*headers, *response.links], response.certificate, self.validators, self.namespace
        ):
            return False
        newest: HeldBlock | None = None
        for block, body in zip(blocks, response.bodies, strict=True):
            assert block is not None
            newest = self.tree.add(block, body, is_asked_for=True) or newest
        if newest is not None:
            is_certified = newest.digest == header_hash(headers[-1]) and not response.links
            self.finality.prove(newest, response.certificate if is_certified else b"")
        return True

    def _next_request(self, is_block_awaited: bool) -> messages.PeerMessage | None:
        """A request for final blocks while a finalization cannot be reached, else for a single block."""
        if self.finality.target is not None:
            height = self.finality.proven_height
            if height - self.tree.final_height >= self.max_proven_ahead:
                return None  # enough to execute for now; committing requests more
            return messages.FinalBlocksRequest(height + 1, messages.MAX_BLOCKS_ASKED)
        if self._wanted is not None:
            self._wanted = self.tree.first_missing(self._wanted) if is_block_awaited else None
        return None if self._wanted is None else messages.BlockRequest(self._wanted)
