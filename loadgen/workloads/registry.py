"""The workloads of scenarios, by name. A process loads those that it asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from itertools import chain
from typing import Any, Final

from loadgen.workloads.attacks.registry import ATTACKS
from loadgen.workloads.base import Workload
from validator.primitives.offered import Unusable, expect_class, offered
from validator.primitives.user_file import UserFileError

USUAL: Final = {
    "heartbeat": "heartbeat.Heartbeat",
    "flood": "flood.Flood",
    "churn": "churn.Churn",
    "transfer": "transfer.Transfer",
    "limits": "limits.Limits",
    "program": "program.Program",
    "runner": "runner.Runner",
    "governance": "governance.Governance",
    "watch": "watch.Watch",
}
"""The class of each workload that is no attack, below this package, by name."""

GROUP: Final = "stampede.workloads"
"""The group of entry points by which installed packages add workloads."""


class WorkloadError(UserFileError):
    """A workload that does not ship is invalid, or has raised an exception."""


class _Shipped(Mapping[str, type[Workload[Any]]]):
    """The workloads that ship, which are loaded when they are asked for."""

    _places: Final = USUAL | ATTACKS

    def __getitem__(self, name: str) -> type[Workload[Any]]:
        module, _, kind = self._places[name].rpartition(".")
        found: type[Workload[Any]] = getattr(import_module(f"{__package__}.{module}"), kind)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class _Workloads(Mapping[str, type[Workload[Any]]]):
    """The workloads that ship, and those of installed packages, which are loaded when they are asked for."""

    def __init__(self) -> None:
        self.shipped: Final = _Shipped()

    @cached_property
    def _installed(self) -> dict[str, list[EntryPoint]]:
        points = entry_points(group=GROUP)
        return {name: [*points.select(name=name)] for name in points.names if name not in self.shipped}

    def __getitem__(self, name: str) -> type[Workload[Any]]:
        """Raises :class:`KeyError` for an unknown name, and :class:`WorkloadError` for an invalid class."""
        return self.shipped[name] if name in self.shipped else _loaded(name, self._installed[name])

    def __contains__(self, name: object) -> bool:
        return name in self.shipped or name in self._installed

    def __iter__(self) -> Iterator[str]:
        return chain(self.shipped, sorted(self._installed))

    def __len__(self) -> int:
        return len(self.shipped) + len(self._installed)


def _loaded(name: str, points: list[EntryPoint]) -> type[Workload[Any]]:
    take = partial(expect_class, base=Workload, name=name, name_of=lambda found: getattr(found, "name", None))  # type: ignore[type-abstract]
    try:
        return offered(points[-1], take, is_taken=len(points) > 1)
    except Unusable as error:
        raise WorkloadError(str(error)) from error


WORKLOADS: Final = _Workloads()
"""Workloads by name. A new one is one file and one entry here, or in :mod:`loadgen.workloads.attacks.registry`."""
