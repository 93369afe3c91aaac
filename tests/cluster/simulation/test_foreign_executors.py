"""Validators with foreign executors in the simulator: nothing differs, unless the executor does; then it is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cluster.audit.reexecution.bisect import NO_STEPS
from cluster.checks.run import judge_run
from cluster.common.outcome import Outcome
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario
from cluster.scenario.sections.faults import SHIPPED
from cluster.watches.watched_simulation import simulate
from tests.cluster.faults.examples import others_than
from validator.node.executor import stream
from validator.node.executor.foreign import Session

SEED = 3
REFERENCE = "stampede executor"
WITH_TREE = "stampede executor --tree"
PLAN: dict[str, Any] = {
    "name": "foreign",
    "consensus": {"block_interval_ms": 100, "signatures": "keyed-hash"},
    "load": {"users": [{"workload": "flood", "count": 2, "interval_ms": 400, "options": {"timers": 3}}]},
    "faults": [
        {"kind": "kill", "target": "validator-1", "at_height": 8, "down_ms": 1_000},
        {"kind": "wipe", "target": "validator-1", "at_height": 16, "down_ms": 1_000},
    ],
    "stop": {"height": 30, "drain_blocks": 2},
    "success": {"transactions": 0, "fires": 0},
}


def run(executor: str | None, **changes: Any) -> RunRecord:
    return simulate(
        Scenario.model_validate(PLAN | {"validators": [{}, {"executor": executor}, {}, {}]} | changes), SEED
    )


@pytest.mark.kits
@pytest.mark.parametrize("protocol", ["simplex", pytest.param("hotstuff", marks=pytest.mark.slow)])
def test_the_run_is_that_of_validators_with_their_own_transition(protocol: str) -> None:
    consensus = PLAN["consensus"] | {"protocol": protocol}
    records = [run(executor, consensus=consensus) for executor in (None, REFERENCE)]
    assert records[0].digest == records[1].digest
    assert records[1].problems == [] and records[1].validators[1].tip >= 30


@pytest.mark.kits
@pytest.mark.parametrize("gives_steps", [True, False])
def test_an_executor_with_a_bug_is_named_with_height_step_and_key(
    gives_steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = Session.apply

    def asked(session: Session, request: stream.Apply) -> stream.Applied | stream.Refused:
        return apply(session, replace(request, wants_steps=gives_steps and request.wants_steps))

    monkeypatch.setattr(Session, "apply", asked)
    judged = judge_run(run("stampede executor --mutant wrong-balance", faults=[]))
    (page,) = judged.books.bisections
    assert page["validator"] == "validator-1" and page["height"] >= 6
    assert page["note"] == ("" if gives_steps else NO_STEPS)
    assert page["step"]["kind"] == "transaction" and page["keys"][0]["fields"][0]["name"] == "balance"
    (check,) = [check for check in judged.verdict.checks if check.name == "state_roots"]
    assert check.verdict is Outcome.FAIL and "validator-1" in check.detail


def test_an_executor_that_ends_stops_its_validator_with_one_line() -> None:
    record = run("false", faults=[], stop=PLAN["stop"] | {"timeout_s": 20})
    assert record.problems[0] == "validator-1 stopped: executor 'false': ended with exit code 1"


# --- every fault ------------------------------------------------------------------------------------------------------


class Asked:
    """What the validators of a run ask of their executors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.openings: list[int] = []
        """The heights at which executors were opened."""
        self.deepest = 0
        """The most blocks that a validator left behind at once to execute a block of another branch."""
        self.roots: Counter[bool] = Counter()
        """The number of blocks whose root an executor gave, and did not."""
        self._parents: dict[Session, dict[int, int]] = {}
        self._last: dict[Session, int] = {}
        ask = Session._answer_to

        def note(session: Session, request: stream.Request) -> stream.Answer:
            if isinstance(request, stream.Open):
                self.openings.append(request.height)
            elif isinstance(request, stream.Apply | stream.Build):
                self._note_block(session, request.parent, request.block)
            answer = ask(session, request)
            if isinstance(answer, stream.Applied | stream.Built):
                self.roots[answer.result.state_root is not None] += 1
            return answer

        monkeypatch.setattr(Session, "_answer_to", note)

    def _note_block(self, session: Session, parent: int, block: int) -> None:
        parents = self._parents.setdefault(session, {})
        here, there = (_line(parents, number) for number in (self._last.get(session, 0), parent))
        self.deepest = max(self.deepest, len(here) - sum(number in there for number in here))
        parents[block] = parent
        self._last[session] = block


