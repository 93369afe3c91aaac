"""``invalid-block-…``: as leader, a proposal that is signed as it should be, of a block that no validator may accept.

- ``bad-root``: the header promises another state root than execution gives;
- ``bad-transaction``: the last transaction is none, the header commits to it all the same;
- ``bad-header``: by turns another height, another view, another proposer, another parent;
- ``oversized``: the body is larger than any block may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cluster.byzantine.base import Behaviour, Position, recipient_of, tell
from consensus.messages import Message, Proposal, Vote, VoteKind
from consensus.types import Digest
from validator.block import MAX_BLOCK_BYTES, Block, header_hash, transactions_root
from validator.codec import encode
from validator.events import Effect
from validator.executor import decode_block
from validator.transactions import transaction_hash

NO_TRANSACTION = b"no transaction"


class InvalidBlock(Behaviour):
    """What the variants share."""

    def __init__(self, position: Position) -> None:
        super().__init__(position)
        self._spoilt: tuple[Proposal, Proposal] | None = None
        """The newest proposal, as it was and as it was sent."""

    def spoil(self, block: Block) -> Block:
        """The invalid block in a good one's place."""
        raise NotImplementedError

    def say(self, send: Effect, message: Message) -> Iterator[Effect]:
        spoilt = self._spoil(message) if isinstance(message, Proposal) and self.is_ours(message.vote) else None
        if spoilt is not None:
            yield tell(recipient_of(send), spoilt)
            self.bit()
        elif isinstance(message, Vote) and self._contradicts(message):
            pass  # the good block was never proposed to anybody
        else:
            yield send

    def _spoil(self, proposal: Proposal) -> Proposal | None:
        """The proposal of an invalid block in the place of a good one's; ``None`` where it is none already."""
        if self._spoilt is None or self._spoilt[0] != proposal:
            good = decode_block(proposal.body)
            if good is None:
                return None
            block = self.spoil(good)
            digest = Digest(header_hash(block.header))
            vote = self.position.vote(VoteKind.NOTARIZE, proposal.view, proposal.parent_view, digest)
            spoilt = msgspec.structs.replace(proposal, digest=digest, body=encode(block), vote=vote)
            self._spoilt = (proposal, spoilt)
        return self._spoilt[1]

    def _contradicts(self, vote: Vote) -> bool:
        return self._spoilt is not None and vote == self._spoilt[0].vote


class BadRoot(InvalidBlock):
    name = "invalid-block-bad-root"
    description = "as leader, proposes blocks whose header has a wrong state root"

    def spoil(self, block: Block) -> Block:
        root = bytes([block.header.state_root[0] ^ 1]) + block.header.state_root[1:]
        return Block(msgspec.structs.replace(block.header, state_root=root), block.transactions)


class BadTransaction(InvalidBlock):
    name = "invalid-block-bad-transaction"
    description = "as leader, proposes blocks with bytes in them that are no transaction"

    def spoil(self, block: Block) -> Block:
        return _with_transaction(block, NO_TRANSACTION)


class BadHeader(InvalidBlock):
    name = "invalid-block-bad-header"
    description = "as leader, proposes blocks whose header has another height, view, proposer or parent"

    def __init__(self, position: Position) -> None:
        super().__init__(position)
        self._lies = 0

    def spoil(self, block: Block) -> Block:
        header = block.header
        lies: tuple[dict[str, Any], ...] = (
            {"height": header.height + 2},
            {"view": header.view + 1},
            {"proposer": header.proposer - 1 if header.proposer else 1},
            {"parent_hash": header_hash(header)},
        )
        lie = lies[self._lies % len(lies)]
        self._lies += 1
        return Block(msgspec.structs.replace(header, **lie), block.transactions)


class Oversized(InvalidBlock):
    name = "invalid-block-oversized"
    description = "as leader, proposes blocks that are larger than blocks may be"

    def spoil(self, block: Block) -> Block:
        return _with_transaction(block, bytes(MAX_BLOCK_BYTES))


def _with_transaction(block: Block, wire: bytes) -> Block:
    wires = (*block.transactions, wire)
    root = transactions_root([transaction_hash(each) for each in wires])
    return Block(msgspec.structs.replace(block.header, transactions_root=root), wires)
