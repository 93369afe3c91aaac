"""An executor whose state transition is done by another program (:mod:`validator.node.executor.stream`).

The validator votes for what the program answers. If that differs from the header of a block, the block is invalid here;
if the block becomes final all the same, the validator has diverged, and the program's changes and receipts say where.

Rules: what the program answers is checked before it is used. An answer that breaks the form of the stream ends the
validator with one line (:class:`~validator.node.executor.stream.ExecutorError`). A wrong value is a wrong vote.
The program is opened at the last final state at each start, so nothing that it keeps outlives the validator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar

import msgspec

from validator.chain.block import Block, BlockReceipts, receipts_root
from validator.chain.genesis import Genesis
from validator.chain.records import GLOBALS, Globals, decode_record
from validator.execution.timer_calls import LanePrices
from validator.node.executor import jobs, stream
from validator.node.executor.executor import DEFAULT_STORAGE, Executor, StorageConfig
from validator.node.executor.stream import ExecutorError
from validator.primitives.codec import CodecError, decode, unpack_uint
from validator.primitives.types import HASH_BYTES, PRICE_LIMIT, Address, Hash, Height
from validator.scheduler.index import SchedulerIndex
from validator.state import View
from validator.state.working_set import Change
from validator.storage.disk import Disk
from validator.transition.trace import BlockTrace, StepKind, StepRecorder, writes_of
from validator.transition.transition import BlockContext, BlockResult, NotAdmitted, PreparedTransaction, Transition

MAX_KEY_BYTES: Final = 512
MAX_VALUE_BYTES: Final = 2**24
MAX_REASON: Final = 200
"""Characters of an executor's text that reach a message."""
OTHER_CHANGES: Final = "the executor's steps do not give its changes of the state, and are not used"
OPENED: Final = 0
"""The number of the block whose state an executor was opened at."""

A = TypeVar("A", bound=stream.Answer)


class Child(Protocol):
    """The program at the other end of the stream."""

    def ask(self, request: bytes) -> bytes:
        """The content of the frame that answers a frame with this content. Raises :class:`ExecutorError`."""

    def close(self) -> None:
        """End the program."""


@dataclass(frozen=True, slots=True)
class ForeignResult(BlockResult):
    """The result of a block as an executor answered it."""

    claimed_root: Hash | None = None
    """The executor's own state root; ``None`` if it gave none."""

    @property
    def state_root(self) -> Hash:
        return self.view.root if self.claimed_root is None else self.claimed_root


