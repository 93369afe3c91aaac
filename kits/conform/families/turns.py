"""Families about the timer phase: order, limits, fires, payers (docs/protocol.md, "Turns and fires")."""

from __future__ import annotations

import base64
import json
import random
from typing import Any, Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import USERS
from kits.conform.cases.scene import ACTORS, Actor, Scene, schedule

family: Final = FamilyTable()
GAS: Final = 5_000


def lane(fires: int, **more: Any) -> dict[str, Any]:
    """Parameters with room for a number of fires of 5,000 cycles in a block."""
    return {
        "LANE_TIMER_CYCLES": fires * GAS,
        "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": GAS,
        "MAX_CYCLES_PER_FIRE": GAS,
        "FIRE_BASE_CYCLES": 1_000,
        "MIN_GAS_LIMIT_PER_TIMER": 1_000,
        **more,
    }


def bidding(scene: Scene, tip: int, after: int = 1, payload: Any = "[]", **fields: Any) -> list[Any]:
    """A timer with a tip, whose max fee is high enough for some blocks."""
    return schedule(
        after, payload, max_fee_per_cycle=8 * scene.lane_price + tip, max_priority_fee_per_cycle=tip, **fields
    )


@family("expired-timers", "L-01", "L-02")
def expired_timers(rng: random.Random) -> Scene:
    """Timers past their expiry are destroyed by age, within the garbage collection budget; the rest wait."""
    budget = rng.choice([1, 2])
    scene = Scene(rng, lane(1, SCAN_LIMIT=1, GC_CYCLES_PER_REMOVAL=10, TIMER_GC_CYCLES=10 + 10 * budget))
    end = scene.height + 1
    burn = [["burn", 4_000]]
    scene.run([bidding(scene, 0, 1, burn, expires_at=end, gas_limit=GAS) for _ in range(rng.randint(3, 5))])
    scene.empty(5)
    scene.sentence = f"The budget is {budget} a block."
    return scene


@family("default-prices", "L-03", "L-04", "L-05", "L-06", "R-08", "R-09")
def default_prices(rng: random.Random) -> Scene:
    """The default agent gives open timers twice the lane price of their first block, and the median tip."""
    scene = Scene(rng, lane(1, DEFAULT_TIP_CAP=rng.choice([0, 1, 8]), LANE_BASEFEE_SLOPE=8, SCAN_LIMIT=50))
    burn = [["burn", 3_900]]
    scene.call([bidding(scene, 10**9 if rng.random() < 0.5 else 3, 1, burn)])
    scene.call([schedule(1, burn), schedule(1, burn), schedule(2, burn)], ACTORS[1])
    scene.empty(5)
    return scene


@family("below-the-lane-price", "L-08", "F-05")
def below_the_lane_price(rng: random.Random) -> Scene:
    """A timer whose max fee is below the lane price waits until the price has fallen."""
    scene = Scene(rng, lane(1, LANE_BASEFEE_SLOPE=8, MIN_BASEFEE=1), basefee=rng.choice([100, 10**6]))
    price = scene.lane_price
    burn = [["burn", 3_900]]
    scene.run([bidding(scene, 1, after, burn) for after in (1, 2)])
    scene.run([schedule(rng.choice([2, 3]), "[]", max_fee_per_cycle=scene.lane_price + rng.choice([0, 1]))])
    scene.empty(6)
    scene.sentence = f"The price begins at {price}."
    return scene


@family("above-the-cap", "L-09", "B-06", "S-04")
def above_the_cap(rng: random.Random) -> Scene:
    """A timer whose gas limit is above the cap in force waits."""
    scene = Scene(rng, lane(2))
    limit = rng.choice([2_000, GAS])
    scene.call([schedule(2, "[]", gas_limit=limit), schedule(2, "[]")])
    scene.system(49, config={"MAX_CYCLES_PER_FIRE_AUCTION_PHASE": limit - rng.choice([1, 500, 0])})
    scene.empty(2)
    scene.system(49, config={"MAX_CYCLES_PER_FIRE_AUCTION_PHASE": GAS})
    scene.empty(1)
    return scene


