"""Families about the other policies and the candidates of cip1 (docs/policies.md)."""

from __future__ import annotations

import random
from typing import Any, Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import DEPLOYER, USERS
from kits.conform.cases.scene import ACTORS, Actor, Scene, schedule, send, tried
from kits.conform.families.turns import GAS, bidding, lane

family: Final = FamilyTable()


@family("weight-candidates", "K-01", "K-02", "K-03", "K-04", "R-19")
def weight_candidates(rng: random.Random) -> Scene:
    """Candidates of cip1: fairness by deployer, a smoothed median, other bounds of weights."""
    least, most = rng.choice([(1_000, 2_000), (0, 2_000), (0, 700), (500, 1_333), (1_000, 1_000)])
    params = lane(
        4,
        WEIGHT_PARTY=rng.choice(["actor", "deployer"]),
        MEDIAN_SMOOTHING_MILLI=rng.choice([1, 300, 1_000]),
        WEIGHT_CLIP_MIN_MILLI=least,
        WEIGHT_CLIP_MAX_MILLI=most,
        PRIORITY_FLOOR=rng.choice([1, 10**18]),
    )
    actors = {address: Actor(deployer=rng.choice([DEPLOYER, USERS[0]])) for address in ACTORS[:3]}
    scene = Scene(rng, params, actors)
    for address, count in zip(ACTORS[:3], (3, 1, 0), strict=True):
        scene.call([bidding(scene, rng.choice([0, 2])) for _ in range(count)], address)
    scene.empty()
    for address in ACTORS[:3]:
        scene.call([bidding(scene, rng.choice([0, 2, 3]))], address)
    scene.empty(2)
    return scene


@family("gba-order", "W-01", "W-03", "W-05", "W-06", "W-07")
def gba_order(rng: random.Random) -> Scene:
    """Under gba_auction timers fire before the transactions, by tip and earned weight, in slices of the lane."""
    params = lane(3, BUDGET_SLICES=rng.choice([1, 4, 30]), STARVATION_BLOCKS=rng.choice([1, 2]), EPOCH_LENGTH=2)
    scene = Scene(
        rng,
        {**params, "RING_BUFFER_SIZE": 4, "WEIGHT_MIN_MILLI": 1, "STARVATION_FLOOR_MILLI": 500},
        policy="gba_auction",
    )
    burn = [["burn", 2_500]]
    for address, base in ((ACTORS[0], 9), (ACTORS[1], 4)):
        scene.call([bidding(scene, base - i, 1, burn) for i in range(4)], address)
    scene.block()
    for _ in range(4):
        scene.run([bidding(scene, rng.choice([1, 3]), 1, burn)], rng.choice(ACTORS[:2]))
    scene.empty(2)
    return scene


@family("fire-scores", "W-05", "W-08")
def fire_scores(rng: random.Random) -> Scene:
    """Under gba_auction a fire's score is the mean of four figures, of which the rest of the lane is rounded up."""
    scene = Scene(rng, lane(9, EPOCH_LENGTH=2, RING_BUFFER_SIZE=4), 8, policy="gba_auction")
    for address in ACTORS[:7]:
        scene.call([bidding(scene, rng.choice([0, 1, 3]), 1, [["burn", rng.randint(0, 3_000)]])], address)
    scene.call([bidding(scene, 1, 1, [["fail", ""]])], ACTORS[7])
    scene.empty(2)
    return scene


@family("gba-payers", "W-02", "W-04")
def gba_payers(rng: random.Random) -> Scene:
    """Under gba_auction a payer that cannot pay waits, and so does a timer below the cycle's basefee."""
    scene = Scene(
        rng,
        lane(5, BLOCK_CYCLES_TARGET=rng.choice([2_000, 5_000])),
        {ACTORS[0]: Actor(), ACTORS[1]: Actor(balance=rng.choice([0, 100]))},
        policy="gba_auction",
        basefee=1_000,
    )
    scene.call([schedule(2, "[]"), schedule(1, "[]")], ACTORS[1])
    scene.call([schedule(after, "[]", max_fee_per_cycle=scene.chain.basefee_cycle) for after in (1, 2)])
    scene.call([["burn", 9_000], tried(schedule(1, "[]", max_fee_per_cycle=scene.chain.basefee_cycle - 1))])
    scene.block()
    scene.run([["burn", 9_000]])
    scene.empty(3)
    return scene


@family("locked-bids", "X-01", "X-02", "X-03")
def locked_bids(rng: random.Random) -> Scene:
    """Under bias_auction a bid is locked when a timer is scheduled, and comes back if it ends without a fire."""
    poor = rng.choice([0, 50])
    scene = Scene(rng, lane(3), {ACTORS[0]: Actor(), ACTORS[1]: Actor(balance=poor)}, policy="bias_auction")
    bids = rng.sample([0, 1, 20, 400, 10**40, -1, 2**96, 2**96 - 1], 4)
    scene.call([tried(schedule(rng.choice([1, 3]), "[]", bid=bid)) for bid in bids])
    scene.call([schedule(3, "[]", bid=rng.choice([5, 77]), save_as="a")])
    scene.call([tried(schedule(1, "[]", bid=bid)) for bid in (poor, poor + 1)], ACTORS[1])
    caps = {"fee_payer": "sender", "payer_cap": 30}
    scene.call([tried(schedule(2, "[]", bid=bid, **caps)) for bid in (30, 31)], timer_allowance=100)
    scene.block()
    scene.run([["cancel", {"saved": "a"}], schedule(1, "[]", bid=3, expires_at=scene.height + 1)])
    scene.empty(3)
    return scene


