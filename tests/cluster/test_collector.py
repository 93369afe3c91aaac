"""A process of the harness collects less often. What lives as a host begins is out of the collector's sight."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from cluster import COLLECTOR_THRESHOLDS, set_heap_apart


@pytest.fixture
def collector() -> Iterator[None]:
    """What is set apart here is all that lives, and is taken back."""
    gc.unfreeze()
    yield
    gc.unfreeze()


class Node:
    """Something that can be in a cycle."""

    me: Node


def cycle() -> weakref.ref[Node]:
    node = Node()
    node.me = node
    return weakref.ref(node)


def test_what_lives_is_set_apart_and_what_was_garbage_is_gone(collector: None, monkeypatch: pytest.MonkeyPatch) -> None:
    old, before, read, counts = cycle(), gc.get_freeze_count(), gc.get_freeze_count, list[int]()

    def noted() -> int:
        """The count as it is read: threads of earlier tests may free a few objects before a second look."""
        counts.append(read())
        return counts[-1]

    monkeypatch.setattr(gc, "get_freeze_count", noted)
    assert set_heap_apart() == counts[-1] > before + 10_000
    assert old() is None
    assert gc.isenabled()


def test_cycles_that_come_later_are_still_collected(collector: None) -> None:
    """Threads of earlier tests may make and free containers meanwhile: the second generation is looked at, too."""
    set_heap_apart()
    later, kept = cycle(), list[list[int]]()
    while later() is not None and len(kept) < 2 * COLLECTOR_THRESHOLDS[0] * COLLECTOR_THRESHOLDS[1]:
        kept.append([])
    assert later() is None


@pytest.mark.parametrize("module", ["cluster", "cluster.live.host.host", "cluster.simulation.driver"])
def test_the_thresholds_are_set_by_the_first_import(module: str) -> None:
    code = f"import gc; import {module}; print(gc.get_threshold(), gc.isenabled())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == f"{COLLECTOR_THRESHOLDS} True"
