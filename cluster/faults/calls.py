"""A fault engine's future calls as plain data, so that another process can make them.

The engine gives its stage a :class:`Call`. Its data names the fault only by number; the engine finds the fault when the
call is made (:meth:`~cluster.faults.engine.FaultEngine.perform`).
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
    """The fault's number among all that were ever planned."""


class End(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A fault ends."""

    key: int
    """The fault's number among all that began; likewise in the classes below."""


class InForce(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A fault is in force everywhere."""

    key: int


class NoteEnd(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A fault is undone everywhere."""

    key: int


class Restart(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A fault lets validators run again."""

    key: int
    indices: list[int]


class StartValidator(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A validator gets a new disk, and is started."""

    index: int


class EndThoseBack(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """End the faults whose validators are up again."""


class UpgradeNext(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """An upgrade continues with its next host."""

    key: int


class UpgradeStart(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """An upgrade starts the validators of a host with the new code."""

    key: int
    group: list[int]


FaultCall = Begin | End | InForce | NoteEnd | Restart | StartValidator | EndThoseBack | UpgradeNext | UpgradeStart


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A future call ``perform(what)``, where ``what`` is plain data."""

    perform: Callable[[T], None]
    what: T

    def __call__(self) -> None:
        self.perform(self.what)


def nothing() -> None:
    """For orders whose completion the caller does not await."""


def what_of(then: Then) -> Any:
    """The data of a future call; ``None`` for :func:`nothing`.

    Raises :class:`TypeError` for any other function: another process could not make the call.
    """
    if then is nothing:
        return None
    if not isinstance(then, Call):
        raise TypeError(f"a call to come that cannot be written down: {then!r}")
    return then.what
