"""The calls to come of a fault engine, as plain data: another process can make them.

The engine gives its stage a :class:`Call`. What is to be done says only which fault it is about, by number; the engine
finds the fault when the call is made (:meth:`~cluster.faults.engine.FaultEngine.perform`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from cluster.faults.stage import Then

T = TypeVar("T")


class Begin(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A planned fault begins."""

    planned: int
    """Its number among all that were ever planned."""


class End(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A fault ends."""

    key: int
    """Its number among all that began; so in what follows."""


class InForce(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A fault is in force everywhere."""

    key: int


class NoteEnd(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A fault is taken back everywhere."""

    key: int


class Restart(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A fault lets validators run again."""

    key: int
    indices: list[int]


class StartValidator(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A validator gets another disk, and is started."""

    index: int


class EndThoseBack(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The faults end whose validators are up again."""


class UpgradeNext(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """An upgrade goes on with its next host."""

    key: int


class UpgradeStart(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """An upgrade starts the validators of a host with the new code."""

    key: int
    group: list[int]


FaultCall = Begin | End | InForce | NoteEnd | Restart | StartValidator | EndThoseBack | UpgradeNext | UpgradeStart


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A call to come: ``perform(what)``, of which ``what`` is plain data."""

    perform: Callable[[T], None]
    what: T

    def __call__(self) -> None:
        self.perform(self.what)


def nothing() -> None:
    """Nobody waits."""


def what_of(then: Then) -> Any:
    """What a call to come does, as plain data; ``None`` for :func:`nothing`.

    Raises :class:`TypeError` for any other function: another process could not make the call.
    """
    if then is nothing:
        return None
    if not isinstance(then, Call):
        raise TypeError(f"a call to come that cannot be written down: {then!r}")
    return then.what
