"""Behaviours of leaders: silent, forgetful, contradictory, with invalid blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any, ClassVar

import msgspec

from cluster.misbehaviour.byzantine.base import (
    Behaviour,
    BehaviourContext,
    Heard,
    first_half,
    forget_old,
    send_consensus,
)
from consensus.messages import Certificate, Message, Proposal, Timeout, TimeoutCertificate, Vote, VoteKind
from consensus.types import Digest, View
from validator.chain.block import MAX_BLOCK_BYTES, Block, Header, decode_block, header_hash, transactions_root
from validator.chain.transactions import transaction_hash
from validator.node.events import BlockFinal, Completed, Effect, Event, Run, Send, Started
from validator.node.executor.jobs import Build, Built, Finalize
from validator.primitives.codec import encode, pack_uint, unpack_uint
from validator.primitives.types import PRICE_LIMIT, Hash


class EquivocatingLeader(Behaviour):
    """Proposes two valid blocks in one view, each to one half of the peers.

    The second block is built by the validator's own executor on the same parent, without transactions. If the first
    block has none either, the two are equal and there is no equivocation. The leader supports both: a peer that got one
    block hears nothing of the other from it.
    """

    name = "equivocating-leader"
    description = "as leader, proposes two valid blocks in one view, each to half of the others"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._building: set[int] = set()
        """Views whose second block is being built: the executor's next answer for the view is for the behaviour."""
        self._second: dict[int, Built] = {}
        self._equivocated: dict[int, Proposal] = {}
        """The first proposal of each view in which the leader made two, keyed by view."""

    def swallows(self, event: Event) -> bool:
        if isinstance(event, Started):
            self._building.clear()
        if not isinstance(event, Completed) or not isinstance(event.result, Built):
            return False
        if event.result.view not in self._building:
            return False
        self._building.remove(event.result.view)
        self._second[event.result.view] = event.result
        forget_old(self._second)
        return True

    def alter(self, effect: Effect) -> list[Effect]:
        if isinstance(effect, Run) and isinstance(effect.job, Build):
            self._building.add(effect.job.view)
            return [Run(replace(effect.job, candidates=())), effect]
        return super().alter(effect)

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        match message:
            case Proposal() if (second := self._second_of(message)) is not None:
                half = first_half(self.context.peers, message.view)
                for peer in self.context.peers:
                    if send.recipient in (None, peer):
                        yield send_consensus(peer, message if peer in half else second)
                self._note_equivocation(message)
            case Vote(kind=VoteKind.NOTARIZE) if self.is_ours(message) and message.view in self._equivocated:
                pass  # it would give the leader away to peers that have the other block
            case _:
                yield send

    def _second_of(self, proposal: Proposal) -> Proposal | None:
        built = self._second.get(proposal.view)
        if built is None or not self.is_ours(proposal.vote):
            return None
        if bytes(built.parent) != proposal.parent_digest or bytes(built.digest) == proposal.digest:
            return None
        vote = self.context.vote(VoteKind.NOTARIZE, proposal.view, proposal.parent_view, built.digest)
        subject = (proposal.view, proposal.parent_view, proposal.parent_digest, Digest(built.digest))
        return Proposal(*subject, built.body, vote)

    def _note_equivocation(self, proposal: Proposal) -> None:
        if proposal.view not in self._equivocated:
            self._equivocated[proposal.view] = proposal
            forget_old(self._equivocated)
            self.count_effect()


class FalseProposer(Behaviour):
    """As leader, proposes a block that names another validator as its proposer, which gets the tips.

    The block is executed for that validator, so its only error is that this validator does not lead the view.
    """

    name = "false-proposer"
    description = "as leader, proposes blocks that name another validator as their proposer"

    def alter(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Run) or not isinstance(effect.job, Build):
            return super().alter(effect)
        self.count_effect()
        return [Run(replace(effect.job, proposer=self.context.random.choice(self.context.peers)))]


