"""Lost hosts and nodes, as faults see them on the live testnet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import pytest

from cluster.live.driver.supervised_host import Host
from cluster.live.host.host import NO_WORD
from cluster.live.host.validator_loop import LoopState
from cluster.live.means import Means
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes.last_words import LastWords
from cluster.scenario import Scenario
from tests.cluster.live.handover.parts import FaultsOnHosts, FourHosts
from tests.cluster.records import OUTSIDER_KEY

LOST = {"kind": "lose_node", "target": "validator-3", "at_height": 5, "down_ms": 1_000, "disks": "kept"}


class Hosts(FourHosts):
    """Hosts on two nodes, of which one may refuse to end."""

    def __init__(self) -> None:
        super().__init__("abab")
        self.nodes = self
        self.ends = True
        self.ended: list[tuple[str, bool]] = []
        self.on_lost: Callable[[Sequence[Host], str, str], None]
        """As the driver is told of a lost node."""

    def kill(self, host: Host, by_ray: bool) -> None:
        self.ended.append((f"host {host.number}", by_ray))
        host.went_down()

    def hosts_on(self, place: Place) -> list[Host]:
        return [host for host in self.all if host.is_on_a_node and host.place == place]

    def lose(self, place: Place, reason: str) -> None:
        self.go(place, reason)

    def end(self, place: Place, kills: bool) -> None:
        self.ended.append((place.node_id, kills))
        if self.ends:
            self.go(place, "it was ended")

    def go(self, place: Place, reason: str) -> None:
        """A node is lost."""
        gone = self.hosts_on(place)
        self.on_lost(gone, place.node_id, reason)
        for host in gone:
            host.lose_place(is_certain=False)


class Run:
    def __init__(
        self, *faults: dict[str, Any], means: Callable[..., Means] = Means, external: Collection[int] = ()
    ) -> None:
        self.now_ms, self.height = 0.0, 1
        self.hosts: Any = Hosts()
        outsider = {"external": {"public_key": OUTSIDER_KEY, "address": "192.0.2.7:7000"}}
        nodes = [outsider if index in external else {} for index in range(4)]
        scenario = Scenario.model_validate({"name": "stage", "validators": nodes, "faults": list(faults)})
        now_ms, height = partial(getattr, self, "now_ms"), partial(getattr, self, "height")
        self.faults = FaultsOnHosts(scenario, self.hosts, now_ms, height, lambda text: None, means=means)
        self.stage, self.records = self.faults.stage, self.faults.engine.records
        self.hosts.on_lost = lambda hosts, node, reason: self.stage.note_lost_node(hosts, node, reason, self.height)
        self.faults.begin()

    def reach(self, height: int, after_ms: float = 0.0) -> None:
        self.height, self.now_ms = height, self.now_ms + after_ms
        self.faults.step()
        self.faults.step()


@pytest.mark.parametrize("how", ["process", "ray"])
def test_a_planned_loss_takes_all_of_the_node_which_are_held_down_until_it_is_time(how: str) -> None:
    run = Run(LOST | {"how": how})
    run.reach(5)
    assert run.hosts.ended == [("b", how == "process")], "once"
    assert [host.is_held_down for host in run.hosts.all] == [False, True, False, True]
    (record,) = run.records
    assert record.targets == ("validator-1", "validator-3") and record.took_effect
    run.reach(6, after_ms=999)
    assert run.hosts.all[1].is_held_down
    run.reach(7, after_ms=1)
    assert not any(host.is_held_down for host in run.hosts.all), "and the watch over the nodes places them"


def test_a_node_that_is_not_ended_is_no_effect_and_holds_nobody_down() -> None:
    run = Run(LOST)
    run.hosts.ends = False
    run.reach(5)
    assert not any(host.is_held_down for host in run.hosts.all)
    run.reach(6, after_ms=1_000)
    (record,) = run.records
    assert record.ended_ms is not None and not record.took_effect, "its validators were up all the time"


def test_a_node_that_is_seen_to_end_late_is_the_planned_loss() -> None:
    """Nobody answered the order, which was carried out all the same."""
    run = Run(LOST)
    run.hosts.ends = False
    run.reach(5)
    run.hosts.go(Place("b", ""), "health check failed")
    run.reach(6, after_ms=500)
    (record,) = run.records
    assert record.took_effect and record.ended_ms is None
    assert [host.is_held_down for host in run.hosts.all] == [False, True, False, True], "until it is time"
    run.reach(7, after_ms=500)
    assert not any(host.is_held_down for host in run.hosts.all)


def test_a_host_that_heard_nothing_of_the_driver_was_cut_off() -> None:
    run = Run()
    host = run.hosts.all[2]
    host.went_down("unavailable")
    assert run.stage.on_lost(host, LastWords(7, 2, f"{NO_WORD} for 20 s"))
    (record,) = run.records
    assert (record.kind, record.targets, record.is_planned) == ("lose_node", ("validator-2",), False)
    assert not host.is_held_down
    assert not run.stage.on_lost(run.hosts.all[0], LastWords(7, 0, "a bug")), "of nothing else"


def test_the_leader_is_what_our_validators_say() -> None:
    """The status page of an external validator has no leader, and its view may be ahead of ours."""
    run = Run(external={2})
    for index, view in enumerate((5, 6, 9, 5)):
        leader = 0 if index == 2 else view % 4
        run.hosts.all[index].reports.states = {index: LoopState(ready=True, view=view, leader=leader)}
    assert run.stage.look(1).leader == 6 % 4
