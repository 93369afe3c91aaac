"""Numba's cache of compiled code, which also reads the code that an installation has next to the source.

The module imports the compiler: only what has loaded it already imports this (:mod:`cluster.disks.installed_kernels`).
"""

from __future__ import annotations

import inspect
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile, InTreeCacheLocator, UserWideCacheLocator


class InstalledCache(FunctionCache):
    """Numba's cache of the compiled code of a function, which also reads the cache next to the source."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        installed = InTreeCacheLocator(function, inspect.getfile(function))
        stamp, name = installed.get_source_stamp(), self._impl.filename_base
        self._installed = IndexDataCacheFile(installed.get_cache_path(), name, stamp)

    def _load_overload(self, signature: Any, target: Any) -> Any:
        found = super()._load_overload(signature, target)
        if found is not None:
            return found
        data = self._installed.load(self._index_key(signature, target.codegen()))
        return None if data is None else self._impl.rebuild(target, data)


def use(kernel: Any) -> None:
    """Have a dispatcher read the installation's code, unless it keeps its own there."""
    if _is_kept_for_the_user(kernel._cache):
        kernel._cache = InstalledCache(kernel.py_func)


def _is_kept_for_the_user(kept: Any) -> bool:
    return isinstance(kept, FunctionCache) and isinstance(kept._impl.locator, UserWideCacheLocator)
