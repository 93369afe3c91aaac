"""The executor: everything slow that a validator does, one job at a time and in order.

It owns the state store, the scheduler's index, the tree of executed blocks over the last final one, and the archive.
The node tells it what to do by jobs; the driver runs them (on a thread of their own in the live testnet, in place in
the simulator) and hands the results back. A job depends on nothing but the executor's state and its own content.

*Speculation.* An executed block is a view over its parent's state plus the changes that moved the index. Going to
another branch moves the index back along one path and forward along the other; final blocks become the base,
everything that does not descend from them is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from validator.chain.block import MAX_BLOCK_BYTES, Block, Header, header_hash, transactions_root
from validator.chain.genesis import Genesis
from validator.chain.messages import ChunkRequest, ChunkResponse, SnapshotOffer, SnapshotRequest
from validator.chain.receipts import NOTHING_BURNED, Burned, burned
from validator.chain.records import ACCOUNT, GLOBALS, Account, Globals, decode_record
from validator.chain.transactions import TransactionError, address_of, parse, transaction_hash
from validator.node.queries import StatePages
from validator.node.snapshot_service import read_snapshot
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
from validator.storage.disk import Disk
from validator.storage.finality_proof import find_proof
from validator.transition.genesis_block import genesis_batch, genesis_header
from validator.transition.receipt_bound import require_receipts_fit
from validator.transition.trace import BlockTrace, StepRecorder, traced, writes_of
from validator.transition.transition import BlockContext, NotAdmitted, Outcome, PreparedTransaction, Transition

GENESIS_FILE: Final = "genesis"
NO_ROOT: Final = Hash(b"")
"""Of a block whose execution did not come to its end."""
MAX_BLOCK_TRANSACTIONS: Final = 4_096
MAX_BLOCK_PAYLOAD_BYTES: Final = MAX_BLOCK_BYTES // 2
"""Transaction bytes that a proposer puts into a block; a block may hold more and still be valid up to the maximum."""


class RecoveryError(ValidatorError):
    """What is on disk does not fit together, or not with the genesis. The message says what."""


# --- jobs and results -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Build:
    """Build a block on an executed parent from the mempool's candidates, in the order given."""

    view: int
    parent: Hash
    proposer: int
    candidates: tuple[PreparedTransaction, ...]


@dataclass(frozen=True, slots=True)
class Built:
    view: int
    parent: Hash
    digest: Hash
    block: Block
    body: bytes
    refused: tuple[Address, ...]
    """Senders whose next transaction could not run, for want of funds, fees or earlier nonces."""


@dataclass(frozen=True, slots=True)
class Execute:
    """Execute a block on its executed parent against its header."""

    digest: Hash
    block: Block
    known: Mapping[Hash, PreparedTransaction]
    """Transactions of the block whose signatures were checked before."""


@dataclass(frozen=True, slots=True)
class Executed:
    """``error`` is ``None`` for a valid block."""

    digest: Hash
    error: str | None


@dataclass(frozen=True, slots=True)
class Finalize:
    """Make an executed child of the last final block final and durable."""

    digest: Hash
    certificate: bytes


@dataclass(frozen=True, slots=True)
class Finalized:
    """A block is final here; figures for observers."""

    digest: Hash
    header: Header
    transactions: tuple[Hash, ...]
    accounts: Mapping[Address, Account]
    """The accounts that the block changed, as they are now, addresses ascending."""
    fires: int
    destroyed: int
    pending_timers: int
    backlog: int
    burned: Burned = NOTHING_BURNED


@dataclass(frozen=True, slots=True)
class FinalizedInvalid:
    """A final block did not execute to its header here: this validator has diverged."""

    digest: Hash
    header: Header
    reason: str
    computed_root: Hash
    receipts: bytes
    trace: BlockTrace
    """Of the block executed once more, step by step."""


