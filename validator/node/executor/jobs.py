"""Jobs of the executor and their results: plain data between the node, which asks, and the executor, which answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from validator.chain.block import Block, Header
from validator.chain.messages import ChunkRequest, ChunkResponse, SnapshotOffer, SnapshotRequest
from validator.chain.receipts import NOTHING_BURNED, Burned
from validator.chain.records import Account
from validator.primitives.types import Address, Hash
from validator.transition.trace import BlockTrace
from validator.transition.transition import PreparedTransaction


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
    """Senders whose next transaction could not run, for lack of funds, fees or earlier nonces."""


@dataclass(frozen=True, slots=True)
class Execute:
    """Execute a block on its executed parent against its header."""

    digest: Hash
    block: Block
    known: Mapping[Hash, PreparedTransaction]
    """Transactions of the block whose signatures were verified before."""


@dataclass(frozen=True, slots=True)
class Executed:
    """Result of an execution; ``error`` is ``None`` for a valid block."""

    digest: Hash
    error: str | None


@dataclass(frozen=True, slots=True)
class Finalize:
    """Make an executed child of the last final block final and durable."""

    digest: Hash
    certificate: bytes


@dataclass(frozen=True, slots=True)
class Finalized:
    """Result of :class:`Finalize`: the block is final and committed. It has figures for observers."""

    digest: Hash
    header: Header
    transactions: tuple[Hash, ...]
    accounts: Mapping[Address, Account]
    """The accounts that the block changed, after the block, addresses ascending."""
    fires: int
    destroyed: int
    pending_timers: int
    backlog: int
    burned: Burned = NOTHING_BURNED


@dataclass(frozen=True, slots=True)
class FinalizedInvalid:
    """Result of :class:`Finalize`: the block did not execute to its header, so this validator has diverged."""

    digest: Hash
    header: Header
    reason: str
    computed_root: Hash
    receipts: bytes
    trace: BlockTrace
    """Trace of a second execution of the block."""


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
    """Headers of the blocks after the last body, up to the block of the certificate; empty if that is the last body."""
    certificate: bytes
    begins_at: int = 0
    """Height of the first block that this validator has, if the requested ones were pruned; else 0."""


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """Read for a joining peer: the snapshot to offer, or a chunk of one."""

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
    """Header of the last final block."""
    accounts: Mapping[Address, Account]


Job = Build | Execute | Finalize | ReadBlocks | ReadSnapshot | ReadAccounts
JobResult = Built | Executed | Finalized | FinalizedInvalid | BlocksRead | SnapshotRead | AccountsRead
