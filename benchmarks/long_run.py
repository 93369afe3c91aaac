"""The record of a long run, synthetic: what the driver of a live run keeps of any number of heights and faults.

Blocks are those of :mod:`long_chain`. They are entered as a driver does it: each once into the store and the ledger,
and of each validator the moment at which a block was final there. Faults of several kinds follow each other over the
whole run; a validator that one hits falls behind until it is over. Views, messages, resources and lags go through the
logs that bound them in real runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import reporting  # noqa: F401 - before any package: it says where they are
from long_chain import LongChain, view_of

from cluster.audit.books import KeptLedger, final_queries
from cluster.audit.ledger import Ledger
from cluster.faults.kinds.kill import KillFault
from cluster.faults.kinds.partition import PartitionFault
from cluster.faults.kinds.pause import PauseFault
from cluster.record.chain_store import FileBlocks, ServedBlocks
from cluster.record.finalizations import Finalization
from cluster.record.lag import LagLog
from cluster.record.message_trace import BEFORE_MS, Windows
from cluster.record.resources import ResourceLog
from cluster.record.run import (
    FaultRecord,
    Lag,
    LoadRecord,
    Resources,
    RunRecord,
    Supply,
    TracedMessage,
    ValidatorRecord,
)
from cluster.scenario import Scenario
from cluster.scenario.sections.faults import BaseFault
from validator.primitives.types import parse_address

INTERVAL_MS = 500.0
LATENCY_MS = 100.0
HEIGHTS_PER_LOOK = 10
LAST_HEIGHTS = 40
"""Without a fault."""
KINDS = ("kill", "pause", "partition", "degrade")
MESSAGES = ("proposal", "notarize", "finalize", "certificate")


class LongRun:
    """One run, entered block by block: :meth:`enter`, then :meth:`end`."""

    def __init__(self, folder: Path, heights: int, validators: int, timers_per_block: int, faults: int = 0) -> None:
        """Raises :class:`OSError` if the folder cannot be written."""
        self.heights = heights
        self._chain = LongChain(validators, timers_per_block)
        scenario = _scenario(heights, validators, faults)
        self.record = record = RunRecord(scenario, "live", 1, "benchmark", self._chain.genesis)
        record.store = FileBlocks(folder / "blocks.part")
        names = scenario.validators.names
        record.validators = [
            ValidatorRecord(name, index, ServedBlocks(record.store)) for index, name in enumerate(names)
        ]
        record.faults = [_record_of(plan, names) for plan in scenario.planned_faults]
        self._whole = ServedBlocks(record.store)
        record.kept_ledger = self.kept = KeptLedger(self._whole, Ledger(self._chain.genesis))
        self._windows, self._resources, self._lags = Windows(record), ResourceLog(record), LagLog(record)
        self._windows.begin()
        self._held_until_ms = dict.fromkeys(range(validators), 0.0)
        self._begun: list[FaultRecord] = []
        self.judging_s = 0.0
        """CPU seconds that entering blocks into the books took so far."""

    def enter(self) -> Iterator[int]:
        """Enter all heights, one after the other."""
        stored = self.kept.reader.stored(self.record.store)
        for height, block in enumerate(self._chain.blocks(self.heights), start=1):
            self._see(height)
            begun_s = time.process_time()
            self._whole.append(block)
            self.kept.advance()
            stored.read()
            self.judging_s += time.process_time() - begun_s
            yield height
        self.record.duration_ms = (self.heights + 2) * INTERVAL_MS

    def end(self) -> None:
        """What validators serve and answer when the run is over."""
        record = self.record
        for found in record.validators:
            found.blocks = served = ServedBlocks(record.store)
            served.extend_as_stored(self.heights)
        self.kept.advance({self.heights})
        ledger = self.kept.ledger
        asked = final_queries(ledger)
        for found in record.validators:
            kills = sum(fault.facts.restarts_from == "disk" and found.name in fault.targets for fault in record.faults)
            found.balances = {text: ledger.world.balance.get(parse_address(text), 0) for text in asked.accounts}
            found.pending_timers = {text: bytes.fromhex(text) in ledger.world.timers for text in asked.timers}
            found.supply = Supply(ledger.held, ledger.burned)
            found.status = {
                "name": found.name,
                "height": found.tip,
                "pending_timers": len(ledger.world.timers),
                "starts": 1 + kills,
                "recovered_height": 1 if kills else 0,
                "snapshot_height": 0,
                "diverged": None,
            }
        record.load = LoadRecord(requests=self.heights, transactions_sent=self.heights)
        self._windows.close(record.duration_ms)

    # --- what is seen of a height -----------------------------------------------------------------------------------

    def _see(self, height: int) -> None:
        record, proposed_ms = self.record, height * INTERVAL_MS
        record.proposals[height] = proposed_ms
        self._see_faults(height)
        slow_ms = 40.0 * (height % 7) + 2_000.0 * (height % 997 == 0)
        for validator, held_until_ms in self._held_until_ms.items():
            at_ms = max(proposed_ms + LATENCY_MS + slow_ms + validator, held_until_ms)
            record.finalizations.append(Finalization(at_ms, validator, height))
            self._windows.entered(proposed_ms + validator / 8, validator, view_of(height))
        self._windows.look(proposed_ms, height)
        if proposed_ms - BEFORE_MS <= self._windows.state.open_until_ms:
            self._see_messages(height, proposed_ms)
        if height % HEIGHTS_PER_LOOK == 0:
            self._look(height, proposed_ms)

    def _see_faults(self, height: int) -> None:
        """Faults begin and end with the planned heights; what they hit is late until they are over."""
        record = self.record
        while len(self._begun) < len(record.faults) and (record.faults[len(self._begun)].at_height or 0) <= height:
            fault = record.faults[len(self._begun)]
            lasts = 3 + len(self._begun) % 17
            begun_ms = height * INTERVAL_MS + 10.0
            fault.begun_ms, fault.height_when_begun = begun_ms, height
            fault.ended_ms, fault.height_when_ended = begun_ms + lasts * INTERVAL_MS, height + lasts
            fault.took_effect = True
            for name in fault.impaired:
                self._held_until_ms[record.scenario.validators.names.index(name)] = fault.ended_ms
            self._begun.append(fault)

    def _see_messages(self, height: int, at_ms: float) -> None:
        watched = sorted(self._windows.watched)
        for place, sender in enumerate(watched):
            for receiver in watched:
                kind = MESSAGES[(place + receiver) % len(MESSAGES)]
                sent_ms = at_ms + 40.0 * (place % 4) + receiver / 4
                received_ms = None if (height + receiver) % 23 == 0 else sent_ms + 30.0 + place
                message = TracedMessage(sender, receiver, sent_ms, received_ms, kind, view_of(height), 900)
                if receiver != sender:
                    self._windows.keep(message)

    def _look(self, height: int, at_ms: float) -> None:
        for validator in range(self.record.scenario.validators.count):
            memory = 200_000_000 + 50_000 * (height % 4_001)
            look = Resources(at_ms, validator, 900 * height, 60 * height, memory, height / 20, 40 + validator)
            self._resources.note(look)
            busy_ms = float((height + 13 * validator) % 90)
            self._lags.note(Lag(at_ms - 1_000, at_ms, busy_ms, validator))


def _planned(number: int, count: int, heights: int, validators: int) -> dict[str, Any]:
    """The fault of a number as a scenario has it."""
    kind, target = KINDS[number % len(KINDS)], f"validator-{number % validators}"
    at = {"kind": kind, "at_height": 1 + round((number + 0.5) * (heights - LAST_HEIGHTS) / count)}
    match kind:
        case "kill":
            return at | {"target": target, "down_ms": 2_000}
        case "pause":
            return at | {"target": target, "for_ms": 2_000}
        case "partition":
            return at | {"groups": [[target]], "for_ms": 2_000}
        case _:
            return at | {"loss": 0.1, "for_ms": 2_000}


def _record_of(plan: BaseFault, names: Sequence[str]) -> FaultRecord:
    """The empty record of a planned fault, as the fault engine makes it."""
    fault = FaultRecord(plan.kind_name, plan.whom, plan.at_height, evidence="seen in a synthetic run")
    match plan:
        case PartitionFault():
            alone = tuple(plan.groups[0])
            rest = tuple(name for name in names if name not in alone)
            return replace(fault, impaired=alone, sides=(alone, rest))
        case KillFault() | PauseFault():
            return replace(fault, targets=tuple(plan.target), impaired=tuple(plan.target))
    return fault


def _scenario(heights: int, validators: int, faults: int) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "long",
            "validators": validators,
            "faults": [_planned(number, faults, heights, validators) for number in range(faults)],
            "stop": {"height": heights, "timeout_s": max(60, int(heights * INTERVAL_MS / 1_000))},
        }
    )
