"""The executor: the slow work of a validator, one job at a time and in order.

It owns the state store, the archive and the branches of executed blocks over the last final one
(:mod:`validator.node.executor.branches`). The node gives it jobs (:mod:`validator.node.executor.jobs`). The driver runs
them, on a separate thread in the live testnet and synchronously in the simulator, and returns the results. A job
depends only on the executor's state and its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

import msgspec

from validator.chain.block import MAX_BLOCK_BYTES, Block, Header, header_hash, transaction_hashes, transactions_root
from validator.chain.genesis import Genesis
from validator.chain.receipts import burned
from validator.chain.records import ACCOUNT, GLOBALS, Account, Globals, decode_record
from validator.chain.transactions import TransactionError, address_of, parse
from validator.node.executor import jobs
from validator.node.executor.branches import Branches, RejectedBlock
from validator.node.executor.queries import StatePages
from validator.node.executor.snapshot_service import read_snapshot
from validator.primitives.codec import decode, encode, pack_uint
from validator.primitives.types import Address, Hash, Height, ValidatorError
from validator.pvm.runtime.machine import PythonVm
from validator.scheduler.index import SchedulerIndex
from validator.state import LogStateStore, View
from validator.state.engines.plain import PlainEngine
from validator.state.log import SEGMENT_BYTES
from validator.state.store import RETAINED_HEIGHTS
from validator.state.working_set import Change, World
from validator.storage.archive import ArchivedBlock, BlockArchive
from validator.storage.disk import Disk, used_bytes
from validator.storage.finality_proof import find_proof
from validator.transition.genesis_block import genesis_batch, genesis_header
from validator.transition.receipt_bound import require_receipts_fit
from validator.transition.trace import BlockTrace, StepRecorder, traced, writes_of
from validator.transition.transition import BlockContext, BlockResult, NotAdmitted, PreparedTransaction, Transition

GENESIS_FILE: Final = "genesis"
MAX_BLOCK_TRANSACTIONS: Final = 4_096
MAX_BLOCK_PAYLOAD_BYTES: Final = MAX_BLOCK_BYTES // 2
"""Most transaction bytes that a proposer puts into a block. A valid block may hold more, up to the maximum."""


class RecoveryError(ValidatorError):
    """The files on disk are inconsistent with each other or with the genesis. The message names the difference."""


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """How much of the past a validator keeps. Validators may differ in it."""

    segment_bytes: int = SEGMENT_BYTES
    """Size in bytes at which a file of the state's log or of the archive is full, so that a new file is begun."""
    retained_heights: int = RETAINED_HEIGHTS
    """Number of heights below the final one whose states can be proved, offered as a snapshot, and rewound to."""
    keep_blocks: int | None = None
    """Minimum number of final blocks that are kept, no fewer than the retained heights. ``None`` keeps all."""
    snapshot_interval: int = 8
    """Snapshots are offered at multiples of this height, so that many peers offer the same one."""


DEFAULT_STORAGE: Final = StorageConfig()


class BlockExecution(Protocol):
    """The execution of one block on its parent's state: :meth:`apply` or :meth:`select` performs it, once
    (:class:`~validator.transition.transition.Transition`)."""

    @property
    def parent(self) -> View:
        """The parent's state."""

    @property
    def context(self) -> BlockContext:
        """The block's other inputs."""

    def apply(self, transactions: Sequence[PreparedTransaction]) -> BlockResult:
        """Process a whole block. Raises :class:`NotAdmitted` if it holds a transaction that is not allowed."""

    def select(
        self, candidates: Iterable[PreparedTransaction], most: int, most_bytes: int
    ) -> tuple[list[PreparedTransaction], tuple[Address, ...], BlockResult]:
        """Build a block of at most ``most`` of the candidates. Also returns the senders that were refused."""


