"""``stampede executor``, the reference executor: this project's transition at the other end of the stream
(:mod:`validator.node.executor.stream`).

It keeps the states in memory, by default without a tree. A request that breaks the rules is answered with ``failed``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from cluster.common.errors import BadInput
from cluster.disks.memory import MemoryDisk
from cluster.misbehaviour.planted import PartsPatch, RunCounter, planted_bugs
from validator.chain.block import Block, Header
from validator.chain.genesis import Genesis
from validator.chain.transactions import TransactionError, parse
from validator.node.assembly import PRODUCTION
from validator.node.executor import stream
from validator.node.executor.branches import Branches
from validator.node.executor.stream import ExecutorError
from validator.primitives.codec import encode, pack_uint
from validator.primitives.types import HASH_BYTES, Address, Hash, Height, ValidatorError
from validator.pvm.runtime.machine import PythonVm
from validator.scheduler.index import SchedulerIndex
from validator.state import LogStateStore, View
from validator.state.intake import SnapshotIntake
from validator.state.treeless import TreelessStore
from validator.state.working_set import Change, batch_of
from validator.storage.disk import Disk
from validator.transition.trace import StepKind, StepRecorder, traced
from validator.transition.transition import BlockContext, NotAdmitted, Outcome, PreparedTransaction, Transition

STATE_FOLDER: Final = "state"


class _Tree(Branches):
    """The executed blocks by their numbers, which take the place of hashes."""

    def __init__(self, height: int, index: SchedulerIndex) -> None:
        super().__init__(_header(height, Hash(b"")), index)
        self.digests = {0: self.final}
        """The stand-in for a block's hash, by the block's number."""

    def append(self, number: int, parent: int, height: int, outcome: Outcome) -> None:
        """Add an executed block."""
        self.digests[number] = Hash(number.to_bytes(HASH_BYTES, "big"))
        self.add(self.digests[number], Block(_header(height, self.digests[parent]), ()), outcome)

    def commit(self, number: int) -> View | None:
        """Make a block final, with the blocks below it. Returns its state; ``None`` if it was final."""
        line = self._path(self.digests[number])
        for block in line:
            self.finalize(block.digest)
        self.digests = {each: digest for each, digest in self.digests.items() if digest in self}
        return line[-1].outcome.view if line else None

    def roll_back(self, number: int) -> None:
        """Forget a block, with its descendants."""
        gone = self.digests[number]
        block = self._executed[gone]
        if any(each.digest == gone for each in self._path(self._index_at)):
            self.move_index(block.parent)
        kept = {digest for digest in self._executed if all(each.digest != gone for each in self._path(digest))}
        self._executed = {digest: each for digest, each in self._executed.items() if digest in kept}
        self.digests = {each: digest for each, digest in self.digests.items() if digest in self}


class _StreamedSteps(StepRecorder):
    """Records the steps of a block as the stream has them."""

    def __init__(self) -> None:
        super().__init__()
        self._given: list[stream.GivenStep] = []
        self._bytes = 0

    def keep(self, kind: StepKind, subject: bytes, changes: Sequence[Change], receipts: tuple[bytes, ...]) -> None:
        """Add a step with these changes and encoded receipts."""
        batch = tuple(batch_of(changes).items())
        step = stream.GivenStep(kind.value, subject, batch, receipts)
        self._bytes += stream.step_bytes(step)
        if self._bytes <= stream.MAX_STEPS_BYTES:
            self._given.append(step)

    @property
    def given(self) -> tuple[stream.GivenStep, ...] | None:
        """All steps so far; ``None`` if they are too many for an answer."""
        fits = self._bytes <= stream.MAX_STEPS_BYTES and len(self._given) <= stream.MAX_STEPS
        return tuple(self._given) if fits else None


class _ArrivingTree:
    """The tree of the opened state, on its way to a store."""

    def __init__(self, disk: Disk, height: Height, root: Hash) -> None:
        self._disk = disk
        self._intake = SnapshotIntake(disk, STATE_FOLDER, height, root)
        self._part = bytearray()

    def take(self, piece: stream.Tree) -> None:
        """Take the next piece. Raises :class:`SnapshotError`."""
        self._part += piece.data
        if not piece.is_last:
            return
        part, self._part = bytes(self._part), bytearray()
        if piece.part == 0:
            self._intake.take_manifest(part)
        else:
            self._intake.take_chunk(piece.part - 1, part)

    def store(self, entries: int) -> LogStateStore:
        """A store of the state, which has this number of entries. Raises :class:`ValidatorError`."""
        manifest = self._intake.manifest
        if manifest is None or not self._intake.is_complete or manifest.live != entries:
            raise ExecutorError("the tree is incomplete, or has other entries than were loaded")
        self._intake.install()
        return LogStateStore.open(self._disk, STATE_FOLDER)


class ReferenceExecutor:
    """Answers the requests of one validator, in order."""

    def __init__(self, transition: type[Transition] = Transition, make_disk: Callable[[], Disk] | None = None) -> None:
        """``transition`` is the transition that it performs. With ``make_disk``, which makes an empty disk for each
        opening, it keeps a tree and answers its roots."""
        self._transition = transition
        self._make_disk = make_disk
        self._genesis: Genesis | None = None
        self._store: TreelessStore | LogStateStore = TreelessStore()
        self._arriving: _ArrivingTree | None = None
        """The opened state's tree; ``None`` if the executor keeps no tree."""
        self._loaded: dict[bytes, bytes] = {}
        self._height = 0
        self._tree: _Tree | None = None
        self._vm = PythonVm()

    def answer(self, content: bytes) -> bytes:
        """The content of the frame that answers a frame with this content."""
        try:
            answer = self._answer_to(stream.decode_request(content))
        except (ValidatorError, ValueError, KeyError) as error:
            answer = stream.Failed(f"{type(error).__name__}: {error}")
        return stream.encode_message(answer)

    def _answer_to(self, request: stream.Request) -> stream.Answer:
        match request:
            case stream.Open():
                return self._open(request)
            case stream.Tree():
                self._take_tree(request)
            case stream.Load(entries=entries, is_last=is_last):
                self._load(entries, is_last)
            case stream.Apply():
                return self._apply(request)
            case stream.Build():
                return self._build(request)
            case stream.Commit(block=number):
                final = self._opened.commit(number)
                if final is not None:
                    self._store.commit(final)
            case stream.RollBack(block=number):
                self._opened.roll_back(number)
        return stream.Done()

    @property
    def _opened(self) -> _Tree:
        if self._tree is None:
            raise ExecutorError("no state was opened")
        return self._tree

    # --- opening ------------------------------------------------------------------------------------------------------

    def _open(self, request: stream.Open) -> stream.Answer:
        if request.version != stream.VERSION:
            raise ExecutorError(f"version {request.version} of the stream, expected {stream.VERSION}")
        self._genesis = stream.genesis_of(request.chain)
        self._height, self._loaded, self._tree = request.height, {}, None
        if self._make_disk is None:
            return stream.Done()
        self._arriving = _ArrivingTree(self._make_disk(), Height(request.height), Hash(request.state_root))
        return stream.WantsTree()

    def _take_tree(self, request: stream.Tree) -> None:
        if self._arriving is None or self._tree is not None:
            raise ExecutorError("a tree that was not wanted")
        self._arriving.take(request)

    def _load(self, entries: tuple[tuple[bytes, bytes], ...], is_last: bool) -> None:
        if self._genesis is None or self._tree is not None:
            raise ExecutorError("entries of no opening")
        self._loaded.update(entries)
        if is_last:
            self._store = self._opened_store()
            self._loaded = {}
            self._tree = _Tree(self._height, SchedulerIndex.rebuild(self._genesis, self._store.final))

    def _opened_store(self) -> TreelessStore | LogStateStore:
        """A store of the opened state."""
        if self._arriving is not None:
            return self._arriving.store(len(self._loaded))
        store = TreelessStore()
        store.commit(store.final.derive(Height(self._height), self._loaded))
        return store

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _apply(self, request: stream.Apply) -> stream.Answer:
        transactions = self._prepared(request.transactions)
        recorder = _StreamedSteps() if request.wants_steps else None
        transition = self._transition if recorder is None else traced(self._transition, recorder)
        try:
            outcome = self._on(request, transition).apply(transactions)
        except NotAdmitted as refusal:
            self._opened.index.abandon()
            return stream.Refused(refusal.name, None if recorder is None else recorder.given)
        return stream.Applied(self._add(request, outcome), None if recorder is None else recorder.given)

    def _build(self, request: stream.Build) -> stream.Built:
        offered = self._prepared(request.candidates)
        taken, refused, outcome = self._on(request, self._transition).select(offered, request.most, request.most_bytes)
        positions = {prepared.hash: position for position, prepared in enumerate(offered)}
        places = tuple(positions[prepared.hash] for prepared in taken)
        return stream.Built(places, refused, self._add(request, outcome))

    def _on(self, request: stream.Apply | stream.Build, transition: type[Transition]) -> Transition:
        """The execution of a block by ``transition``; the index is moved to the block's parent."""
        assert self._genesis is not None, "it is opened"
        tree = self._opened
        if request.block in tree.digests:
            raise ExecutorError(f"block {request.block} exists")
        parent = tree.digests[request.parent]
        tree.move_index(parent)
        executed = tree.executed(parent)
        view = self._store.final if executed is None else executed.outcome.view
        context = BlockContext(Height(request.height), Address(request.proposer), self._genesis)
        return transition(view, tree.index, context, self._vm)

    def _add(self, request: stream.Apply | stream.Build, outcome: Outcome) -> stream.Result:
        self._opened.append(request.block, request.parent, request.height, outcome)
        return _result_of(outcome, None if self._arriving is None else outcome.view.root)

    def _prepared(self, given: tuple[stream.Given, ...]) -> list[PreparedTransaction]:
        """The transactions, whose signatures the validator has checked."""
        assert self._genesis is not None or not given
        chain_id = "" if self._genesis is None else self._genesis.chain_id
        try:
            parsed = [parse(each.wire, chain_id, is_signed=False) for each in given]
        except TransactionError as error:
            raise ExecutorError(f"a transaction that the validator checked: {error}") from None
        pairs = zip(given, parsed, strict=True)
        return [PreparedTransaction(Hash(each.hash), each.wire, transaction) for each, transaction in pairs]


