"""Machines as the watches see them, without a run, and what a watch finds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster.scenario.model import LimitsSection
from cluster.simulation.observer import connect
from cluster.watches.watch import Choice, Watch
from tests.validator.network import Network
from validator.chain.messages import read_message


def make_machine(index: int = 0, **fields: Any) -> Any:
    """An honest validator's machine, which is up; ``fields`` are in addition, or instead."""
    node = SimpleNamespace(view=0, height=0, diverged=None)
    return SimpleNamespace(
        **{
            "index": index,
            "name": f"v{index}",
            "view": 0,
            "incarnation": 0,
            "byzantine": None,
            "is_twin": False,
            "deviation": None,
            "joining": None,
            "own_clock": SimpleNamespace(now_ms=0.0, awake_ms=0.0),
            "validator": SimpleNamespace(node=node, executor=None),
            **fields,
        }
    )


def set_view(machine: Any, view: int) -> None:
    machine.view = machine.validator.node.view = view


def set_time(machine: Any, now_ms: float) -> None:
    machine.own_clock.now_ms = machine.own_clock.awake_ms = now_ms


def make_settings(limits: LimitsSection | None = None, protocol: str = "hotstuff", **times: int) -> Any:
    """Of a scenario what watches read."""
    consensus = SimpleNamespace(protocol=protocol, **times)
    return SimpleNamespace(limits=limits or LimitsSection(), consensus=consensus)


class Told(list[tuple[str, bool, str]]):
    """What a watch told of rules: each one's name, whether it holds, and the words."""

    def look(self, rule: str, holds: bool, what: str) -> None:
        self.append((rule, holds, what))

    @property
    def verdicts(self) -> list[bool]:
        return [holds for _, holds, _ in self]

    def found(self, since: int = 0) -> list[str]:
        """What does not hold, of all that was told after so many."""
        return [what for _, holds, what in self[since:] if not holds]


def judged_by(watch: Watch, network: Network) -> Network:
    """The network, whose validators a watch judges."""
    for machine in network.machines:
        connect(machine, [Choice([watch], watch, range(network.count), read_message)])
    return network
