"""Families about blocks and basefees (docs/protocol.md, "How a block is processed" and "Basefees")."""

from __future__ import annotations

import random
from typing import Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import STRANGER, USERS
from kits.conform.cases.scene import ACTORS, RICH, Actor, Scene, schedule

family: Final = FamilyTable()


@family("empty-blocks", "B-01", "F-02", "F-04", "F-11")
def empty_blocks(rng: random.Random) -> Scene:
    """Empty blocks let the basefees fall, down to MIN_BASEFEE."""
    basefee = rng.choice([1, 8, 9, 100, 1_000_000])
    scene = Scene(rng, {"MIN_BASEFEE": rng.choice([1, basefee, max(1, basefee * 7 // 8)])}, basefee=basefee)
    scene.empty(rng.randint(1, 8))
    return scene


@family("cycle-basefee", "F-01", "F-07", "F-08", "F-09", "F-10")
def cycle_basefee(rng: random.Random) -> Scene:
    """The cycle's basefee follows the cycles of transactions and fires."""
    target = rng.choice([2_000, 5_000])
    basefee = rng.choice([1, 7, 8, 100, 10_000])
    limit = rng.choice([10**24, basefee + 1, basefee])
    params = {"BLOCK_CYCLES_TARGET": target, "TX_BASE_CYCLES": 1_000, "MAX_BASEFEE": limit}
    scene = Scene(rng, params, basefee=basefee)
    for _ in range(rng.randint(2, 4)):
        used = rng.choice([target, target - 1, target + 1, 2 * target, 3 * target])
        scene.run([["burn", used - 1_000]])
    scene.empty()
    scene.sentence = f"The target is {target}."
    return scene


@family("cell-basefee", "F-03", "F-04", "F-07")
def cell_basefee(rng: random.Random) -> Scene:
    """The cell's basefee follows the cells of transactions and fires."""
    target = rng.choice([60, 500])
    scene = Scene(rng, {"BLOCK_CELLS_TARGET": target}, basefee=rng.choice([1, 8, 1_000]))
    for _ in range(rng.randint(2, 4)):
        used = rng.choice([target, target - 1, target + 1, 2 * target, 3 * target])
        scene.run("[]".ljust(used))
    scene.empty()
    return scene


@family("lane-basefee", "F-05", "F-06", "F-09", "L-03")
def lane_basefee(rng: random.Random) -> Scene:
    """The lane's basefee follows the cycles of fires, with LANE_BASEFEE_SLOPE."""
    lane = rng.choice([8_000, 20_000])
    slope = rng.randint(1, 8)
    params = {
        "LANE_TIMER_CYCLES": lane,
        "LANE_BASEFEE_SLOPE": slope,
        "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 8_000,
        "MAX_CYCLES_PER_FIRE": 8_000,
        "FIRE_BASE_CYCLES": 1_000,
    }
    scene = Scene(rng, params, basefee=rng.choice([1, 8, 1_000, 10**6]))
    burns = [rng.choice([0, 3_000, 6_900, lane // 2 - 1_000, lane // 2 - 1_001]) for _ in range(rng.randint(1, 2))]
    burns = [min(burn, 6_900) for burn in burns]
    scene.run([schedule(rng.choice([1, 2]), [["burn", burn]], gas_limit=8_000) for burn in burns])
    scene.empty(4)
    scene.sentence = f"The slope is {slope}."
    return scene


@family("lane-multiplier", "F-12")
def lane_multiplier(rng: random.Random) -> Scene:
    """The lane price is a multiple of the lane's basefee, rounded down."""
    multiplier = rng.choice([0, 1, 500, 999, 1_001, 3_000, 10_000])
    scene = Scene(rng, {"LANE_FEE_MULTIPLIER_MILLI": multiplier})
    price = scene.lane_price
    scene.run([["try", schedule(1, "[]", max_fee_per_cycle=fee)] for fee in (price, max(0, price - 1), 2 * price)])
    scene.empty(2)
    return scene


@family("order-in-a-block", "B-02", "B-04", "B-05")
def order_in_a_block(rng: random.Random) -> Scene:
    """Transactions come first, their tips reach the proposer, then timers fire, then messages run."""
    poor = ACTORS[1]
    scene = Scene(rng, {"FIRE_BASE_CYCLES": 1_000}, {ACTORS[0]: Actor(), poor: Actor(balance=rng.choice([0, 1]))})
    scene.run([schedule(1, [["emit", "fired", ""]], gas_limit=2_000, max_priority_fee_per_cycle=1)], poor)
    tip = 10**24 if rng.random() < 0.6 else 0
    fees = {"max_fee_per_cycle": 2 * 10**24, "max_priority_fee_per_cycle": tip}
    scene.transaction("transfer", USERS[0], {"to": STRANGER, "value": 1, **fees})
    scene.call([["send", {"to": ACTORS[0], "handler": "h", "payload": [["emit", "said", ""]]}]], sender=USERS[1])
    scene.block(poor)
    scene.empty()
    scene.sentence = "The tips pay for the proposer's timer." if tip else "The proposer's timer is not paid for."
    return scene


@family("reverts", "R-21", "B-11", "L-25", "M-02")
def reverts(rng: random.Random) -> Scene:
    """A failing handler reverts storage, transfers, timers, messages and events."""
    scene = Scene(rng)
    effects = [
        ["set", "k", "v"],
        ["emit", "e", "x"],
        ["transfer", {"to": USERS[1], "amount": 5}],
        schedule(1, "[]", save_as="t"),
        ["send", {"to": ACTORS[1], "handler": "h", "payload": []}],
        ["del", "old"],
    ]
    chosen = rng.sample(effects, rng.randint(1, len(effects)))
    ending = rng.choice([["fail", "why"], ["burn", 10**9], ["emit", "big", "x" * 30_000]])
    scene.run([["set", "old", "here"]])
    scene.call([*chosen, ending])
    scene.call([schedule(1, [["set", "f", "v"], ["fail", "x"]], gas_limit=9_000)])
    scene.call([["send", {"to": ACTORS[0], "handler": "h", "payload": [["set", "m", "v"], ["fail", "x"]]}]])
    scene.empty(2)
    return scene


@family("activation", "B-07", "B-09", "F-13")
def activation(rng: random.Random) -> Scene:
    """Up to ACTIVATION_HEIGHT timers fire by age at the cycle's basefee; then the auction begins."""
    height = rng.choice([2, 3, 4])
    policy = rng.choice(["cip1", "cip1", "gba_auction", "bias_auction"])
    scene = Scene(rng, {"ACTIVATION_HEIGHT": height, "TX_BASE_CYCLES": 1_000}, policy=policy)
    operations = [
        schedule(after, [["burn", rng.randint(0, 800)]], max_priority_fee_per_cycle=rng.choice([0, 3, 9]))
        for after in rng.sample([1, 1, 2, 2, 3, 4, 5], 5)
    ]
    if rng.random() < 0.5:
        operations.append(schedule(1, "[]", bid=rng.choice([0, 5])))
    scene.run(operations, rng.choice(ACTORS[:2]))
    scene.run([schedule(1, "[]", tier="fast")])
    scene.empty(height + 2)
    scene.sentence = f"It begins under {policy} after height {height}."
    return scene


@family("fifo", "B-07", "B-08", "T-03")
def fifo(rng: random.Random) -> Scene:
    """Under the policy fifo, timers fire by age until one does not fit."""
    params = {
        "LANE_TIMER_CYCLES": rng.choice([9_000, 10_000]),
        "MAX_CYCLES_PER_FIRE": 9_000,
        "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 9_000,
        "FIRE_BASE_CYCLES": 1_000,
    }
    scene = Scene(rng, params, policy="fifo")
    script = [
        schedule(rng.choice([1, 1, 2]), [["burn", rng.randint(0, 2_000)]], gas_limit=rng.choice([3_000, 5_000, 9_000]))
        for _ in range(rng.randint(3, 5))
    ]
    script[0][1]["bid"] = 3
    scene.run(script)
    scene.empty(4)
    return scene


@family("p50", "F-14", "F-15", "F-16", "L-05")
def p50(rng: random.Random) -> Scene:
    """The median tip of the fires of the block before prices open priorities and tiers."""
    weight = rng.choice(["fires", "cycles"])
    scene = Scene(
        rng,
        {"P50_WEIGHT": weight, "DEFAULT_TIP_CAP": rng.choice([0, 0, 8])},
        {ACTORS[0]: Actor(), ACTORS[1]: Actor(RICH)},
    )
    price = 3 * scene.lane_price + 50
    timers = [
        schedule(
            1, [["burn", rng.randint(0, 3_000)]], max_fee_per_cycle=price, max_priority_fee_per_cycle=rng.randint(0, 9)
        )
        for _ in range(rng.randint(2, 5))
    ]
    scene.call(timers)
    scene.call([schedule(2, "[]"), schedule(3, "[]")], ACTORS[1])
    scene.empty()
    scene.run([schedule(1, "[]", tier=rng.choice(["economy", "standard", "fast", "urgent"]))])
    scene.empty(3)
    return scene