def _header(height: int, parent: Hash) -> Header:
    """A header that only has a place in the tree."""
    return Header("", height, 0, parent, 0, b"", b"", b"", b"", b"", b"", 0, 0, 0, 0)


def _result_of(outcome: Outcome, root: Hash | None) -> stream.Result:
    prices = outcome.prices
    return stream.Result(
        basefee_cycle=pack_uint(prices.basefee_cycle),
        basefee_cell=pack_uint(prices.basefee_cell),
        basefee_lane_timer=pack_uint(outcome.basefee_lane_timer),
        lane_cycles=outcome.lane_cycles,
        lane_cells=outcome.lane_cells,
        user_cycles=outcome.user_cycles,
        user_cells=outcome.user_cells,
        receipts=encode(outcome.receipts),
        changes=tuple(batch_of(outcome.changes).items()),
        state_root=root,
        backlog=outcome.backlog,
    )


Read = Callable[[int], bytes]
"""Reads a number of bytes; fewer at the end of the input."""


def serve(executor: ReferenceExecutor, read: Read, write: Callable[[bytes], object]) -> None:
    """Answer frames until the input ends. Raises :class:`ExecutorError` for a frame that is too long or cut off."""
    while length := read(stream.LENGTH_BYTES):
        size = stream.require_length(int.from_bytes(length, "big"))
        content = read(size)
        if len(length) < stream.LENGTH_BYTES or len(content) < size:
            raise ExecutorError("the input ended inside a frame")
        write(stream.framed(executor.answer(content)))


