"""Families about gas bidding agents (docs/protocol.md, "Agents")."""

from __future__ import annotations

import random
from typing import Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import USERS
from kits.conform.cases.scene import ACTORS, RICH, Actor, Scene, schedule

family: Final = FamilyTable()


@family("fixed-agents", "G-01", "R-15")
def fixed_agents(rng: random.Random) -> Scene:
    """builtin:fixed bids for the open fields of its actor's timers, for 100 cycles each."""
    basefee = rng.choice([7, 1_000])
    bid = (basefee * rng.randint(1, 4), rng.choice([0, 1, basefee]))
    scene = Scene(rng, actors={ACTORS[0]: Actor(bid=bid), ACTORS[1]: Actor()}, basefee=basefee)
    scene.call([schedule(1, "[]"), schedule(1, "[]", max_fee_per_cycle=9 * basefee)])
    scene.call([schedule(1, "[]", max_fee_per_cycle=9 * basefee, max_priority_fee_per_cycle=1)])
    scene.call([schedule(1, "[]", max_priority_fee_per_cycle=2), schedule(2, "[]")], ACTORS[1])
    scene.empty(2)
    scene.sentence = f"It bids {bid[0]} and {bid[1]} at a basefee of {basefee}."
    return scene


@family("bids-below-the-price", "G-09")
def bids_below_the_price(rng: random.Random) -> Scene:
    """A timer whose agent bids less than the lane price waits, and is asked about again."""
    basefee = rng.choice([100, 1_000])
    scene = Scene(
        rng,
        {"MIN_BASEFEE": 1, "LANE_BASEFEE_SLOPE": 8},
        {ACTORS[0]: Actor(bid=(basefee * rng.choice([78, 80, 86]) // 100, 0))},
        basefee=basefee,
    )
    scene.run([schedule(1, "[]")])
    scene.empty(3)
    return scene


@family("unpaid-queries", "G-03", "G-04", "G-11")
def unpaid_queries(rng: random.Random) -> Scene:
    """An actor that cannot pay for a query is not asked, nor for some blocks after that."""
    cycles, pause = 1_000, rng.choice([1, 2])
    basefee = rng.choice([7, 1_000])
    params = {
        "GBA_MAX_CYCLES": cycles, "GBA_UNPAID_PAUSE": pause, "MIN_BASEFEE": basefee, "MAX_BASEFEE": basefee,
        "MAX_CELLS_PER_FIRE": 1, "BLOCK_CYCLES_TARGET": 10**6,
    }  # fmt: skip
    short = rng.choice([0, 1])
    poor = Actor(balance=cycles * basefee - short, bid=(3 * basefee, 1))
    scene = Scene(rng, params, {ACTORS[0]: poor, ACTORS[1]: Actor()}, basefee=basefee)
    payer = {"fee_payer": "sender", "payer_cap": 10**12, "gas_limit": 2_000}
    scene.run([schedule(after, [["burn", after]], **payer) for after in range(1, 5)], timer_allowance=10**13)
    scene.empty(2)
    scene.transfer(ACTORS[0], RICH // 10)
    scene.empty(3)
    scene.sentence = f"It is {short} short, and the pause has {pause} blocks."
    return scene


@family("query-budget", "G-05", "G-07")
def query_budget(rng: random.Random) -> Scene:
    """A block asks as many agents as its budget allows; those that waited longest come first."""
    budget = 150 + rng.choice([99, 100, 101, 250])
    params = {"GBA_MAX_CYCLES": 150, "GBA_BUDGET_CYCLES": budget}
    actors = {address: Actor(bid=(9 * 10**6, i)) for i, address in enumerate(ACTORS[:4])}
    scene = Scene(rng, params, actors)
    for address in ACTORS[:4]:
        scene.call([schedule(after, "[]", gas_limit=2_000) for after in (1, 2, 3)], address)
    scene.empty(4)
    scene.sentence = f"The budget is {budget}."
    return scene


@family("queries-of-an-actor", "G-06")
def queries_of_an_actor(rng: random.Random) -> Scene:
    """An actor has GBA_QUERIES_PER_ACTOR queries in a block; its last answer prices its other timers."""
    most = rng.choice([1, 2])
    basefee = rng.choice([7, 1_000])
    scene = Scene(
        rng,
        {"GBA_QUERIES_PER_ACTOR": most},
        {ACTORS[0]: Actor(bid=(3 * basefee, 2)), ACTORS[1]: Actor(bid=(2 * basefee, 1))},
        basefee=basefee,
    )
    scene.call([schedule(1, [["burn", i]], gas_limit=3_000) for i in range(most + 2)])
    scene.call([schedule(1, "[]")], ACTORS[1], USERS[1])
    scene.empty(2)
    return scene
