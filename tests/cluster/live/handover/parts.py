"""Parts of a driver, as they go from one process to another, and all that is inside of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from random import Random
from types import BuiltinFunctionType, FunctionType, MethodType, SimpleNamespace
from typing import Any, TypeVar

import msgspec
from blake3 import blake3
from msgspec.structs import replace
from pydantic import BaseModel

from cluster.faults.link_effects import LinkCounts
from cluster.live.driver.chain_watch import ChainWatch
from cluster.live.driver.live_stage import LiveStage
from cluster.live.driver.supervised_host import Host
from cluster.live.handover.handover import RunClock
from cluster.live.handover.left import VERSION, LeftHost, LeftLoad, LeftRun, LeftStage
from cluster.live.host.validator_loop import LoopState
from cluster.live.means import Means
from cluster.live.nodes.ray_nodes import Place
from cluster.live.processes.history import Phase
from cluster.live.processes.processes import Process
from cluster.record.run import RunRecord
from cluster.record.saved import BESIDES, decode, encode, save
from cluster.run.events import End, NewHeight, Order, Seen, StopLoad, TakeFork, Up
from cluster.run.journal import Journal, read_journal
from cluster.run.loop import Feed, RunLoop
from cluster.scenario import Scenario
from cluster.watches.live.live_audit import LiveAudit
from loadgen.workloads.measures import LoadTimeline, Sends
from tests.cluster.records import make_genesis, make_record

T = TypeVar("T")


def written_and_read(left: T) -> T:
    """A part's record, as another process reads it. It is the same."""
    found = decode(encode(left), type(left))
    assert found == left
    return found


def again(host: Host) -> Host:
    """The host as another driver has it, before it looks for the actor."""
    return Host.of(written_and_read(host.left), host.number, host.validators, host.late)


def inside(value: Any, outside: Collection[object] = (), above: tuple[int, ...] = ()) -> Any:
    """All that an object knows, attribute by attribute, as plain data that can be compared.

    ``outside`` are names of attributes, and types, of which nothing is looked at. What leads back to something
    ``above`` is named only.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes | Enum):
        return value
    if id(value) in above or type(value) in outside:
        return f"a {type(value).__name__}"
    go = partial(inside, outside=outside, above=(*above, id(value)))
    match value:
        case FunctionType() | MethodType() | BuiltinFunctionType() | partial():
            return "a function"
        case BaseModel():
            return type(value).__name__, value.model_dump()
        case Random():
            return value.getstate()
        case Mapping():
            return sorted(((go(key), go(each)) for key, each in value.items()), key=repr)
        case Set():
            return sorted(map(go, value), key=repr)
        case list() | tuple() | deque():
            return [go(each) for each in value]
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
    elif is_dataclass(value):
        names = tuple(field.name for field in fields(value))
    else:
        names = tuple(vars(value))
    return type(value).__name__, {name: go(getattr(value, name)) for name in names if name not in outside}


def sends() -> Sends:
    found = Sends()
    found.note("transfers", "00ff", 5, 9)
    return found


def timeline() -> LoadTimeline:
    found = LoadTimeline()
    found.requested(12.0)
    found.answered(1_000.0, 3.0)
    return found


class FourHosts:
    """Four hosts that are up, as a stage knows them, each with one validator."""

    def __init__(self, nodes: str = "aaaa") -> None:
        """``nodes`` are those of the hosts, a letter each."""
        self.all = [Host(number=n, place=Place(node, ""), validators=[n]) for n, node in enumerate(nodes)]
        for host in self.all:
            host.actor, host.phase, host.processes.current = "actor", Phase.UP, Process(7, host.number)
            host.reports.states = {host.number: LoopState(ready=True)}

    def host_of(self, index: int) -> Host:
        return self.all[index]

    def carrying(self, indices: Sequence[int]) -> list[Host]:
        return [self.all[index] for index in indices]

    def link_counts(self, key: int) -> LinkCounts:
        return LinkCounts()

    def resume(self, host: Host) -> None:
        pass


class FaultsOnHosts:
    """The faults of a run on the stage of a live one, as a driver has them."""

    def __init__(
        self,
        scenario: Scenario,
        hosts: Any,
        now_ms: Callable[[], float],
        height: Callable[[], int],
        notice: Callable[[str], None] = print,
        keep: Callable[[int, str], None] = lambda index, url: None,
        means: Callable[..., Means] = Means,
        left: FaultsOnHosts | None = None,
    ) -> None:
        """``left`` are those of another driver, which goes on with them."""
        self.loop = RunLoop(RunRecord(scenario, "live", 1, "test", make_genesis()))
        self.engine = self.loop.faults
        self.journal = bytearray()
        note = Journal(self.journal.extend).note
        self.feed = Feed(self.loop, self._look, self._perform, lambda told: [note(*each) for each in told])
        self._height, self._notice = height, notice
        made = means(scenario, notice, lambda facts: None)
        state: LeftStage | None = None
        if left is not None:
            self.journal += left.journal
            for each in read_journal(bytes(self.journal))[0]:
                self.loop.handle(each)
            state = written_and_read(left.stage.state)
            made.take_over(state.means)
        tell = self.feed.see_fault
        self.stage: LiveStage = LiveStage(scenario, 1, hosts, self.engine, now_ms, tell, notice, keep, made, state)

    def begin(self) -> None:
        """The testnet is up."""
        self.feed.see(Up(self.stage.agenda.now_ms))

    def go_on(self) -> None:
        """Go on where another driver was."""
        due = self.loop.due
        self.stage.go_on()
        self.feed.go_on(due)

    def step(self) -> None:
        """A look of the driver."""
        self.feed.look()
        self.stage.look_after()

    def _look(self) -> Iterator[Seen]:
        yield NewHeight(self._height())
        yield self.stage.look(self._height())

    def _perform(self, order: Order) -> Iterable[Seen]:
        return () if isinstance(order, StopLoad | End | TakeFork) else self.stage.perform(order)


def left_by(watch: ChainWatch) -> LeftRun:
    """A run that has just begun, with all that a watch saw, as another driver reads it."""
    seen = {"trace": watch.trace.state, "resources": watch.resources.state, "chain": watch.chain}
    return written_and_read(replace(left_run(), **seen))


def left_run() -> LeftRun:
    """A run that has just begun."""
    record = make_record(backend="live")
    no_hosts: Any = SimpleNamespace(all=[], link_counts=None)
    stage = FaultsOnHosts(record.scenario, no_hosts, lambda: 0.0, lambda: 0).stage
    watch = ChainWatch(record, 0.0)
    return LeftRun(
        version=VERSION,
        commit="0123456789ab",
        phase="following",
        clock=RunClock().state(),
        scenario=record.scenario,
        is_open=False,
        stop_on_fail=False,
        journal=(0, blake3(b"").hexdigest()),
        record=save(record, besides=BESIDES),
        served=("127.0.0.1", 80),
        ray=None,
        load=LeftLoad(),
        hosts=[LeftHost(Place("", "")) for _ in range(4)],
        lost_nodes=set(),
        stage=stage.state,
        trace=watch.trace.state,
        resources=watch.resources.state,
        chain=watch.chain,
        audit=LiveAudit(record).state(),
    )