class Session:
    """An open executor, and the numbers by which it knows blocks."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._numbers: dict[Hash, int] = {}
        self._next = OPENED + 1

    def open(self, genesis: Genesis, final: Hash, view: View, tree: Iterable[bytes]) -> None:
        """Open the executor at the state of the last final block, whose hash is ``final``.

        ``tree`` are the manifest and the chunks of this state's snapshot, which are made if the executor wants them.
        """
        request = stream.Open(stream.VERSION, stream.chain_of(genesis), view.height, view.root)
        answer = self._answer_to(request)
        if isinstance(answer, stream.WantsTree):
            self._send_tree(tree)
        else:
            _require(answer, stream.Done)
        entries: list[tuple[bytes, bytes]] = []
        size = 0
        for key, value in view.scan(b""):
            if entries and size + len(key) + len(value) > stream.MAX_LOADED_BYTES:
                self._ask(stream.Load(tuple(entries), False), stream.Done)
                entries, size = [], 0
            entries.append((key, value))
            size += len(key) + len(value)
        self._ask(stream.Load(tuple(entries), True), stream.Done)
        self._numbers = {final: OPENED}

    def _send_tree(self, parts: Iterable[bytes]) -> None:
        for number, part in enumerate(parts):
            for start in range(0, len(part), stream.MAX_LOADED_BYTES):
                piece = part[start : start + stream.MAX_LOADED_BYTES]
                self._ask(stream.Tree(number, piece, start + len(piece) == len(part)), stream.Done)

    def number_of(self, digest: Hash) -> int:
        """The number of an executed block."""
        return self._numbers[digest]

    def new_number(self) -> int:
        """The number of the next block."""
        self._next += 1
        return self._next - 1

    def apply(self, request: stream.Apply) -> stream.Applied | stream.Refused:
        """Execute a block."""
        answer = self._answer_to(request)
        return answer if isinstance(answer, stream.Refused) else _require(answer, stream.Applied)

    def build(self, request: stream.Build) -> stream.Built:
        """Build a block."""
        return self._ask(request, stream.Built)

    def keep(self, digest: Hash, number: int) -> None:
        """Note the hash of a block that was executed under a number."""
        if digest in self._numbers:
            self.roll_back(number)  # the same block was built a second time
        else:
            self._numbers[digest] = number

    def roll_back(self, number: int) -> None:
        self._ask(stream.RollBack(number), stream.Done)

    def commit(self, digest: Hash) -> None:
        self._ask(stream.Commit(self._numbers[digest]), stream.Done)

    def forget_all_but(self, known: Any) -> None:
        """Forget the numbers of blocks that are not in ``known``."""
        self._numbers = {digest: number for digest, number in self._numbers.items() if digest in known}

    def close(self) -> None:
        self._child.close()

    def _ask(self, request: stream.Request, expected: type[A]) -> A:
        return _require(self._answer_to(request), expected)

    def _answer_to(self, request: stream.Request) -> stream.Answer:
        answer = stream.decode_answer(self._child.ask(stream.encode_message(request)))
        if isinstance(answer, stream.Failed):
            raise ExecutorError(f"it cannot go on: {_short(answer.reason)}")
        return answer


def _require(answer: stream.Answer, expected: type[A]) -> A:
    if not isinstance(answer, expected):
        raise ExecutorError(f"it answered {type(answer).__name__.lower()!r}, expected {expected.__name__.lower()!r}")
    return answer


def _short(text: str) -> str:
    return " ".join(text.split())[:MAX_REASON]


class ForeignTransition:
    """The execution of one block by a foreign executor."""

    def __init__(
        self, session: Session, on: int, parent: View, context: BlockContext, recorder: StepRecorder | None = None
    ) -> None:
        """``on`` is the number of the parent. With ``recorder``, :meth:`apply` records the steps there, if the executor
        gives any."""
        self.parent = parent
        self.context = context
        self.result: ForeignResult | None = None
        """The block's result, once the executor has answered."""
        self.number = session.new_number()
        """The block's number."""
        self.remark = ""
        """Why steps that the executor gave are not recorded; else empty."""
        self._batch: Mapping[bytes, bytes | None] = {}
        """The block's changes, as the executor encoded them."""
        self._session = session
        self._on = on
        self._recorder = recorder

    def apply(self, transactions: Sequence[PreparedTransaction]) -> ForeignResult:
        """Process a whole block. Raises :class:`NotAdmitted`."""
        height, proposer, given = self.context.height, self.context.proposer, tuple(map(_given, transactions))
        wants_steps = self._recorder is not None
        answer = self._session.apply(stream.Apply(self._on, self.number, height, proposer, given, wants_steps))
        if isinstance(answer, stream.Applied):
            result = self._take(answer.result)
            self._record(answer.steps, self._batch)
            return result
        self._record(answer.steps)
        raise NotAdmitted(_short(answer.error))

    def select(
        self, candidates: Iterable[PreparedTransaction], most: int, most_bytes: int
    ) -> tuple[list[PreparedTransaction], tuple[Address, ...], ForeignResult]:
        """Build a block, as :meth:`Transition.select` does."""
        offered = _bounded(candidates)
        height, proposer = self.context.height, self.context.proposer
        built = self._session.build(
            stream.Build(self._on, self.number, height, proposer, most, most_bytes, tuple(map(_given, offered)))
        )
        if list(built.taken) != sorted(set(built.taken) & set(range(len(offered)))):
            raise ExecutorError("it took candidates that were not offered, or in another order")
        taken = [offered[position] for position in built.taken]
        if len(taken) > most or sum(len(prepared.wire) for prepared in taken) > most_bytes:
            raise ExecutorError(f"it took {len(taken):,} transactions, more than a block may have")
        if not set(built.refused) <= {prepared.transaction.sender for prepared in offered}:
            raise ExecutorError("it refused senders that were not offered")
        return taken, tuple(map(Address, built.refused)), self._take(built.result)

    def _take(self, result: stream.Result) -> ForeignResult:
        """Check the result of a block, and derive the state after it from the changes."""
        try:
            self.result = self._checked(result)
        except CodecError as error:
            raise ExecutorError(f"block {self.context.height:,}: {error}") from None
        return self.result

    def _checked(self, result: stream.Result) -> ForeignResult:
        receipts, root = decode(result.receipts, BlockReceipts), result.state_root
        if root is not None and len(root) != HASH_BYTES:
            raise CodecError(f"a state root of {len(root)} bytes, expected {HASH_BYTES}")
        cycle, cell, lane = (
            unpack_uint(price, PRICE_LIMIT)
            for price in (result.basefee_cycle, result.basefee_cell, result.basefee_lane_timer)
        )
        changes, batch = self._changes(result.changes, {})
        self._batch = batch
        counters = self._counters(changes)
        return ForeignResult(
            view=self.parent.derive(self.context.height, batch),
            changes=changes,
            receipts=receipts,
            receipts_root=receipts_root(receipts),
            prices=LanePrices(cycle, cell, lane, 0, 0),
            basefee_lane_timer=lane,
            lane_cycles=result.lane_cycles,
            lane_cells=result.lane_cells,
            user_cycles=result.user_cycles,
            user_cells=result.user_cells,
            live_timers=counters.live_timers,
            backlog=result.backlog,
            claimed_root=None if root is None else Hash(root),
        )

    def _changes(
        self, given: Sequence[tuple[bytes, bytes | None]], made: Mapping[bytes, bytes | None]
    ) -> tuple[list[Change], dict[bytes, bytes | None]]:
        """The changes as records, and as a batch for the state; those that change nothing are left out.

        ``made`` are changes of the parent's state that were made before.
        """
        changes: list[Change] = []
        batch: dict[bytes, bytes | None] = {}
        last = b""
        for key, value in given:
            if not last < key or len(key) > MAX_KEY_BYTES:
                raise CodecError(f"the key {key[:MAX_KEY_BYTES].hex()} of a change is out of order or too long")
            last, before = key, made[key] if key in made else self.parent.get(key)
            if before != value:
                changes.append(Change(key, _record(key, before), _record(key, value)))
                batch[key] = value
        return changes, batch

    def _record(
        self, steps: Sequence[stream.GivenStep] | None, batch: Mapping[bytes, bytes | None] | None = None
    ) -> None:
        """Record the executor's steps, unless they do not give the block's ``batch``."""
        if self._recorder is None or steps is None:
            return
        made: dict[bytes, bytes | None] = {}
        found = []
        try:
            if len(steps) > stream.MAX_STEPS:
                raise CodecError(f"{len(steps):,} steps, expected at most {stream.MAX_STEPS:,}")
            if (size := sum(map(stream.step_bytes, steps))) > stream.MAX_STEPS_BYTES:
                raise CodecError(f"steps of {size:,} bytes, expected at most {stream.MAX_STEPS_BYTES:,}")
            for step in steps:
                changes, net = self._changes(step.changes, made)
                made |= net
                found.append((_kind_of(step), step.subject, changes, step.receipts))
        except CodecError as error:
            raise ExecutorError(f"block {self.context.height:,}, steps: {error}") from None
        if batch is not None and batch != {key: value for key, value in made.items() if value != self.parent.get(key)}:
            self.remark = OTHER_CHANGES
            return
        for kind, subject, changes, receipts in found:
            self._recorder.keep(kind, subject, changes, receipts)

    def _counters(self, changes: Sequence[Change]) -> Globals:
        """The chain's counters after the block."""
        stored = self.parent.get(GLOBALS)
        assert stored is not None, "every state has the chain's counters"
        kept = (change.after for change in changes if change.key == GLOBALS)
        counters: Globals | None = next(kept, decode_record(GLOBALS, stored))
        if counters is None:
            raise CodecError("the chain's counters are removed")
        return counters


