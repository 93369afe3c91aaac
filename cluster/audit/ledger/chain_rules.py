"""The rules of the chain: canonical encodings, consecutive heights, hashes and roots, receipts, nonces, the proposer.

The genesis block's own hash is not recomputed: the agreement check compares the blocks that build on it.
"""

from __future__ import annotations

from collections import Counter

from cluster.audit.chain_codec import Block, BlockReceipts, Header, address_of, transaction_hash, transactions_root
from cluster.audit.ledger.context import CHAIN, AuditLog, BlockContext
from cluster.record.rules import LedgerRule
from validator.chain.genesis import Genesis
from validator.primitives.types import address_text


class ChainRules:
    """Holds each block against the blocks before it."""

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self.tip_hash: bytes | None = None
        self.nonces: Counter[bytes] = Counter()
        """By sender, the nonce of its next transaction."""

    def is_next(self, height: int, header: Header, receipts: BlockReceipts, log: AuditLog) -> bool:
        """Whether block and receipts are for a height; if not, the books end."""
        if header.height != height:
            log.found(CHAIN, height, f"a block of height {header.height} where {height} is due")
        elif receipts.height != height:
            log.found(CHAIN, height, f"the receipts are for height {receipts.height}")
        else:
            return True
        return False

    def check(self, context: BlockContext, block: Block) -> None:
        """Check a block's header against its content and its receipts, then its transactions' nonces."""
        header, receipts, bodies = block.header, context.receipts, context.bodies
        hashes = [transaction_hash(wire) for wire in block.transactions]
        validators = self._genesis.validators
        account = address_of(validators[header.proposer]) if 0 <= header.proposer < len(validators) else b""
        receipted = [receipt.transaction_hash for receipt in receipts.transactions]
        senders = [receipt.sender for receipt in receipts.transactions]
        rules = (
            (header.chain_id == self._genesis.chain_id, f"the header is for chain {header.chain_id!r}"),
            (self.tip_hash in (None, header.parent_hash), "the parent hash is not the hash of the block before"),
            (
                transactions_root(hashes) == header.transactions_root,
                "transactions_root is not the transactions' root",
            ),
            (receipts.root == header.receipts_root, "receipts_root is not the receipts' root"),
            (receipted == hashes, f"{len(receipted)} receipts do not belong to the {len(hashes)} transactions"),
            (senders == [sender for sender, _ in bodies], "a receipt names another sender than its transaction"),
            (receipts.proposer == account, f"the tips go to {address_text(receipts.proposer)}, not to the proposer"),
            (
                header.lane_cycles == sum(fire.cycles for fire in receipts.fires)
                and header.lane_cells == sum(fire.cells for fire in receipts.fires),
                "the lane's use in the header is not what the fires used",
            ),
            (
                header.user_cycles == sum(receipt.cycles for receipt in receipts.transactions)
                and header.user_cells == sum(receipt.cells for receipt in receipts.transactions),
                "the transactions' use in the header is not what they were charged for",
            ),
        )
        context.evaluate(LedgerRule.CHAIN_LINKS)
        for holds, what in rules:
            if not holds:
                context.found(CHAIN, what)
        for sender, body in bodies:
            if body.chain_id != self._genesis.chain_id:
                context.found(CHAIN, f"a transaction is for chain {body.chain_id!r}")
            if body.nonce != self.nonces[sender]:
                what = f"nonce {body.nonce} of {address_text(sender)} where {self.nonces[sender]} is due"
                context.found(CHAIN, what)
            self.nonces[sender] = body.nonce + 1
