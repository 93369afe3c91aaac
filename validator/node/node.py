"""The node: consensus, mempool, block tree and catch-up of one validator, as a pure state machine.

``handle(event)`` returns effects (:mod:`validator.node.events`). What the node knows of execution is only what the
executor's results say. How the parts meet:

- The engine's ``Propose`` becomes a ``Build`` job once the parent is executed and the block interval has passed.
- The engine's ``Verify`` puts the block into the tree; it is executed once its parent is, and the engine gets its
  answer.
- The engine's ``Finalized`` makes a line of blocks final: executed where they are not yet, then committed one by one.
  Blocks of the line that are not here are fetched first: by digest when the line is short, as a range of final blocks,
  each range proved by a finalization certificate, when this node is far behind.
- Transactions come by ``Submit`` and by gossip into the mempool (:mod:`validator.node.admission`), which judges by the
  final state: accounts that the executor reads for it, and those that each final block changed.
- A final block that does not execute to its header means that this validator computes another state than a quorum does:
  it says so (``Diverged``) and stops taking part. Continuing would only spread the damage.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Final, get_args

from consensus import interface as engine_border
from consensus.interface import HARMLESS_REASONS, TimerKind, VotingConfig
from consensus.journal import encode_record
from consensus.keys import Signer, ValidatorSet
from consensus.leader import ELECTIONS
from consensus.messages import Certificate, Vote, encode_evidence
from consensus.messages import Message as EngineMessage
from consensus.messages import decode as decode_consensus
from consensus.messages import encode as encode_consensus
from consensus.protocols import EngineType
from consensus.simplex import Simplex
from consensus.types import FIRST_VIEW, Digest, Token, ValidatorIndex, View
from consensus.voting import Sizes, VotingEngine
from validator.chain.block import Block, header_hash
from validator.chain.genesis import Genesis
from validator.chain.messages import (
    MAX_BLOCKS_ASKED,
    MAX_GOSSIPED_TRANSACTIONS,
    MAX_NONCE_BYTES,
    BlockRequest,
    BlockResponse,
    ChunkRequest,
    ChunkResponse,
    ConsensusMessage,
    FinalBlocksRequest,
    FinalBlocksResponse,
    PeerMessage,
    Reading,
    SnapshotOffer,
    SnapshotRequest,
    TransactionsMessage,
    ViewReport,
    ViewRequest,
    encode_message,
    read_message,
)
from validator.chain.transactions import transaction_hash
from validator.node.admission import Admission
from validator.node.block_tree import BlockState, BlockTree, HeldBlock
from validator.node.events import (
    Append,
    BlockFinal,
    Certified,
    Completed,
    Diverged,
    Dropped,
    Effect,
    Event,
    EvidenceFound,
    Message,
    PeerFault,
    ReplaceJournal,
    Reply,
    Run,
    Send,
    SetTimer,
    Started,
    Submit,
    SubmitResult,
    Synced,
    Timeout,
    TimerName,
)
from validator.node.evidence import INVALID_BLOCK, InvalidBlock, encode_misconduct
from validator.node.executor import (
    AccountsRead,
    BlocksRead,
    Build,
    Built,
    Execute,
    Executed,
    Finalize,
    Finalized,
    FinalizedInvalid,
    JobResult,
    ReadBlocks,
    ReadSnapshot,
    SnapshotRead,
    decode_block,
)
from validator.node.mempool import Mempool, Refusal
from validator.primitives.codec import CodecError, encode
from validator.primitives.types import HASH_BYTES, Hash, Height
from validator.storage.finality_proof import MAX_LINKS, is_proved
from validator.storage.journal import JournalContent, encode_batch, encode_journal

MAX_CANDIDATES: Final = 8_192
"""Mempool transactions offered to a block builder."""
MAX_PROVEN_AHEAD: Final = 2 * MAX_BLOCKS_ASKED
"""Blocks that are proved final and wait for execution, beyond which no more are asked for."""
MAX_GIVEN_BYTES: Final = 16 * 1024 * 1024
"""Of blocks given to one peer by digest between two ticks of consensus, after which it is given no more."""
JOURNAL_REPLACED_EVERY: Final = 64
"""Final blocks between two replacements of the journal."""

ENGINE_MESSAGES: Final = get_args(EngineMessage)

SYNC_TIMER: Final = TimerName("sync")
PROPOSE_TIMER: Final = TimerName("propose")


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """One node's settings. Validators may differ in them."""

    voting: VotingConfig
    """HotStuff does not look at what is Simplex's own."""
    engine: EngineType = Simplex
    """The consensus protocol; the same for all validators of a chain."""
    election: str = "round-robin"
    """How leaders are elected (:data:`consensus.leader.ELECTIONS`); the same for all validators of a chain."""
    block_interval_ms: int = 0
    """Least time from being asked for a proposal to building it."""
    sync_retry_ms: int = 250
    """How long to wait for an answer to a request for blocks before the next peer is asked."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Who a node is."""

    index: int
    signer: Signer
    validators: ValidatorSet
    genesis: Genesis

    @property
    def chain_id(self) -> str:
        return self.genesis.chain_id


