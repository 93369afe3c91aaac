"""The store against a dict and a naive tree: derive, fork, drop, commit, failing disks, crash, reopen."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cluster.simulation.disk import FaultPlan, MemoryDisk, SimulatedCrash
from tests.validator.state.naive_state import NaiveState
from validator.disk import DiskError
from validator.state import LogStateStore, StaleViewError, View
from validator.state.plain import PlainEngine
from validator.state.proof import verify
from validator.types import Hash, Height

KEYS = [b"a", b"aa", b"ab", b"b", b"b\x00", b"\xff", b"\xff\xff", bytes(512), b"timer/1", b"timer/2"]
BATCHES = st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=3), max_size=6)
PICKS = st.integers(min_value=0, max_value=2**16)
OPERATIONS_OF_A_COMMIT = 3
SLACK = 40


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


class StoreMachine(RuleBasedStateMachine):
    """Every live node reads as its model does, and every other one raises."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.committed = NaiveState(SLACK)
        self.history: dict[int, NaiveState] = {}
        """What was committed, by height; of several blocks of a height the last."""
        self.open()

    def open(self) -> None:
        self.store = LogStateStore.open(self.disk, engine=PlainEngine(SLACK))
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

    @rule(pick=PICKS)
    def commit(self, pick: int) -> None:
        node = self.pick(pick)
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
        recovered = LogStateStore.open(self.disk, engine=PlainEngine(SLACK)).final.root
        assert recovered in (self.committed.root, node.model.root)
        self.committed = self.committed if recovered == self.committed.root else node.model
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


StoreMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None, derandomize=True)
TestStoreMachine = StoreMachine.TestCase
