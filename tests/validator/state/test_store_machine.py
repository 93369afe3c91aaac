"""The store against a dict and a naive tree: all that it can do, in any order, with failing disks and crashes.

The same machine runs with the plain engine, with the packed one, and with the first handing over to the second.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cluster.disks.memory import FaultPlan, MemoryDisk, SimulatedCrash
from tests.validator.state.naive_state import NaiveState
from validator.primitives.types import Hash, Height
from validator.state import LogStateStore, StaleViewError, View
from validator.state.engine import Engine
from validator.state.engines.packed import PackedEngine
from validator.state.engines.plain import PlainEngine
from validator.state.interface import Batch
from validator.state.log import StateLog
from validator.state.proof import verify
from validator.storage.disk import DiskError

KEYS = [b"a", b"aa", b"ab", b"b", b"b\x00", b"\xff", b"\xff\xff", bytes(512), b"timer/1", b"timer/2"]
BATCHES = st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=3), max_size=6)
PICKS = st.integers(min_value=0, max_value=2**16)
OPERATIONS_OF_A_COMMIT = 3
SLACK = 40
RETAINED = 4
SMALL_SEGMENT = 9 * 1024
NEVER = 2**63


@dataclass(eq=False)
class Node:
    """A view, what it should hold, and what it was derived from."""

    view: View
    model: NaiveState
    parent: Node | None

    def descends_from(self, other: Node) -> bool:
        """Whether ``other`` is this node or stands below it."""
        node: Node | None = self
        while node is not None and node is not other:
            node = node.parent
        return node is other


@cache
def old_state() -> tuple[MemoryDisk, NaiveState, dict[int, NaiveState]]:
    """A committed state of few keys behind nearly a twig of inactive entries, and what its heights held."""
    disk, model = MemoryDisk(), NaiveState(SLACK)
    store = LogStateStore.open(disk, engine=PlainEngine(SLACK))
    history = {}
    many: dict[bytes, bytes | None] = {b"many" + i.to_bytes(2, "big"): b"" for i in range(1000)}
    batches: list[Batch] = [many, dict.fromkeys(KEYS, b"1"), dict.fromkeys(many, b"2"), dict.fromkeys(many)]
    for height, batch in enumerate(batches, start=1):
        model = history[height] = model.apply(batch, height)
        store.commit(store.final.derive(Height(height), batch))
    assert 2000 < len(model.tree.entries) < 2048
    store.close()
    return disk, model, history


class StoreMachine(RuleBasedStateMachine):
    """Every live node reads as its model does, and every other one raises."""

    packed_keys = NEVER

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.committed = NaiveState(SLACK)
        self.history: dict[int, NaiveState] = {}
        """What was committed, by height; of several blocks of a height the last."""
        self.open()

    @initialize(is_old=st.booleans())
    def begin(self, is_old: bool) -> None:
        """With an empty state, or with one whose first twig is about to be pruned."""
        if is_old:
            disk, self.committed, self.history = old_state()
            self.disk, self.history = deepcopy(disk), dict(self.history)
            self.open()

    def new_engine(self) -> Engine:
        return PlainEngine(SLACK)

    def open_store(self) -> LogStateStore:
        log = StateLog.open(self.disk, "state")
        log.segment_bytes = SMALL_SEGMENT
        return LogStateStore(log, self.new_engine(), RETAINED, self.packed_keys)

    def open(self) -> None:
        self.store = self.open_store()
        self.final = Node(self.store.final, self.committed, None)
        self.live = [self.final]
        self.stale: list[Node] = []

    def pick(self, pick: int) -> Node:
        return self.live[pick % len(self.live)]

    def retire(self, keep: Node, gone: bool) -> None:
        """Move to ``stale`` the nodes that descend from ``keep`` (``gone``), or those that do not."""
        self.stale += [node for node in self.live if node.descends_from(keep) == gone]
        self.live = [node for node in self.live if node.descends_from(keep) != gone]

    def derive(self, parent: Node, step: int, batch: dict[bytes, bytes | None]) -> Node:
        view = parent.view.derive(Height(parent.view.height + step), batch)
        node = Node(view, parent.model.apply(batch, view.height), parent)
        assert view.root == node.model.root
        return node

    @rule(pick=PICKS, step=st.integers(1, 2), batch=BATCHES)
    def put_and_delete(self, pick: int, step: int, batch: dict[bytes, bytes | None]) -> None:
        self.live.append(self.derive(self.pick(pick), step, batch))

    @rule(pick=PICKS, first=st.integers(0, 900), count=st.integers(1, 900), value=st.none() | st.binary(max_size=1))
    def put_or_delete_many(self, pick: int, first: int, count: int, value: bytes | None) -> None:
        batch = {b"many" + i.to_bytes(2, "big"): value for i in range(first, first + count)}
        self.live.append(self.derive(self.pick(pick), 1, batch))

    @rule(batches=st.lists(BATCHES, min_size=1, max_size=5), at_once=st.booleans())
    def extend(self, batches: list[dict[bytes, bytes | None]], at_once: bool) -> None:
        """Blocks on the final one, committed together or each on its own."""
        node = self.final
        for batch in batches:
            node = self.derive(node, 1, batch)
            self.live.append(node)
            if not at_once:
                self.commit_node(node)
        self.commit_node(node)

    @rule(pick=PICKS)
    def commit(self, pick: int) -> None:
        self.commit_node(self.pick(pick))

    def commit_node(self, node: Node) -> None:
        self.store.commit(node.view)
        self.retire(node, gone=False)
        self.final, self.committed = node, node.model
        self.remember(node)

    def remember(self, node: Node | None) -> None:
        """Note what the heights between a node and the final ones before it were."""
        while node is not None and node.view.height not in self.history:
            self.history[node.view.height] = node.model
            node = node.parent

    @rule(pick=PICKS, silently=st.booleans())
    def drop(self, pick: int, silently: bool) -> None:
        node = self.pick(pick)
        if node is self.final:
            return
        if silently:
            self.live.remove(node)
        else:
            self.store.drop(node.view)
            self.retire(node, gone=True)

    @rule(seed=PICKS, scattered=st.booleans())
    def crash_and_reopen(self, seed: int, scattered: bool) -> None:
        self.disk.crash(Random(seed), scattered)
        self.open()

    @rule()
    def close_and_reopen(self) -> None:
        self.store.close()
        for node in self.live:
            with pytest.raises(StaleViewError):
                node.view.get(b"a")
        self.open()

    @rule(pick=PICKS, at=st.integers(1, OPERATIONS_OF_A_COMMIT), stops=st.booleans(), seed=PICKS, loses=st.booleans())
    def commit_on_a_failing_disk(self, pick: int, at: int, stops: bool, seed: int, loses: bool) -> None:
        node = self.pick(pick)
        if node is self.final:
            return
        self.disk.plan = FaultPlan(self.disk.operations + at, stops)
        with pytest.raises((DiskError, SimulatedCrash)):
            self.store.commit(node.view)
        assert self.final.view.get(b"a") == self.final.model.items.get(b"a")
        if loses:
            self.disk.crash(Random(seed), scattered=bool(seed % 2))
        recovered = self.open_store().final
        assert recovered.height in (self.final.view.height, node.view.height)
        if recovered.height == node.view.height:
            self.committed = node.model
            self.remember(node)
        self.disk.crash(Random(seed))
        self.open()

    @rule(pick=PICKS)
    def rewind_and_reopen(self, pick: int) -> None:
        heights = sorted(height for height in self.history if height >= self.store.first_height)
        if not heights:
            return
        height = heights[pick % len(heights)]
        self.store.rewind(Height(height))
        self.committed = self.history[height]
        self.history = {each: model for each, model in self.history.items() if each <= height}
        self.open()
        assert self.store.final.height == height

    @rule(pick=PICKS, key=st.sampled_from([*KEYS, b"absent", b"many\x00\x05"]))
    def prove(self, pick: int, key: bytes) -> None:
        heights = sorted(height for height in self.history if height >= self.store.first_height)
        if heights:
            height = heights[pick % len(heights)]
            model = self.history[height]
            assert self.store.root_at(Height(height)) == model.root
            assert verify(Hash(model.root), key, self.store.prove(key, Height(height))) == model.items.get(key)

    @invariant()
    def the_final_view_is_the_model(self) -> None:
        assert self.store.final.root == self.committed.root
        assert dict(self.store.final.scan(b"")) == self.committed.items

    @invariant()
    def live_views_read_as_their_models(self) -> None:
        for node in self.live[-4:]:
            assert node.view.root == node.model.root
            items = node.model.items
            assert [node.view.get(key) for key in KEYS] == [items.get(key) for key in KEYS]
            assert list(node.view.scan(b"b")) == [item for item in items.items() if item[0].startswith(b"b")]

    @invariant()
    def stale_views_raise(self) -> None:
        for node in self.stale[-4:]:
            with pytest.raises(StaleViewError):
                node.view.get(b"a")


class PackedStoreMachine(StoreMachine):
    """The packed engine from the beginning."""

    def new_engine(self) -> Engine:
        return PackedEngine(SLACK)


class GrowingStoreMachine(StoreMachine):
    """The plain engine hands over to the packed one within the run."""

    packed_keys = 5


def run_of(machine: type[StoreMachine], examples: int) -> type:
    machine.TestCase.settings = settings(max_examples=examples, stateful_step_count=40, deadline=None, derandomize=True)
    return machine.TestCase


TestStoreMachine = pytest.mark.slow(run_of(StoreMachine, 30))
TestPackedStoreMachine = run_of(PackedStoreMachine, 30)
TestGrowingStoreMachine = pytest.mark.slow(run_of(GrowingStoreMachine, 30))
