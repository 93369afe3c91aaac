"""Bugs in the verification of received data: a check of blocks or of a snapshot that is missing.

Each is provoked by the byzantine behaviour that sends exactly what the check rejects
(:mod:`cluster.misbehaviour.byzantine.registry`). One more bug is a validator that detects its divergence and continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import ClassVar, Final

import msgspec

from cluster.misbehaviour.planted import RunCounter
from consensus import interface as engine_border
from consensus.keys import ValidatorSet
from consensus.types import Signature, ValidatorIndex
from kits.mutation.bugs.state import WrongBalance
from kits.mutation.bugs.table import ALL, ONE, Area, Detection, MutantTable, Mutated
from validator.chain.block import Block, Header
from validator.chain.messages import FinalBlocksResponse, SnapshotOffer, ViewReport
from validator.node.assembly import Parts
from validator.node.blocks.catch_up import CatchUp
from validator.node.blocks.verification import Verification
from validator.node.events import Effect, Event, Send
from validator.node.node import Node
from validator.node.snapshot_join import PastViews, SnapshotJoin
from validator.primitives.types import Hash
from validator.state.intake import SnapshotIntake
from validator.transition.transition import Outcome, PreparedTransaction, Transition

REJOINS: Final = 2
"""The validator that loses its disk, or is down for long, in the scenarios for bugs in helping it."""


# --- proofs of finality and of state ----------------------------------------------------------------------------------


MUTANTS = MutantTable(Area.NODE)


def _credulous(validators: ValidatorSet, counter: RunCounter) -> ValidatorSet:
    """The validators, with every signature accepted."""

    class Credulous(ValidatorSet):
        def verify(self, signer: ValidatorIndex, message: bytes, signature: Signature) -> bool:
            counter.runs += not super().verify(signer, message, signature)
            return True

    return Credulous(validators.public_keys, validators.scheme, validators.epochs)


@MUTANTS.part("unproved-snapshots", Detection("unproved-snapshot", (REJOINS,)), "safety", "certificates")
class TakesAnyOffer(Mutated, SnapshotJoin):
    """a joining validator takes a snapshot without a proof that its block is final"""

    def _on_offer(self, sender: int, offer: SnapshotOffer) -> None:
        right, self._validators = self._validators, _credulous(self._validators, self.counter)
        super()._on_offer(sender, offer)
        self._validators = right


@MUTANTS.part("unproved-final-blocks", Detection("unproved-blocks", (REJOINS,)), "agreement")
class TakesAnyBlocks(Mutated, CatchUp):
    """a validator that catches up takes blocks for final without a proof"""

    def _take_if_proved(self, response: FinalBlocksResponse) -> bool:
        right, self.validators = self.validators, _credulous(self.validators, self.counter)
        is_taken = super()._take_if_proved(response)
        self.validators = right
        return is_taken


@MUTANTS.part("believes-views", Detection("unproved-view", (REJOINS,)), "safety", "abstention")
class BelievesViews(Mutated, PastViews):
    """a joining validator believes in which view a peer is, whoever signed the certificate"""

    def take(self, sender: int, report: ViewReport) -> bool:
        right, self.validators = self.validators, _credulous(self.validators, self.counter)
        is_taken = super().take(sender, report)
        self.validators = right
        return is_taken


class _AnyRoot(bytes):
    """A state root that every manifest matches."""

    __slots__ = ()
    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


@MUTANTS.part("manifest-unchecked", Detection("false-manifest", (REJOINS,)), "no_problems")
class TakesAnyManifest(Mutated, SnapshotIntake):
    """a joining validator does not hold a snapshot's manifest against the header's state root"""

    def take_manifest(self, data: bytes) -> None:
        with self._any_root() as right:
            super().take_manifest(data)
        self.counter.runs += self.manifest is not None and self.manifest.root != right

    @contextmanager
    def _any_root(self) -> Iterator[Hash]:
        right, self.root = self.root, Hash(_AnyRoot(self.root))
        try:
            yield right
        finally:
            self.root = right


# --- headers ----------------------------------------------------------------------------------------------------------


class _HoldsLess(Mutated, Transition):
    """A transition that does not check the ``unheld`` fields of the header against execution."""

    unheld: ClassVar[Sequence[str]]

    def apply(self, transactions: Sequence[PreparedTransaction]) -> Outcome:
        counter, unheld, outcome = self.counter, self.unheld, super().apply(transactions)

        class Lenient(Outcome):
            def matches(self, header: Header) -> str | None:
                gave = self.header_fields()
                differing = [name for name, value in gave.items() if getattr(header, name) != value]
                counter.runs += any(name in unheld for name in differing)
                return next((name for name in differing if name not in unheld), None)

        return Lenient(**{field.name: getattr(outcome, field.name) for field in fields(outcome)})


@MUTANTS.part("proposer-unchecked", Detection("false-proposer", ALL), "safety", "leaders")
class TakesAnyProposer(Mutated, Verification):
    """votes for a block of another proposer than the leader of its view"""

    def _is_what_was_proposed(self, request: engine_border.Verify, block: Block) -> bool:
        if block.header.proposer == request.proposer:
            return super()._is_what_was_proposed(request, block)
        self.counter.ran()
        vote = msgspec.structs.replace(request.vote, signer=ValidatorIndex(block.header.proposer))
        return super()._is_what_was_proposed(msgspec.structs.replace(request, vote=vote), block)


# --- whoever is wrong -------------------------------------------------------------------------------------------------


@MUTANTS.parts("diverges-and-goes-on", Detection("calm", ONE), "safety", "silence")
def _goes_on(counter: RunCounter) -> Parts:
    """who finds that a final block does not execute to its header says so, and goes on taking part"""

    class GoesOn(Node):
        def handle(self, event: Event) -> list[Effect]:
            """Continues as if it had not diverged; its reports of the divergence are the same."""
            told, self.diverged = self.diverged, None
            effects = super().handle(event)
            if told is not None:
                counter.runs += any(isinstance(effect, Send) for effect in effects)
                self.diverged = told
            return effects

    class Wrong(WrongBalance):
        """The cause of the divergence, which is not counted."""

        counter = RunCounter()

    return Parts(transition=Wrong, node=GoesOn)


@MUTANTS.part("receipts-root-unchecked", Detection("invalid-block-any-field", ALL, seeds=12), "chain")
class ReceiptsRootUnchecked(_HoldsLess):
    """a header's receipts root is not held against execution"""

    unheld = ("receipts_root",)


@MUTANTS.part("basefees-unchecked", Detection("invalid-block-any-field", ALL, seeds=12), "conservation")
class BasefeesUnchecked(_HoldsLess):
    """a header's basefees are not held against execution"""

    unheld = ("basefee_cycle", "basefee_cell", "basefee_lane_timer")


@MUTANTS.part("usage-unchecked", Detection("invalid-block-any-field", ALL, seeds=12), "chain")
class UsageUnchecked(_HoldsLess):
    """what a header says that its block used is not held against execution"""

    unheld = ("lane_cycles", "lane_cells", "user_cycles", "user_cells")
