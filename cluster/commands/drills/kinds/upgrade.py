"""``upgrade``: validators are upgraded one by one while the chain makes progress; old and new version must agree.

The new version is the same code under another name. On the live testnet it may be the code of another checkout:
``--set faults[0].code=FOLDER``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final

from cluster.audit.books import Books
from cluster.commands.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, option
from cluster.commands.drills.expectations import STRAIGHT_REPLAY, TIMERS_ONCE, together, unmet
from cluster.common.outcome import Outcome
from cluster.faults.kinds.upgrade import UpgradeFault
from cluster.record.run import FaultRecord
from cluster.scenario import Scenario
from cluster.scenario.sections.base import KEYWORDS

AT_HEIGHT: Final = 10
VERSION: Final = "2"
HEIGHTS_PER_VALIDATOR: Final = 8
"""Minimum heights for the upgrade of one validator."""


@dataclass(frozen=True)
class Upgrade(Drill):
    name: ClassVar[str] = "upgrade"
    summary: ClassVar[str] = "validators get a new version one by one while the chain makes progress"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(4, "number of validators", least=4, most=64)
    heights_between: int = option(3, "heights that each finalises before the next upgrade", most=100)
    stall_ms: int = option(30_000, "longest time without a final block", least=100, most=600_000)

    def scenario(self) -> Scenario:
        fault: dict[str, Any] = {
            "kind": "upgrade",
            "at_height": AT_HEIGHT,
            "version": VERSION,
            "heights_between": self.heights_between,
        }
        height = AT_HEIGHT + self.validators * (HEIGHTS_PER_VALIDATOR + self.heights_between)
        return self.build(
            validators={"count": self.validators},
            consensus={"protocol": self.protocol},
            faults=[fault],
            stop={"height": height, "drain_blocks": 5, "timeout_s": TIMEOUT_S + 10 * self.validators},
            success={"heights_compared": height - 5, "transactions": 20, "fires": 50, "stall_ms": self.stall_ms},
        )

    def expectations(self, scenario: Scenario) -> list[Expectation]:
        return [
            Expectation(
                "upgraded",
                f"every validator ends with the new version, and the chain never stalls for"
                f" {scenario.success.stall_ms:,} ms",
                self._judge_upgraded,
            ),
            STRAIGHT_REPLAY,
            TIMERS_ONCE,
        ]

    @staticmethod
    def _judge_upgraded(books: Books) -> Judgement:
        record, upgrades = books.record, _upgrades(books)
        if not upgrades:
            return Outcome.INCONCLUSIVE, "the scenario has no upgrade"
        begun = [(plan, fault) for plan, fault in upgrades if fault.begun_ms is not None]
        if not begun:
            return Outcome.INCONCLUSIVE, "the upgrade never began"
        if problems := [fault.problem for _, fault in begun if fault.problem]:
            return Outcome.FAIL, problems[0]
        expected = {name: plan.version for plan, fault in begun for name in _expected_targets(books, plan, fault)}
        found = {each.name: each.status for each in record.validators}
        old = [name for name, version in expected.items() if (found.get(name) or {}).get("version") != version]
        if silent := [name for name in old if found.get(name) is None]:
            return Outcome.INCONCLUSIVE, f"{', '.join(silent)} did not report its version"
        if old:
            return unmet(books), f"{', '.join(old)} ended without version {expected[old[0]]}"
        if len(begun) < len(upgrades) or any(fault.ended_ms is None for _, fault in begun):
            return Outcome.INCONCLUSIVE, "the upgrade was not over at the end"
        if others := [name for name in record.scenario.validators.names if name not in expected]:
            return Outcome.INCONCLUSIVE, f"{', '.join(others)} was not to get another version, or was absent"
        return together([_judge_pace(books, plan, fault) for plan, fault in begun])


def _upgrades(books: Books) -> list[tuple[UpgradeFault, FaultRecord]]:
    """The run's upgrades and their records, in the order of their begin."""
    record = books.record
    planned = zip(record.scenario.planned_faults, record.faults, strict=False)
    found = [(plan, fault) for plan, fault in planned if isinstance(plan, UpgradeFault)]
    return sorted(found, key=lambda pair: math.inf if pair[1].begun_ms is None else pair[1].begun_ms)


def _expected_targets(books: Books, plan: UpgradeFault, fault: FaultRecord) -> list[str]:
    """The validators that must end with the version: the planned ones, or the actual targets of a finished upgrade."""
    if fault.ended_ms is not None or (plan.target is not None and plan.target[0] in KEYWORDS):
        return list(fault.targets)
    return books.record.scenario.validators.names if plan.target is None else list(plan.target)


def _judge_pace(books: Books, plan: UpgradeFault, fault: FaultRecord) -> Judgement:
    """Judge the chain's progress during a completed upgrade."""
    begun_ms, ended_ms = fault.begun_ms or 0.0, fault.ended_ms or 0.0
    first = sorted(books.record.first_finalizations.values())
    during = [begun_ms, *(at for at in first if begun_ms < at < ended_ms), ended_ms]
    longest = max(later - earlier for earlier, later in pairwise(during))
    text = (
        f"{len(fault.targets)} validators got version {plan.version} in {ended_ms - begun_ms:,.0f} ms;"
        f" {len(during) - 2} heights became final meanwhile, at most {longest:,.0f} ms apart"
    )
    return (Outcome.PASS if longest <= books.record.scenario.success.stall_ms else Outcome.FAIL), text
