"""The node: one validator without its executor, as a pure state machine.

``handle(event)`` returns effects (:mod:`validator.node.events`). The node knows about execution only from the
executor's results. It passes events to its parts, in this order of work:

- The engine's ``Propose`` becomes a ``Build`` job (:mod:`validator.node.blocks.proposals`).
- The engine's ``Verify`` puts a block into the tree (:mod:`validator.node.blocks.verification`). A block is executed
  once its parent is.
- The engine's ``Finalized`` makes a line of blocks final (:mod:`validator.node.blocks.finality`). Missing blocks are
  fetched first (:mod:`validator.node.blocks.catch_up`).
- Requests of peers are answered (:mod:`validator.node.peer_service`).
- Transactions enter the mempool by ``Submit`` and by gossip (:mod:`validator.node.offers`).
- If a final block does not execute to its header, this validator computes another state than a quorum does. It reports
  that (``Diverged``) and stops participating. Continuing would only spread the damage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, get_args

from consensus import interface as engine_border
from consensus.interface import TimerKind, VotingConfig
from consensus.journal import encode_record
from consensus.keys import Signer, ValidatorSet
from consensus.leader import ELECTIONS
from consensus.messages import Certificate, Vote
from consensus.messages import Message as EngineMessage
from consensus.messages import decode as decode_consensus
from consensus.protocols import EngineType
from consensus.simplex import Simplex
from consensus.types import Digest, Token, ValidatorIndex, View
from consensus.voting import Sizes, VotingEngine
from validator.chain import messages
from validator.chain.block import decode_block
from validator.chain.genesis import Genesis
from validator.chain.transactions import transaction_hash
from validator.node import events
from validator.node.blocks.block_tree import BlockState, BlockTree, HeldBlock
from validator.node.blocks.catch_up import SYNC_TIMER, CatchUp
from validator.node.blocks.finality import Finality
from validator.node.blocks.proposals import PROPOSE_TIMER, Proposals
from validator.node.blocks.verification import Verification
from validator.node.executor import jobs
from validator.node.limits import DEFAULT_BLOCK_LIMITS, DEFAULT_POOL_LIMITS, BlockLimits, PoolLimits
from validator.node.mempool import Mempool, Refusal
from validator.node.offers import Offers
from validator.node.outbox import Outbox
from validator.node.peer_service import PeerService
from validator.primitives.codec import CodecError, encode
from validator.primitives.types import Hash, Height
from validator.storage.journal import JournalContent

DEFAULT_SYNC_RETRY_MS: Final = 250
ENGINE_MESSAGES: Final = get_args(EngineMessage)
_ALLOWANCE_TIMER: Final = TimerKind.ALLOWANCE.value


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """One node's settings. Validators may differ in them."""

    voting: VotingConfig
    """Settings of the consensus engine. HotStuff ignores those that only Simplex has."""
    engine: EngineType = Simplex
    """The consensus protocol; the same for all validators of a chain."""
    election: str = "round-robin"
    """How leaders are elected (:data:`consensus.leader.ELECTIONS`); the same for all validators of a chain."""
    block_interval_ms: int = 0
    """Least time between the request for a proposal and its construction."""
    sync_retry_ms: int = DEFAULT_SYNC_RETRY_MS
    """Time to wait for an answer to a request for blocks before the next peer is asked."""
    pool: PoolLimits = DEFAULT_POOL_LIMITS
    blocks: BlockLimits = DEFAULT_BLOCK_LIMITS


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The validator that a node runs for: its index and signer, with the validator set and the genesis."""

    index: int
    signer: Signer
    validators: ValidatorSet
    genesis: Genesis

    @property
    def chain_id(self) -> str:
        return self.genesis.chain_id


@dataclass(frozen=True, slots=True)
class FinalPoint:
    """The start of a node's chain after recovery: its newest archived block, or the genesis."""

    digest: Hash
    height: Height
    view: int
    abstain_through: int = 0
    """The last view in which the validator must not vote, because it may have voted before it lost its journal."""
    certificate: bytes = b""
    """The block's encoded finalization, if the archive has one: it opened the node's first view."""


