"""Functions that numba compiles at their first call, or loads from the cache of an earlier process.

A process that only imports such a function loads no compiler: the driver of a testnet never calls one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def load_compiler() -> None:
    """Load what the first call of a kernel would load: it takes most of a processor second."""
    import numba  # noqa: F401


def dispatcher_of(function: Function, forceinline: bool = False) -> Function:
    """What numba calls in place of a function. It has no cache if no folder of one is writable."""
    import numba

    from validator.primitives.installed_cache import use_installed

    try:
        made = numba.njit(function, nogil=True, cache=True, forceinline=forceinline)
    except RuntimeError:  # neither the folder of the function's file nor the user's cache is writable
        made = numba.njit(function, nogil=True, forceinline=forceinline)
    use_installed(made)
    return cast(Function, made)


class Kernel:
    """A function that may be called by Python and by other kernels. :attr:`dispatcher` is made for the first call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @cached_property
    def dispatcher(self) -> Any:
        return dispatcher_of(self.function)

    @property
    def _numba_type_(self) -> Any:
        """The dispatcher's type, by which numba compiles a call in another kernel."""
        return self.dispatcher._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        return self.dispatcher(*arguments)


def compiled(function: Function) -> Function:
    """Decorator: compile a function once it is called."""
    return cast(Function, Kernel(function))
