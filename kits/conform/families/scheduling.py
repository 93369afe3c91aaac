"""Families about scheduling, cancelling and extending timers (docs/protocol.md, "Scheduling")."""

from __future__ import annotations

import random
from typing import Any, Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import STRANGER, TIERS, USERS
from kits.conform.cases.scene import ACTORS, Scene, schedule, tried

family: Final = FamilyTable()
FEE_LIMIT: Final = 2**96


@family("heartbeats", "T-01", "L-03")
def heartbeats(rng: random.Random) -> Scene:
    """A timer fires at its height, and schedules the next one."""
    scene = Scene(rng)
    script = [["emit", "beat", "last"]]
    for _ in range(rng.randint(1, 3)):
        script = [["emit", "beat", ""], schedule(rng.choice([1, 2]), script)]
    scene.run(script)
    scene.empty(6)
    return scene


@family("timer-ids", "T-01", "C-12")
def timer_ids(rng: random.Random) -> Scene:
    """A timer's id follows from its actor, height, payload and schedule nonce."""
    scene = Scene(rng)
    payloads = rng.sample(["", "[]", "x", {"hex": "00ff"}, [["emit", "é", "😀"]], [["burn", 1]]], 4)
    scene.call([schedule(rng.randint(1, 9), payload, save_as=f"k{i}") for i, payload in enumerate(payloads)])
    scene.call([schedule(rng.randint(1, 9), payloads[0], save_as="other")], ACTORS[1])
    scene.block()
    scene.run([schedule(3, payloads[1], save_as="again")])
    return scene


@family("bids-deprecated", "T-02")
def bids_deprecated(rng: random.Random) -> Scene:
    """A bid is refused in the auction of cip1, before anything else is checked."""
    scene = Scene(rng)
    bid = rng.choice([0, 5, -1, FEE_LIMIT])
    scene.call([tried(schedule(rng.choice([1, 0, -1]), "[]", bid=bid, max_fee_per_cycle=rng.choice([-1, 1])))])
    scene.call([schedule(1, "[]", bid=None)])
    scene.block()
    return scene


@family("bids-ignored", "T-03")
def bids_ignored(rng: random.Random) -> Scene:
    """Outside the auction a bid is reported, and has no meaning."""
    height = rng.choice([1, 2])
    scene = Scene(rng, {"ACTIVATION_HEIGHT": height}) if rng.random() < 0.5 else Scene(rng, policy="fifo")
    scene.run([schedule(1, "[]", bid=rng.choice([0, 9, -7])), schedule(2, "[]")])
    scene.run([tried(schedule(1, "[]", bid=4))])
    scene.empty(2)
    return scene


@family("fees-out-of-range", "T-04")
def fees_out_of_range(rng: random.Random) -> Scene:
    """Fees and caps are from 0 to 2^96 - 1, and a tier excludes a priority."""
    scene = Scene(rng)
    names = ("max_fee_per_cycle", "max_priority_fee_per_cycle", "payer_cap")
    script = []
    for _ in range(3):
        name = rng.choice(names)
        fees = {name: rng.choice([-1, FEE_LIMIT, FEE_LIMIT - 1, 0, 10**40])}
        script.append(tried(schedule(rng.choice([1, 0]), "[]", **fees)))
    script.append(tried(schedule(1, "[]", tier="fast", max_priority_fee_per_cycle=rng.choice([0, 1]))))
    scene.run(script)
    scene.empty()
    return scene


@family("tiers", "T-05")
def tiers(rng: random.Random) -> Scene:
    """A tier states the priority as a share of the median tip."""
    weights = rng.choice([[8, 10, 15, 25], [0, 1, 1_000, 7]])
    scene = Scene(rng, {"PRIORITY_TIERS": weights})
    price = 4 * scene.lane_price + 100
    tips = [rng.randint(1, 40) for _ in range(3)]
    scene.run([schedule(1, "[]", max_fee_per_cycle=price, max_priority_fee_per_cycle=tip) for tip in tips])
    scene.empty()
    scene.run([schedule(1, "[]", tier=tier) for tier in rng.sample(TIERS, 3)])
    scene.empty()
    return scene