class Node:
    """One validator's node: :meth:`handle` takes an event and returns effects (:mod:`validator.node.events`)."""

    mempool_class: ClassVar[type[Mempool]] = Mempool
    offers_class: ClassVar[type[Offers]] = Offers
    tree_class: ClassVar[type[BlockTree]] = BlockTree
    verification_class: ClassVar[type[Verification]] = Verification
    proposals_class: ClassVar[type[Proposals]] = Proposals
    finality_class: ClassVar[type[Finality]] = Finality
    catch_up_class: ClassVar[type[CatchUp]] = CatchUp

    def __init__(self, config: NodeConfig, identity: NodeIdentity, start: FinalPoint, journal: JournalContent) -> None:
        index, validators, namespace = identity.index, identity.validators, identity.chain_id.encode()
        self._config = config
        self._engine: VotingEngine = config.engine(
            config.voting,
            validators,
            ValidatorIndex(index),
            identity.signer,
            namespace,
            engine_border.Parent(View(start.view), Digest(start.digest)),
            (*_root_records(start), *journal.records),
            ELECTIONS[config.election](validators, namespace),
            abstain_through=View(start.abstain_through),
        )
        self._engine_events: deque[engine_border.Event] = deque()
        self.diverged: events.Diverged | None = None
        self.mempool = self.mempool_class(identity.genesis, config.pool)
        self._offers = self.offers_class(self.mempool)
        self._tree = tree = self.tree_class(start.digest, start.height, start.view, config.blocks)
        for body in journal.bodies:
            block = decode_block(body)
            if block is not None:
                tree.add(block, body)
        self._effects = effects = Outbox()
        self._peer_service = PeerService(self._engine, tree, effects)
        self._verification = self.verification_class(tree, effects, self._consensus)
        self._finality = finality = self.finality_class(
            self._engine, tree, effects, start.height, start.view, config.blocks.journal_blocks
        )
        self._proposals = self.proposals_class(
            index, self._engine, tree, finality, self.mempool, effects, self._consensus, config.blocks.max_held_blocks
        )
        self._catch_up = self.catch_up_class(
            index,
            validators,
            namespace,
            tree,
            finality,
            effects,
            config.sync_retry_ms,
            config.blocks.max_proven_ahead,
        )
        self._performers: Final[dict[type[engine_border.Effect], Callable[[Any], None]]] = {
            engine_border.Broadcast: effects.broadcast,
            engine_border.SendTo: effects.send_to,
            engine_border.StartTimer: self._start_timer,
            engine_border.Propose: self._propose,
            engine_border.Verify: self._verify,
            engine_border.Persist: effects.persist,
            engine_border.Notarized: effects.certify,
            engine_border.Nullified: effects.certify,
            engine_border.Finalized: self._finalize,
            engine_border.Report: effects.accuse,
            engine_border.Rejected: effects.reject,
        }
        """The method that performs the engine's effects of each type. The other types have nothing to be done."""

    # --- for others to read -------------------------------------------------------------------------------------------

    @property
    def view(self) -> int:
        """The current consensus view."""
        return self._engine.certificates.view

    @property
    def leader(self) -> int:
        """The leader of the current view."""
        return self._engine.leader(self._engine.view)

    @property
    def final_view(self) -> int:
        """The newest view with a known finalization."""
        return self._engine.final_view

    @property
    def consensus_sizes(self) -> Sizes:
        """Sizes of the consensus engine's collections."""
        return self._engine.sizes

    @property
    def height(self) -> int:
        """Height of the newest block that is final and committed here."""
        return self._finality.height

    def configure(self, config: NodeConfig) -> None:
        """Use other times and limits from now on; protocol and election stay. Running timers are not changed."""
        self._config = config
        self._catch_up.retry_ms = config.sync_retry_ms
        self._engine.configure(config.voting)

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: events.Event) -> list[events.Effect]:
        """Take one event; return the effects that follow, in order."""
        if self.diverged is not None:
            return self._refuse(event, self.diverged)
        match event:
            case events.Message():
                self._on_message(event.sender, event.payload, event.content)
            case events.Completed():
                self._on_completed(event.result)
            case events.Synced():
                self._consensus(engine_border.Durable(Token(event.token)))
            case events.Timeout():
                self._on_timeout(event.timer)
            case events.Submit(request, transactions):
                self._effects += self._offers.submit(request, transactions)
            case events.Started():
                self._consensus(engine_border.Start())
        return self._effects.drain()

    def take_vote(self, sender: int, vote: Vote) -> bool:
        """Count a peer's vote of which no effect follows; ``False``, and nothing is changed, if :meth:`handle` must
        take it (:meth:`consensus.tally.Rounds.take_vote`)."""
        return self.diverged is None and self._engine.take_vote(sender, vote)

    @staticmethod
    def _refuse(event: events.Event, diverged: events.Diverged) -> list[events.Effect]:
        """What a diverged validator still does: it answers clients."""
        if not isinstance(event, events.Submit):
            return []
        line, reason = _diverged_line(diverged), Refusal.DIVERGED.value
        results = tuple(events.SubmitResult(transaction_hash(wire), line, reason) for wire in event.transactions)
        return [events.Reply(event.request, results)]

    def _on_timeout(self, timer: events.TimerName) -> None:
        if timer == SYNC_TIMER:
            self._catch_up.ask_next(is_block_awaited=self._is_block_awaited)
        elif timer == PROPOSE_TIMER:
            self._proposals.interval_passed()
            self._try_build()
        elif timer.number == self._engine.view or timer.owner == _ALLOWANCE_TIMER:
            # the engine ignores timers of earlier views
            self._consensus(engine_border.TimerExpired(TimerKind(timer.owner), View(timer.number)))

    # --- messages -----------------------------------------------------------------------------------------------------

    def _on_message(self, sender: int, payload: bytes, message: messages.Reading | None) -> None:
        if message is None:
            try:
                message = messages.read_message(payload)
            except CodecError:
                self._effects.fault(sender, "undecodable")
                return
        if isinstance(message, ENGINE_MESSAGES):
            self._consensus(engine_border.Received(ValidatorIndex(sender), message, True))
            return
        match message:
            case messages.TransactionsMessage(transactions=transactions):
                self._on_gossip(sender, transactions)
            case messages.BlockResponse(body=body):
                if self._catch_up.take_block(sender, body):
                    self._resume_after_blocks()
            case messages.FinalBlocksResponse():
                if self._catch_up.take_final_blocks(sender, message):
                    self._resume_after_blocks()
            case messages.BlocksPruned(begins_at=begins_at):
                self._catch_up.take_pruned(sender, begins_at)
            case (
                messages.BlockRequest()
                | messages.FinalBlocksRequest()
                | messages.SnapshotRequest()
                | messages.ChunkRequest()
                | messages.ViewRequest()
            ):
                self._peer_service.answer(sender, message)
            case (
                messages.ConsensusMessage()
                | messages.SnapshotOffer()
                | messages.ChunkResponse()
                | messages.ViewReport()
            ):
                pass  # without its envelope already, or a late answer to a request from before the node started

    def _on_gossip(self, sender: int, transactions: tuple[bytes, ...]) -> None:
        if len(transactions) > messages.MAX_GOSSIPED_TRANSACTIONS:
            self._effects.fault(sender, "oversized")
            return
        effects, is_honest = self._offers.gossip(sender, transactions)
        self._effects += effects
        if not is_honest:
            self._effects.fault(sender, "bad_transactions")

    # --- consensus ----------------------------------------------------------------------------------------------------

    def _consensus(self, event: engine_border.Event) -> None:
        """Pass an event to the engine and perform its effects.

        Immediate answers wait until all effects are performed, so that journal records keep their order.
        """
        waiting = self._engine_events
        waiting.append(event)
        if len(waiting) > 1:
            return
        while waiting:
            for effect in self._engine.handle(waiting[0]):
                self._perform(effect)
            waiting.popleft()

    def _perform(self, effect: engine_border.Effect) -> None:
        perform = self._performers.get(type(effect))
        if perform is not None:
            perform(effect)

    def _start_timer(self, effect: engine_border.StartTimer) -> None:
        self._effects.start_timer(effect)
        if effect.kind is TimerKind.ALLOWANCE:
            self._peer_service.tick()
        elif effect.kind is TimerKind.REBROADCAST:
            self._catch_up.tick()

    def _propose(self, effect: engine_border.Propose) -> None:
        self._proposals.propose(effect, self._config.block_interval_ms)
        self._try_build()

    def _verify(self, effect: engine_border.Verify) -> None:
        if self._verification.add(effect):
            self._execute_line(Hash(effect.digest))

    def _finalize(self, effect: engine_border.Finalized) -> None:
        self._effects.certify(effect)
        if self._finality.certify(effect.certificate):
            self._try_finalize()

    # --- execution ----------------------------------------------------------------------------------------------------

    def _execute_line(self, digest: Hash) -> None:
        """Execute everything from the final block up to ``digest``; fetch missing blocks."""
        missing = self._tree.first_missing(digest)
        if missing is not None:
            self._catch_up.want(missing)
            return
        for held in self._tree.line(digest):
            self._execute_if_ready(held)

    def _execute_if_ready(self, held: HeldBlock) -> None:
        if held.state is not BlockState.HELD or not self._tree.is_executed(held.parent):
            return
        held.state = BlockState.RUNNING
        known = {}
        for wire in held.block.transactions:
            prepared = self.mempool.get(transaction_hash(wire))
            if prepared is not None:
                known[prepared.hash] = prepared
        self._effects.append(events.Run(jobs.Execute(held.digest, held.block, known)))

    def _on_completed(self, result: jobs.JobResult) -> None:
        match result:
            case jobs.Executed():
                self._on_executed(result)
            case jobs.Built():
                self._proposals.built(result)
            case jobs.Finalized():
                self._effects += self._offers.settle(result)
                self._finality.committed(result)
            case jobs.FinalizedInvalid():
                self._on_divergence(result)
            case jobs.BlocksRead() | jobs.SnapshotRead():
                self._peer_service.read(result)
            case jobs.AccountsRead():
                self._effects += self._offers.accounts_read(result)

    def _on_executed(self, result: jobs.Executed) -> None:
        held = self._tree.get(result.digest)
        if held is None:
            return  # another branch became final since
        self._verification.executed(held, is_valid=result.error is None)
        for child in list(self._tree.children(held.digest)):
            self._execute_if_ready(child)
        self._try_finalize()
        self._try_build()

    def _try_build(self) -> None:
        """Build the requested proposal, once its parent is executed."""
        parent = self._proposals.try_build()
        if parent is not None:
            self._execute_line(parent)

    def _try_finalize(self) -> None:
        """Commit proved blocks, in order, as far as they are executed; request missing ones."""
        final = self._tree.final
        unexecuted = self._finality.commit()
        if self._tree.final != final:
            self._verification.forget_unheld()
        if unexecuted is not None:
            self._execute_if_ready(unexecuted)
        if self._finality.target is not None:
            self._catch_up.ask(is_block_awaited=self._is_block_awaited)

    def _resume_after_blocks(self) -> None:
        """Resume executing, finalizing, building and requesting, after missing blocks arrived."""
        for digest in self._verification.awaited:
            self._execute_line(digest)
        self._try_finalize()
        self._try_build()
        self._catch_up.ask(is_block_awaited=self._is_block_awaited)

    @property
    def _is_block_awaited(self) -> bool:
        return self._proposals.is_due or bool(self._verification.awaited)

    def _on_divergence(self, result: jobs.FinalizedInvalid) -> None:
        self.diverged = events.Diverged(
            height=Height(result.header.height),
            digest=result.digest,
            reason=result.reason,
            expected_root=Hash(result.header.state_root),
            computed_root=result.computed_root,
            receipts=result.receipts,
            trace=encode(result.trace),
        )
        self._effects.append(self.diverged)
        self._effects += self._offers.close(Refusal.DIVERGED, _diverged_line(self.diverged))


def _root_records(start: FinalPoint) -> tuple[bytes, ...]:
    """The finalization of the block that a node starts from, as a journal record; empty if it has none."""
    if not start.certificate:
        return ()
    certificate = decode_consensus(start.certificate)
    assert isinstance(certificate, Certificate), "the archive holds certificates"
    return (encode_record(certificate),)


def _diverged_line(diverged: events.Diverged) -> str:
    return f"the validator diverged at height {diverged.height}"
