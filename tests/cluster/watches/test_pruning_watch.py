"""Who prunes a block that it is to keep, or that somebody else needs, is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster.record.rules import SafetyRule
from cluster.watches.kept_watch import PruningWatch
from tests.cluster.watches.seen import make_machine

KEPT = 10
ME = 1
FINAL: Any = None
"""The event itself says nothing of what is kept."""


class Pruned:
    """The watch of a validator whose disk keeps so many blocks."""

    def __init__(self, keep_blocks: int | None = KEPT) -> None:
        self.told: list[str] = []
        self.watch = PruningWatch(["v0", "v1"], self._look, keep_blocks)

    def _look(self, rule: str, holds: bool, what: str) -> None:
        assert rule == SafetyRule.PRUNING
        if not holds:
            self.told.append(what)

    def look(self, first: int, final: int = 40, prunable: int = 0, joined: int = 0) -> list[str]:
        """The findings about a disk with the blocks above height ``first`` up to ``final``."""
        before = len(self.told)
        self.tell(prunable)
        self.finalize(first, final, prunable, joined)
        return self.told[before:]

    def tell(self, prunable: int) -> None:
        """With a final block the validator is told up to which height others have its blocks."""
        self.finalize(0, 0, prunable, 0)

    def finalize(self, first: int, final: int, prunable: int, joined: int) -> None:
        archive = SimpleNamespace(first_height=first, joined_height=joined)
        executor = SimpleNamespace(
            archive=archive, final_header=SimpleNamespace(height=final), prunable_height=prunable
        )
        self.watch.performs(make_machine(ME, validator=SimpleNamespace(executor=executor)), FINAL)

    def recover(self, height: int) -> None:
        executor = SimpleNamespace(recovered_height=height)
        self.watch.opens(make_machine(ME, validator=SimpleNamespace(executor=executor)))


def test_who_keeps_all_blocks_prunes_none() -> None:
    pruned = Pruned(keep_blocks=None)
    assert pruned.look(0, prunable=30) == []
    assert pruned.look(1, prunable=30) == [
        "v1 has blocks from height 2 on, and must from 1 on",
    ]
    assert pruned.look(16, joined=16) == [], "it joined by the snapshot of height 16"
    assert len(pruned.look(17, joined=16)) == 1


def test_the_newest_blocks_stay() -> None:
    assert Pruned().look(30, prunable=40) == []
    assert Pruned().look(31, prunable=40) == [
        "v1 has blocks from height 32 on, and must from 31 on",
    ]


def test_what_somebody_needs_stays() -> None:
    pruned = Pruned()
    assert pruned.look(20, prunable=20) == []
    assert pruned.look(20, prunable=7) == [], "what is gone was not needed when it went"
    assert len(pruned.look(21, prunable=7)) == 1
    assert pruned.look(21, prunable=21) == []


def test_what_a_commit_pruned_that_nobody_heard_of_was_allowed() -> None:
    pruned = Pruned()
    assert pruned.look(19, final=29, prunable=28) == []
    pruned.tell(28)
    pruned.recover(30)
    assert pruned.look(20, final=31) == [], "it pruned with block 30"
    assert pruned.look(21, final=31) == ["v1 has blocks from height 22 on, and must from 21 on"]


def test_a_new_life_was_told_nothing_yet() -> None:
    pruned = Pruned()
    pruned.tell(28)
    pruned.recover(20)
    pruned.recover(36)
    assert len(pruned.look(11, final=36)) == 1
