"""Random scenarios: the same from the same seed everywhere, valid, and of every kind.

``make fuzz`` runs a hundred of each protocol.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from cluster.commands.sweeps.drawing import corners, extremes
from cluster.commands.sweeps.drawing import random_scenario as generator
from cluster.commands.sweeps.drawing.attackers import ATTACKS
from cluster.commands.sweeps.drawing.random_scenario import ED25519_EVERY, FORGERIES, LIES, random_scenario
from cluster.commands.sweeps.outcome import judge
from cluster.commands.sweeps.tasks import FuzzTask
from cluster.faults.kind import FaultKind
from cluster.faults.kinds.failed_sync import FailedSyncFault
from cluster.faults.kinds.kill import KillFault
from cluster.faults.kinds.lose_node import LoseNodeFault
from cluster.faults.kinds.wipe import WipeFault
from cluster.misbehaviour.byzantine.registry import BEHAVIOURS
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from cluster.scenario.sections.faults import SHIPPED, kind_named
from cluster.watches.watched_simulation import simulate
from consensus.types import fault_bound
from validator.state.log import StateLog

ROOT = Path(__file__).resolve().parents[4]
PROTOCOLS = ("simplex", "hotstuff")
DRAWN = 1_500
FOUND = sorted(Path(__file__).with_name("found").glob("*.yaml"))
assert FOUND, "seeds that found something are kept there"
"""Scenarios that once failed, as they were drawn."""
FINGERPRINT = """
from blake3 import blake3
from cluster.commands.sweeps.drawing.random_scenario import random_scenario
print(blake3("".join(random_scenario(seed, "simplex").model_dump_json() for seed in range(50)).encode()).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scenarios_are_valid_and_of_every_kind(protocol: str) -> None:
    kinds: Counter[str] = Counter()
    behaviours: set[str] = set()
    extremes: Counter[str] = Counter()
    plans = [random_scenario(seed, protocol) for seed in range(DRAWN)]
    really_signed = {seed for seed, plan in enumerate(plans) if plan.consensus.signatures == "ed25519"}
    assert really_signed >= set(range(0, DRAWN, ED25519_EVERY))
    assert DRAWN / ED25519_EVERY < len(really_signed) < 1.5 * DRAWN / ED25519_EVERY
    for plan in plans:
        kinds.update({fault.kind_name for fault in plan.faults})
        behaviours.update(name for node in plan.validators.nodes for name in node.byzantine)
        assert plan.consensus.protocol == protocol
        assert len(plan.faults) >= 2
        extremes.update(extremes_of(plan))
    assert set(kinds) == {name for name in SHIPPED if says_how_it_is_drawn(name)}
    assert all(DRAWN // 20 < count < DRAWN * 3 // 4 for count in kinds.values()), "none is drowned, none everywhere"
    assert behaviours == {name for name, behaviour in BEHAVIOURS.items() if behaviour.protocol in ("", protocol)}
    assert any(plan.validators.late for plan in plans)
    assert set(extremes) == {
        "byzantine in committees that change",
        "several byzantine",
        "several not counted on",
        "everybody killed",
        "lost out of order",
        "little kept",
        "narrow lane",
        "short lives",
        "a storm",
        "jobs answered",
        "killed after votes",
        "a failing file",
        "lied to who joins",
        "governed",
        "programs deployed",
        "votes from outside",
    }
    assert any(plan.validators.epochs for plan in plans)


def said_in(plan: Scenario, names: Iterable[str]) -> list[str]:
    """Which of these behaviours its validators have."""
    return [name for node in plan.validators.nodes for name in node.byzantine if name in names]


def without_what_depends_on_who_can_be_spared(monkeypatch: pytest.MonkeyPatch, *shares: str) -> None:
    """What is drawn last."""
    for share in shares:
        monkeypatch.setattr(generator, share, 0.0)
    monkeypatch.setattr(corners, "CORNERED", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("share", "names", "least"), [("LIARS", LIES, 10), ("FORGERS", FORGERIES, 3)])
def test_who_lies_is_drawn_apart_from_all_else(
    protocol: str, share: str, names: Sequence[str], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "FORGERS", generator.FORGERS * (share == "FORGERS"))
    without_what_depends_on_who_can_be_spared(monkeypatch, "LOST_NODES", "SLANDERERS")
    lying = [random_scenario(seed, protocol) for seed in range(100)]
    monkeypatch.setattr(generator, share, 0.0)
    honest = [random_scenario(seed, protocol) for seed in range(100)]
    liars = 0
    for one, other in zip(lying, honest, strict=True):
        said = said_in(one, names)
        liars += bool(said)
        assert not said_in(other, names)
        faults = [*other.faults, *one.faults[len(other.faults) :]]
        assert one.model_copy(update={"validators": other.validators}) == other.model_copy(update={"faults": faults})
        assert said or one == other
    assert least <= liars <= 25


def says_how_it_is_drawn(kind: str) -> bool:
    found = kind_named(kind)
    assert issubclass(found, FaultKind)
    return bool(found.DRAWN) or "draw" in vars(found)


def extremes_of(plan: Scenario) -> Iterator[str]:
    """What a scenario has of what no network may be spared."""
    count = plan.validators.count
    smallest = min([count, *(len(members) for members in plan.validators.committees.values())])
    byzantine = sum(bool(node.byzantine) for node in plan.validators.nodes)
    lost = sum(fault.kind_name in ("wipe", "bit_rot") for fault in plan.faults)
    on_a_node = max(len(plan.validators.on_same_ray_node(index)) for index in range(count))
    lost += sum(on_a_node for fault in plan.faults if isinstance(fault, LoseNodeFault) and fault.loses_disk)
    assert byzantine + lost + bool(plan.validators.late) <= fault_bound(smallest), "or nothing could be asked of it"
    if byzantine and plan.validators.epochs:
        yield "byzantine in committees that change"
    if byzantine > 1:
        yield "several byzantine"
    for index, node in enumerate(plan.validators.nodes):
        if "outsider" in node.byzantine:
            assert any(index not in members for members in plan.validators.committees.values())
            yield "votes from outside"
    if lost > 1 or (lost and byzantine):
        yield "several not counted on"
    for fault in plan.faults:
        if isinstance(fault, KillFault):
            if len(fault.target) == count:
                yield "everybody killed"
            if fault.reorders:
                yield "lost out of order"
            if fault.after_votes:
                yield "killed after votes"
        if isinstance(fault, FailedSyncFault) and fault.of:
            yield "a failing file"
    yield from scarcities_of(plan)


def scarcities_of(plan: Scenario) -> Iterator[str]:
    """What of a chain, its disks and its load comes to its limits."""
    if plan.storage.retained_heights < plan.stop.height:
        yield "little kept"
    params = plan.chain.params
    if params.get("LANE_TIMER_CYCLES", math.inf) <= 300_000:
        yield "narrow lane"
    if params.get("SCAN_LIMIT", math.inf) <= 10:
        yield "short lives"
    for group in plan.load.users:
        if group.workload == "governance":
            yield "governed"
            if any(name != "builtin:script" for name in group.options["deploys"]):
                yield "programs deployed"
        if group.workload in ("storm", "runner"):
            yield "a storm" if group.workload == "storm" else "jobs answered"
    liars = [node for node in plan.validators.nodes if "false-snapshots" in node.byzantine]
    if liars and any(isinstance(fault, WipeFault) for fault in plan.faults):
        yield "lied to who joins"


SCARCE = ("backlog_max", "timers_expired", "timers_insufficient_funds", "transactions_reverted", "agent_queries")
STRAINED_SEEDS = (31, 160)
"""Of HotStuff; between them they come to all of those."""


@pytest.mark.slow
def test_a_strained_seed_comes_to_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    pruned: list[int] = []
    prune = StateLog.prune
    monkeypatch.setattr(StateLog, "prune", lambda log, count, *rest: (pruned.append(count), prune(log, count, *rest)))
    seen: Counter[str] = Counter()
    for seed in STRAINED_SEEDS:
        outcome, _ = judge(simulate(random_scenario(seed, "hotstuff"), seed), 0.0)
        assert outcome.passed, outcome.why
        seen.update(figure for figure in SCARCE if outcome.metrics[figure] > 0)
    assert set(seen) == set(SCARCE)
    assert sum(pruned) > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_governance_is_drawn_apart(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that governs has a group of users more, behind which are only attackers, users at the limits and users
    that watch keys; the others are drawn as without any that do."""
    monkeypatch.setattr(corners, "CORNERED", 0.0)
    drawn = [random_scenario(seed, protocol) for seed in range(100)]
    monkeypatch.setattr(generator, "GOVERNED", 0.0)
    governed = 0
    for seed, plan in enumerate(drawn):
        users = [group for group in plan.load.users if group.workload != "governance"]
        governed += len(plan.load.users) - len(users)
        without = plan.load.model_copy(update={"users": users})
        assert plan.model_copy(update={"load": without}) == random_scenario(seed, protocol)
        names = [group.workload for group in plan.load.users]
        if "governance" in names:
            assert set(names[names.index("governance") + 1 :]) <= {*ATTACKS, "limits", "watch"}
    assert 4 <= governed <= 25


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_watches_are_drawn_apart(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some chains with ``bias_auction`` have a group of users more, the last one, and a limit of watchers; the others
    are drawn as without any that watch."""
    drawn = [random_scenario(seed, protocol) for seed in range(200)]
    monkeypatch.setattr(extremes, "WATCHES", 0.0)
    watching = 0
    for seed, plan in enumerate(drawn):
        without = random_scenario(seed, protocol)
        if plan.load.users[-1].workload != "watch":
            assert plan == without
            continue
        watching += 1
        assert plan.chain.policy == "bias_auction"
        assert plan.load.users[:-1] == without.load.users
        assert {**plan.chain.params, "MAX_WATCHERS_PER_KEY": None} == {
            **without.chain.params,
            "MAX_WATCHERS_PER_KEY": None,
        }
        assert plan.model_copy(update={"load": without.load, "chain": without.chain}) == without
    assert 3 <= watching <= 20


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_lost_nodes_are_drawn_apart(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that loses a node has a fault more at the end; the others are drawn as without any that do."""
    without_what_depends_on_who_can_be_spared(monkeypatch, "SLANDERERS")
    drawn = [random_scenario(seed, protocol) for seed in range(200)]
    monkeypatch.setattr(generator, "LOST_NODES", 0.0)
    lost: list[LoseNodeFault] = []
    for seed, plan in enumerate(drawn):
        faults = [fault for fault in plan.faults if not isinstance(fault, LoseNodeFault)]
        lost += [fault for fault in plan.faults if isinstance(fault, LoseNodeFault)]
        validators = plan.validators.model_copy(update={"ray_nodes": None})
        assert plan.faults[: len(faults)] == faults
        without = plan.model_copy(update={"faults": faults, "validators": validators})
        assert without == random_scenario(seed, protocol)
    assert 10 <= len(lost) <= 45
    assert {fault.disks for fault in lost} == {"lost", "kept"}


@pytest.mark.slow
def test_a_seed_gives_the_same_scenario_in_every_process() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "77")
    }
    assert len(found) == 1


def test_a_fuzzed_seed_is_repeated_by_one_command() -> None:
    task = FuzzTask("hotstuff")
    assert task.command(9) == "stampede fuzz --protocol hotstuff --seeds 9:10"
    assert task.scenario(9) == random_scenario(9, "hotstuff")


@pytest.mark.slow
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_a_seed_found_stays_mended(path: Path) -> None:
    plan = load_scenario(path)
    outcome, _ = judge(simulate(plan, plan.seed), 0.0)
    assert not outcome.failed, outcome.why
    assert outcome.heights >= 38