@dataclass(frozen=True, slots=True)
class ReadBlocks:
    """Read final blocks for a peer that catches up."""

    peer: int
    first: int
    most: int


@dataclass(frozen=True, slots=True)
class BlocksRead:
    peer: int
    bodies: tuple[bytes, ...]
    links: tuple[Header, ...]
    """Headers that lead from the last of them to the block of the certificate; empty where it is that block."""
    certificate: bytes


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """Read for a peer that joins: what snapshot is offered, or a chunk of one."""

    peer: int
    request: SnapshotRequest | ChunkRequest


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    peer: int
    response: SnapshotOffer | ChunkResponse | None


@dataclass(frozen=True, slots=True)
class ReadAccounts:
    """Read accounts in the last final state, for the mempool."""

    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class AccountsRead:
    header: Header
    """Of the last final block."""
    accounts: Mapping[Address, Account]


Job = Build | Execute | Finalize | ReadBlocks | ReadSnapshot | ReadAccounts
JobResult = Built | Executed | Finalized | FinalizedInvalid | BlocksRead | SnapshotRead | AccountsRead


@dataclass(frozen=True, slots=True)
class _ExecutedBlock:
    digest: Hash
    parent: Hash
    block: Block
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class _InvalidBlock:
    block: Block
    reason: str
    computed_root: Hash = NO_ROOT
    """What execution gave, as far as it came; the receipts encoded."""
    receipts: bytes = b""
    changes: Sequence[Change] = ()


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """How much one validator keeps of its state's past. Validators may differ in it."""

    segment_bytes: int = SEGMENT_BYTES
    """Size from which on a file of the log takes no further commit."""
    retained_heights: int = RETAINED_HEIGHTS
    """Heights below the final one that can be proved, offered as a snapshot, and rewound to."""


DEFAULT_STORAGE: Final = StorageConfig()