@family("order-of-tips", "L-10", "B-05")
def order_of_tips(rng: random.Random) -> Scene:
    """Without earlier fires the greatest tip comes first, clamped to the room above the lane price."""
    scene = Scene(rng, lane(rng.choice([2, 9])))
    tips = rng.sample([0, 1, 2, 5, 9, 100], rng.randint(3, 4))
    script = [bidding(scene, tip) for tip in tips]
    script.append(
        schedule(1, "[]", max_fee_per_cycle=scene.lane_price + 3, max_priority_fee_per_cycle=rng.choice([3, 4, 50]))
    )
    scene.run(script)
    scene.empty(3)
    return scene


@family("fairness-weights", "L-11", "L-12", "R-11")
def fairness_weights(rng: random.Random) -> Scene:
    """An actor that fired more than the median weighs less, so a smaller tip may come first."""
    floor = rng.choice([0, 1, 10**18])
    scene = Scene(rng, lane(5, PRIORITY_FLOOR=floor, FAIRNESS_WINDOW_BLOCKS=rng.choice([2, 6])), 3)
    busy, calm = ACTORS[:2]
    scene.call([bidding(scene, 1) for _ in range(rng.randint(2, 4))], busy)
    scene.call([bidding(scene, 1)], calm)
    scene.empty()
    scene.call([bidding(scene, rng.choice([10, 13]))], busy)
    scene.call([bidding(scene, rng.choice([9, 10]))], calm)
    scene.call([bidding(scene, rng.choice([4, 6, 10]))], ACTORS[2])
    scene.empty(2)
    return scene


@family("fairness-window", "L-13", "R-12")
def fairness_window(rng: random.Random) -> Scene:
    """Fires count in the FAIRNESS_WINDOW_BLOCKS blocks after theirs, and no longer."""
    window = rng.choice([1, 2])
    scene = Scene(rng, lane(5, FAIRNESS_WINDOW_BLOCKS=window, PRIORITY_FLOOR=rng.choice([0, 1])))
    scene.call([bidding(scene, 2), bidding(scene, 2)])
    scene.call([bidding(scene, 2)], ACTORS[1])
    scene.empty(rng.choice([window - 1, window, window + 1]) or 1)
    scene.call([bidding(scene, 5), bidding(scene, 4, window + 3)])
    scene.call([bidding(scene, 4)], ACTORS[1])
    scene.empty(window + 3)
    scene.sentence = f"The window has {window} blocks."
    return scene


@family("ties", "L-14", "L-15")
def ties(rng: random.Random) -> Scene:
    """Equal scores go by timer id, or with TIE_BREAK aged by height and sequence."""
    tie_break = rng.choice(["id", "aged"])
    scene = Scene(rng, lane(rng.choice([2, 8]), TIE_BREAK=tie_break))
    tip = rng.choice([0, 4])
    scene.call([bidding(scene, tip, 2, [["burn", i]]) for i in range(rng.randint(2, 3))])
    scene.call([bidding(scene, tip, 2, [["burn", i + 7]]) for i in range(2)], ACTORS[1])
    scene.block()
    scene.run([bidding(scene, tip, 1, [["burn", 99]])])
    scene.empty(3)
    scene.sentence = f"TIE_BREAK is {tie_break}."
    return scene


@family("lane-of-cycles", "L-16", "L-20")
def lane_of_cycles(rng: random.Random) -> Scene:
    """A timer that does not fit into the lane is passed over; turns end when no timer could fit."""
    rest = rng.choice([-1, 0, 1, 500])
    scene = Scene(rng, lane(2, LANE_TIMER_CYCLES=GAS + 1_000 + rest + 1_000))
    burns = [(GAS, 4_000), (GAS, 100), (1_000 + max(0, rest), 0), (2_000, 900), (1_000, 0)]
    scene.run(
        [
            bidding(scene, 20 - i, 1, [["burn", burn]], gas_limit=gas)
            for i, (gas, burn) in enumerate(burns[: rng.randint(3, 5)])
        ]
    )
    scene.empty(3)
    return scene