def _kind_of(step: stream.GivenStep) -> StepKind:
    """The kind of a step. Raises :class:`CodecError` if it is unknown, or if the step's subject is too long."""
    try:
        kind = StepKind(step.kind)
    except ValueError:
        raise CodecError(f"a step of the unknown kind {_short(step.kind)!r}") from None
    if len(step.subject) > MAX_KEY_BYTES:
        raise CodecError(f"a subject of {len(step.subject):,} bytes")
    return kind


def _given(prepared: PreparedTransaction) -> stream.Given:
    return stream.Given(prepared.hash, prepared.transaction.sender, prepared.wire)


def _bounded(candidates: Iterable[PreparedTransaction]) -> list[PreparedTransaction]:
    """The first candidates, up to :data:`~validator.node.executor.stream.MAX_CANDIDATE_BYTES`."""
    offered: list[PreparedTransaction] = []
    left = stream.MAX_CANDIDATE_BYTES
    for prepared in candidates:
        left -= len(prepared.wire)
        if left < 0:
            break
        offered.append(prepared)
    return offered


def _record(key: bytes, value: bytes | None) -> Any:
    """The record in a value. Raises :class:`CodecError` if it is none of the key's kind."""
    if value is None:
        return None
    try:
        if len(value) > MAX_VALUE_BYTES:
            raise ValueError(f"{len(value):,} bytes")
        return decode_record(key, value)
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError):
        raise CodecError(f"the value under the key {key.hex()} is no record of its kind") from None