class ForgetfulLeader(Behaviour):
    """Builds on the newest final block, ignoring the notarized blocks above it.

    It breaks no rule provably: the parent of its block is final, and if every view since has a nullification, Simplex
    lets a leader skip all of them. So a whole branch of notarized blocks is abandoned for one block, and all validators
    have to go back. In HotStuff a timeout certificate names the block that must not be skipped, and the proposal is
    rejected.
    """

    name = "forgetful-leader"
    description = "as leader, builds on the newest final block and skips all notarized ones above it"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._final: Hash | None = None
        """The newest block that the executor was told to make final, and so makes final before its next job."""
        self._view: tuple[Hash, View] | None = None
        """The newest final block, and its view."""
        self._building: dict[int, Hash] = {}
        """The parent of each block that is being built for the behaviour, keyed by view."""
        self._own: dict[int, tuple[View, Built]] = {}
        """The block built for the behaviour, with its parent's view; keyed by view."""

    def swallows(self, event: Event) -> bool:
        if isinstance(event, Started):
            self._final = None
            self._building.clear()
        if not isinstance(event, Completed) or not isinstance(event.result, Built):
            return False
        built = event.result
        if self._building.get(built.view) != built.parent:
            return False
        del self._building[built.view]
        if self._view is not None and self._view[0] == built.parent:
            self._own[built.view] = self._view[1], built
            forget_old(self._own)
        return True

    def alter(self, effect: Effect) -> list[Effect]:
        match effect:
            case BlockFinal(digest=digest, view=view):
                self._view = digest, View(view)
            case Run(job=Finalize(digest=digest)):
                self._final = digest
            case Run(job=Build() as job) if self._final not in (None, job.parent):
                assert self._final is not None
                self._building[job.view] = self._final
                return [Run(replace(job, parent=self._final, candidates=())), effect]
            case _:
                pass
        return super().alter(effect)

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        match message:
            case Proposal() if self.is_ours(message.vote) and message.view in self._own:
                yield send_consensus(send.recipient, self._forgetful(message))
                self.count_effect()
            case Vote(kind=VoteKind.NOTARIZE) if self.is_ours(message) and message.view in self._own:
                pass  # for the block that it did not propose
            case _:
                yield send

    def _forgetful(self, proposal: Proposal) -> Proposal:
        parent_view, built = self._own[proposal.view]
        vote = self.context.vote(VoteKind.NOTARIZE, proposal.view, parent_view, built.digest)
        return Proposal(proposal.view, parent_view, Digest(built.parent), Digest(built.digest), built.body, vote)


NO_TRANSACTION = b"no transaction"


class InvalidBlock(Behaviour):
    """As leader, proposes blocks that no validator may accept, in correctly signed proposals: the base class of the
    variants."""

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
    """The header promises another state root than execution gives."""

    name = "invalid-block-bad-root"
    description = "as leader, proposes blocks whose header has a wrong state root"
    fields = ("state_root",)


class BadTransaction(InvalidBlock):
    """The last transaction cannot be decoded, yet the header commits to it."""

    name = "invalid-block-bad-transaction"
    description = "as leader, proposes blocks with bytes in them that are no transaction"

    def spoil(self, block: Block) -> Block:
        return _with_transaction(block, NO_TRANSACTION)


class BadHeader(FalseHeader):
    """In turn another height, another view, another proposer, another parent."""

    name = "invalid-block-bad-header"
    description = "as leader, proposes blocks whose header has another height, view, proposer or parent"
    fields = ("height", "view", "proposer", "parent_hash")


class AnyField(FalseHeader):
    """Each field of the header in turn, in random order."""

    name = "invalid-block-any-field"
    description = "as leader, proposes blocks whose header is false in one field, each field in its turn"
    fields = Header.__struct_fields__

    def _order(self) -> Sequence[str]:
        return self.context.random.sample(self.fields, len(self.fields))


class Oversized(InvalidBlock):
    """The body is larger than any block may be."""

    name = "invalid-block-oversized"
    description = "as leader, proposes blocks that are larger than blocks may be"

    def spoil(self, block: Block) -> Block:
        return _with_transaction(block, bytes(MAX_BLOCK_BYTES))


def _with_transaction(block: Block, wire: bytes) -> Block:
    wires = (*block.transactions, wire)
    root = transactions_root([transaction_hash(each) for each in wires])
    return Block(msgspec.structs.replace(block.header, transactions_root=root), wires)


class LockBreaker(ForgetfulLeader):
    """With HotStuff, skips a certified block that a timeout certificate names.

    This needs a block that is certified and not final, timeouts that name it, and the lead of the next view. The
    behaviour brings about the first two: in a view that it leads, it withholds the certificate of the previous view's
    block and proposes nothing. So the others give up both views; the validators that would have finalized that block
    have timed out by then, and the timeouts of the second view name it. If the behaviour also leads the next view, it
    builds below, on the newest final block.
    """

    name = "lock-breaker"
    description = "HotStuff: as leader, builds below the block that the timeouts before it name"
    protocol = "hotstuff"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._named: dict[int, View] = {}
        """The high view that each view's timeout certificate names, keyed by the timed-out view."""

    def hear(self, heard: Heard) -> list[Effect]:
        self._note(heard.message)
        return []

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        self._note(message)
        match message:
            case Certificate(kind=VoteKind.NOTARIZE) | Timeout():
                pass
            case Proposal() if self.is_ours(message.vote) and not self._breaks_a_lock(message.view):
                pass
            case _:
                yield from super().say(send, message)

    def _breaks_a_lock(self, view: View) -> bool:
        """Whether the behaviour's block of a view skips the certified block that the previous view's timeouts name."""
        return view in self._own and self._own[view][0] < self._named.get(view - 1, 0)

    def _note(self, message: Message) -> None:
        if isinstance(message, TimeoutCertificate):
            self._named[message.view] = message.high_view
            forget_old(self._named)


class SilentLeader(Behaviour):
    """Votes like an honest validator, but does not propose when it leads."""

    name = "silent-leader"
    description = "as leader, sends no proposal"

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        if isinstance(message, Proposal):
            self.count_effect()
        else:
            yield send
