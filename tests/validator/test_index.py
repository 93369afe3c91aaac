"""The scheduler's index along random branches: forward and back by changes, always equal to a rebuild from state."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.validator.chain import ACTORS, PROPOSER, RICH, SMALL, Chain, make_genesis, prepare, schedule
from validator.scheduler.index import SchedulerIndex
from validator.state import View
from validator.transition import BlockContext, Transition
from validator.types import Height
from validator.world import Change

OPERATIONS = st.lists(st.sampled_from(["one", "many", "cancel", "extend", "none"]), max_size=4)


@dataclass(eq=False)
class Node:
    """A block: its state, what it changed, and what it stands on."""

    view: View
    changes: list[Change]
    parent: Node | None
    nonce: int

    def line(self) -> list[Node]:
        """From the first block to this one."""
        return [*(self.parent.line() if self.parent else []), self]


class IndexMachine(RuleBasedStateMachine):
    """Blocks grow on random parents; the index jumps between them."""

    kind: type[SchedulerIndex] = SchedulerIndex

    def __init__(self) -> None:
        super().__init__()
        genesis = make_genesis({**SMALL, "FAIRNESS_WINDOW_BLOCKS": 2}, actors=dict.fromkeys(ACTORS, RICH))
        self.chain = Chain(genesis)
        self.index = self.kind()
        self.index.advance(rebuild_changes(self.chain.view))
        self.nodes = [Node(self.chain.view, [], None, 0)]
        self.here = self.nodes[0]

    @rule(parent=st.integers(0, 10**6), kinds=OPERATIONS, seed=st.integers(0, 10**6))
    def grow(self, parent: int, kinds: list[str], seed: int) -> None:
        self.move_to(self.nodes[parent % len(self.nodes)])
        random, operations = Random(seed), []
        for kind in kinds:
            delay, key = random.randrange(1, 4), random.choice("ab")
            operations += {
                "one": [schedule(delay, save_as=key)],
                "many": [schedule(delay, ["burn", 6_000]) for _ in range(4)],
                "cancel": [["try", ["cancel", {"saved": key}]]],
                "extend": [["try", ["extend", {"saved": key, "expires_at": 10**9}]]],
                "none": [],
            }[kind]
        call = self.chain.call(*operations, actor=random.choice(ACTORS), nonce=self.here.nonce)
        context = BlockContext(Height(self.here.view.height + 1), PROPOSER, self.chain.parameters)
        outcome = Transition(self.here.view, self.index, context).apply([prepare(call, seed)])
        self.nodes.append(Node(outcome.view, outcome.changes, self.here, self.here.nonce + 1))

    @rule(place=st.integers(0, 10**6))
    def jump(self, place: int) -> None:
        self.move_to(self.nodes[place % len(self.nodes)])

    @invariant()
    def equals_a_rebuild(self) -> None:
        assert self.index.contents() == SchedulerIndex.rebuild(self.here.view).contents()
        height = self.here.view.height + 1
        due = self.index.due(height)
        assert due == [timer for timer in self.index.contents()[0] if timer.trigger_height <= height]
        assert self.index.backlog(height) == len(due)

    def move_to(self, node: Node) -> None:
        here, there = self.here.line(), node.line()
        shared = sum(1 for one, other in zip(here, there, strict=False) if one is other)
        for block in reversed(here[shared:]):
            self.index.retreat(block.changes)
        for block in there[shared:]:
            self.index.advance(block.changes)
        self.here = node


def rebuild_changes(view: View) -> list[Change]:
    assert SchedulerIndex.rebuild(view).contents() == ([], [])
    return []


SETTINGS = settings(max_examples=60, stateful_step_count=15, deadline=None, derandomize=True)
IndexMachine.TestCase.settings = SETTINGS
TestIndex = IndexMachine.TestCase


class ForgetsToUncount(SchedulerIndex):
    def retreat(self, changes: list[Change]) -> None:
        super().retreat(change for change in changes if change.key[:1] == b"t")


class ForgetsTheOldRecord(SchedulerIndex):
    def _remove_timer(self, timer: object) -> None:
        pass


@pytest.mark.parametrize("fault", [ForgetsToUncount, ForgetsTheOldRecord])
def test_a_broken_index_is_caught(fault: type[SchedulerIndex]) -> None:
    machine = type("Broken", (IndexMachine,), {"kind": fault})
    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(machine, settings=settings(SETTINGS, phases=[Phase.generate]))
