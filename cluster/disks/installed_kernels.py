"""Compiled kernels for a process that cannot write to its installation, such as an image with a read-only root.

Numba keeps compiled code next to the source only if it can write there. Otherwise it uses only the user's cache
(``numba/core/caching.py``), which is empty at first: each process would compile for many seconds in the middle of a
block. This module also reads the code that ``python -m cluster.commands.cli.warm_up`` left next to the source. Missing
code, such as for another processor, is compiled and kept in the user's cache.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from validator.primitives.compiled import on_dispatcher


@cache
def use_installed_kernels() -> None:
    """Let this process read the installation's compiled kernels.

    Call it before the first kernel runs and before :mod:`validator.state.engines.kernels` is imported, which makes its
    dispatchers at once: those that exist already are not changed.

    It has no effect if numba keeps them next to the source, or in the folder that ``NUMBA_CACHE_DIR`` names.
    """
    on_dispatcher.append(_use)


def _use(kernel: Any) -> None:
    from cluster.disks.installed_cache import use  # the compiler, which has made the kernel

    use(kernel)
