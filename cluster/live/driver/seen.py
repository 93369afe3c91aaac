"""What the loop of a run is told of its hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cluster.live.driver.audit import Audit
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.supervised_host import Host
from cluster.live.processes.history import Phase
from cluster.run.events import JoinBegun, JoinEnded, Seen, Standing, Standings, Violation
from cluster.run.loop import RunLoop
from cluster.scenario import Scenario


def standings_of(hosts: Hosts, loop: RunLoop) -> Standings:
    """How far the validators are whose hosts are not given up. No height of a byzantine one is awaited."""
    return Standings(tuple(_standings(hosts, loop)))


def _standings(hosts: Hosts, loop: RunLoop) -> Iterator[Standing]:
    node, is_end_known = loop.scenario.validators.node, loop.end_height is not None
    for host in hosts.all:
        if host.phase is Phase.DEAD:
            continue
        for index in {*host.carried_at(loop.goal), *host.reports.states} if is_end_known else host.validators:
            state = host.reports.states.get(index)
            if state is None:
                yield Standing(0, is_up=False)
            else:
                is_excused = bool(state.diverged or node(index).byzantine)
                yield Standing(state.height, host.phase is Phase.UP, is_excused=is_excused)


def joins_of(hosts: Hosts, loop: RunLoop, now_ms: float) -> Iterator[Seen]:
    """Which validators that join later were started, and which take part."""
    for index in loop.joining:
        state = hosts.host_of(index).state(index)
        if state is not None:
            yield JoinBegun(now_ms, index)
            if state.ready:
                yield JoinEnded(now_ms, index, state.snapshot_height, state.snapshot_chunks)


def violations_of(hosts: Hosts, audit: Audit, scenario: Scenario) -> Iterable[Violation]:
    """The violations that are new, by what the hosts and the audit say."""
    running = [host for host in hosts.all if host.phase is Phase.UP and not host.is_paused]
    answered_s = min((host.answered_s for host in running), default=0.0)
    audit.note_hosts({(host.number, host.pid) for host in running}, answered_s)
    states = [item for host in running for item in host.reports.states.items()]
    is_byzantine = [bool(scenario.validators.node(index).byzantine) for index in range(scenario.validators.count)]
    diverged = {index for index, state in states if state.diverged and not is_byzantine[index]}
    return map(Violation, audit.look(hosts.urls(running), diverged))


def heights_in_words(scenario: Scenario, hosts: Hosts) -> str:
    """The height of every validator."""
    return ", ".join(
        f"{name} {'does not answer' if height is None else f'is at height {height}'}"
        for name, height in zip(scenario.validators.names, hosts.by_validator(Host.height), strict=True)
    )
