"""Executes a chain's recorded blocks again, one after the other, on a fresh executor that never saw another branch.

The results are compared with the record: header, receipts, state root. The module imports only what execution needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from cluster.common.errors import BadInput
from cluster.disks.memory import MemoryDisk
from cluster.record.archive import BlockRecord, Reexecuted
from validator.chain.block import Block, header_hash
from validator.chain.genesis import Genesis
from validator.node.executor.executor import Executor, StorageConfig, execution_error
from validator.node.executor.jobs import Finalize, FinalizedInvalid
from validator.primitives.codec import CodecError, decode, encode
from validator.primitives.types import Hash, ValidatorError
from validator.transition.trace import BlockTrace

NOTEWORTHY_S: Final = 0.25
"""Processor time of a block, in seconds, from which on it is compared with a full block's."""
STORAGE: Final = StorageConfig(segment_bytes=1 << 20, retained_heights=8, keep_blocks=8)
"""Storage settings for a chain that is executed in memory and read once."""


class Measured(NamedTuple):
    """The processor time of a block's execution."""

    height: int
    seconds: float


class Reexecutor:
    """Executes a chain's recorded blocks from the genesis on, and compares the results with the record.

    Raises :class:`BadInput` if the genesis cannot be built.
    """

    def __init__(self, genesis: Genesis, clock: Callable[[], float] | None = None) -> None:
        """``clock`` gives this thread's processor time in seconds; without one nothing is measured."""
        self.slowest: Measured | None = None
        """The block that took longest to execute; ``None`` if none took :data:`NOTEWORTHY_S`."""
        self._clock = clock
        try:
            self.executor = Executor(MemoryDisk(), genesis, storage=STORAGE)
            """It has the final blocks up to :attr:`height`."""
        except ValidatorError as error:
            raise BadInput(f"the run's genesis cannot be built: {error}") from None
        self.genesis_digest: Final = self.executor.final_digest

    @property
    def height(self) -> int:
        """The height of the last block whose result was as recorded."""
        return self.executor.final_header.height

    def take(self, record: BlockRecord) -> Reexecuted | None:
        """Execute the next block. Returns how its result differs from the record; ``None`` if it does not.

        After a difference it must not be called again.
        """
        height = self.height + 1
        try:
            block = decode(record.block, Block)
        except CodecError as error:
            return Reexecuted(height - 1, "", f"the block cannot be read: {error}")
        reason = self._measured(height, block)
        result = self.executor.run(Finalize(header_hash(block.header), b""))
        if isinstance(result, FinalizedInvalid):
            why = f"the block does not execute to its header: {reason}"
            return Reexecuted(height - 1, "", why, result.receipts, encode(result.trace))
        self.executor.allow_pruning(height)
        archived = self.executor.archive.get(height)
        assert archived is not None, "what is final is archived"
        if archived.receipts != record.receipts:
            return Reexecuted(height - 1, "", "execution gives other receipts", archived.receipts)
        if archived.computed_root != record.computed_root:
            gave, recorded = archived.computed_root.hex(), record.computed_root.hex()
            why = f"execution gives state root {gave}, recorded was {recorded}"
            return Reexecuted(height - 1, "", why, archived.receipts)
        return None

    @property
    def result(self) -> Reexecuted:
        """That of the blocks up to :attr:`height`."""
        return Reexecuted(self.height, self.executor.final_view.root.hex())

    def _measured(self, height: int, block: Block) -> str | None:
        """Execute the next block, and measure its processor time. Returns why it is invalid, or ``None``.

        A slow block is executed twice, and the shorter time counts: the first may include loading code.
        """
        if self._clock is None:
            return execution_error(self.executor, block)
        began = self._clock()
        reason = execution_error(self.executor, block)
        seconds = self._clock() - began
        if seconds >= NOTEWORTHY_S and reason is None:
            began = self._clock()
            self.executor.trace(block)
            seconds = min(seconds, self._clock() - began)
        if seconds >= NOTEWORTHY_S and (self.slowest is None or seconds > self.slowest.seconds):
            self.slowest = Measured(height, seconds)
        return reason

    def trace(self, record: BlockRecord) -> BlockTrace:
        """Trace the execution of the next block, step by step, without making it final.

        Raises :class:`BadInput` if the block cannot be read.
        """
        try:
            return self.executor.trace(decode(record.block, Block))
        except CodecError as error:
            raise BadInput(f"the block at height {self.height + 1} cannot be read: {error}") from None


class RightExecution(NamedTuple):
    """The result of executing a final block again with this code, to compare a diverged execution with."""

    trace: BlockTrace | None
    """The trace of the re-execution; ``None`` if the chain cannot be executed up to the block."""
    recorded: BlockRecord | None
    mismatch: Reexecuted | None
    """The result up to the first final block, up to this one, that is not as recorded; ``None`` if there is none."""


class Reexecution:
    """Executes each block of a chain again, up to the height that a caller asks for.

    It begins again with the genesis if a caller asks for the executor, or for a new result, of a lower height.
    """

    def __init__(self, genesis: Genesis, chain: Sequence[BlockRecord], known: Reexecuted | None = None) -> None:
        """``known`` is an earlier result for exactly these blocks."""
        self.chain, self._known, self._genesis = chain, known, genesis
        self._mismatch: Reexecuted | None = None
        self._found: dict[int, RightExecution] = {}

    def at(self, height: int) -> RightExecution:
        """The result of re-executing the block at a height."""
        if height not in self._found:
            self._found[height] = self._execute(height)
        return self._found[height]

    def executor_at(self, height: int) -> Executor | None:
        """The executor when the block at a height is final; ``None`` if the chain cannot be executed up to it."""
        self._advance(min(height, len(self.chain)))
        return self._reexecutor.executor if self._reexecutor.height == height else None

    def first_mismatch(self) -> Reexecuted | None:
        """The result up to the first block that is not as recorded; ``None`` if there is none.

        Executes the chain to its end, unless the result is known.
        """
        known = self._known
        if known is not None and (known.reason or known.heights == len(self.chain)):
            return known if known.reason else None
        self._advance(len(self.chain))
        return self._mismatch

    def _execute(self, height: int) -> RightExecution:
        if not 1 <= height <= len(self.chain):
            return RightExecution(None, None, self._mismatch)
        self._advance(height - 1)
        recorded, trace = self.chain[height - 1], None
        if self._mismatch is None:
            trace = self._reexecutor.trace(recorded)
            self._mismatch = self._reexecutor.take(recorded)
        elif self._mismatch.heights == height - 1 and self._mismatch.trace:
            trace = decode(self._mismatch.trace, BlockTrace)
        return RightExecution(trace, recorded, self._mismatch)

    @property
    def genesis_digest(self) -> Hash:
        """The digest of the genesis block."""
        return self._reexecutor.genesis_digest

    @cached_property
    def _reexecutor(self) -> Reexecutor:
        return Reexecutor(self._genesis)

    def _advance(self, height: int) -> None:
        if height < self._reexecutor.height:
            self._reexecutor, self._mismatch = Reexecutor(self._genesis), None
        while self._mismatch is None and self._reexecutor.height < height:
            self._mismatch = self._reexecutor.take(self.chain[self._reexecutor.height])
