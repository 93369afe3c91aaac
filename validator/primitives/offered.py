"""The gate that all passes which installed packages offer by entry points."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from inspect import isabstract, isclass
from typing import Any, TypeVar

T = TypeVar("T")


class Unusable(ValueError):
    """What a package offers cannot be used. The message is one line; the cause is the exception behind it."""


def offered(point: EntryPoint, take: Callable[[Any], T], is_taken: bool = False) -> T:
    """What an entry point offers, as ``take`` returns it, which raises an exception for what does not fit.

    Raises :class:`Unusable`, with the package, if it cannot be loaded or does not fit, or its name is taken.
    """
    try:
        if is_taken:
            raise ValueError("the name is taken; expected another one")
        return take(point.load())
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        named = f"{package_of(point)}: {point.value}, its {point.group} {point.name}"
        raise Unusable(f"{named}, cannot be used: {reason}") from error


def package_of(point: EntryPoint) -> str:
    """The name of the package that has an entry point."""
    return "a package" if point.dist is None else point.dist.name


def expect_class(found: Any, base: type[T], name: object = None, name_of: Callable[[Any], object] = repr) -> type[T]:
    """``found``, if it is a subclass of ``base`` and, if a name is given, has that one. Raises :class:`ValueError`."""
    if not isclass(found) or not issubclass(found, base) or isabstract(found):
        raise ValueError(f"expected a subclass of {base.__name__}, got {found!r}")
    if name is not None and name_of(found) != name:
        raise ValueError(f"expected a class whose name is {name!r}, got {found!r}")
    return found
