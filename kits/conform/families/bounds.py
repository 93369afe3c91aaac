"""Families about documented numbers: one below, at and one above each bound, odd divisors, and other spellings."""

from __future__ import annotations

import random
from typing import Any, Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import USERS
from kits.conform.cases.scene import ACTORS, Actor, Scene, schedule, send, tried

family: Final = FamilyTable()

NUMBER_DIGITS: Final = 640
NESTING: Final = 64
NAME_BYTES: Final = 256
PRICES: Final = 2**96
HEIGHTS: Final = 2**63


def around(bound: int) -> list[int]:
    """A bound, and the numbers next to it."""
    return [bound - 1, bound, bound + 1]


@family("odd-targets", "F-05", "F-06", "F-09")
def odd_targets(rng: random.Random) -> Scene:
    """The lane's target is half of LANE_TIMER_CYCLES, rounded down: at the target the basefee rests."""
    lane = 2 * rng.randint(4_000, 4_900) + 1
    params = {
        "LANE_TIMER_CYCLES": lane,
        "LANE_BASEFEE_SLOPE": rng.randint(1, 8),
        "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 8_000,
        "MAX_CYCLES_PER_FIRE": 8_000,
        "FIRE_BASE_CYCLES": 1_000,
        "MIN_BASEFEE": 1,
    }
    scene = Scene(rng, params, basefee=rng.choice([1_000, 10**6]))
    burns = [used - 1_000 for used in around(lane // 2)]
    rng.shuffle(burns)
    scene.run([schedule(n, [["burn", burn]], gas_limit=burn + 1_000) for n, burn in enumerate(burns, 1)])
    scene.empty(4)
    return scene


@family("number-lengths", "C-01")
def number_lengths(rng: random.Random) -> Scene:
    """A number of a script has at most 640 characters, a sign among them; longer ones are no script."""
    scene = Scene(rng)
    digit = rng.choice("123456789")
    for length in around(NUMBER_DIGITS):
        for number in (digit * length, "-" + digit * (length - 1)):
            scene.run(f'[["try",["schedule",{{"height":{number},"payload":""}}]]]')
    scene.run(f'[["emit","n","{digit * 700}"],["schedule",{{"in":1,"payload":"{digit * 700}"}}]]')
    scene.run(f'[["schedule",{{"in":1,"payload":"","other":{digit * (NUMBER_DIGITS + 1)}}}]]')
    inner = f'[["burn",{"0" if rng.random() < 0.5 else digit}{digit * NUMBER_DIGITS}]]'
    scene.run([schedule(1, inner)])
    scene.empty()
    return scene


@family("nesting-levels", "C-01")
def nesting_levels(rng: random.Random) -> Scene:
    """A script has at most 64 levels of lists and objects; brackets in texts are none."""
    scene = Scene(rng)
    for levels in around(NESTING):
        inside = levels - 3
        lists = "[" * inside + "]" * inside
        objects = '{"a":' * (inside - 1) + "{}" + "}" * (inside - 1)
        for content in (lists, objects):
            scene.call(f'[["schedule",{{"in":1,"payload":"","x":{content}}}]]')
    scene.call('[["emit","x","' + "[{" * NESTING + '\\"]["]]')
    scene.call('[["emit","x","' + "[" * NESTING * 2 + '"],["burn",1]]')
    scene.block()
    scene.empty()
    return scene


@family("name-lengths", "C-07", "M-05", "T-09")
def name_lengths(rng: random.Random) -> Scene:
    """Names have at most 256 bytes of UTF-8, however many characters these are."""
    scene = Scene(rng)
    for size in (0, 1, *around(NAME_BYTES)):
        names = ["a" * size]
        names += ["\u00e9" * (size // 2) + "a" * (size % 2), "\U0001f600" * (size // 4) + "a" * (size % 4)]
        for name in names:
            scene.call([tried(["emit", name, "x"])])
            scene.call([tried(schedule(1, "[]", handler=name))])
            scene.call([tried(send(ACTORS[1], handler=name))])
    scene.block()
    scene.empty()
    return scene


@family("prices-at-their-limits", "T-04", "T-07")
def prices_at_their_limits(rng: random.Random) -> Scene:
    """Prices are below 2^96, heights below 2^63, and caps below 2^96, each up to the last number."""
    scene = Scene(rng, {"MAX_TTL": rng.choice([8, 10_000])})
    fields = ("max_fee_per_cycle", "max_priority_fee_per_cycle", "payer_cap")
    for name in fields:
        for value in (-1, 0, 1, *around(PRICES)):
            scene.call([tried(schedule(1, "[]", **{name: value}))])
    for height in (0, scene.height, scene.height + 1, *around(HEIGHTS)):
        scene.call([tried(["schedule", {"height": height, "payload": ""}])])
    for more in around(scene.param("MAX_TTL")):
        scene.call([tried(schedule(1, "[]", expires_at=scene.height + more))])
    for value in around(HEIGHTS) + around(2 * HEIGHTS):
        scene.call([tried(schedule(1, "[]", expires_at=value))])
    scene.block()
    scene.empty(2)
    return scene


@family("spellings", "C-16", "C-17", "T-24")
def spellings(rng: random.Random) -> Scene:
    """One value in its other spellings: addresses, ids and payloads in hex, in either case and with odd digits."""
    scene = Scene(rng, actors={address: Actor() for address in ACTORS[10:13]})
    to = ACTORS[11]
    addresses = [to, to.upper(), "0x" + to[2:].upper(), "0X" + to[2:], to[2:], " " + to, to + " ", to[:-1], to + "0"]
    for text in addresses:
        scene.call([tried(["transfer", {"to": text, "amount": 1}])], to=ACTORS[10])
        scene.call([tried(send(text))], to=ACTORS[10])
    scene.block()
    scene.run([["schedule", {"in": 5, "payload": "", "save_as": "a"}]], to=ACTORS[10])
    timer = str(scene.chain.answer()["final"]["timers"][0]["timer_id"])
    odd: list[Any] = [timer[:-1], timer + "0", "0x" + timer, " " + timer, timer[:-1] + "g", timer.upper()]
    for text in odd:
        scene.run([tried(["cancel", {"id": text}])], to=ACTORS[10], sender=USERS[0])
    for digits in ("", "5b5d", "5B5D", "5b5", "0x5b5d", " 5b5d", "5b5g"):
        scene.run([["schedule", {"in": 5, "payload": {"hex": digits}}]], to=ACTORS[10])
    return scene