class Executor:
    """One validator's executor. Opening it recovers from the disk: state that lags behind the archive is
    re-executed."""

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
        self._archive = self.archive_class(disk)
        self._genesis_header = self._open_genesis(disk)
        self._executed: dict[Hash, _ExecutedBlock] = {}
        self._accounts: dict[int, Address] = {}
        """Accounts of validators that proposed, by their index."""
        self._invalid: dict[Hash, _InvalidBlock] = {}
        self._vm = PythonVm()
        self._final_header = self._header_at(self._store.final.height)
        self._final = header_hash(self._final_header)
        self._check_final_state()
        self._index = self.index_class.rebuild(genesis, self._store.final)
        self._index_at = self._final
        self.recovered_height = self._archive.height
        """Height of the newest final block found on disk."""
        self.replayed_blocks = self._replay()
        """How many archived blocks were executed again, the state lagging behind them."""
        self.pages = StatePages(self)

    # --- what others read -------------------------------------------------------------------------------------------

    @property
    def genesis(self) -> Genesis:
        return self._genesis

    @property
    def final_header(self) -> Header:
        """Header of the last final block."""
        return self._final_header

    @property
    def final_digest(self) -> Hash:
        return self._final

    @property
    def final_view(self) -> View:
        """The last final state."""
        return self._store.final

    @property
    def archive(self) -> BlockArchive:
        return self._archive

    @property
    def index(self) -> SchedulerIndex:
        """The scheduler's index, standing wherever the last job left it."""
        return self._index

    def height_of(self, digest: Hash) -> int | None:
        """Height of the last final block or of one that was executed above it; ``None`` of any other."""
        is_known = digest == self._final or digest in self._executed
        return self._header_of(digest).height if is_known else None

    def prove(self, key: bytes, height: int) -> bytes:
        """The encoded proof of what the state of a retained height says of a key (:meth:`LogStateStore.prove`)."""
        return self._store.prove(key, Height(height))

    def root_at(self, height: int) -> Hash:
        """The state root of a retained height (:meth:`LogStateStore.root_at`)."""
        return self._store.root_at(Height(height))

    @property
    def pending_timers(self) -> int:
        """Live timers of the last final state."""
        data = self._store.final.get(GLOBALS)
        assert data is not None, "every state has the chain's counters"
        counters: Globals = decode_record(GLOBALS, data)
        return counters.live_timers

    def close(self) -> None:
        self._store.close()

    # --- jobs -------------------------------------------------------------------------------------------------------

    def run(self, job: Job) -> JobResult:
        """Do one job."""
        match job:
            case Build():
                return self._build(job)
            case Execute():
                return Executed(job.digest, self._execute(job.digest, job.block, job.known))
            case Finalize():
                return self._finalize(job)
            case ReadBlocks():
                return self._read_blocks(job)
            case ReadSnapshot():
                return SnapshotRead(job.peer, read_snapshot(self._store, self._archive, job.request))
            case ReadAccounts(addresses):
                world = World(self._store.final)
                return AccountsRead(self._final_header, {address: world.account(address) for address in addresses})

    def _build(self, job: Build) -> Built:
        parent = self._header_of(job.parent)
        height = Height(parent.height + 1)
        transition = self._transition_on(job.parent, height, job.proposer)
        taken, refused, outcome = transition.select(
            _within(job.candidates, MAX_BLOCK_PAYLOAD_BYTES), MAX_BLOCK_TRANSACTIONS
        )
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
        self._keep(digest, block, outcome)
        return Built(job.view, job.parent, digest, block, encode(block), refused)

    def _execute(self, digest: Hash, block: Block, known: Mapping[Hash, PreparedTransaction]) -> str | None:
        """Execute a block; ``None`` where it is valid, else why it is not."""
        if digest in self._executed:
            return None
        if digest in self._invalid:
            return self._invalid[digest].reason
        try:
            prepared = self._check(block, known)
            transition = self._transition_on(
                Hash(block.header.parent_hash), Height(block.header.height), block.header.proposer
            )
            outcome = transition.apply(prepared)
        except _Invalid as error:
            self._invalid[digest] = _InvalidBlock(block, str(error))
            return str(error)
        except NotAdmitted as error:
            self._index.abandon()
            self._invalid[digest] = _InvalidBlock(block, str(error))
            return str(error)
        differing = outcome.matches(block.header)
        if differing is not None:
            self._index.abandon()
            reason = f"execution gives another {differing}"
            receipts = encode(outcome.receipts)
            self._invalid[digest] = _InvalidBlock(block, reason, outcome.state_root, receipts, outcome.changes)
            return reason
        self._keep(digest, block, outcome)
        return None

    def _finalize(self, job: Finalize) -> Finalized | FinalizedInvalid:
        invalid = self._invalid.get(job.digest)
        if invalid is not None:
            return self._diverged(job.digest, invalid)
        executed = self._executed[job.digest]
        assert executed.parent == self._final, "blocks become final in order"
        self._move_index_below(job.digest)
        outcome = executed.outcome
        archived = ArchivedBlock(encode(executed.block), encode(outcome.receipts), job.certificate, outcome.state_root)
        self._archive.append(archived, outcome.receipts)
        self._store.commit(outcome.view)
        self._final, self._final_header = job.digest, executed.block.header
        self._drop_other_branches()
        return Finalized(
            digest=job.digest,
            header=executed.block.header,
            transactions=tuple(Hash(receipt.transaction_hash) for receipt in outcome.receipts.transactions),
            accounts=_changed_accounts(outcome.changes),
            fires=len(outcome.receipts.fires),
            destroyed=len(outcome.receipts.destroyed),
            pending_timers=outcome.live_timers,
            backlog=outcome.backlog,
            burned=burned(self._final_header, outcome.receipts),
        )

    def _diverged(self, digest: Hash, invalid: _InvalidBlock) -> FinalizedInvalid:
        """A block that is invalid here is final: say what it came to, and execute it once more to see how."""
        trace = self.trace(invalid.block)
        if trace.figure("state_root") != invalid.computed_root.hex():
            trace = msgspec.structs.replace(trace, repeats=False, first_writes=writes_of(invalid.changes))
        return FinalizedInvalid(
            digest, invalid.block.header, invalid.reason, invalid.computed_root, invalid.receipts, trace
        )

    def trace(self, block: Block) -> BlockTrace:
        """Execute a block on its parent, which was executed, noting every step. Nothing changes by it."""
        height, digest, recorder = block.header.height, header_hash(block.header), StepRecorder()
        try:
            prepared = self._check(block, {})
        except _Invalid as error:
            return recorder.trace(height, digest, None, str(error))
        parent, transition = Hash(block.header.parent_hash), traced(self._transition, recorder)
        try:
            outcome = self._transition_on(parent, Height(height), block.header.proposer, transition).apply(prepared)
        except NotAdmitted as error:
            return recorder.trace(height, digest, None, str(error))
        finally:
            self._index.abandon()
        return recorder.trace(height, digest, outcome)

    def _read_blocks(self, job: ReadBlocks) -> BlocksRead:
        """As many blocks as asked for, there are and fit into a message, and what proves them final."""
        bodies: list[bytes] = []
        size, certified, certificate = 0, 0, b""
        if job.first <= self._archive.first_height:
            return BlocksRead(job.peer, (), (), b"")
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
                return BlocksRead(job.peer, tuple(bodies), *proof)
        return BlocksRead(job.peer, tuple(bodies[:certified]), (), certificate)

    # --- the tree of executed blocks --------------------------------------------------------------------------------

    def _transition_on(
        self, parent: Hash, height: Height, proposer: int, transition: type[Transition] | None = None
    ) -> Transition:
        """A block's transition, begun; of another class than the validator's own where one is given."""
        self._move_index(parent)
        make = self._transition if transition is None else transition
        view = self._store.final if parent == self._final else self._executed[parent].outcome.view
        account = self._account_of(proposer)
        return make(view, self._index, BlockContext(height, account, self._genesis), self._vm)

    def _account_of(self, proposer: int) -> Address:
        account = self._accounts.get(proposer)
        if account is None:
            account = self._accounts[proposer] = address_of(self._genesis.validators[proposer])
        return account

    def _keep(self, digest: Hash, block: Block, outcome: Outcome) -> None:
        """Take an executed block into the tree; the index, begun for it, moves to it."""
        self._index.advance(outcome.changes)
        self._index_at = digest
        self._executed[digest] = _ExecutedBlock(digest, Hash(block.header.parent_hash), block, outcome)

    def _header_of(self, digest: Hash) -> Header:
        return self._final_header if digest == self._final else self._executed[digest].block.header

    def _path(self, digest: Hash) -> list[_ExecutedBlock]:
        """The executed blocks from the last final one (exclusive) to ``digest``, ascending."""
        path: list[_ExecutedBlock] = []
        while digest != self._final:
            path.append(self._executed[digest])
            digest = path[-1].parent
        path.reverse()
        return path

    def _move_index(self, digest: Hash) -> None:
        """Move the index to an executed block, back and forth along the tree."""
        if digest == self._index_at:
            return
        here, there = self._path(self._index_at), self._path(digest)
        shared = 0
        while shared < min(len(here), len(there)) and here[shared].digest == there[shared].digest:
            shared += 1
        for block in reversed(here[shared:]):
            self._index.retreat(block.outcome.changes)
        for block in there[shared:]:
            self._index.redo(block.block.header.height, block.outcome.changes)
        self._index_at = digest

    def _move_index_below(self, digest: Hash) -> None:
        """Make the index stand at ``digest`` or at a descendant of it."""
        if all(block.digest != digest for block in self._path(self._index_at)):
            self._move_index(digest)

    def _drop_other_branches(self) -> None:
        """Keep only what descends from the last final block."""
        self._index.settle(self._final_header.height)
        kept: dict[Hash, _ExecutedBlock] = {}
        ascending = sorted(self._executed.values(), key=lambda block: block.block.header.height)
        for block in ascending:
            if block.parent == self._final or block.parent in kept:
                kept[block.digest] = block
        self._executed = kept
        self._invalid = {
            digest: invalid
            for digest, invalid in self._invalid.items()
            if (parent := Hash(invalid.block.header.parent_hash)) == self._final or parent in kept
        }

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check(self, block: Block, known: Mapping[Hash, PreparedTransaction]) -> list[PreparedTransaction]:
        """What can be said of a block without executing it; its transactions, decoded."""
        header = block.header
        parent_hash = Hash(header.parent_hash)
        if header.chain_id != self._genesis.chain_id:
            raise _Invalid("the block is of another chain")
        if parent_hash != self._final and parent_hash not in self._executed:
            raise _Invalid("the parent is not executed")
        if header.height != self._header_of(parent_hash).height + 1:
            raise _Invalid("the height does not follow its parent's")
        if not 0 <= header.proposer < len(self._genesis.validators):
            raise _Invalid("the proposer is no validator")
        hashes = _hashes(block)
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
        """The genesis header, written down when the data folder was first used."""
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
        """The root of the genesis state; whoever joined by a snapshot makes that state once, in memory."""
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

    def _check_final_state(self) -> None:
        header, view = self._final_header, self._store.final
        if header.chain_id != self._genesis.chain_id or header.state_root != view.root:
            raise RecoveryError(
                f"state at height {view.height} has root {view.root.hex()}, its block says {header.state_root.hex()}"
            )

    def _replay(self) -> int:
        """Execute the archived blocks that the state lags behind."""
        replayed = 0
        for height in range(self._final_header.height + 1, self._archive.height + 1):
            block = self._archive.block(height)
            assert block is not None
            digest = header_hash(block.header)
            error = self._execute(digest, block, {})
            if error is not None:
                raise RecoveryError(f"archived block {height} does not execute: {error}")
            outcome = self._executed[digest].outcome
            self._move_index(digest)
            self._store.commit(outcome.view)
            self._final, self._final_header = digest, block.header
            self._drop_other_branches()
            replayed += 1
        return replayed