def run_executor(mutant: str | None, has_tree: bool) -> None:
    """Answer the requests on standard input until it ends. Raises :class:`BadInput`.

    ``mutant`` is a planted bug of the transition, which the executor then has. With ``has_tree`` it answers state
    roots.
    """
    executor = ReferenceExecutor(_transition_of(mutant), MemoryDisk if has_tree else None)
    output = sys.__stdout__
    assert output is not None, "the stream has an output"

    def write(frame: bytes) -> None:
        try:
            output.buffer.write(frame)
            output.buffer.flush()
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise BadInput(f"standard output: cannot be written: {error.strerror}") from None

    try:
        serve(executor, sys.stdin.buffer.read, write)
    except ExecutorError as error:
        raise BadInput(f"standard input: {error}") from None
    except BrokenPipeError:
        pass  # the validator is gone


def _transition_of(mutant: str | None) -> type[Transition]:
    if mutant is None:
        return Transition
    bug = planted_bugs().get(mutant)
    patch = None if bug is None else bug.patch
    transition = patch.parts(RunCounter()).transition if isinstance(patch, PartsPatch) else Transition
    if transition is PRODUCTION.transition:
        raise BadInput(f"--mutant: {mutant[:64]!r} is no planted bug of the transition, such as 'wrong-balance'")
    return transition