@family("lane-of-cells", "L-17", "L-27")
def lane_of_cells(rng: random.Random) -> Scene:
    """Turns end once fires have used LANE_TIMER_CELLS; a fire has at most MAX_CELLS_PER_FIRE."""
    cells = rng.choice([5, 40])
    scene = Scene(rng, lane(9, LANE_TIMER_CELLS=rng.choice([cells, cells + 1]), MAX_CELLS_PER_FIRE=cells))
    sizes = [cells, rng.choice([cells - 1, cells + 1]), 0, 1]
    scene.run([bidding(scene, 9 - i, 1, [["emit", "e", "x" * size]]) for i, size in enumerate(sizes)])
    scene.empty(3)
    return scene


@family("scan-limit", "L-18")
def scan_limit(rng: random.Random) -> Scene:
    """SCAN_LIMIT timers are looked at in a block, those that do not fit included."""
    limit = rng.choice([1, 2, 3])
    params = lane(2, SCAN_LIMIT=limit, GC_CYCLES_PER_REMOVAL=10, TIMER_GC_CYCLES=20 * limit + 50)
    scene = Scene(rng, {**params, "LANE_TIMER_CYCLES": rng.choice([GAS + 1_200, 9 * GAS])})
    scene.run([bidding(scene, 9 - i, 1, [["burn", rng.choice([0, 3_000])]]) for i in range(limit + rng.randint(1, 2))])
    scene.empty(3)
    scene.sentence = f"The limit is {limit}."
    return scene


@family("fires-in-a-block", "L-19")
def fires_in_a_block(rng: random.Random) -> Scene:
    """MAX_FIRES_PER_BLOCK timers fire in a block at most, under each policy."""
    most = rng.choice([1, 2])
    policy = rng.choice(["cip1", "cip1", "gba_auction", "bias_auction", "fifo"])
    scene = Scene(rng, lane(9, MAX_FIRES_PER_BLOCK=most), policy=policy)
    scene.run([schedule(1, [["burn", i]], max_priority_fee_per_cycle=i) for i in range(most + 2)])
    scene.empty(3)
    scene.sentence = f"The policy is {policy}."
    return scene


@family("insolvent-payers", "L-21", "L-23")
def insolvent_payers(rng: random.Random) -> Scene:
    """A timer whose payer cannot pay is destroyed at its turn, while the garbage collection has cycles."""
    poor = ACTORS[1]
    basefee = rng.choice([7, 1_000])
    price = GAS * 2 * basefee + 10 * basefee
    balance = rng.choice([price, price - 1, 0, 2 * price])
    params = lane(9, MAX_CELLS_PER_FIRE=10, SCAN_LIMIT=2, GC_CYCLES_PER_REMOVAL=10, BLOCK_CYCLES_TARGET=10**6)
    params |= {"TIMER_GC_CYCLES": rng.choice([40, 41, 50]), "MIN_BASEFEE": basefee, "MAX_BASEFEE": basefee}
    scene = Scene(rng, params, {ACTORS[0]: Actor(), poor: Actor(balance=balance)}, basefee=basefee)
    scene.call([schedule(1, [["burn", i]], max_fee_per_cycle=basefee) for i in range(rng.randint(3, 7))], poor)
    scene.call([schedule(1, "[]")])
    scene.empty(2)
    scene.sentence = f"The balance is {balance}, a fire needs {price}."
    return scene


@family("payer-caps", "L-22", "L-24", "T-12")
def payer_caps(rng: random.Random) -> Scene:
    """What a fire needs has to be within its payer's cap."""
    basefee = rng.choice([7, 1_000])
    params = lane(9, MAX_CELLS_PER_FIRE=10, MIN_BASEFEE=basefee, MAX_BASEFEE=basefee)
    scene = Scene(rng, params, basefee=basefee)
    needed = 2_000 * 2 * basefee + 10 * basefee
    caps = [needed, needed - 1, needed + 1, 1]
    rng.shuffle(caps)
    script = [
        schedule(1, [["burn", 5 + i]], gas_limit=2_000, max_fee_per_cycle=basefee, fee_payer="sender", payer_cap=cap)
        for i, cap in enumerate(caps)
    ]
    scene.run(script, timer_allowance=10**12)
    scene.empty(2)
    return scene


