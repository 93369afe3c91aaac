"""``restart-all``: every validator is killed at the same moment and starts again from its disk, several times.

What was final stays final: nobody makes a height final a second time, and nobody says anything that contradicts what it
said before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Final

from cluster.books import Books
from cluster.drills.base import STARTING_S, TIMEOUT_S, Drill, Expectation, Judgement, kills, names_of, option
from cluster.drills.expected import straight_replay, timers_once
from cluster.scenario import Scenario
from cluster.verdict import Outcome

EVERY_HEIGHTS: Final = 12


@dataclass(frozen=True)
class RestartAll(Drill):
    name: ClassVar[str] = "restart-all"
    summary: ClassVar[str] = "all validators are killed at once and start again from their disks"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(4, "how many there are", least=1, most=64)
    times: int = option(2, "how often", most=20)
    down_ms: int = option(1_500, "how long they are down each time, in milliseconds", least=1, most=600_000)

    def scenario(self) -> Scenario:
        names, last = names_of(self.validators), EVERY_HEIGHTS * self.times
        down_s = -(-self.down_ms // 1_000)
        every = [kills(names, EVERY_HEIGHTS * (number + 1), self.down_ms) for number in range(self.times)]
        return self.build(
            validators={"count": self.validators},
            consensus={"protocol": self.protocol},
            faults=[fault for at_once in every for fault in at_once],
            stop={"height": last + 20, "drain_blocks": 5, "timeout_s": TIMEOUT_S + self.times * (down_s + STARTING_S)},
            success={
                "heights_compared": last + 10,
                "transactions": 20,
                "fires": 40,
                "stall_ms": 1_000 * (down_s + STARTING_S),
            },
        )

    def expectations(self) -> list[Expectation]:
        return [
            Expectation(
                "durable",
                "every validator finds on its disk what it had made final, and makes no height final twice",
                self._judge_durable,
            ),
            straight_replay(),
            timers_once(),
        ]

    def _judge_durable(self, books: Books) -> Judgement:
        record = books.record
        names = record.scenario.validators.names
        killed = [fault for fault in record.faults if fault.begun_ms is not None]
        restarted = [fault for fault in killed if fault.ended_ms is not None]
        if len(restarted) < len(killed) and not record.interrupted:
            gone = next(fault for fault in killed if fault.ended_ms is None)
            return Outcome.FAIL, f"{gone.target} never came back from its disk"
        if len(restarted) < self.times * self.validators:
            return Outcome.INCONCLUSIVE, f"{len(restarted)} of {self.times * self.validators} restarts were seen"
        times = Counter((seen.validator, seen.height) for seen in record.finalizations)
        twice = sorted(key for key, count in times.items() if count > 1)
        if twice:
            whose, height = twice[0]
            return (
                Outcome.FAIL,
                f"{names[whose]} made height {height} final {times[twice[0]]} times ({len(twice)} such)",
            )
        last_ms = max(fault.begun_ms or 0.0 for fault in restarted)
        for validator in books.judged:
            had = [
                seen.height
                for seen in record.finalizations
                if seen.validator == validator.index and seen.at_ms < last_ms
            ]
            recovered = (validator.status or {}).get("recovered_height")
            if not isinstance(recovered, int):
                return Outcome.INCONCLUSIVE, f"{validator.name} does not say what it found on its disk"
            if had and recovered < max(had):
                return Outcome.FAIL, f"{validator.name} had height {max(had)} final, and found {recovered} on its disk"
        return Outcome.PASS, f"{len(restarted)} restarts, {len(times):,} finalizations of validators, each once"
