"""The accounts of a chain, followed by an observer: balances, burned fees and tips (SPEC §2, §7, §10).

No balance becomes negative, only the owner's money moves, and reverted handlers have no effects. Movements hold
transaction values and an actor's transfers. Fees are separate: a payer loses ``burned + tip``. First the tips of
transactions, later those of fires go to ``BlockReceipts.proposer``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from cluster.audit.chain_codec import NO_EFFECTS, Effects, FireReceipt, Movement, TransactionReceipt
from cluster.audit.ledger.context import CHAIN, CONSERVATION, BlockContext, Part
from validator.chain.genesis import Genesis
from validator.chain.transactions import SCRIPT_CODE
from validator.primitives.types import BID_ESCROW_ADDRESS, address_text


class Accounts:
    """Balances, burned fees and tips of a chain, and which accounts are actors."""

    def __init__(self, genesis: Genesis) -> None:
        self.balances: Counter[bytes] = Counter(genesis.accounts)
        self.actors: set[bytes] = set()
        self.scripts: set[bytes] = set()
        """Actors that run ``builtin:script``."""
        for address, actor in genesis.actors.items():
            self.balances[address] += actor.balance
            self.deployed(address, actor.code)
        self.minted = self.held()
        self.burned = 0
        self.burned_cell = 0
        """The amount burned for cells, at the cell basefee."""
        self.burned_lane_timer = 0
        """The amount burned for cycles of the timer lane, at the lane price."""
        self.tips = 0

    @property
    def burned_cycle(self) -> int:
        """The amount burned for cycles, at the cycle basefee, by transactions, fires and queries."""
        return self.burned - self.burned_cell - self.burned_lane_timer

    def held(self) -> int:
        """The sum of all balances."""
        return self.balances.total()

    def deployed(self, address: bytes, code: str) -> None:
        """Enter an actor."""
        self.actors.add(address)
        if code == SCRIPT_CODE:
            self.scripts.add(address)

    def pay(self, payer: bytes, burned: int, tip: int = 0) -> None:
        """Take a fee, burned amount plus tip, from a payer. :meth:`credit_tips` pays the tip to the proposer later."""
        self.balances[payer] -= burned + tip
        self.burned += burned

    def count_burned(self, context: BlockContext, fires: Sequence[FireReceipt]) -> None:
        """Count the parts of what a block's fires burned that are the prices of cells and of the lane."""
        cycles, cells = sum(fire.cycles for fire in fires), sum(fire.cells for fire in fires)
        self.burned_cell += cells * context.basefees.cell
        self.burned_lane_timer += context.lane_fee(cycles, cells, sum(fire.burned for fire in fires))

    def credit_tips(self, context: BlockContext, receipts: Iterable[TransactionReceipt | FireReceipt]) -> None:
        """Pay the tips of transactions or fires to the block's proposer."""
        tips = sum(receipt.tip for receipt in receipts)
        self.tips += tips
        if tips:
            self.balances[context.receipts.proposer] += tips

    def move(self, movements: Iterable[Movement]) -> None:
        for movement in movements:
            self.balances[movement.source] -= movement.amount
            self.balances[movement.target] += movement.amount

    def lock(self, payer: bytes, amount: int) -> None:
        """Lock a bid at the cost of its timer's fee payer; a negative amount is returned."""
        self.balances[payer] -= amount
        self.balances[BID_ESCROW_ADDRESS] += amount

    def check_not_negative(self, part: Part, payer: bytes, effects: Effects = NO_EFFECTS) -> None:
        """Check that the payers of a run that is entered still have balances of at least 0.

        They are ``payer``, the sources of the run's movements, and the fee payers of its timers.
        """
        payers: Iterable[bytes] = (payer,)
        if effects.movements or effects.scheduled:
            sources = [movement.source for movement in effects.movements]
            payers = dict.fromkeys([payer, *sources, *[item.fee_payer for item in effects.scheduled]])
        for address in payers:
            balance = self.balances[address]
            if balance < 0:
                part.found(CONSERVATION, f"left {address_text(address)} with {balance}: it spent what it never had")


def check_charge(part: Part, verb: str, charged: int, expected: int) -> None:
    """Check that a charged fee or tip equals the one that use and prices give.

    Without a header the basefees are unknown, and only tips are checked.
    """
    if (part.context.header is not None or verb == "tipped") and charged != expected:
        part.found(CONSERVATION, f"{verb} {charged} where its use and prices give {expected}")


def check_result(part: Part, ok: bool, error: str, effects: Effects) -> None:
    """Check that a run that succeeded reports no error, and that a reverted run left no effects."""
    if ok:
        if error:
            part.found(CHAIN, f"succeeded with error {error[:40]!r}")
    elif effects.movements or effects.scheduled or effects.timer_changes or effects.events:
        part.found(CONSERVATION, "reverted but left effects behind")


def check_sources(part: Part, movements: Iterable[Movement], owner: bytes | None) -> None:
    """Check that every movement takes money from ``owner``'s account."""
    for movement in movements:
        if movement.source != owner:
            source = address_text(movement.source)
            part.found(CONSERVATION, f"moved {movement.amount} of {source}, which it does not own")


def check_own_payer(part: Part, effects: Effects) -> None:
    """Check that a run outside of transactions scheduled only timers whose fee payer is their own actor."""
    if effects.scheduled and any(item.fee_payer != item.actor for item in effects.scheduled):
        part.found(CONSERVATION, "scheduled a timer at another account's cost")
