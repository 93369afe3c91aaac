"""The memory of Python objects, counted: the same run gives the same number of bytes on each machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np

OF_THE_PROGRAM: Final = (type, ModuleType, FunctionType, BuiltinFunctionType)
"""What the process has once, however much it holds."""


def memory_bytes(root: object, without: Collection[type] = ()) -> int:
    """Bytes of an object and of all that it refers to, each object once; neither types, modules and functions, nor
    instances of ``without`` and what is reached through them alone.

    Not counted: what objects of extension modules hold without telling Python's garbage collector, other than NumPy.
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
    """What an object refers to. An array does not tell of the one whose memory it shows."""
    if isinstance(value, np.ndarray) and value.base is not None:
        return [value.base]
    return gc.get_referents(value)
