"""What is particular to single validators and to regions, in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from statistics import mean
from typing import Any

import pytest

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.disks.memory import MemoryDisk
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.keys import KeyedHashScheme
from consensus.protocols import PROTOCOLS
from tests.tiers.turns import by_turns
from validator.chain.messages import Reading
from validator.node.assembly import Validator
from validator.node.events import Effect, Event, Message
from validator.storage.journal import JOURNAL_FILE

PLAIN: dict[str, Any] = {
    "name": "overrides",
    "consensus": {"block_interval_ms": 100, "leader_timeout_ms": 400, "advance_timeout_ms": 600, "rebroadcast_ms": 300},
    "stop": {"height": 20, "drain_blocks": 2, "timeout_s": 60},
    "success": {"heights_compared": 20, "transactions": 0, "fires": 0},
}


def nothing(*_: object) -> Any:
    """For a machine that runs nothing."""


def simulated(**fields: Any) -> WatchedSimulation:
    simulation = WatchedSimulation(Scenario.model_validate(PLAIN | fields), 5, "test", scheme=KeyedHashScheme())
    simulation.run()
    return simulation


def lag_ms(record: RunRecord, index: int) -> float:
    """How much later than the first one a validator finalises, on average."""
    first: dict[int, float] = {}
    for seen in record.finalizations:
        first[seen.height] = min(seen.at_ms, first.get(seen.height, seen.at_ms))
    return mean(seen.at_ms - first[seen.height] for seen in record.finalizations if seen.validator == index)


def test_a_slow_validator_lags_and_is_no_fault() -> None:
    slow = simulated(validators=[{}, {}, {}, {"job_ms": 80}])
    assert lag_ms(slow.record, 3) > lag_ms(slow.record, 1) + 20
    assert slow.machines[3].delays.total() == 0
    assert check_run(slow.record).outcome is Outcome.PASS


def test_a_quorum_waits_for_slow_disks() -> None:
    """Of four validators two are slow: one of them is in each quorum, and votes once its journal is durable."""
    slow = simulated(validators=[{}, {}, {"sync_ms": 60}, {"sync_ms": 60}])
    assert slow.record.duration_ms > simulated(validators=4).record.duration_ms + 20 * 60
    assert [machine.delays.total() for machine in slow.machines] == [0, 0, 0, 0]
    assert check_run(slow.record).outcome is Outcome.PASS


def test_all_of_a_slow_disk_is_slow() -> None:
    """What a validator makes final is synced to its archive and its state, not to its journal alone."""
    slow = simulated(validators=[{}, {}, {}, {"sync_ms": 60}])
    assert lag_ms(slow.record, 3) > lag_ms(slow.record, 1) + 100
    assert check_run(slow.record).outcome is Outcome.PASS


def test_votes_on_their_way_to_a_slow_disk_are_lost_with_the_machine() -> None:
    """A sync that ends meanwhile began before them."""
    lost = set()
    for seed in range(40):
        clock = VirtualClock()
        machine = Machine(0, "alone", clock, nothing, nothing)
        machine.work.sync_ms = 60
        machine.work.append(1, b"first ")
        clock.after(59_000, "second", b"", partial(machine.work.append, 2, b"second"))
        while clock.now_us < 60_000:
            clock.step()
        machine.disk.crash(Random(seed))
        lost.add(machine.disk.read(JOURNAL_FILE))
    assert lost == {b"first second"[:end] for end in range(6, 13)}


def test_a_clock_of_its_own_speed_and_a_fault_that_skews_it_further() -> None:
    skew = {"kind": "clock_skew", "target": ["validator-0", "validator-3"], "clock_speed": 2.0}
    skewed = simulated(
        validators=[{}, {}, {}, {"clock_speed": 1.5}], faults=[skew | {"at_height": 8, "until_height": 12}]
    )
    assert [machine.own_clock.speed for machine in skewed.machines] == [1.0, 1.0, 1.0, 1.5]
    assert skewed.record.faults[0].took_effect
    plain = simulated(validators=[{}, {}, {}, {"clock_speed": 1.5}])
    assert plain.machines[3].delays.total() == 0, "its own speed is no fault"


def test_a_slow_disk_fault_replaces_a_slow_disk_while_it_lasts() -> None:
    fault = {"kind": "slow_disk", "target": "validator-3", "at_height": 6, "until_height": 10, "sync_ms": 90}
    slow = simulated(validators=[{}, {}, {}, {"sync_ms": 30}], faults=[fault])
    assert slow.record.faults[0].took_effect
    assert slow.machines[3].work.sync_ms == 30


def test_a_run_does_not_end_while_a_validator_commits_what_a_slow_disk_kept_back() -> None:
    """It reaches the run's last height in the middle of that, with the others far ahead."""
    fault = {"kind": "slow_disk", "target": "validator-1", "at_height": 4, "for_ms": 2_500, "sync_ms": 3_000}
    record = simulated(stop={"height": 12, "drain_blocks": 1, "timeout_s": 60}, faults=[fault]).record
    slow, *others = [record.finalizations.first_above(12).get(index, 0.0) for index in (1, 0, 2, 3)]
    assert slow > max(others) + 1_000, "it was far behind at the last height"
    assert check_run(record).check("faults").verdict is Outcome.PASS