@family("heights", "T-06", "T-07")
def heights(rng: random.Random) -> Scene:
    """A timer's height is above the block's, and below 2^63."""
    scene = Scene(rng)
    height = scene.height
    choices = [height, height - 1, height + 1, 0, -1, 2**63, 2**63 - 1, 2**200]
    script = [
        tried(["schedule", {"height": each, "payload": "[]", "expires_at": None}]) for each in rng.sample(choices, 4)
    ]
    scene.run([*script, tried(schedule(rng.choice([0, -1, 2**63]))), tried(schedule(1))])
    scene.empty()
    return scene


@family("timer-payloads", "T-08")
def timer_payloads(rng: random.Random) -> Scene:
    """A timer's payload has at most MAX_TIMER_PAYLOAD bytes, and each is a cell."""
    most = rng.choice([1, 60, 400])
    scene = Scene(rng, {"MAX_TIMER_PAYLOAD": most})
    sizes = [most, most + 1, rng.randint(0, most)]
    scene.run([tried(schedule(2, "x" * size, save_as="k")) for size in sizes])
    scene.empty(2)
    return scene


@family("timer-handlers", "T-09")
def timer_handlers(rng: random.Random) -> Scene:
    """A handler's name has 1 to 256 bytes of UTF-8."""
    scene = Scene(rng)
    names = rng.sample(["", "h", "h" * 256, "h" * 257, "ü" * 128, "ü" * 129, "handle_timer"], 5)
    scene.run([tried(schedule(1, "[]", handler=name, gas_limit=3_000)) for name in names])
    scene.empty()
    return scene


@family("timer-limit", "T-10", "T-21")
def timer_limit(rng: random.Random) -> Scene:
    """An actor has at most MAX_TIMERS_PER_ACTOR live timers; a fire or a cancellation makes room."""
    most = rng.choice([1, 2, 3])
    scene = Scene(rng, {"MAX_TIMERS_PER_ACTOR": most})
    scene.call([tried(schedule(2, "[]", save_as=f"k{i}")) for i in range(most + 1)])
    scene.call([schedule(2, "[]")], ACTORS[1])
    scene.block()
    scene.run([["cancel", {"saved": "k0"}], schedule(3, "[]"), tried(schedule(3, "[]"))])
    scene.empty()
    scene.run([tried(schedule(1, "[]"))])
    return scene