class _Invalid(Exception):
    """A block is invalid; the message says why."""


def _within(candidates: tuple[PreparedTransaction, ...], most_bytes: int) -> list[PreparedTransaction]:
    """The first candidates that fit into a block's bytes."""
    size, fitting = 0, []
    for candidate in candidates:
        size += len(candidate.wire)
        if size > most_bytes:
            break
        fitting.append(candidate)
    return fitting


def _changed_accounts(changes: Sequence[Change]) -> dict[Address, Account]:
    """The accounts among a block's changes, as they are after it. An account that once was stays."""
    return {
        Address(change.key[1:]): change.after
        for change in changes
        if change.key[:1] == ACCOUNT and change.after is not None
    }


def execution_error(executor: Executor, block: Block) -> str | None:
    """Why a block is invalid on its parent, which ``executor`` has executed; ``None`` where it is valid."""
    result = executor.run(Execute(header_hash(block.header), block, {}))
    assert isinstance(result, Executed)
    return result.error


def decode_block(body: bytes) -> Block | None:
    """The block of a body, or ``None`` where it is none: too large, malformed, not canonical, or of other transactions.

    A digest covers the header alone. Since the header's ``transactions_root`` is held against the transactions here, a
    digest has one body, and nobody can spoil a good block by sending its header with something else.
    """
    if len(body) > MAX_BLOCK_BYTES:
        return None
    try:
        block = decode(body, Block)
    except ValidatorError:
        return None
    return block if block.header.transactions_root == transactions_root(_hashes(block)) else None


def _hashes(block: Block) -> list[Hash]:
    return [transaction_hash(wire) for wire in block.transactions]