@family("fires-that-fail", "L-25", "L-26", "L-27")
def fires_that_fail(rng: random.Random) -> Scene:
    """A fire pays its base cycles first; one that fails pays what it used and is gone."""
    base = rng.choice([1, 1_000, 2_500])
    scene = Scene(rng, lane(9, FIRE_BASE_CYCLES=base, MAX_CELLS_PER_FIRE=30))
    endings = [[["fail", "x"]], [["burn", GAS]], [["emit", "e", "x" * 31]], "no script", [["burn", GAS - base]]]
    scene.run(
        [
            bidding(scene, i, 1, [["set", "k", "v"], *each] if isinstance(each, list) else each)
            for i, each in enumerate(endings)
        ]
    )
    scene.run([schedule(1, "[]", gas_limit=max(1_000, base - 1))])
    scene.empty(2)
    return scene


@family("envelopes", "L-28", "L-29")
def envelopes(rng: random.Random) -> Scene:
    """A timer's payload may be an object of _handler and _payload, and is taken as it is if it is not exactly that."""
    scene = Scene(rng)
    inner = base64.b64encode(json.dumps([["emit", "inner", "x"]]).encode()).decode()
    forms: list[Any] = [
        {"_handler": "h", "_payload": inner},
        {"_handler": "h", "_payload": inner, "x": 1},
        {"_handler": "", "_payload": inner},
        {"_handler": "h" * 257, "_payload": inner},
        {"_handler": "h"},
        {"_handler": 7, "_payload": inner},
        {"_handler": "h", "_payload": inner.rstrip("=") + "\n"},
        {"_handler": "h", "_payload": "=="},
        {"_handler": "h", "_payload": ""},
        {"_handler": "\ud800", "_payload": inner},
        {"_handler": "h", "_payload": base64.b64encode(b"[] ").decode()},
        f'\r\n{{ "_payload" :\t"{inner}" , "_handler" : "h" }} ',
        f'{{"_hand\\u006cer":"\\u0068","_payload":"{inner}"}}',
        f'{{"_handler":"h","_handler":"h","_payload":"{inner}"}}',
        '{"_handler":"h","_handler":"h"}',
        f'{{"_handler":"\x01","_payload":"{inner}"}}',
        f'\x0b{{"_handler":"h","_payload":"{inner}"}}',
        f'\ufeff{{"_handler":"h","_payload":"{inner}"}}',
        '{"_handler":"h","_payload":"W11="}',
    ]
    chosen = [forms[0], *rng.sample(forms[1:], 5)]
    scene.run([schedule(1, form if isinstance(form, str) else json.dumps(form)) for form in chosen])
    scene.empty()
    return scene


@family("timers-that-meddle", "T-21", "T-22", "L-10")
def timers_that_meddle(rng: random.Random) -> Scene:
    """A fire's timer is gone before its handler runs, and fires may cancel and extend the others."""
    scene = Scene(rng, lane(rng.choice([2, 9])))
    operations = [
        ["try", ["cancel", {"saved": "a"}]],
        ["try", ["extend", {"saved": "b", "expires_at": scene.height + 30}]],
        ["try", ["cancel", {"saved": "b"}]],
        schedule(1, [["emit", "later", ""]]),
        ["transfer", {"to": USERS[1], "amount": 1}],
    ]
    script = [
        bidding(scene, 9 - i, 1, rng.sample(operations, 2), save_as=key, expires_at=scene.height + rng.choice([1, 9]))
        for i, key in enumerate("abc")
    ]
    scene.run(script)
    scene.empty(3)
    return scene
