"""Ahead-of-time compilation of code that is otherwise compiled at first use.

Run it once after an installation: ``python -m cluster.commands.cli.warm_up``.

Numba stores compiled code next to the source. Without the warm-up, the first validator that grows past a few thousand
keys would compile for many seconds in the middle of a block, and its peers would count it as silent. Python stores
bytecode next to the source, too, except where the environment forbids it (``PYTHONDONTWRITEBYTECODE``, as in many
images). There each host of a testnet would compile all modules at every start.
"""

from __future__ import annotations

from compileall import compile_dir
from typing import Final

import numpy as np

from cluster.common.checkout import ROOT
from cluster.disks.memory import MemoryDisk
from cluster.scenario import Scenario
from cluster.watches.watched_simulation import simulate
from validator.primitives.types import Height
from validator.scheduler.overflow import OverflowTree
from validator.scheduler.rows import ROW
from validator.state import LogStateStore
from validator.state.engines.packed import PackedEngine
from validator.state.interface import Batch

HEIGHTS: Final = 12
KEYS: Final = 300
STATE_HEIGHTS: Final = 10
COMPACTED: Final = 600
"""Height at which the state log has enough dead entries for compaction: old live entries are appended again."""

SCENARIO: Final = {
    "name": "warm-up",
    "validators": 1,
    "consensus": {"block_interval_ms": 20},
    "chain": {"params": {"RING_BUFFER_SIZE": 4, "EPOCH_LENGTH": 4, "EPOCH_HORIZON": 1}},
    "load": {
        "users": [
            {"workload": "flood", "count": 2, "interval_ms": 20, "options": {"timers": 20, "spread_blocks": 40}},
            {"workload": "churn", "count": 2, "interval_ms": 20},
        ]
    },
    "stop": {"height": HEIGHTS * 4, "drain_blocks": 0},
}
"""Fields of the scenario that :func:`warm_up` simulates. It has timers in every tier, some of which are cancelled."""

PACKAGES: Final = ("cluster", "consensus", "kits", "loadgen", "spec", "validator")
"""The packages that processes of a testnet load."""


def compile_sources() -> None:
    """Compile all modules to bytecode files, for processes that do not write these themselves. Ignores failures."""
    for package in PACKAGES:
        compile_dir(ROOT / package, quiet=2)


def warm_up() -> None:
    """Execute all code that Numba compiles, so that Numba stores the compiled code."""
    simulate(Scenario.model_validate(SCENARIO), 1)
    disk = MemoryDisk()
    store = LogStateStore.open(disk, engine=PackedEngine(slack=20))
    for height in range(1, STATE_HEIGHTS):
        batch: Batch = {b"%d" % i: None if (i + height) % 3 == 0 else b"%d" % height for i in range(KEYS)}
        fork = store.final.derive(Height(height), {b"fork": b"", **batch})
        store.commit(store.final.derive(Height(height), batch))
        store.prove(b"1")
        assert fork.root != store.final.root, "another batch, another root"
    for height in range(STATE_HEIGHTS, COMPACTED):
        store.commit(store.final.derive(Height(height), {b"1": b"%d" % height}))
    store.close()
    again = LogStateStore.open(disk, engine=PackedEngine(slack=20))
    again.prove(b"absent")
    list(again.final.scan(b"1"))
    again.close()
    tree = OverflowTree()
    for sequence in range(4):
        row = np.zeros(1, ROW)
        row["trigger"], row["sequence"] = sequence, sequence
        tree.add(row)
    tree.cut_off(1, 2)
    tree.put_back(1)


if __name__ == "__main__":
    compile_sources()
    warm_up()
