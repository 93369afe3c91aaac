"""The size of a state, on disk and in memory.

Memory is counted by the sizes of Python's objects, so the same run gives the same bytes on every machine.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np

from cluster.disks.memory import MemoryDisk
from validator.node.executor.executor import Executor

OF_THE_PROGRAM: Final = (type, ModuleType, FunctionType, BuiltinFunctionType)
"""The types of objects that are part of the program, not of its data. They are not counted."""


def sizes_of(executor: Executor) -> tuple[int, int]:
    """The bytes of the state's keys and values after the final block, and those of all objects that the executor holds.

    These include the state's caches and the scheduler's indexes, but not the data on disk.
    """
    state = sum(len(key) + len(value) for key, value in executor.final_view.scan(b""))
    return state, memory_bytes(executor, without=(MemoryDisk,))


def memory_bytes(root: object, without: Collection[type] = ()) -> int:
    """The total size in bytes of an object and of all objects reachable from it, each counted once.

    Types, modules, functions and instances of ``without`` are skipped, with all that is reachable only through them.
    Memory that extension modules other than NumPy hide from Python's garbage collector is not counted.
    """
    skipped = (*OF_THE_PROGRAM, *without)
    seen, waiting, total = {id(root)}, [root], 0
    while waiting:
        value = waiting.pop()
        total += sys.getsizeof(value)
        for each in _referents(value):
            if id(each) not in seen and not isinstance(each, skipped):
                seen.add(id(each))
                waiting.append(each)
    return total


def _referents(value: object) -> list[Any]:
    """The objects that an object refers to, including the base of a NumPy view, which the collector does not report."""
    if isinstance(value, np.ndarray) and value.base is not None:
        return [value.base]
    return gc.get_referents(value)
