"""``invalid-block-…``: as leader, proposes blocks that no validator may accept, in correctly signed proposals.

- ``bad-root``: the header promises another state root than execution gives;
- ``bad-transaction``: the last transaction cannot be decoded, yet the header commits to it;
- ``bad-header``: in turn another height, another view, another proposer, another parent;
- ``any-field``: each field of the header in turn, in random order;
- ``oversized``: the body is larger than any block may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any, ClassVar

import msgspec

from cluster.misbehaviour.byzantine.base import Behaviour, BehaviourContext, send_consensus
from consensus.messages import Message, Proposal, VoteKind
from consensus.types import Digest
from validator.chain.block import MAX_BLOCK_BYTES, Block, Header, decode_block, header_hash, transactions_root
from validator.chain.transactions import transaction_hash
from validator.node.events import Effect, Send
from validator.primitives.codec import encode, pack_uint, unpack_uint
from validator.primitives.types import PRICE_LIMIT

NO_TRANSACTION = b"no transaction"


class InvalidBlock(Behaviour):
    """A leader that proposes invalid blocks: the base class of the variants."""

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._spoilt: tuple[Proposal, Proposal] | None = None
        """The newest proposal: the validator's original, and the invalid one sent instead."""

    def spoil(self, block: Block) -> Block:
        """Return the invalid block that replaces a good one."""
        raise NotImplementedError

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        spoilt = self._spoil(message) if isinstance(message, Proposal) and self.is_ours(message.vote) else None
        if spoilt is not None:
            yield send_consensus(send.recipient, spoilt)
            self.count_effect()
        elif self._spoilt is not None and message == self._spoilt[0].vote:
            pass  # the good block was never proposed to any peer
        else:
            yield send

    def _spoil(self, proposal: Proposal) -> Proposal | None:
        """The proposal of an invalid block that replaces a good one; ``None`` if its block cannot be decoded."""
        if self._spoilt is None or self._spoilt[0] != proposal:
            good = decode_block(proposal.body)
            if good is None:
                return None
            block = self.spoil(good)
            digest = Digest(header_hash(block.header))
            vote = self.context.vote(VoteKind.NOTARIZE, proposal.view, proposal.parent_view, digest)
            spoilt = msgspec.structs.replace(proposal, digest=digest, body=encode(block), vote=vote)
            self._spoilt = (proposal, spoilt)
        return self._spoilt[1]


class FalseHeader(InvalidBlock):
    """A leader that proposes blocks with one false header field: each field of ``fields`` in turn."""

    fields: ClassVar[tuple[str, ...]]

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._turns: Iterator[str] = cycle(self._order())

    def _order(self) -> Sequence[str]:
        return self.fields

    def spoil(self, block: Block) -> Block:
        header, field = block.header, next(self._turns)
        return Block(msgspec.structs.replace(header, **{field: false_value(header, field)}), block.transactions)


def false_value(header: Header, field: str) -> Any:
    """A value of a header's field that is well-formed, but differs from the true one."""
    match field:
        case "height":
            return header.height + 2
        case "proposer":
            return header.proposer - 1 if header.proposer else 1
        case "parent_hash":
            return header_hash(header)
        case "basefee_cycle" | "basefee_cell" | "basefee_lane_timer":
            return pack_uint(unpack_uint(getattr(header, field), PRICE_LIMIT) + 1)
        case "chain_id":
            return f"{header.chain_id}-2"
    value = getattr(header, field)
    return value + 1 if isinstance(value, int) else bytes([value[0] ^ 1]) + value[1:]


class BadRoot(FalseHeader):
    name = "invalid-block-bad-root"
    description = "as leader, proposes blocks whose header has a wrong state root"
    fields = ("state_root",)


class BadTransaction(InvalidBlock):
    name = "invalid-block-bad-transaction"
    description = "as leader, proposes blocks with bytes in them that are no transaction"

    def spoil(self, block: Block) -> Block:
        return _with_transaction(block, NO_TRANSACTION)


class BadHeader(FalseHeader):
    name = "invalid-block-bad-header"
    description = "as leader, proposes blocks whose header has another height, view, proposer or parent"
    fields = ("height", "view", "proposer", "parent_hash")


class AnyField(FalseHeader):
    name = "invalid-block-any-field"
    description = "as leader, proposes blocks whose header is false in one field, each field in its turn"
    fields = Header.__struct_fields__

    def _order(self) -> Sequence[str]:
        return self.context.random.sample(self.fields, len(self.fields))


class Oversized(InvalidBlock):
    name = "invalid-block-oversized"
    description = "as leader, proposes blocks that are larger than blocks may be"

    def spoil(self, block: Block) -> Block:
        return _with_transaction(block, bytes(MAX_BLOCK_BYTES))


def _with_transaction(block: Block, wire: bytes) -> Block:
    wires = (*block.transactions, wire)
    root = transactions_root([transaction_hash(each) for each in wires])
    return Block(msgspec.structs.replace(block.header, transactions_root=root), wires)
