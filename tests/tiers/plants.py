"""Planted bugs for a whole test session, and the record of which tests reach the code that they replace.

A mutant is planted in this process alone: a class that it derives, or a function that it replaces, stands wherever the
original did. Processes that a test starts run the original.
"""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import fields
from functools import wraps
from itertools import chain
from types import FunctionType, ModuleType
from typing import Any, Final

from cluster.misbehaviour.planted import EnginePatch, Planted, RunCounter
from consensus.protocols import PROTOCOLS
from kits.mutation import planting
from kits.mutation.bugs.harness import OF_THE_HARNESS
from kits.mutation.bugs.registry import OF_VALIDATORS
from kits.mutation.detection import all_bugs
from validator.node.assembly import PRODUCTION, Parts

CONTROL: Final = "control"
"""Not a bug: an empty subclass of every part. A test that fails with it says nothing of a mutant."""
PACKAGES: Final = ("consensus", "spec", "validator", "cluster", "loadgen", "stampede", "tests")
KEPT: Final = ("kits.mutation.bugs.", "tests.tiers.")
"""Modules that go on using the originals."""

Pair = tuple[Any, Any]
"""The original, and its replacement."""
Place = tuple[Any, str]


def plant(name: str) -> tuple[dict[int, Any], ExitStack]:
    """Plant a bug until the process ends; a bug of the harness is there as long as the stack is kept.

    Returns the replacements by the id of the original, too.
    """
    kept = ExitStack()
    if name in OF_THE_HARNESS:
        kept.enter_context(OF_THE_HARNESS[name].patch(RunCounter()))
        return {}, kept
    pairs = _control() if name == CONTROL else _pairs(OF_VALIDATORS[name])
    for original, replacement in pairs:
        _replace_everywhere(original, replacement)
    return {id(original): replacement for original, replacement in pairs}, kept


def watch_reach(seen: set[str]) -> None:
    """Wrap every function that mutants replace: a call adds the names of those mutants to ``seen``."""
    names: defaultdict[tuple[Any, str], set[str]] = defaultdict(set)
    for name in all_bugs():
        for place in places_of(name):
            names[place].add(name)
    for (owner, attribute), reached in names.items():
        _watch(owner, attribute, reached, seen)


def places_of(name: str) -> list[Place]:
    """The functions that a bug replaces: a class or a module each, and the name there."""
    if name in OF_THE_HARNESS:
        return _replaced_by(name)
    return [place for pair in _pairs(OF_VALIDATORS[name]) for place in _overridden(*pair)]


def _pairs(mutant: Planted) -> list[Pair]:
    """What a mutant of validators replaces."""
    counter = RunCounter()
    if isinstance(mutant.patch, EnginePatch):
        engine = PROTOCOLS[mutant.must_fail.protocol]
        return [(engine, mutant.patch.engine(engine, counter))]
    parts = mutant.patch.parts(counter)
    both = [(getattr(PRODUCTION, field.name), getattr(parts, field.name)) for field in fields(Parts)]
    return [pair for original, other in both if original is not other for pair in _with_nested(original, other)]


def _with_nested(original: Any, replacement: Any) -> Iterator[Pair]:
    """The pair, and those of the classes that the replacement has as its attributes, or in a dictionary there."""
    yield original, replacement
    if isinstance(replacement, type):
        own = replacement.__mro__[: replacement.__mro__.index(original)]
        for name, value in chain.from_iterable(vars(each).items() for each in own):
            nested = None if name.startswith("__") else getattr(original, name, None)
            pairs = [(nested[key], value[key]) for key in nested] if isinstance(nested, dict) else [(nested, value)]
            for one, other in pairs:
                if one is not other and isinstance(one, type) and isinstance(other, type):
                    yield from _with_nested(one, other)


def _control() -> list[Pair]:
    parts = [getattr(PRODUCTION, field.name) for field in fields(Parts)]
    originals = [part for part in (*parts, *PROTOCOLS.values()) if isinstance(part, type)]
    return [(original, type(original.__name__, (original,), {})) for original in originals]


# --- planting ---------------------------------------------------------------------------------------------------------


def _replace_everywhere(original: Any, replacement: Any) -> None:
    """Replace an object in modules, classes, dictionaries of modules and default arguments."""
    for module in list(sys.modules.values()):
        if not module.__name__.startswith(KEPT) and module.__name__.partition(".")[0] in PACKAGES:
            _replace_in(module, original, replacement)
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == module.__name__:
                    _replace_in(value, original, replacement)
    for field in fields(Parts):
        if getattr(PRODUCTION, field.name) is original:
            object.__setattr__(PRODUCTION, field.name, replacement)


def _replace_in(owner: ModuleType | type, original: Any, replacement: Any) -> None:
    for name, value in list(vars(owner).items()):
        function = _function_of(value)
        if value is original:
            setattr(owner, name, replacement)
        elif type(value) in (tuple, list) and any(held is original for held in value):
            setattr(owner, name, type(value)(replacement if held is original else held for held in value))
        elif isinstance(value, dict) and not name.startswith("__"):
            value.update({key: replacement for key, held in value.items() if held is original})
        elif isinstance(function, FunctionType):
            given = function.__defaults__ or ()
            if any(default is original for default in given):
                function.__defaults__ = tuple(replacement if default is original else default for default in given)


def _function_of(value: Any) -> Any:
    """The function behind a method or a property; any other value itself."""
    return value.fget if isinstance(value, property) else getattr(value, "__func__", value)


# --- reach ------------------------------------------------------------------------------------------------------------


def _overridden(original: Any, replacement: Any) -> list[Place]:
    """The functions that a replacement has in the place of the original's: who defines each, and its name."""
    if not isinstance(original, type):
        return [(sys.modules[original.__module__], original.__name__)]
    found = []
    mro = replacement.__mro__
    for name in dict.fromkeys(name for derived in mro[: mro.index(original)] for name in vars(derived)):
        value, owner = (
            inspect.getattr_static(replacement, name),
            next((base for base in original.__mro__ if name in vars(base)), object),
        )
        if callable(_function_of(value)) and not isinstance(value, type) and owner is not object:
            found.append((owner, name))
    return found


def _replaced_by(name: str) -> list[Place]:
    """The attributes that a mutant of the harness replaces."""
    places: list[Place] = []

    def note(owner: Any, attribute: str, value: Any) -> AbstractContextManager[None]:
        places.append((owner, attribute))
        return nullcontext()

    replaced, planting.replaced = planting.replaced, note  # type: ignore[assignment]
    try:
        with OF_THE_HARNESS[name].patch(RunCounter()):
            return places
    finally:
        planting.replaced = replaced


def _watch(owner: Any, name: str, reached: set[str], seen: set[str]) -> None:
    held = vars(owner)[name]
    original: Callable[..., Any] = _function_of(held)

    @wraps(original)
    def watched(*given: Any, **named: Any) -> Any:
        seen.update(reached)
        return original(*given, **named)

    if isinstance(owner, type):
        setattr(owner, name, watched if held is original else type(held)(watched))
    else:
        _replace_everywhere(original, watched)
