"""Compiled kernels for a process that cannot write to its installation, such as an image with a read-only root.

Numba keeps compiled code next to the source only if it can write there. Otherwise it uses only the user's cache
(``numba/core/caching.py``), which is empty at first: each process would compile for many seconds in the middle of a
block. This cache also reads the code that ``python -m cluster.commands.cli.warm_up`` left next to the source. Missing
code, such as for another processor, is compiled and kept in the user's cache. It changes nothing where numba keeps code
next to the source, or in the folder that ``NUMBA_CACHE_DIR`` names.

The module imports the compiler: :mod:`validator.primitives.compiled` imports it for the first kernel.
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


def use_installed(kernel: Any) -> None:
    """Have a dispatcher read the installation's code, unless it keeps its code there."""
    if _is_kept_for_the_user(kernel._cache):
        kernel._cache = InstalledCache(kernel.py_func)


def _is_kept_for_the_user(kept: Any) -> bool:
    return isinstance(kept, FunctionCache) and isinstance(kept._impl.locator, UserWideCacheLocator)