class Executor:
    """One validator's executor. Opening it recovers from the disk: blocks that the state lacks are re-executed from the
    archive."""

    store_class: ClassVar[type[LogStateStore]] = LogStateStore
    archive_class: ClassVar[type[BlockArchive]] = BlockArchive
    index_class: ClassVar[type[SchedulerIndex]] = SchedulerIndex

    def __init__(
        self,
        disk: Disk,
        genesis: Genesis,
        transition: type[Transition] = Transition,
        storage: StorageConfig = DEFAULT_STORAGE,
    ) -> None:
        require_receipts_fit(genesis.parameters)
        self._genesis = genesis
        self._transition = transition
        self._store = self.store_class.open(disk, retained=storage.retained_heights)
        self._store.log.segment_bytes = storage.segment_bytes
        self._archive = self.archive_class(disk, storage.segment_bytes)
        self._disk = disk
        self._keep_blocks = storage.keep_blocks
        self._snapshot_interval = storage.snapshot_interval
        self._genesis_header = self._open_genesis(disk)
        self._vm = PythonVm()
        final = self._header_at(self._store.final.height)
        self._check_final_state(final)
        self._branches = Branches(final, self.index_class.rebuild(genesis, self._store.final))
        self.recovered_height = self._archive.height
        """Height of the newest final block found on disk."""
        self.replayed_blocks = self._replay()
        """Number of archived blocks that were executed again at the start, because the state lagged behind."""
        self.prunable_height = 0
        """Height up to which no other party needs the blocks, as the driver last reported by :meth:`allow_pruning`. The
        driver reports again after each start."""
        self.pages = StatePages(self)

    # --- for others to read -----------------------------------------------------------------------------------------

    @property
    def genesis(self) -> Genesis:
        return self._genesis

    @property
    def final_header(self) -> Header:
        """Header of the last final block."""
        return self._branches.final_header

    @property
    def final_digest(self) -> Hash:
        return self._branches.final

    @property
    def final_view(self) -> View:
        """The last final state."""
        return self._store.final

    @property
    def archive(self) -> BlockArchive:
        return self._archive

    @property
    def index(self) -> SchedulerIndex:
        """The scheduler's index, positioned at the block of the last job."""
        return self._branches.index

    def height_of(self, digest: Hash) -> int | None:
        """Height of the last final block, or of an executed block above it; ``None`` for any other."""
        return self._branches.header_of(digest).height if digest in self._branches else None

    def prove(self, key: bytes, height: int) -> bytes:
        """The encoded proof of a key's value in the state of a retained height (:meth:`LogStateStore.prove`)."""
        return self._store.prove(key, Height(height))

    def root_at(self, height: int) -> Hash:
        """The state root of a retained height (:meth:`LogStateStore.root_at`)."""
        return self._store.root_at(Height(height))

    @property
    def pending_timers(self) -> int:
        """Number of live timers in the last final state."""
        data = self._store.final.get(GLOBALS)
        assert data is not None, "every state has the chain's counters"
        counters: Globals = decode_record(GLOBALS, data)
        return counters.live_timers

    @property
    def used_bytes(self) -> dict[str, int]:
        """Bytes on the disk, by folder or top-level file."""
        return used_bytes(self._disk)

    def allow_pruning(self, height: int) -> None:
        """Allow pruning of the blocks up to a height: the auditor has them, and so has every validator that would catch
        up from here. Only the newest call counts: a validator that returns without its disk needs older blocks."""
        self.prunable_height = height

    def close(self) -> None:
        self._store.close()

    # --- jobs -------------------------------------------------------------------------------------------------------

    def run(self, job: jobs.Job) -> jobs.JobResult:
        """Run one job."""
        match job:
            case jobs.Build():
                return self._build(job)
            case jobs.Execute():
                return jobs.Executed(job.digest, self._execute(job.digest, job.block, job.known))
            case jobs.Finalize():
                return self._finalize(job)
            case jobs.ReadBlocks():
                return self._read_blocks(job)
            case jobs.ReadSnapshot():
                answer = read_snapshot(self._store, self._archive, job.request, self._snapshot_interval)
                return jobs.SnapshotRead(job.peer, answer)
            case jobs.ReadAccounts(addresses):
                world = World(self._store.final)
                return jobs.AccountsRead(self.final_header, {address: world.account(address) for address in addresses})

    def _build(self, job: jobs.Build) -> jobs.Built:
        height = Height(self._branches.header_of(job.parent).height + 1)
        transition = self._transition_on(job.parent, height, job.proposer)
        taken, refused, outcome = transition.select(job.candidates, MAX_BLOCK_TRANSACTIONS, MAX_BLOCK_PAYLOAD_BYTES)
        header = Header(
            chain_id=self._genesis.chain_id,
            height=height,
            view=job.view,
            parent_hash=job.parent,
            proposer=job.proposer,
            transactions_root=transactions_root([prepared.hash for prepared in taken]),
            receipts_root=outcome.receipts_root,
            state_root=outcome.state_root,
            basefee_cycle=pack_uint(outcome.prices.basefee_cycle),
            basefee_cell=pack_uint(outcome.prices.basefee_cell),
            basefee_lane_timer=pack_uint(outcome.basefee_lane_timer),
            lane_cycles=outcome.lane_cycles,
            lane_cells=outcome.lane_cells,
            user_cycles=outcome.user_cycles,
            user_cells=outcome.user_cells,
        )
        block = Block(header, tuple(prepared.wire for prepared in taken))
        digest = header_hash(header)
        self._branches.add(digest, block, outcome)
        return jobs.Built(job.view, job.parent, digest, block, encode(block), refused)

    def _execute(self, digest: Hash, block: Block, known: Mapping[Hash, PreparedTransaction]) -> str | None:
        """Execute a block; ``None`` if it is valid, else why it is not."""
        branches = self._branches
        if branches.executed(digest) is not None:
            return None
        if digest in branches.invalid:
            return branches.invalid[digest].reason
        try:
            prepared = self._check(block, known)
            transition = self._transition_on(
                Hash(block.header.parent_hash), Height(block.header.height), block.header.proposer
            )
            outcome = self._apply(digest, transition, prepared)
        except _Invalid as error:
            branches.invalid[digest] = RejectedBlock(block, str(error))
            return str(error)
        except NotAdmitted as error:
            branches.index.abandon()
            branches.invalid[digest] = RejectedBlock(block, str(error))
            return str(error)
        differing = outcome.matches(block.header)
        if differing is not None:
            branches.index.abandon()
            reason = f"execution gives another {differing}"
            receipts = encode(outcome.receipts)
            branches.invalid[digest] = RejectedBlock(block, reason, outcome.state_root, receipts, outcome.changes)
            return reason
        branches.add(digest, block, outcome)
        return None

    def _apply(self, digest: Hash, transition: BlockExecution, prepared: Sequence[PreparedTransaction]) -> BlockResult:
        """Apply a block's transition. ``digest`` is the block's hash. Raises :class:`NotAdmitted`."""
        return transition.apply(prepared)

    def _finalize(self, job: jobs.Finalize) -> jobs.Finalized | jobs.FinalizedInvalid:
        invalid = self._branches.invalid.get(job.digest)
        if invalid is not None:
            return self._diverged(job.digest, invalid)
        executed = self._branches.executed(job.digest)
        assert executed is not None, "only executed blocks become final"
        assert executed.parent == self.final_digest, "blocks become final in order"
        outcome = executed.outcome
        archived = ArchivedBlock(encode(executed.block), encode(outcome.receipts), job.certificate, outcome.state_root)
        self._archive.append(archived, outcome.receipts)
        self._store.commit(outcome.view)
        self._branches.finalize(job.digest)
        if self._keep_blocks is not None:
            self._archive.prune(min(self.final_header.height - self._keep_blocks, self.prunable_height))
        return jobs.Finalized(
            digest=job.digest,
            header=executed.block.header,
            transactions=tuple(Hash(receipt.transaction_hash) for receipt in outcome.receipts.transactions),
            accounts=_changed_accounts(outcome.changes),
            fires=len(outcome.receipts.fires),
            destroyed=len(outcome.receipts.destroyed),
            pending_timers=outcome.live_timers,
            backlog=outcome.backlog,
            burned=burned(executed.block.header, outcome.receipts),
        )

    def _diverged(self, digest: Hash, invalid: RejectedBlock) -> jobs.FinalizedInvalid:
        """The result for a block that is final but invalid here. Executes the block once more for its trace."""
        trace = self.trace(invalid.block)
        if trace.figure("state_root") != invalid.computed_root.hex():
            trace = msgspec.structs.replace(trace, repeats=False, first_writes=writes_of(invalid.changes))
        return jobs.FinalizedInvalid(
            digest, invalid.block.header, invalid.reason, invalid.computed_root, invalid.receipts, trace
        )

    def trace(self, block: Block) -> BlockTrace:
        """Execute a block on its parent, which was executed, and record every step. Changes nothing."""
        height, digest, recorder = block.header.height, header_hash(block.header), StepRecorder()
        try:
            prepared = self._check(block, {})
        except _Invalid as error:
            return recorder.trace(height, digest, None, str(error))
        parent = Hash(block.header.parent_hash)
        try:
            outcome = self._transition_on(parent, Height(height), block.header.proposer, recorder).apply(prepared)
        except NotAdmitted as error:
            return recorder.trace(height, digest, None, str(error))
        finally:
            self._branches.index.abandon()
        return recorder.trace(height, digest, outcome)

    def _read_blocks(self, job: jobs.ReadBlocks) -> jobs.BlocksRead:
        """The requested blocks, as many as exist and fit into a message, with the proof that they are final."""
        bodies: list[bytes] = []
        size, certified, certificate = 0, 0, b""
        if job.first <= self._archive.first_height:
            begins_at = 0 if self._keep_blocks is None else self._archive.first_height + 1
            return jobs.BlocksRead(job.peer, (), (), b"", begins_at)
        for height in range(job.first, min(job.first + job.most, self._archive.height + 1)):
            archived = self._archive.get(height)
            assert archived is not None, "the archive has no gaps"
            size += len(archived.block)
            if bodies and size > MAX_BLOCK_BYTES:
                break
            bodies.append(archived.block)
            if archived.certificate:
                certified, certificate = len(bodies), archived.certificate
        if certified < len(bodies):
            proof = find_proof(self._archive, job.first + len(bodies) - 1)
            if proof is not None:
                return jobs.BlocksRead(job.peer, tuple(bodies), *proof)
        return jobs.BlocksRead(job.peer, tuple(bodies[:certified]), (), certificate)

    def _transition_on(
        self, parent: Hash, height: Height, proposer: int, recorder: StepRecorder | None = None
    ) -> BlockExecution:
        """A transition for a child of ``parent``, to which the index is moved.

        With ``recorder`` it reports its steps there, and can only apply a block.
        """
        self._branches.move_index(parent)
        make = self._transition if recorder is None else traced(self._transition, recorder)
        executed = self._branches.executed(parent)
        view = self._store.final if executed is None else executed.outcome.view
        account = address_of(self._genesis.validators[proposer])
        return make(view, self._branches.index, BlockContext(height, account, self._genesis), self._vm)

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check(self, block: Block, known: Mapping[Hash, PreparedTransaction]) -> list[PreparedTransaction]:
        """Check a block as far as possible without execution. Returns its decoded transactions."""
        header = block.header
        parent_hash = Hash(header.parent_hash)
        if header.chain_id != self._genesis.chain_id:
            raise _Invalid("the block is of another chain")
        if parent_hash not in self._branches:
            raise _Invalid("the parent is not executed")
        if header.height != self._branches.header_of(parent_hash).height + 1:
            raise _Invalid("the height does not follow its parent's")
        if not 0 <= header.proposer < len(self._genesis.validators):
            raise _Invalid("the proposer is no validator")
        hashes = transaction_hashes(block)
        if header.transactions_root != transactions_root(hashes):
            raise _Invalid("another transactions_root")
        return [self._prepare(digest, wire, known) for digest, wire in zip(hashes, block.transactions, strict=True)]

    def _prepare(self, digest: Hash, wire: bytes, known: Mapping[Hash, PreparedTransaction]) -> PreparedTransaction:
        prepared = known.get(digest)
        if prepared is not None:
            return prepared
        try:
            return PreparedTransaction(digest, wire, parse(wire, self._genesis.chain_id))
        except TransactionError as error:
            raise _Invalid(str(error)) from None

    # --- recovery -----------------------------------------------------------------------------------------------------

    def _open_genesis(self, disk: Disk) -> Header:
        """The genesis header, stored when the data folder was first used."""
        if self._store.final.get(GLOBALS) is None:
            self._store.commit(self._store.final.derive(Height(0), genesis_batch(self._genesis)))
        stored = disk.read(GENESIS_FILE)
        if not stored:
            header = genesis_header(self._genesis, self._genesis_root())
            disk.replace(GENESIS_FILE, encode(header))
            return header
        header = decode(stored, Header)
        if header != genesis_header(self._genesis, header.state_root):
            raise RecoveryError("the data folder belongs to a chain with another genesis")
        return header

    def _genesis_root(self) -> Hash:
        """The root of the genesis state. A validator that joined by a snapshot computes that state once, in memory."""
        if not self._store.final.height:
            return self._store.final.root
        return PlainEngine().apply(Height(0), genesis_batch(self._genesis)).root

    def _header_at(self, height: int) -> Header:
        if height == 0:
            return self._genesis_header
        block = self._archive.block(height)
        if block is None:
            raise RecoveryError(f"state is at height {height}, the archive ends at {self._archive.height}")
        return block.header

    def _check_final_state(self, header: Header) -> None:
        view = self._store.final
        if header.chain_id != self._genesis.chain_id or header.state_root != view.root:
            raise RecoveryError(
                f"state at height {view.height} has root {view.root.hex()}, its block says {header.state_root.hex()}"
            )

    def _replay(self) -> int:
        """Execute and commit the archived blocks that the state lacks. Returns how many."""
        replayed = 0
        for height in range(self.final_header.height + 1, self._archive.height + 1):
            block = self._archive.block(height)
            assert block is not None
            digest = header_hash(block.header)
            error = self._execute(digest, block, {})
            if error is not None:
                raise RecoveryError(f"archived block {height} does not execute: {error}")
            executed = self._branches.executed(digest)
            assert executed is not None
            self._store.commit(executed.outcome.view)
            self._branches.finalize(digest)
            replayed += 1
        return replayed

    def sizes_of(self, result: jobs.JobResult) -> tuple[int, int]:
        """The numbers of transactions and of fires of the block that a job built, executed or made final.

        Zeros for other jobs, and for a block that is not valid.
        """
        match result:
            case jobs.Finalized(transactions=transactions, fires=fires):
                return len(transactions), fires
            case jobs.Built(digest=digest) | jobs.Executed(digest=digest):
                executed = self._branches.executed(digest)
                if executed is not None:
                    return len(executed.block.transactions), len(executed.outcome.receipts.fires)
        return 0, 0

    def fire_delays(self, digest: Hash) -> list[int]:
        """For each fire of an executed block that is not final, the blocks since the timer's trigger height.

        Empty for any other block.
        """
        executed = self._branches.executed(digest)
        if executed is None:
            return []
        height = executed.block.header.height
        return [height - fire.trigger_height for fire in executed.outcome.receipts.fires]


class _Invalid(Exception):
    """A block is invalid; the message says why."""


def _changed_accounts(changes: Sequence[Change]) -> dict[Address, Account]:
    """The accounts among a block's changes, after the block. Accounts are never removed."""
    return {
        Address(change.key[1:]): change.after
        for change in changes
        if change.key[:1] == ACCOUNT and change.after is not None
    }


def execution_error(executor: Executor, block: Block) -> str | None:
    """Why a block is invalid on its parent, which ``executor`` has executed; ``None`` if it is valid."""
    result = executor.run(jobs.Execute(header_hash(block.header), block, {}))
    assert isinstance(result, jobs.Executed)
    return result.error