class _NoIndex(SchedulerIndex):
    """The scheduler's index of a validator that does not schedule: it is empty, and follows no block."""

    @classmethod
    def rebuild(cls, genesis: Genesis, view: View) -> Self:
        return cls(genesis)

    def advance(self, changes: Sequence[Change]) -> None: ...

    def redo(self, height: int, changes: Sequence[Change]) -> None: ...

    def retreat(self, changes: Sequence[Change]) -> None: ...

    def abandon(self) -> None: ...

    def settle(self, height: int) -> None: ...


class ForeignExecutor(Executor):
    """An executor that leaves the state transition to a program. ``start`` starts the program."""

    index_class: ClassVar[type[SchedulerIndex]] = _NoIndex
    start: ClassVar[Any]
    """A function without arguments that returns a :class:`Child`. Raises :class:`ExecutorError`."""

    def __init__(
        self,
        disk: Disk,
        genesis: Genesis,
        transition: type[Transition] = Transition,
        storage: StorageConfig = DEFAULT_STORAGE,
    ) -> None:
        self._session = Session(type(self).start())
        self._running: ForeignTransition | None = None
        """The execution whose block is neither kept nor rolled back."""
        try:
            super().__init__(disk, genesis, transition, storage)
        except BaseException:
            self._session.close()
            raise

    def close(self) -> None:
        self._session.close()
        super().close()

    def trace(self, block: Block) -> BlockTrace:
        """Execute a block once more. A trace without steps has all changes (:attr:`BlockTrace.first_writes`)."""
        try:
            trace = super().trace(block)
            running = self._running
        finally:
            self._settle(None)
        if running is None or running.result is None or trace.steps:
            return trace
        return msgspec.structs.replace(trace, first_writes=writes_of(running.result.changes), remark=running.remark)

    def _build(self, job: jobs.Build) -> jobs.Built:
        built = super()._build(job)
        self._settle(built.digest)
        return built

    def _execute(self, digest: Hash, block: Block, known: Mapping[Hash, PreparedTransaction]) -> str | None:
        error = super()._execute(digest, block, known)
        self._settle(digest if error is None else None)
        return error

    def _finalize(self, job: jobs.Finalize) -> jobs.Finalized | jobs.FinalizedInvalid:
        final = super()._finalize(job)
        if isinstance(final, jobs.Finalized):
            self._session.commit(job.digest)
            self._session.forget_all_but(self._branches)
        return final

    def _transition_on(
        self, parent: Hash, height: Height, proposer: int, recorder: StepRecorder | None = None
    ) -> ForeignTransition:
        own = super()._transition_on(parent, height, proposer)
        number = self._session.number_of(parent)
        self._running = ForeignTransition(self._session, number, own.parent, own.context, recorder)
        return self._running

    def _replay(self) -> int:
        self._session.open(self._genesis, self.final_digest, self._store.final, self._tree())
        return super()._replay()

    def _tree(self) -> Iterator[bytes]:
        """The manifest and the chunks of the final state's snapshot."""
        manifest = self._store.manifest()
        yield manifest.encode()
        for chunk in range(manifest.chunks):
            yield self._store.chunk(chunk)

    def _settle(self, digest: Hash | None) -> None:
        """Keep the block that was executed last under its hash; with ``None``, roll it back."""
        running, self._running = self._running, None
        if running is None or running.result is None:
            return
        if digest is None:
            self._session.roll_back(running.number)
        else:
            self._session.keep(digest, running.number)