@family("fee-payers", "T-11", "T-12", "L-24")
def fee_payers(rng: random.Random) -> Scene:
    """The sender of the transaction may pay for a timer, within the transaction's timer allowance."""
    scene = Scene(rng)
    cap = rng.choice([10**6, 10**12, 10**18])
    payers: list[dict[str, Any]] = [
        {"fee_payer": "sender", "payer_cap": rng.choice([cap, cap // 2, 1])},
        {"fee_payer": "sender"},
        {"fee_payer": rng.choice([USERS[1], STRANGER, ACTORS[1]]), "payer_cap": 1},
        {"fee_payer": "self", "payer_cap": rng.choice([None, 10**30])},
        {"fee_payer": USERS[0], "payer_cap": rng.choice([0, cap + 1, cap])},
        {"fee_payer": ACTORS[0]},
    ]
    script = [tried(schedule(1, "[]", gas_limit=2_000, **payer)) for payer in rng.sample(payers, 5)]
    scene.run([*script, tried(schedule(1, "[]", gas_limit=1_000, fee_payer="sender"))], timer_allowance=cap)
    scene.call([tried(schedule(1, "[]", fee_payer="sender"))])
    scene.empty()
    return scene


@family("gas-limits", "T-13", "T-14")
def gas_limits(rng: random.Random) -> Scene:
    """A timer's gas limit is from MIN_GAS_LIMIT_PER_TIMER to the cap of the block."""
    low, cap = rng.choice([2, 1_000, 2_000]), rng.choice([4_000, 9_000])
    params = {
        "MIN_GAS_LIMIT_PER_TIMER": low,
        "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": cap,
        "ACTIVATION_HEIGHT": rng.choice([0, 1]),
    }
    scene = Scene(rng, {**params, "MAX_CYCLES_PER_FIRE": cap + rng.choice([0, 500])})
    limits = [low - 1, low, cap, cap + 1, cap + 500, cap + 501, 0, -1, 10**12]
    for _ in range(2):
        scene.run([tried(schedule(1, "[]", gas_limit=limit)) for limit in rng.sample(limits, 5)])
    scene.run([tried(schedule(1, "[]", gas_limit=limit)) for limit in (low - 1, low, cap + 501)])
    return scene


@family("expiries", "T-15", "T-16", "T-17")
def expiries(rng: random.Random) -> Scene:
    """A timer expires at its height or later, and at most MAX_TTL after it is scheduled."""
    ttl = rng.choice([2, 3, 20])
    scene = Scene(rng, {"MAX_TTL": ttl})
    height = scene.height
    ends = [height + 1, height + 2, height, height + ttl, height + ttl + 1, 10**30, -1, None]
    script = [tried(schedule(rng.choice([1, 2, ttl]), "[]", expires_at=end)) for end in rng.sample(ends, 5)]
    scene.run([*script, tried(schedule(1, "[]", expires_at=height + ttl + 5)), tried(schedule(ttl + 1, "[]"))])
    scene.empty(3)
    return scene


@family("fees-below-the-lane-price", "T-18", "T-19", "L-07")
def fees_below_the_lane_price(rng: random.Random) -> Scene:
    """A max fee below the lane price is refused, and a priority above the room is clamped."""
    scene = Scene(rng, basefee=rng.choice([7, 1_000, 10**6]))
    price = scene.lane_price
    stated = [
        {"max_fee_per_cycle": price - 1},
        {"max_fee_per_cycle": price},
        {"max_fee_per_cycle": price, "max_priority_fee_per_cycle": rng.choice([0, 1])},
        {"max_fee_per_cycle": price + 5, "max_priority_fee_per_cycle": rng.choice([5, 6, FEE_LIMIT - 1])},
        {"max_priority_fee_per_cycle": FEE_LIMIT - 1},
        {"max_fee_per_cycle": 0, "max_priority_fee_per_cycle": 1},
    ]
    scene.run([tried(schedule(1, "[]", **fees)) for fees in rng.sample(stated, 5)])
    scene.empty(2)
    return scene


@family("cancelling", "T-21", "T-24", "T-25", "C-13")
def cancelling(rng: random.Random) -> Scene:
    """Only a timer's actor cancels it, by its id or by the key under which it was saved."""
    scene = Scene(rng)
    scene.call([schedule(3, "[]", save_as="mine"), schedule(2, [["cancel", {"saved": "mine"}]], save_as="other")])
    scene.call([schedule(4, "[]", save_as="theirs")], ACTORS[1])
    scene.block()
    ids = scene.chain.timer_ids()
    chosen = rng.choice(ids)
    scene.call(
        [
            tried(["cancel", {"id": rng.choice([chosen, chosen.upper()])}]),
            tried(["cancel", {"id": rng.choice(["", "zz", "00" * 32, "0x" + chosen])}]),
            tried(["cancel", {"saved": rng.choice(["mine", "other", "none"])}]),
        ]
    )
    scene.call([tried(["cancel", {"id": each}]) for each in ids], ACTORS[1])
    scene.empty(3)
    return scene


@family("extending", "T-22", "T-23", "T-15", "T-24", "T-25", "C-14")
def extending(rng: random.Random) -> Scene:
    """Extending a timer sets a later expiry, at most MAX_TTL from now, unless it is past its expiry."""
    ttl = rng.choice([6, 20])
    scene = Scene(rng, {"MAX_TTL": ttl})
    scene.call([schedule(2, "[]", expires_at=scene.height + 3, save_as="a"), schedule(1, "[]", save_as="b")])
    scene.call([schedule(3, "[]", expires_at=scene.height + 3)], ACTORS[1])
    scene.block()
    height = scene.height
    ends = [height, height + 1, height + 2, height + 3, height + 4, height + ttl, height + ttl + 1, 10**30, -1]
    script = [tried(["extend", {"saved": rng.choice("aabc"), "expires_at": end}]) for end in rng.sample(ends, 5)]
    others = [tried(["extend", {"id": each, "expires_at": height + 9}]) for each in scene.chain.timer_ids()]
    scene.run([*script, tried(["extend", {"saved": "a", "expires_at": height + ttl + 5}]), *others])
    scene.empty(4)
    return scene


@family("named-agents", "M-06", "C-12")
def named_agents(rng: random.Random) -> Scene:
    """A call that needs an actor fails for another account."""
    scene = Scene(rng)
    to = rng.choice([USERS[1], STRANGER, "0x" + "00" * 19 + "0a"])
    scene.run([tried(["send", {"to": to, "handler": "h", "payload": "[]"}]), schedule(1, "[]")])
    scene.empty()
    return scene