def _line(parents: dict[int, int], number: int) -> Sequence[int]:
    """A block's number, and those of all blocks below it."""
    line = [number]
    while line[-1] in parents:
        line.append(parents[line[-1]])
    return line


VICTIM = "validator-1"
EVERY_FAULT: list[dict[str, Any]] = [
    {"kind": "pause", "target": VICTIM, "for_ms": 1_200},
    {"kind": "bit_rot", "target": VICTIM, "down_ms": 500},
    {"kind": "disk_full", "target": VICTIM, "down_ms": 500},
    {"kind": "failed_sync", "target": VICTIM, "down_ms": 500, "of": "state"},
    {"kind": "slow_execution", "target": VICTIM, "for_ms": 600, "job_ms": 60},
    {"kind": "slow_disk", "target": VICTIM, "for_ms": 600, "sync_ms": 60},
    {"kind": "lose_node", "target": VICTIM, "down_ms": 500},
    {"kind": "kill", "target": VICTIM, "down_ms": 500, "reorders": True},
    {"kind": "clock_skew", "target": VICTIM, "for_ms": 600, "clock_speed": 2},
    {"kind": "partition", "for_ms": 1_200, "groups": [["validator-0", VICTIM], ["validator-2", "validator-3"]]},
    {"kind": "upgrade", "target": [VICTIM, "validator-3"]},
    {"kind": "wipe", "target": VICTIM, "down_ms": 500},
    {"kind": "one_way_partition", "for_ms": 600, "from": [VICTIM], "to": ["validator-0", "validator-2"]},
    {"kind": "cut", "for_ms": 600, "from": [VICTIM], "to": ["validator-0"]},
    {"kind": "degrade", "for_ms": 600, "latency_ms": 40},
    {"kind": "leader_delay", "for_ms": 600, "delay_ms": 90},
]
EVERY_FAULT += others_than(EVERY_FAULT)
"""A fault of each kind; each begins :data:`APART` heights after the one before."""
APART = 9
LATE = 12
"""The height at which the last validator joins, by a snapshot."""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["simplex", "hotstuff"])
def test_every_fault_late_joins_and_pruning_change_nothing(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {fault["kind"] for fault in EVERY_FAULT} == set(SHIPPED)
    asked = Asked(monkeypatch)
    end = APART * (len(EVERY_FAULT) + 2)
    changes: dict[str, Any] = {
        "storage": {"segment_kib": 8, "retained_heights": 8, "keep_blocks": 8, "snapshot_interval": 4},
        "consensus": PLAN["consensus"] | {"protocol": protocol},
        "load": {"users": [{"workload": name, "interval_ms": 600} for name in ("churn", "heartbeat", "transfer")]},
        "faults": [fault | {"at_height": APART * (place + 2)} for place, fault in enumerate(EVERY_FAULT)],
        "stop": {"height": end, "drain_blocks": 2, "timeout_s": 200},
    }
    own, foreign = (
        run(None, validators=[{}, {"executor": one}, {}, {"executor": other, "joins_at_height": LATE}], **changes)
        for one, other in ((None, None), (WITH_TREE, REFERENCE))
    )
    assert [fault.kind for fault in foreign.faults if not fault.took_effect] == []
    assert own.digest == foreign.digest and foreign.problems == []
    assert [served.tip >= end for served in foreign.validators] == [True] * 4
    first_blocks = [(served.status or {})["first_block"] for served in foreign.validators]
    assert min(first_blocks) > 1, "every validator pruned"
    assert min(asked.roots[True], asked.roots[False]) > APART * (len(EVERY_FAULT) - 3)
    assert asked.openings[0] == 0 and len(asked.openings) >= 10 and min(asked.openings[1:]) >= LATE - 4, asked.openings


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "depth"), [("simplex", 4), ("hotstuff", 1)])
def test_deep_reorgs_change_nothing(protocol: str, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    records = []
    for executor in (None, WITH_TREE):
        fields = load_scenario(Path("scenarios/network/deep-reorg.yaml")).model_dump()
        fields["validators"]["nodes"][1]["executor"] = executor
        fields["consensus"] |= {"protocol": protocol, "signatures": "keyed-hash"}
        fields["stop"]["height"] = 30
        records.append(simulate(Scenario.model_validate(fields), 1))
    own, foreign = records
    assert own.digest == foreign.digest and foreign.problems == []
    assert asked.deepest >= depth
