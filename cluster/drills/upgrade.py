"""``upgrade``: a new version comes in validator by validator, while the chain goes on and old and new execute alike.

The new version is the same code under another name. On the live testnet it may be another checkout's:
``--set faults[0].code=FOLDER``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final

from cluster.books import Books
from cluster.drills.base import TIMEOUT_S, Drill, Expectation, Judgement, names_of, option
from cluster.drills.expected import straight_replay, timers_once
from cluster.measures import first_finalizations
from cluster.scenario import Scenario
from cluster.verdict import Outcome

AT_HEIGHT: Final = 10
VERSION: Final = "2"
HEIGHTS_A_VALIDATOR: Final = 8
"""Heights that it takes to get one validator upgraded, at least."""


@dataclass(frozen=True)
class Upgrade(Drill):
    name: ClassVar[str] = "upgrade"
    summary: ClassVar[str] = "validators get a new version one by one while the chain goes on"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(4, "how many there are", least=4, most=64)
    heights_between: int = option(3, "heights that one makes final with the new version before the next goes", most=100)
    stall_ms: int = option(30_000, "longest time without a final block", least=100, most=600_000)

    def scenario(self) -> Scenario:
        fault: dict[str, Any] = {
            "kind": "upgrade",
            "at_height": AT_HEIGHT,
            "version": VERSION,
            "heights_between": self.heights_between,
        }
        height = AT_HEIGHT + self.validators * (HEIGHTS_A_VALIDATOR + self.heights_between)
        return self.build(
            validators={"count": self.validators},
            consensus={"protocol": self.protocol},
            faults=[fault],
            stop={"height": height, "drain_blocks": 5, "timeout_s": TIMEOUT_S + 10 * self.validators},
            success={"heights_compared": height - 5, "transactions": 20, "fires": 50, "stall_ms": self.stall_ms},
        )

    def expectations(self) -> list[Expectation]:
        return [
            Expectation(
                "upgraded",
                f"every validator ends with the new version, and the chain never stands still for {self.stall_ms:,} ms",
                self._judge_upgraded,
            ),
            straight_replay(),
            timers_once(),
        ]

    def _judge_upgraded(self, books: Books) -> Judgement:
        fault = next(iter(books.record.faults), None)
        if fault is None or fault.begun_ms is None:
            return Outcome.INCONCLUSIVE, "the upgrade never began"
        if fault.problem:
            return Outcome.FAIL, fault.problem
        versions = {each.name: (each.status or {}).get("version") for each in books.record.validators}
        old = [name for name in names_of(self.validators) if versions.get(name) != VERSION]
        if old:
            verdict = Outcome.INCONCLUSIVE if books.record.interrupted else Outcome.FAIL
            return verdict, f"{', '.join(old)} ended without version {VERSION}"
        if fault.ended_ms is None:
            return Outcome.INCONCLUSIVE, "the upgrade was not over at the end"
        return self._judge_pace(books, fault.begun_ms, fault.ended_ms)

    def _judge_pace(self, books: Books, begun_ms: float, ended_ms: float) -> Judgement:
        first = sorted(first_finalizations(books.record.judged_finalizations).values())
        during = [begun_ms, *(at for at in first if begun_ms < at < ended_ms), ended_ms]
        longest = max(later - earlier for earlier, later in pairwise(during))
        text = (
            f"{self.validators} validators run version {VERSION} after {ended_ms - begun_ms:,.0f} ms;"
            f" {len(during) - 2} heights became final meanwhile, {longest:,.0f} ms apart at most"
        )
        return (Outcome.PASS if longest <= self.stall_ms else Outcome.FAIL), text