@dataclass(frozen=True, slots=True)
class FinalPoint:
    """Where a node's chain begins after recovery: its newest archived block, or the genesis."""

    digest: Hash
    height: Height
    view: int
    abstain_through: int = 0
    """The last view in which the validator must not vote, because it may have before it lost its journal."""
    certificate: bytes = b""
    """The block's finalization, encoded, where the archive has one: it opened the view in which the node begins."""


class Node:
    """One validator's node."""

    def __init__(self, config: NodeConfig, identity: NodeIdentity, start: FinalPoint, journal: JournalContent) -> None:
        self._config = config
        self._identity = identity
        self._namespace = identity.chain_id.encode()
        self._engine: VotingEngine = config.engine(
            config.voting,
            identity.validators,
            ValidatorIndex(identity.index),
            identity.signer,
            self._namespace,
            engine_border.Parent(View(start.view), Digest(start.digest)),
            (*_root_records(start), *journal.records),
            ELECTIONS[config.election](identity.validators, self._namespace),
            abstain_through=View(start.abstain_through),
        )
        self._tree = BlockTree(start.digest, start.height)
        for body in journal.bodies:
            block = decode_block(body)
            if block is not None:
                self._tree.add(block, body)
        self.mempool = Mempool(identity.genesis)
        self._admission = Admission(self.mempool)
        self.diverged: Diverged | None = None
        self._effects: list[Effect] = []
        self._engine_events: deque[engine_border.Event] = deque()
        self._committed = start.height
        # Former lives may have left any number of blocks in it: it is replaced at the next final one.
        self._journal_height = Height(start.height - JOURNAL_REPLACED_EVERY)
        self._proposal: engine_border.Propose | None = None
        self._proposal_ready = False
        self._verifying: dict[Hash, list[engine_border.Verify]] = {}
        self._final_block_view = start.view
        self._certificates: dict[Hash, bytes] = {}
        """Finalizations of blocks that are not final here yet, encoded."""
        self._target: Certificate | None = None
        """The newest finalization whose block cannot be reached from our final one yet."""
        self._proven: Hash | None = None
        """The newest block that is proved final and can be reached: everything up to it is to be executed and
        committed."""
        self._uncommitted: dict[Hash, bytes] = {}
        """Bodies of blocks that are final but not in the archive yet."""
        self._reorgs: dict[Hash, int] = {}
        """How deep the branches were that were given up for final blocks that are not in the archive yet."""
        self._wanted: Hash | None = None
        """A block that is asked for by digest."""
        self._reading_for: set[int] = set()
        """Peers for which the executor reads blocks: one read a peer at a time."""
        self._given_bytes: Counter[int] = Counter()
        """Of blocks, to each peer since the last tick."""
        self._bad_givers: set[int] = set()
        """Peers whose ranges of final blocks are not looked at before the next tick: one did not hold."""
        self._sync_peer = identity.index
        self._sync_running = False

    # --- what others may ask ------------------------------------------------------------------------------------------

    @property
    def view(self) -> int:
        """The current consensus view."""
        return self._engine.view

    @property
    def leader(self) -> int:
        """Who leads the current view."""
        return self._engine.leader(self._engine.view)

    @property
    def final_view(self) -> int:
        """The newest view that a finalization is known for."""
        return self._engine.final_view

    @property
    def consensus_sizes(self) -> Sizes:
        """How much the consensus engine keeps."""
        return self._engine.sizes

    @property
    def height(self) -> int:
        """Height of the newest block that is final and committed here."""
        return self._committed

    def configure(self, config: NodeConfig) -> None:
        """Take other times and limits from now on; protocol and election stay. What already waits is not touched."""
        self._config = config
        self._engine.configure(config.voting)

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Effect]:
        """Take one event; return the effects that follow, in order."""
        if self.diverged is None:
            self._dispatch(event)
        elif isinstance(event, Submit):
            line, reason = _diverged_line(self.diverged), Refusal.DIVERGED.value
            results = tuple(SubmitResult(transaction_hash(wire), line, reason) for wire in event.transactions)
            self._effects.append(Reply(event.request, results))
        effects, self._effects = self._effects, []
        return effects

    def _dispatch(self, event: Event) -> None:
        match event:
            case Message(sender, payload, content):
                self._on_message(sender, payload, content)
            case Completed(result):
                self._on_completed(result)
            case Synced(token):
                self._consensus(engine_border.Durable(Token(token)))
            case Timeout(timer):
                self._on_timeout(timer)
            case Submit(request, transactions):
                self._effects += self._admission.submit(request, transactions)
            case Started():
                self._consensus(engine_border.Start())

    def _on_timeout(self, timer: TimerName) -> None:
        if timer == SYNC_TIMER:
            self._sync_running = False
            self._sync()
        elif timer == PROPOSE_TIMER:
            self._proposal_ready = True
            self._try_build()
        elif timer.number == self._engine.view:  # those of views that were left are nothing to the engine
            self._consensus(engine_border.TimerExpired(TimerKind(timer.owner), View(timer.number)))

    # --- messages -----------------------------------------------------------------------------------------------------

    def _on_message(self, sender: int, payload: bytes, message: Reading | None) -> None:
        if message is None:
            try:
                message = read_message(payload)
            except CodecError:
                self._fault(sender, "undecodable")
                return
        if isinstance(message, ENGINE_MESSAGES):
            self._consensus(engine_border.Received(ValidatorIndex(sender), message))
            return
        match message:
            case TransactionsMessage(transactions=transactions):
                self._on_gossip(sender, transactions)
            case BlockRequest(digest=digest):
                self._on_block_request(sender, Hash(digest))
            case BlockResponse(body=body):
                self._on_block_response(sender, body)
            case FinalBlocksRequest(first=first, most=most):
                if first >= 1 and most >= 1 and sender not in self._reading_for:
                    self._reading_for.add(sender)
                    self._effects.append(Run(ReadBlocks(sender, first, min(most, MAX_BLOCKS_ASKED))))
            case FinalBlocksResponse():
                self._on_final_blocks(sender, message)
            case SnapshotRequest() | ChunkRequest() | ViewRequest():
                self._help_to_join(sender, message)
            case ConsensusMessage() | SnapshotOffer() | ChunkResponse() | ViewReport():
                pass  # read out of its envelope, or late answers to what was asked before the node began

    def _help_to_join(self, sender: int, request: SnapshotRequest | ChunkRequest | ViewRequest) -> None:
        """Give a validator that joins the state, and our view: the certificate that opened it proves it."""
        if not isinstance(request, ViewRequest):
            if sender not in self._reading_for:
                self._reading_for.add(sender)
                self._effects.append(Run(ReadSnapshot(sender, request)))
            return
        opening = self._engine.certificates.best_of(View(self._engine.view - 1))
        if opening is not None or self._engine.view == FIRST_VIEW:
            proof = b"" if opening is None else encode_consensus(opening)
            self._send(sender, ViewReport(request.nonce[:MAX_NONCE_BYTES], proof))

    def _on_gossip(self, sender: int, transactions: tuple[bytes, ...]) -> None:
        if len(transactions) > MAX_GOSSIPED_TRANSACTIONS:
            self._fault(sender, "oversized")
            return
        effects, is_honest = self._admission.gossip(sender, transactions)
        self._effects += effects
        if not is_honest:
            self._fault(sender, "bad_transactions")

    # --- consensus ----------------------------------------------------------------------------------------------------

    def _consensus(self, event: engine_border.Event) -> None:
        """Give the engine an event and perform its effects.

        What they answer at once waits until all of them are performed, so that journal records keep their order.
        """
        self._engine_events.append(event)
        if len(self._engine_events) > 1:
            return
        while self._engine_events:
            for effect in self._engine.handle(self._engine_events[0]):
                self._perform(effect)
            self._engine_events.popleft()

    def _perform(self, effect: engine_border.Effect) -> None:
        match effect:
            case engine_border.Rejected(sender, reason):
                if reason in HARMLESS_REASONS:
                    self._effects.append(Dropped(sender, reason))
                else:
                    self._fault(sender, reason)
            case engine_border.Broadcast(message):
                self._send(None, ConsensusMessage(encode_consensus(message)))
            case engine_border.SendTo(recipient, message):
                self._send(recipient, ConsensusMessage(encode_consensus(message)))
            case engine_border.StartTimer(kind, view, delay_ms):
                self._effects.append(SetTimer(TimerName(kind.value, view), delay_ms))
                if kind is TimerKind.REBROADCAST:
                    self._given_bytes.clear()
                    self._bad_givers.clear()
            case engine_border.Propose():
                self._on_propose(effect)
            case engine_border.Verify():
                self._on_verify(effect)
            case engine_border.Persist(token, records, body):
                bodies = () if body is None else (body,)
                self._effects.append(Append(token, encode_batch(records, bodies)))
            case engine_border.Finalized(certificate):
                self._effects.append(Certified(certificate))
                self._on_finalization(certificate)
            case _:
                self._pass_on(effect)

    def _pass_on(self, effect: engine_border.Effect) -> None:
        """What the engine says for observers."""
        match effect:
            case engine_border.Notarized(certificate) | engine_border.Nullified(certificate):
                self._effects.append(Certified(certificate))
            case engine_border.Report(evidence):
                kind = type(evidence).__name__
                self._blame(kind, evidence.first.signer, encode_evidence(evidence))
            case _:
                pass

    def _on_propose(self, proposal: engine_border.Propose) -> None:
        self._proposal, self._proposal_ready = proposal, self._config.block_interval_ms == 0
        if self._proposal_ready:
            self._try_build()
        else:
            self._effects.append(SetTimer(PROPOSE_TIMER, self._config.block_interval_ms))

    def _try_build(self) -> None:
        """Build the proposal that is due, once its parent is executed."""
        proposal = self._proposal
        if proposal is None or not self._proposal_ready:
            return
        parent = Hash(proposal.parent.digest)
        if proposal.view != self._engine.view:
            self._proposal = None
        elif self._tree.is_executed(parent):
            self._proposal = None
            candidates = self.mempool.candidates(MAX_CANDIDATES)
            self._effects.append(Run(Build(proposal.view, parent, self._identity.index, candidates)))
        else:
            self._execute_line(parent)

    def _on_verify(self, request: engine_border.Verify) -> None:
        block = decode_block(request.body)
        digest = Hash(request.digest)
        if block is None or header_hash(block.header) != digest or not self._is_what_was_proposed(request, block):
            self._answer_verification(request, valid=False)
            return
        held = self._tree.add(block, request.body)
        if held is None:
            return  # below the final height, or no room: the engine's timeouts take care of it
        self._verifying.setdefault(digest, []).append(request)
        if held.state in (BlockState.VALID, BlockState.INVALID):
            self._answer_verifications(held)
        else:
            self._execute_line(digest)

    def _is_what_was_proposed(self, request: engine_border.Verify, block: Block) -> bool:
        """Whether the header says what its proposal does; where that shows its signer's guilt, this is proved."""
        header, parent = block.header, Hash(request.parent.digest)
        if header.view != request.view or header.proposer != request.proposer:
            self._prove_invalid(request.vote, (request.body,))
            return False
        if header.parent_hash != parent:
            return False  # the vote does not say its parent's digest
        if self._tree.follows_its_parent(block):
            return True
        if self._tree.is_executed(parent):
            self._prove_invalid(request.vote, (*self._bodies_to(parent), request.body))
        return False

    def _answer_verifications(self, held: HeldBlock) -> None:
        valid = held.state is BlockState.VALID
        for request in self._verifying.pop(held.digest, ()):
            self._answer_verification(request, valid=valid)

    def _answer_verification(self, request: engine_border.Verify, *, valid: bool) -> None:
        if not valid:
            self._fault(request.proposer, "invalid_block")
        self._consensus(engine_border.BlockVerified(request.view, request.digest, valid))

    # --- execution ----------------------------------------------------------------------------------------------------

    def _execute_line(self, digest: Hash) -> None:
        """Have everything from the final block up to ``digest`` executed; fetch what is missing."""
        missing = self._tree.first_missing(digest)
        if missing is not None:
            self._wanted = missing
            self._sync()
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
        self._effects.append(Run(Execute(held.digest, held.block, known)))

    def _on_completed(self, result: JobResult) -> None:
        match result:
            case Executed():
                self._on_executed(result)
            case Built():
                self._on_built(result)
            case Finalized():
                self._on_committed(result)
            case FinalizedInvalid():
                self._on_divergence(result)
            case BlocksRead(peer, bodies, links, certificate):
                self._reading_for.discard(peer)
                if bodies:
                    self._send(peer, FinalBlocksResponse(bodies, links, certificate))
            case SnapshotRead(peer, response):
                self._reading_for.discard(peer)
                if response is not None:
                    self._send(peer, response)
            case AccountsRead():
                self._effects += self._admission.accounts_read(result)

    def _on_executed(self, result: Executed) -> None:
        held = self._tree.get(result.digest)
        if held is None:
            return  # another branch became final meanwhile
        if result.error is not None:
            self._accuse(held)
            self._reject(held)
        else:
            held.state = BlockState.VALID
            self._answer_verifications(held)
            for child in list(self._tree.children(held.digest)):
                self._execute_if_ready(child)
        self._try_finalize()
        self._try_build()

    def _accuse(self, held: HeldBlock) -> None:
        """A block does not execute: its leader answers for it, provably so to whoever holds the chain."""
        bodies = self._bodies_to(held.digest)
        for request in self._verifying.get(held.digest, ()):
            self._prove_invalid(request.vote, bodies)

    def _bodies_to(self, digest: Hash) -> tuple[bytes, ...]:
        """The bodies from the final block's child to a block that is executed or ready to be."""
        return tuple(block.body for block in self._tree.line(digest))

    def _prove_invalid(self, vote: Vote, bodies: tuple[bytes, ...]) -> None:
        """Blame whoever signed a vote for the last of these bodies, unless they are too long to be shown."""
        proof = encode_misconduct(InvalidBlock(vote, bodies))
        if proof is not None:
            self._blame(INVALID_BLOCK, vote.signer, proof)

    def _blame(self, kind: str, culprit: int, proof: bytes) -> None:
        self._effects.append(EvidenceFound(kind, culprit, proof))
        self._fault(culprit, f"evidence_{kind}")

    def _reject(self, held: HeldBlock) -> None:
        """A block is invalid, and so is whatever builds on it."""
        self._tree.reject(held)
        self._answer_verifications(held)
        for child in list(self._tree.children(held.digest)):
            self._reject(child)

    def _on_built(self, built: Built) -> None:
        self.mempool.refuse(built.refused)
        held = self._tree.add(built.block, built.body)
        if held is None:
            return
        held.state = BlockState.VALID
        parent = self._engine_parent(built)
        self._consensus(engine_border.BlockProposed(View(built.view), parent, Digest(built.digest), built.body))

    def _engine_parent(self, built: Built) -> engine_border.Parent:
        held = self._tree.get(built.parent)
        view = held.block.header.view if held is not None else self._final_block_view
        return engine_border.Parent(View(view), Digest(built.parent))

    # --- finality -----------------------------------------------------------------------------------------------------

    def _on_finalization(self, certificate: Certificate) -> None:
        digest = Hash(certificate.digest)
        if digest == self._tree.final or certificate.view <= self._final_block_view:
            return
        self._certificates[digest] = encode_consensus(certificate)
        if self._target is None or certificate.view > self._target.view:
            self._target = certificate
        self._try_finalize()

    def _try_finalize(self) -> None:
        """Commit what is proved final, in order, as far as it is executed; ask for what is missing."""
        if self._target is not None and self._tree.first_missing(Hash(self._target.digest)) is None:
            self._proven, self._target = Hash(self._target.digest), None
        if self._proven is not None:
            self._commit_line(self._proven)
        if self._target is not None:
            self._sync()

    def _commit_line(self, digest: Hash) -> None:
        for held in self._tree.line(digest):
            if held.state in (BlockState.HELD, BlockState.RUNNING):
                self._execute_if_ready(held)
                return
            if held.state is BlockState.INVALID:
                self._effects.append(Run(Finalize(held.digest, b"")))  # the answer will be that we diverged
                break
            self._finalize(held)
        self._proven = None

    def _finalize(self, held: HeldBlock) -> None:
        """The next block is final: commit it. The executor answers with what it came to."""
        certificate = self._certificates.pop(held.digest, b"")
        self._effects.append(Run(Finalize(held.digest, certificate)))
        self._final_block_view = held.block.header.view
        self._uncommitted[held.digest] = held.body
        self._reorgs[held.digest] = self._tree.reorg_depth(held.digest)
        self._tree.finalize(held.digest)
        self._verifying = {digest: waiting for digest, waiting in self._verifying.items() if digest in self._tree}

    def _on_committed(self, final: Finalized) -> None:
        header = final.header
        self._committed = Height(header.height)
        del self._uncommitted[final.digest]
        self._effects += self._admission.settle(final)
        self._effects.append(
            BlockFinal(
                height=Height(header.height),
                view=header.view,
                digest=final.digest,
                state_root=Hash(header.state_root),
                transactions=len(final.transactions),
                fires=final.fires,
                destroyed=final.destroyed,
                pending_timers=final.pending_timers,
                backlog=final.backlog,
                basefee_cycle=int.from_bytes(header.basefee_cycle, "big"),
                basefee_lane_timer=int.from_bytes(header.basefee_lane_timer, "big"),
                lane_cycles=header.lane_cycles,
                burned=final.burned,
                reorg_depth=self._reorgs.pop(final.digest, 0),
            )
        )
        if header.height >= self._journal_height + JOURNAL_REPLACED_EVERY:
            self._journal_height = Height(header.height)
            self._replace_journal()

    def _replace_journal(self) -> None:
        """Archived blocks need no journal any more; keep the votes and bodies above them."""
        bodies = [*self._uncommitted.values(), *(held.body for held in self._tree.held() if held.body)]
        self._effects.append(ReplaceJournal(encode_journal(self._engine.journal_snapshot(), bodies)))

    def _on_divergence(self, result: FinalizedInvalid) -> None:
        self.diverged = Diverged(
            height=Height(result.header.height),
            digest=result.digest,
            reason=result.reason,
            expected_root=Hash(result.header.state_root),
            computed_root=result.computed_root,
            receipts=result.receipts,
            trace=encode(result.trace),
        )
        self._effects.append(self.diverged)
        self._effects += self._admission.close(Refusal.DIVERGED, _diverged_line(self.diverged))

    # --- catching up --------------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Ask the next peer for what is missing, unless an answer is awaited."""
        if self._sync_running:
            return
        request = self._next_request()
        if request is None or len(self._identity.validators) == 1:
            return
        self._sync_running = True
        self._sync_peer = (self._sync_peer + 1) % len(self._identity.validators)
        if self._sync_peer == self._identity.index:
            self._sync_peer = (self._sync_peer + 1) % len(self._identity.validators)
        self._send(self._sync_peer, request)
        self._effects.append(SetTimer(SYNC_TIMER, self._config.sync_retry_ms))

    def _next_request(self) -> PeerMessage | None:
        """What to ask for: final blocks while a finalization is out of reach, else a single block."""
        if self._target is not None:
            proven = self._tree.get(self._proven) if self._proven is not None else None
            height = self._tree.final_height if proven is None else proven.height
            if height - self._tree.final_height >= MAX_PROVEN_AHEAD:
                return None  # enough to execute for now; committing goes on to ask
            return FinalBlocksRequest(height + 1, MAX_BLOCKS_ASKED)
        if self._wanted is not None:
            is_waited_for = bool(self._verifying) or self._proposal is not None
            self._wanted = self._tree.first_missing(self._wanted) if is_waited_for else None
        return None if self._wanted is None else BlockRequest(self._wanted)

    def _on_block_request(self, sender: int, digest: Hash) -> None:
        """Answer with the block; or with the newest finalization, where it may be final here and asked for in vain.

        Whoever builds on a block that is final elsewhere, and has missed its finalization, would ask for ever: it is in
        no tree any more. From the finalization it learns to ask for final blocks.
        """
        if len(digest) != HASH_BYTES or self._given_bytes[sender] >= MAX_GIVEN_BYTES:
            return
        held = self._tree.get(digest)
        if held is not None:
            self._given_bytes[sender] += len(held.body)
            self._send(sender, BlockResponse(held.body))
            return
        newest = self._engine.certificates.best_of(self._engine.final_view)
        if newest is not None:
            encoded = encode_consensus(newest)
            self._given_bytes[sender] += len(encoded)
            self._send(sender, ConsensusMessage(encoded))

    def _on_block_response(self, sender: int, body: bytes) -> None:
        block = decode_block(body)
        if block is None:
            self._fault(sender, "bad_block")
            return
        if header_hash(block.header) != self._wanted:
            return  # late: it came another way meanwhile
        self._tree.add(block, body)
        self._resume_after_blocks()

    def _on_final_blocks(self, sender: int, response: FinalBlocksResponse) -> None:
        """A range of final blocks: taken only if linked to each other and proved by the last one's finalization.

        Whoever sends it, it proves itself: an answer that comes later than the next peer was asked is as good.
        """
        if self._target is None or sender in self._bad_givers:
            return  # what it was asked for has come another way, or its last one did not hold
        proven = self._proven
        if not self._take_final_blocks(response):
            self._bad_givers.add(sender)
            self._fault(sender, "bad_final_blocks")
        elif self._proven != proven:
            self._resume_after_blocks()

    def _take_final_blocks(self, response: FinalBlocksResponse) -> bool:
        """Hold blocks that are proved final. ``False`` where they are not."""
        if not 1 <= len(response.bodies) <= MAX_BLOCKS_ASKED or len(response.links) > MAX_LINKS:
            return False
        blocks = [decode_block(body) for body in response.bodies]
        headers = [block.header for block in blocks if block is not None]
        if len(headers) < len(blocks) or not is_proved(
            [*headers, *response.links], response.certificate, self._identity.validators, self._namespace
        ):
            return False
        newest: HeldBlock | None = None
        for block, body in zip(blocks, response.bodies, strict=True):
            assert block is not None
            newest = self._tree.add(block, body) or newest
        if newest is not None and self._tree.first_missing(newest.digest) is None and self._is_news(newest):
            self._proven = newest.digest
            if newest.digest == header_hash(headers[-1]) and not response.links:
                self._certificates[newest.digest] = response.certificate
        return True

    def _is_news(self, held: HeldBlock) -> bool:
        """Whether a proved block is above the one proved before."""
        proven = self._tree.get(self._proven) if self._proven is not None else None
        return proven is None or held.height > proven.height

    def _resume_after_blocks(self) -> None:
        """Blocks came: go on with whatever waited for them."""
        self._sync_running = False
        for digest in list(self._verifying):
            self._execute_line(digest)
        self._try_finalize()
        self._try_build()
        self._sync()

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _send(self, recipient: int | None, message: PeerMessage) -> None:
        self._effects.append(Send(recipient, encode_message(message)))

    def _fault(self, peer: int, reason: str) -> None:
        self._effects.append(PeerFault(peer, reason))


def _root_records(start: FinalPoint) -> tuple[bytes, ...]:
    """The finalization of the block that a chain begins with, as the journal would hold it."""
    if not start.certificate:
        return ()
    certificate = decode_consensus(start.certificate)
    assert isinstance(certificate, Certificate), "the archive holds certificates"
    return (encode_record(certificate),)


def _diverged_line(diverged: Diverged) -> str:
    return f"the validator diverged at height {diverged.height}"
