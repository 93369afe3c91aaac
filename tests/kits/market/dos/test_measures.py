"""What an attack did: each measure on blocks with a planted effect of known size, and the spend of a real run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.scenario import Scenario
from cluster.watches.watched_simulation import simulate
from kits.market.dos.measures import (
    ExecutedBlock,
    RunMeasures,
    Window,
    attack_window,
    block_rate,
    measure_attack,
    measure_run,
    recovery_blocks,
)
from loadgen.workloads import LoadPlan
from validator.chain.block import (
    BlockReceipts,
    Cancelled,
    DestroyedReceipt,
    Effects,
    Event,
    FireReceipt,
    MessageReceipt,
    Movement,
    QueryReceipt,
    Scheduled,
    TransactionReceipt,
)
from validator.primitives.codec import decode

SEED = 5
PLAN = LoadPlan.model_validate({"users": [{"workload": "heartbeat"}, {"workload": "same-block"}]})
ATTACKER, ATTACKING_ACTOR = [list(part)[1] for part in (PLAN.genesis_accounts(SEED), PLAN.genesis_actors(SEED))]
HONEST, HONEST_ACTOR = [next(iter(part)) for part in (PLAN.genesis_accounts(SEED), PLAN.genesis_actors(SEED))]
WINDOW = Window(3, 6)


def amount(value: int) -> bytes:
    return value.to_bytes(16, "big")


def transaction(sender: bytes = HONEST, ok: bool = True, fee: int = 0, created: bytes = b"", **effects: Any) -> Any:
    """One of 1,000 cycles; of its fee a tenth is the tip."""
    tip = fee // 10
    return TransactionReceipt(
        b"", sender, ok, "", 1_000, 0, amount(fee - tip), amount(tip), Effects(**effects), created
    )


def fire(
    timer: str, trigger: int, actor: bytes = HONEST_ACTOR, ok: bool = True, fee: int = 0, payer: bytes = b""
) -> FireReceipt:
    """One of 2,000 cycles."""
    cost, none = amount(fee), amount(0)
    return FireReceipt(timer.encode(), actor, trigger, 0, payer or actor, ok, "", 2_000, 0, cost, none, none, Effects())


def scheduled(timer: str, trigger: int, actor: bytes = HONEST_ACTOR) -> Scheduled:
    return Scheduled(timer.encode(), actor, trigger, 0, 1_000, actor)


MEASURED = ("cpu_s", "state_bytes", "memory_bytes")
"""What else a block has than its receipts."""


def chain(*contents: dict[str, Any]) -> list[ExecutedBlock]:
    """Blocks from height 1 on, each with the receipts given."""
    blocks = []
    for height, content in enumerate(contents, start=1):
        parts: dict[str, Any] = dict.fromkeys(("transactions", "fires", "destroyed", "queries", "messages"), ())
        given = {name: content[name] for name in content if name not in MEASURED}
        receipts = BlockReceipts(height, b"", **{**parts, "gc_cycles": 0, "p50_tip": b"", **given})
        blocks.append(ExecutedBlock(receipts, *(content.get(name) for name in MEASURED)))
    return blocks


def with_timers(*timers: Scheduled) -> dict[str, Any]:
    return {"transactions": (transaction(scheduled=timers),)}


def measured(*contents: dict[str, Any]) -> RunMeasures:
    return measure_run(chain(*contents), PLAN, SEED, WINDOW)


def run(**fields: Any) -> RunMeasures:
    return RunMeasures(WINDOW, **{"blocks": 4, **fields})


def compared(attacked: RunMeasures, baseline: RunMeasures) -> SimpleNamespace:
    """The metrics of an attack, as attributes."""
    return SimpleNamespace(**measure_attack(attacked, baseline).metrics)


# --- the window -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phases", "window"),
    [
        ([{"kind": "pause", "from_height": 1, "until_height": 6}], Window(7, 15)),
        ([{"kind": "pause", "from_height": 12}], Window(4, 12)),
        ([{"kind": "steady", "until_height": 8, "rate": 0}, {"kind": "pause", "from_height": 8}], None),
        ([{"kind": "burst", "from_height": 2, "until_height": 12, "rate": 5, "blocks": 1, "every": 4}], Window(4, 15)),
        ([{"kind": "pause", "from_ms": 0, "until_ms": 10_000}], Window(4, 15)),
    ],
)
def test_attackers_act_when_their_groups_and_phases_by_height_let_them(
    phases: list[dict[str, Any]], window: Window | None
) -> None:
    attackers = {"workload": "same-block", "from_height": 3, "until_height": 15}
    users = [{"workload": "heartbeat"}, attackers]
    assert attack_window(LoadPlan.model_validate({"users": users, "phases": phases}), 30) == window
    assert attack_window(LoadPlan.model_validate({"users": users[:1], "phases": phases}), 30) is None
    of_the_group = [users[0], attackers | {"phases": phases}]
    for others in ([], [{"kind": "pause", "from_height": 1}]):
        assert attack_window(LoadPlan.model_validate({"users": of_the_group, "phases": others}), 30) == window


def test_phases_of_honest_users_say_nothing_about_the_attack() -> None:
    honest = {"workload": "heartbeat", "phases": [{"kind": "pause", "from_height": 1}]}
    early = {"workload": "same-block", "phases": [{"kind": "pause", "from_height": 5}]}
    late = {"workload": "lane-cells", "from_height": 9, "until_height": 12}
    assert attack_window(LoadPlan.model_validate({"users": [honest, early]}), 30) == Window(1, 5)
    assert attack_window(LoadPlan.model_validate({"users": [honest, early, late]}), 30) == Window(1, 12)


def test_attackers_that_wait_for_a_price_may_act_at_any_height() -> None:
    waits = {"kind": "feedback", "watches": "basefee_lane", "low": 1, "high": 9, "low_rate": 0.0, "high_rate": 2.0}
    users = [{"workload": "same-block", "phases": [waits]}]
    assert attack_window(LoadPlan.model_validate({"users": users}), 30) == Window(1, 30)


# --- lateness -------------------------------------------------------------------------------------------------------


def test_a_fire_is_late_by_the_blocks_after_its_trigger_height() -> None:
    found = measured(with_timers(scheduled("a", 3), scheduled("b", 3)), {}, {"fires": (fire("a", 3),)}, {}, {})
    assert found.lateness == {0: 1, 3: 1}, "one in time, and one that still waits after height 5"
    found = measured(with_timers(scheduled("a", 3)), {}, {}, {}, {"fires": (fire("a", 3),)})
    assert found.lateness == {2: 1}
    assert found.waiting == 0


def test_a_timer_that_waits_for_ever_counts_with_the_least_lateness_that_is_left() -> None:
    waiting = with_timers(scheduled("a", 3))
    for blocks in (3, 5, 9):
        found = measured(waiting, *[{}] * (blocks - 1))
        assert found.lateness == {blocks + 1 - 3: 1}
        assert found.waiting == 1
    assert found.lateness_at(0.99) == found.lateness_at(1.0) == 7
    assert measured(waiting, {}).lateness == {}, "it is not due yet"


def test_a_fire_after_the_window_counts_if_its_timer_was_due_in_it() -> None:
    late = measured(with_timers(scheduled("a", 6)), *[{}] * 7, {"fires": (fire("a", 6),)})
    assert late.lateness == {3: 1}
    assert late.fires == 0, "fires are those of the window's blocks"
    for height in (2, 7):
        outside = measured(with_timers(scheduled("a", height)), *[{}] * 8)
        assert outside.lateness == {}


def test_destroyed_timers_count_and_cancelled_ones_do_not() -> None:
    event = Event("TimerExpired", HONEST_ACTOR, ())
    destroyed = {"destroyed": (DestroyedReceipt(b"a", "expired", event),)}
    found = measured(with_timers(scheduled("a", 3)), {}, {}, {}, destroyed, {}, {})
    assert (found.lateness, found.destroyed, found.waiting) == ({2: 1}, 1, 0)
    cancelled = {"transactions": (transaction(timer_changes=(Cancelled(b"a"),)),)}
    assert measured(with_timers(scheduled("a", 3)), {}, {}, {}, cancelled, {}).lateness == {}


def test_attackers_timers_are_not_among_the_honest_ones() -> None:
    theirs = with_timers(scheduled("a", 3, ATTACKING_ACTOR), scheduled("b", 5, ATTACKING_ACTOR))
    found = measured(theirs, {}, {}, {"fires": (fire("a", 3, ATTACKING_ACTOR),)}, {}, {})
    assert (found.lateness, found.fires, found.backlog) == ({}, 0, [0] * 6)
    assert (found.attackers_fires, found.attackers_timers) == (1, 1)


# --- honest work ----------------------------------------------------------------------------------------------------


def test_only_the_windows_work_that_succeeded_counts() -> None:
    work = {"fires": (fire("a", 1), fire("b", 1, ok=False)), "transactions": (transaction(), transaction(ok=False))}
    theirs = {"fires": (fire("c", 1, ATTACKING_ACTOR),), "transactions": (transaction(ATTACKER),)}
    found = measured(work, {}, work, theirs, {}, {}, work)
    assert (found.blocks, found.fires, found.failed_fires) == (4, 1, 1)
    assert (found.transactions, found.transaction_cycles) == (1, 1_000)
    assert found.block_cycles == [6_000, 3_000, 0, 0]
    assert found.attackers_cycles == 3_000


def test_a_blocks_cycles_are_those_of_all_phases() -> None:
    message = MessageReceipt(b"", b"", "h", True, "", 70, 0, Effects())
    query = QueryReceipt(b"", HONEST_ACTOR, "ok", 500, amount(0))
    block = {"transactions": (transaction(),), "messages": (message,), "queries": (query,), "gc_cycles": 3}
    assert measured({}, {}, block).block_cycles == [1_573]


def test_displaced_fires_are_those_that_the_baseline_had_per_block() -> None:
    found = compared(run(fires=28, blocks=4), run(fires=40, blocks=4))
    assert (found.honest_fires_ratio, found.displaced_fires) == (0.7, 12.0)
    assert compared(run(fires=50), run(fires=40)).displaced_fires == 0
    assert compared(run(fires=1), run()).honest_fires_ratio is None, "the baseline has none"


def test_transactions_are_held_against_the_baselines_per_block() -> None:
    found = compared(
        run(transactions=5, transaction_cycles=9_000, blocks=2), run(transactions=40, transaction_cycles=36_000)
    )
    assert (found.user_transactions_ratio, found.user_cycles_ratio) == (0.25, 0.5)


def test_the_block_rate_is_that_of_the_windows_blocks_as_far_as_they_were_seen() -> None:
    final_ms = {1: 0.0, 2: 900.0, 3: 1_000.0, 5: 2_000.0, 6: 2_500.0, 7: 9_000.0}
    assert block_rate(final_ms, WINDOW) == 2
    assert block_rate({3: 1_000.0}, WINDOW) is None
    assert block_rate({3: 1_000.0, 4: 1_000.0}, WINDOW) is None, "both were seen in one look"
    found = compared(run(blocks_per_second=1.5), run(blocks_per_second=2.0))
    assert found.block_rate_ratio == 0.75
    assert compared(run(), run(blocks_per_second=2.0)).block_rate_ratio is None


def test_processor_time_is_compared_as_measured_and_per_cycle() -> None:
    slow: list[dict[str, Any]] = [{}, {}, {"cpu_s": 0.5, "fires": (fire("a", 1),)}, {"cpu_s": 0.1}]
    usual: list[dict[str, Any]] = [{}, {}, {"cpu_s": 0.1, "fires": (fire("a", 1),)}, {"cpu_s": 0.1}]
    found = compared(measured(*slow), measured(*usual))
    assert found.cpu_ratio == 5
    assert found.cpu_per_cycle_ratio == pytest.approx(3)
    assert compared(run(), measured(*usual)).cpu_ratio is None, "not measured"


def test_processor_time_is_compared_with_a_full_honest_block() -> None:
    attacked = run(cpu_s=[0.1, 0.6], full_block_s=0.4)
    assert compared(attacked, run(cpu_s=[0.1])).cpu_full_ratio == pytest.approx(1.5)
    assert compared(run(cpu_s=[0.6]), run(full_block_s=0.4)).cpu_full_ratio is None, "not measured beside it"
    assert compared(run(cpu_s=[0.6], full_block_s=0.0), run()).cpu_full_ratio is None, "there is none"


def test_lost_timers_are_those_that_the_baseline_did_not_lose() -> None:
    found = compared(run(destroyed=5), run(destroyed=2))
    assert (found.destroyed, found.destroyed_added) == (5, 3)


def test_state_and_memory_are_those_after_the_windows_last_block() -> None:
    sizes = [{"state_bytes": size, "memory_bytes": 2 * size} for size in (1, 2, 3, 4, 5, 600, 7_000)]
    found = measured(*sizes)
    assert (found.state_bytes, found.memory_bytes) == (600, 1_200)


@pytest.mark.parametrize("what", ["state", "memory"])
def test_what_was_added_is_that_beyond_the_baseline(what: str) -> None:
    field, added, per_coin = f"{what}_bytes", f"{what}_bytes_added", f"{what}_bytes_per_coin"
    found = compared(run(**{field: 600}, spend=50), run(**{field: 100}))
    assert (getattr(found, added), getattr(found, per_coin)) == (500, 10)
    for attacked in (run(**{field: 100}, spend=50), run(**{field: 600}), run(spend=50)):
        assert getattr(compared(attacked, run(**{field: 100})), per_coin) is None


# --- spend ----------------------------------------------------------------------------------------------------------


def test_spend_is_what_attackers_paid_to_anybody_else() -> None:
    moves = (
        Movement(ATTACKER, HONEST, amount(100)),
        Movement(ATTACKER, ATTACKING_ACTOR, amount(7_000)),
        Movement(HONEST, ATTACKING_ACTOR, amount(30)),
    )
    block = {
        "transactions": (transaction(ATTACKER, fee=1_000, movements=moves), transaction(fee=9)),
        "fires": (fire("a", 1, ATTACKING_ACTOR, fee=200), fire("b", 1, payer=ATTACKER, fee=4), fire("c", 1, fee=8)),
        "queries": (
            QueryReceipt(b"", ATTACKING_ACTOR, "ok", 100, amount(50)),
            QueryReceipt(b"", HONEST_ACTOR, "ok", 1, b"\x07"),
        ),
    }
    found = measured(block, {}, {}, {}, {}, {}, block)
    assert found.spend == 2 * (1_000 + 100 + 200 + 4 + 50), "over the whole run, the window apart"


def test_what_an_attacker_deploys_is_the_attackers() -> None:
    new = b"\xac" * 20
    moves = (Movement(ATTACKER, new, amount(500)),)
    deploys = {"transactions": (transaction(ATTACKER, fee=10, created=new, movements=moves),)}
    found = measured(deploys, {}, {"fires": (fire("a", 1, new, fee=3),)})
    assert (found.spend, found.fires, found.attackers_fires) == (13, 0, 1)


def test_spend_is_divided_by_delay_and_by_displaced_fires() -> None:
    attacked = run(lateness=Counter({0: 2, 5: 4}), fires=20, spend=600)
    baseline = run(lateness=Counter({0: 50, 1: 10}), fires=40, fees_of_fires=400)
    found = compared(attacked, baseline)
    assert found.delay_blocks == pytest.approx(20 - 6 * 10 / 60), "as many timers, at the baseline's mean lateness"
    assert found.spend_per_block_of_delay == pytest.approx(600 / 19)
    assert (found.spend_per_fire_displaced, found.spend_ratio) == (30, 3)


def test_a_free_effect_costs_nothing_and_no_effect_has_no_price() -> None:
    late, usual = run(lateness=Counter({4: 1})), run(lateness=Counter({0: 1}), fires=4)
    free = compared(late, usual)
    assert (free.spend_per_block_of_delay, free.spend_per_fire_displaced) == (0, 0)
    harmless = compared(run(lateness=Counter({0: 1}), fires=4, spend=10), usual)
    assert (harmless.spend_per_block_of_delay, harmless.spend_per_fire_displaced) == (None, None)
    assert compared(run(), run()).lateness_p99 is None, "no timer came due"


# --- recovery -------------------------------------------------------------------------------------------------------


def levels(*backlog: int, wait: Sequence[int] | None = None) -> RunMeasures:
    return run(backlog=list(backlog), longest_wait=list(wait or [0] * len(backlog)))


def test_recovery_ends_when_backlog_and_waits_stay_at_the_baselines_greatest() -> None:
    usual = levels(0, 1, 2, 1, 0, 0, 0, 0, 0, 0)
    assert recovery_blocks(levels(0, 0, 9, 9, 9, 2, 2, 0, 0, 0), usual) == (0, True), "at the window's end"
    assert recovery_blocks(levels(0, 0, 9, 9, 9, 9, 3, 2, 0, 0), usual) == (2, True)
    assert recovery_blocks(levels(0, 0, 9, 9, 9, 0, 0, 3, 0, 0), usual) == (3, True), "it came back once"
    assert recovery_blocks(levels(0, 0, 9, 9, 9, 9, 9, 9, 9, 3), usual) == (4, False), "not within the run"
    waits = levels(*[0] * 10, wait=[0, 0, 0, 0, 0, 5, 5, 0, 0, 0])
    assert recovery_blocks(waits, usual) == (2, True), "few timers wait, but long"
    assert recovery_blocks(levels(0, 0, 0), usual) == (0, False), "the chain ended before the attack did"


def test_backlog_and_longest_wait_are_those_of_honest_timers_after_each_block() -> None:
    timers = with_timers(scheduled("a", 2), scheduled("b", 3), scheduled("c", 2, ATTACKING_ACTOR))
    found = measured(timers, {}, {}, {"fires": (fire("a", 2),)}, {"fires": (fire("b", 3),)})
    assert found.backlog == [0, 1, 2, 1, 0]
    assert found.longest_wait == [0, 1, 2, 2, 0]


# --- a real run -----------------------------------------------------------------------------------------------------


def test_a_runs_spend_is_what_the_attackers_balances_lost() -> None:
    heartbeat = {"workload": "heartbeat", "count": 2, "interval_ms": 500}
    attack = {"workload": "lane-cells", "count": 2, "interval_ms": 500, "options": {"every_blocks": 4}}
    given: dict[str, Any] = {
        "name": "attacked",
        "load": {"users": [heartbeat, attack]},
        "stop": {"height": 10, "drain_blocks": 2},
    }
    given |= {"consensus": {"signatures": "keyed-hash"}, "validators": 1}
    scenario = Scenario.model_validate(given)
    record = simulate(scenario, SEED)
    blocks = [ExecutedBlock(decode(each.receipts, BlockReceipts)) for each in record.validators[0].blocks]
    found = measure_run(blocks, scenario.load, SEED, Window(2, 10))
    theirs = scenario.load.attacking_addresses(SEED)
    held = record.kept_ledger.ledger.world.balance
    genesis = record.genesis
    had = sum(genesis.accounts.get(each, 0) for each in theirs)
    had += sum(actor.balance for address, actor in genesis.actors.items() if address in theirs)
    assert found.spend == had - sum(held.get(each, 0) for each in theirs) > 0
    harmless = measure_run(blocks, LoadPlan(), SEED, Window(2, 10))
    assert harmless.spend == 0
    assert harmless.fires > found.fires > 0
    assert measure_attack(found, harmless).acted
