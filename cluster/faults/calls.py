"""A fault engine's future calls as plain data: a call names the fault only by number."""

from __future__ import annotations

import msgspec


class Begin(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that begins a planned fault."""

    planned: int
    """The fault's number among all that were ever planned."""


class End(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that ends a fault."""

    key: int
    """The fault's number among all faults that began. The field ``key`` of the classes below is the same number."""


class InForce(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that notes that a fault is in force everywhere."""

    key: int


class NoteEnd(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that notes that a fault is undone everywhere, and completes its record."""

    key: int


class Restart(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call with which a fault lets validators run again. They start unless another fault holds them down."""

    key: int
    indices: list[int]


class StartValidator(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that starts a validator whose disk was replaced."""

    index: int


class UpgradeNext(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that continues an upgrade with its next host."""

    key: int


class UpgradeStart(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call that starts the validators of an upgraded host with the new code."""

    key: int
    group: list[int]


class GoOn(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The call with which a fault of any kind goes on, as it has planned."""

    key: int


FaultCall = Begin | End | InForce | NoteEnd | Restart | StartValidator | UpgradeNext | UpgradeStart | GoOn