def test_overrides_of_nobody_change_nothing() -> None:
    same = simulated(validators=[{"region": "east"}, {}, {}, {}])
    assert same.record.digest == simulated(validators=4).record.digest


@pytest.mark.parametrize(
    "change",
    [
        {"validators": [{}, {"sync_ms": 5}, {}, {}]},
        {"validators": [{}, {"job_ms": 5}, {}, {}]},
        {"validators": [{}, {"clock_speed": 2.0}, {}, {}]},
        {"links": {"topology": "ring"}},
    ],
)
def test_the_live_testnet_takes_them_too(change: dict[str, Any]) -> None:
    assert Scenario.model_validate(PLAIN | change).live_problem is None


# --- regions --------------------------------------------------------------------------------------------------------

REGIONS = {"regions": {"east": ["validator-0", "validator-1"], "west": ["validator-2"]}}


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ({"kind": "pause", "target": "region:west", "for_ms": 700}, {"kind": "pause", "target": ["validator-2"]}),
        (
            {"kind": "partition", "groups": [["region:east", "validator-3"]], "for_ms": 900},
            {"kind": "partition", "groups": [["validator-0", "validator-1", "validator-3"]]},
        ),
        (
            {"kind": "one_way_partition", "from": ["region:west"], "to": ["region:east"], "for_ms": 900},
            {"kind": "one_way_partition", "from": ["validator-2"], "to": ["validator-0", "validator-1"]},
        ),
    ],
)
def test_a_region_stands_for_its_validators(fault: dict[str, Any], named: dict[str, Any]) -> None:
    by_region = simulated(links=REGIONS, faults=[fault | {"at_height": 6}])
    by_name = simulated(links=REGIONS, faults=[fault | named | {"at_height": 6}])
    told, same = (replace(each.record.faults[0], target="") for each in (by_region, by_name))
    assert told == same
    assert "region:west" in by_region.record.faults[0].target or "region:east" in by_region.record.faults[0].target
    assert by_region.record.digest == by_name.record.digest
    assert by_region.record.faults[0].took_effect
    assert check_run(by_region.record).outcome is Outcome.PASS


def test_a_fault_of_a_region_stays_as_it_was_given() -> None:
    fault = {"kind": "pause", "target": "region:west", "for_ms": 700, "at_height": 6}
    scenario = Scenario.model_validate(PLAIN | {"links": REGIONS, "faults": [fault]})
    assert scenario.model_dump(exclude_unset=True)["faults"] == [fault | {"target": ["region:west"]}]


# --- topologies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "protocol"),
    [
        pytest.param(topology, protocol, marks=by_turns(place, protocol))
        for place, topology in enumerate(
            ["ring", "star", {"kind": "small-world", "p": 0.5}, {"kind": "random-regular", "degree": 3}]
        )
        for protocol in PROTOCOLS
    ],
)
def test_a_network_over_few_links_works_and_is_slower(topology: Any, protocol: str) -> None:
    consensus = PLAIN["consensus"] | {"protocol": protocol}
    links = {"latency_ms": 5, "jitter_ms": 1, "topology": topology}
    sparse = simulated(validators=10, links=links, consensus=consensus)
    full = simulated(validators=10, links=links | {"topology": "full"}, consensus=consensus)
    assert check_run(sparse.record).outcome is Outcome.PASS
    assert sparse.record.duration_ms > full.record.duration_ms


def test_a_partition_cuts_pairs_whatever_path_lies_between() -> None:
    """In a star each path of the others leads over the hub; the cut of the hub from them does not cut those."""
    fault = {"kind": "partition", "groups": [["validator-0"]], "at_height": 6, "for_ms": 1_500}
    record = simulated(links={"topology": "star"}, faults=[fault]).record
    during = [seen for seen in record.finalizations if 300 < seen.at_ms - (record.faults[0].begun_ms or 0) < 1_500]
    assert {seen.validator for seen in during} == {1, 2, 3}
    assert check_run(record).outcome is Outcome.PASS


class Listening(WatchedSimulation):
    """Notes what validators receive, and what the watches hear of it."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.received: list[tuple[int, int]] = []
        self.heard: list[tuple[int, int]] = []
        heard = self.heard

        class Ears(Observer):
            def hears(self, machine: Machine, sender: Machine, content: Reading | None) -> None:
                heard.append((machine.index, sender.index))

        self.observe(Ears())
        for machine in self.machines:
            machine.boot = partial(self._boot_noting, machine.index, machine.boot)

    def _boot_noting(self, index: int, boot: Callable[[MemoryDisk], Validator], disk: MemoryDisk) -> Validator:
        validator = boot(disk)
        handle = validator.node.handle

        def note_received(event: Event) -> list[Effect]:
            if isinstance(event, Message):
                self.received.append((index, event.sender))
            return handle(event)

        validator.node.handle = note_received  # type: ignore[method-assign]
        return validator


def test_the_watches_hear_what_waited_for_a_paused_validator_when_it_does() -> None:
    pause = {"kind": "pause", "at_height": 5, "target": ["validator-1"], "for_ms": 900}
    listening = Listening(Scenario.model_validate(PLAIN | {"faults": [pause]}), 5, "test", scheme=KeyedHashScheme())
    listening.run()
    assert listening.machines[1].delays["pause"] > 10
    assert listening.heard == listening.received
