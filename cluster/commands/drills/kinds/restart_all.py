"""``restart-all``: all validators are killed at the same moment and start again from their disks, several times.

Final blocks stay final: no validator finalises a height twice or contradicts its earlier votes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Final

from cluster.audit.books import Books
from cluster.commands.drills.base import STARTING_S, TIMEOUT_S, Drill, Expectation, Judgement, kills, names_of, option
from cluster.commands.drills.expectations import KILL, STRAIGHT_REPLAY, TIMERS_ONCE, down_at_once, faults_of
from cluster.common.outcome import Outcome
from cluster.record.finalizations import Finalization
from cluster.scenario import Scenario

EVERY_HEIGHTS: Final = 12


@dataclass(frozen=True)
class RestartAll(Drill):
    name: ClassVar[str] = "restart-all"
    summary: ClassVar[str] = "all validators are killed at once and start again from their disks"

    protocol: str = option("simplex", "the consensus protocol", choices=("simplex", "hotstuff"))
    validators: int = option(4, "number of validators", least=1, most=64)
    times: int = option(2, "number of repetitions", most=20)
    down_ms: int = option(1_500, "length of each outage, in milliseconds", least=1, most=600_000)

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

    def expectations(self, scenario: Scenario) -> list[Expectation]:
        return [
            Expectation(
                "durable",
                "every validator finds its final blocks on its disk, and finalises no height twice",
                self._judge_durable,
            ),
            STRAIGHT_REPLAY,
            TIMERS_ONCE,
        ]

    @staticmethod
    def _judge_durable(books: Books) -> Judgement:
        record, kills = books.record, faults_of(books, KILL)
        names = record.scenario.validators.names
        times = Counter((seen.validator, seen.height) for seen in _on_lasting_disks(books))
        if twice := sorted(key for key, count in times.items() if count > 1):
            whose, height = twice[0]
            what = f"{names[whose]} finalised height {height} {times[twice[0]]} times ({len(twice)} such heights)"
            return Outcome.FAIL, what
        lost, silent = _found_too_little(books)
        if lost:
            return Outcome.FAIL, lost
        begun = [fault for fault in kills if fault.begun_ms is not None]
        restarted = [fault for fault in begun if fault.ended_ms is not None]
        if len(restarted) < len(begun) and not record.interrupted:
            gone = next(fault for fault in begun if fault.ended_ms is None)
            return Outcome.FAIL, f"{gone.target} never came back from its disk"
        if not restarted or len(restarted) < len(kills):
            return Outcome.INCONCLUSIVE, f"{len(restarted)} of {len(kills)} restarts happened"
        most = max(down_at_once(restarted), key=len)
        if not most.issuperset(names):
            return Outcome.INCONCLUSIVE, f"{len(most)} of {len(names)} validators were down at the same time, not all"
        if silent:
            return Outcome.INCONCLUSIVE, f"{', '.join(silent)} did not report the height on the disk"
        return Outcome.PASS, f"{len(restarted)} restarts, {len(times):,} finalizations of validators, each once"


def _lost_disks(books: Books) -> set[str]:
    """Names of the validators whose disks other faults emptied."""
    return {name for fault in books.record.faults for name in fault.without_disks}


def _on_lasting_disks(books: Books) -> list[Finalization]:
    """Finalizations of honest validators whose disks were never lost."""
    names, lost = books.record.scenario.validators.names, _lost_disks(books)
    judged = books.record.finalizations.without(books.record.scenario.validators.byzantine)
    return [seen for seen in judged if names[seen.validator] not in lost]


def _found_too_little(books: Books) -> tuple[str, list[str]]:
    """A text about the first validator whose disk had less than its final height after its last kill, and the names of
    those that do not report what they found."""
    silent, seen = [], _on_lasting_disks(books)
    kills = [fault for fault in faults_of(books, KILL) if fault.begun_ms is not None and fault.ended_ms is not None]
    for validator in books.judged:
        killed_ms = max((kill.begun_ms or 0.0 for kill in kills if validator.name in kill.targets), default=0.0)
        had = max(
            (each.height for each in seen if each.validator == validator.index and each.at_ms < killed_ms), default=0
        )
        recovered = (validator.status or {}).get("recovered_height")
        if had and not isinstance(recovered, int):
            silent.append(validator.name)
        elif had > (recovered or 0):
            return f"{validator.name} had finalised height {had}, and found {recovered} on its disk", silent
    return "", silent
