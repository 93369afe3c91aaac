"""Checks of each block against the rules of the chain: hashes and roots, receipts, nonces, the proposer, the lanes.

System instructions (SPEC §12) are checked too: only authorized senders give them, and they take effect as stated.

The genesis block's own hash is not recomputed: the agreement check compares the blocks that build on it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cluster.audit.chain_codec import (
    Block,
    CallbackReceipt,
    Cancelled,
    CancelTimer,
    Extended,
    ExtendTimer,
    MessageReceipt,
    System,
    TransactionReceipt,
    UpdateTimerConfig,
    address_of,
    transaction_hash,
    transactions_root,
)
from cluster.audit.ledger.context import BOUNDS, CHAIN, TIMERS, BlockContext, Part, short
from cluster.audit.ledger.messages import reserved_cycles
from cluster.audit.ledger.timer_register import TimerRegister
from cluster.record.rules import LedgerRule
from validator.chain.genesis import Genesis
from validator.primitives import script_json
from validator.primitives.errors import BadScript
from validator.primitives.params import GOVERNED, ParameterError, Parameters, parse_value
from validator.primitives.types import address_text


class ChainRules:
    """Checks the headers and nonces of a chain's blocks, each against the blocks before it."""

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self.tip_hash: bytes | None = None
        self.nonces: Counter[bytes] = Counter()
        """The nonce of each sender's next transaction."""

    def check(self, context: BlockContext, block: Block) -> None:
        """Check a block's header against its content and receipts, then its transactions' nonces."""
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
                due = self.nonces[sender]
                context.found(CHAIN, f"nonce {body.nonce} of {address_text(sender)} where {due} is due")
            self.nonces[sender] = body.nonce + 1


def check_lanes(context: BlockContext) -> None:
    """Check that the user, system and deferred lanes of a block keep their limits, however much other lanes used.

    The limit of the timer lane, and the budgets of queries and of removals, are checked with the timer phase
    (:mod:`~cluster.audit.ledger.phase_rules`).
    """
    _check_user_lane(context)
    context.evaluate(LedgerRule.BLOCK_WORK)
    p, receipts = context.parameters, context.receipts
    runs: tuple[CallbackReceipt | MessageReceipt, ...] = (*receipts.callbacks, *receipts.messages)
    deferred = sum(run.cycles - reserved_cycles(run.effects, p) for run in runs)
    if deferred > p.lane_deferred_cycles:
        what = f"callbacks and messages took {deferred} cycles, the deferred lane has {p.lane_deferred_cycles}"
        context.found(BOUNDS, what)


def _check_user_lane(context: BlockContext) -> None:
    """Check that each transaction's limits fit into what earlier ones left of its lane, user or system (SPEC §2)."""
    p, receipts = context.parameters, context.receipts.transactions
    if len(context.bodies) != len(receipts):
        return
    used = {False: 0, True: 0}
    cells = 0
    limits = {False: p.lane_user_cycles, True: p.lane_system_cycles}
    for (_, body), receipt in zip(context.bodies, receipts, strict=True):
        context.evaluate(LedgerRule.USER_LANE)
        lane = isinstance(body.action, System)
        for what, taken, limit in (
            ("cycles", used[lane] + body.gas_limit, limits[lane]),
            ("cells", cells + body.cells_limit, p.lane_user_cells),
        ):
            if taken > limit:
                name = f"transaction {short(receipt.transaction_hash)}"
                context.found(
                    BOUNDS, f"{name} was taken, though with its limit its lane comes to {taken} {what} of {limit}"
                )
        used[lane] += receipt.cycles
        cells += receipt.cells


class Instructions:
    """Tracks the parameters of a chain as system instructions change them, and checks these instructions."""

    def __init__(self, genesis: Genesis) -> None:
        self._deployers = genesis.system_deployers
        self.in_force = genesis.parameters
        """The parameters in force in the current block."""
        self.following = genesis.parameters
        """The parameters in force from the next block on."""

    def begin_block(self) -> None:
        """Begin the next block: put the changes made in earlier blocks in force."""
        self.in_force = self.following

    def enter(self, part: Part, receipt: TransactionReceipt, action: System, timers: TimerRegister) -> None:
        """Check and enter a system instruction. Call it before ``timers`` gets the instruction's effects."""
        instruction, changes = action.instruction, receipt.effects.timer_changes
        if isinstance(instruction, UpdateTimerConfig):
            self._update(part, receipt, instruction)
        if not receipt.ok:
            return
        if receipt.sender not in self._deployers:
            part.found(CHAIN, f"gave a system instruction, which {address_text(receipt.sender)} must not")
        expected: tuple[Cancelled | Extended, ...] = ()
        if isinstance(instruction, CancelTimer) and instruction.timer_id in timers.pending:
            expected = (Cancelled(instruction.timer_id),)
        elif isinstance(instruction, ExtendTimer):
            expected = (Extended(instruction.timer_id, min(instruction.new_expires_at, part.context.latest_end)),)
        if changes != expected or receipt.effects.scheduled or receipt.effects.movements:
            part.found(TIMERS, "did something else than its system instruction says")

    def _update(self, part: Part, receipt: TransactionReceipt, instruction: UpdateTimerConfig) -> None:
        changed = self.changed_by(instruction.config)
        if receipt.ok and changed is not None:
            self.change(changed)
        elif receipt.ok:
            part.found(CHAIN, "changed parameters in a way that is not allowed")
        elif changed is not None and receipt.error == "ConfigInvalid":
            part.found(CHAIN, "was refused a change of parameters that is allowed")

    def changed_by(self, config: str) -> Parameters | None:
        """The parameters :attr:`following` with the changes in ``config``; ``None`` if they are not allowed."""
        try:
            given = script_json.parse(config.encode())
            if not isinstance(given, dict) or not GOVERNED.issuperset(given):
                return None
            return replace(self.following, **{name.lower(): parse_value(name, value) for name, value in given.items()})
        except (BadScript, ParameterError, UnicodeEncodeError):
            return None

    def change(self, parameters: Parameters) -> None:
        """Put parameters in force from the next block on."""
        self.following = parameters