@family("payments-of-bids", "X-06", "X-07", "X-08", "X-09")
def payments_of_bids(rng: random.Random) -> Scene:
    """What a fire pays of its bid follows from the payment rule, the reserve, and what the lane left out."""
    rule, reserve = rng.choice(["vcg", "critical", "first_price"]), rng.choice([0, 3, 1_000])
    scene = Scene(rng, lane(2, PAYMENT_RULE=rule, RESERVE_PRICE=reserve), policy="bias_auction")
    burn = [["burn", 3_900]]
    script = [
        schedule(1, burn, bid=rng.choice([0, 5, 900, 5_000]), gas_limit=rng.choice([GAS, GAS, 3_000]))
        for _ in range(rng.randint(3, 5))
    ]
    script = [
        each
        if each[1]["gas_limit"] == GAS
        else schedule(1, "[]", **{k: v for k, v in each[1].items() if k not in ("in", "payload")})
        for each in script
    ]
    scene.run(script)
    scene.empty(3)
    scene.sentence = f"The rule is {rule}, the reserve {reserve}."
    return scene


@family("waiting-gains", "X-04", "X-05", "X-10", "X-11")
def waiting_gains(rng: random.Random) -> Scene:
    """Under bias_auction waiting timers gain on those that bid, at a rate that moves."""
    params: dict[str, Any] = lane(
        2,
        BIAS_LAMBDA_MICRO=rng.choice([300_000, 1_000_000]),
        BIAS_LAMBDA_MAX_MICRO=3_000_000,
        BIAS_INTERVAL_BLOCKS=rng.choice([1, 2]),
        BIAS_LAMBDA_STEP_MILLI=rng.choice([125, 500]),
        VALUE_LIFE_BLOCKS=rng.choice([1, 100]),
        MAX_FIRES_PER_ACTOR=rng.choice([1, 9]),
    )
    scene = Scene(rng, params, policy="bias_auction")
    burn = [["burn", 3_900]]
    scene.call([schedule(1, burn, bid=rng.choice([0, 1])) for _ in range(3)])
    scene.block()
    for _ in range(3):
        scene.run([schedule(1, burn, bid=rng.choice([2, 10, 3_000]))], ACTORS[1])
    scene.empty(3)
    return scene


# --- watched keys -----------------------------------------------------------------------------------------------------


def _watch(actor: str = ACTORS[0], key: str = "k", payload: Any = "[]", **fields: Any) -> list[Any]:
    return ["schedule", {"watch": {"actor": actor, "key": key}, "payload": payload, **fields}]


@family("watched-keys", "Y-01", "Y-07", "Y-08", "Y-09")
def watched_keys(rng: random.Random) -> Scene:
    """A timer that watches a key fires once the key has another value: in its block, or in the next one."""
    scene = Scene(rng, policy="bias_auction")
    scene.run([["set", "k", "a"], ["allow_watching", "k", True]])
    scene.call([_watch(bid=rng.choice([0, 5])), _watch(expires_at=scene.height + rng.choice([2, 30]))], ACTORS[1])
    scene.block()
    first = rng.choice([[["set", "k", "a"]], [["set", "k", "b"], ["set", "k", "a"]], [["del", "k"]]])
    scene.run(first)
    scene.run([["set", "k", "c"]])
    scene.run([_watch(payload=[["emit", "seen", ""]])], ACTORS[1])
    scene.run([send(ACTORS[0], [["set", "k", rng.choice(["c", "d", ""])]])])
    scene.empty(2)
    return scene


@family("watching-is-refused", "Y-02", "Y-03", "Y-04", "Y-05", "Y-06")
def watching_is_refused(rng: random.Random) -> Scene:
    """Watching is refused under other policies, for long keys, without leave, and beyond the limit."""
    policy = rng.choice(["bias_auction", "bias_auction", "cip1"])
    most = rng.choice([1, 2])
    scene = Scene(rng, {"MAX_WATCHERS_PER_KEY": most}, policy=policy)
    scene.run([tried(["allow_watching", key, True]) for key in ("k", "k" * 256, "k" * 257, "ü" * 129)])
    scene.call([tried(_watch(key=key)) for key in ("other", "k" * 257)], ACTORS[1])
    scene.call([tried(_watch()) for _ in range(most + 1)], ACTORS[1])
    scene.block()
    scene.run([tried(["allow_watching", "k", False]), ["set", "k", "x"]])
    scene.run([tried(["allow_watching", "k", True]), tried(_watch())])
    scene.empty()
    return scene
