"""Families about messages and system instructions (docs/protocol.md)."""

from __future__ import annotations

import random
from typing import Any, Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import DEPLOYER, STRANGER, USERS
from kits.conform.cases.scene import ACTORS, CYCLES, Scene, schedule, send, tried

family: Final = FamilyTable()
SMALL: Final[dict[str, Any]] = {"MESSAGE_CYCLES": 20_000, "MESSAGE_CELLS": 500, "LANE_DEFERRED_CYCLES": 200_000}


@family("messages", "M-01", "M-02", "C-11")
def messages(rng: random.Random) -> Scene:
    """Messages run after the timers, in the order in which they were sent."""
    scene = Scene(rng, SMALL)
    bodies = [
        [["emit", "said", "a"]],
        [["set", "k", "v"]],
        [["fail", "x"]],
        "[]",
        [["transfer", {"to": USERS[1], "amount": 1}]],
    ]
    for address in ACTORS[:2]:
        script = [send(rng.choice(ACTORS[:2]), body) for body in rng.sample(bodies, 3)]
        scene.call(script, address)
    scene.call([send(ACTORS[1], [["fail", "x"]])])
    scene.empty()
    return scene


@family("message-limits", "M-03")
def message_limits(rng: random.Random) -> Scene:
    """A message reserves 2,000 cycles to MESSAGE_CYCLES, and up to MESSAGE_CELLS."""
    scene = Scene(rng, SMALL)
    limits = [{"cycles": each} for each in (1_999, 2_000, 20_000, 20_001, -1, None)]
    limits += [{"cells": each} for each in (-1, 0, 500, 501)]
    scene.run([tried(send(ACTORS[1], "[]", **each)) for each in rng.sample(limits, 5)])
    scene.run([tried(send(ACTORS[1], "[]", cycles=1_999)), tried(send(ACTORS[1], "[]", cells=501))])
    return scene


@family("too-many-messages", "M-04", "M-10", "M-11")
def too_many_messages(rng: random.Random) -> Scene:
    """A fire or a message sends two messages at most."""
    scene = Scene(rng, SMALL)
    most = rng.choice([2, 3, 4])
    script = [tried(send(ACTORS[1], "[]", cycles=2_000, cells=0)) for _ in range(most)]
    last = [tried(send(ACTORS[1], "[]", cycles=2_000, cells=0)) for _ in range(3)]
    scene.call([send(ACTORS[1], script, cycles=20_000, cells=500), schedule(1, script)])
    scene.call([schedule(1, last)], ACTORS[1])
    scene.empty(2)
    return scene


@family("message-receivers", "M-05", "M-06")
def message_receivers(rng: random.Random) -> Scene:
    """A message has an actor as its receiver and a handler of up to 256 bytes, which may be empty."""
    scene = Scene(rng, SMALL)
    handlers = rng.sample(["", "h" * 256, "h" * 257, "ü" * 128, "ü" * 129], 3)
    script = [tried(["send", {"to": ACTORS[1], "handler": name, "payload": "[]"}]) for name in [*handlers, "h" * 257]]
    script += [tried(send(to)) for to in (USERS[1], STRANGER, "0x" + "00" * 19 + "0a")]
    scene.run(script)
    scene.empty()
    return scene


@family("mailboxes", "M-07", "B-10", "R-10")
def mailboxes(rng: random.Random) -> Scene:
    """The payloads that wait for a receiver have at most MAILBOX_BYTES."""
    room = rng.choice([10, 60])
    scene = Scene(rng, {**SMALL, "MAILBOX_BYTES": room, "LANE_DEFERRED_CYCLES": 20_000})
    sizes = [room, 1, room - 1, 2, room // 2]
    rng.shuffle(sizes)
    scene.call([tried(send(ACTORS[1], "[]".ljust(size))) for size in [*sizes[:4], room]])
    scene.call([tried(send(ACTORS[1], "[]")), ["fail", "x"]])
    scene.block()
    scene.run([tried(send(ACTORS[1], "[]".ljust(room)))])
    scene.empty(2)
    return scene


@family("deferred-lane", "B-10", "M-01", "M-11")
def deferred_lane(rng: random.Random) -> Scene:
    """Messages run while their reserved cycles fit into LANE_DEFERRED_CYCLES; the others wait."""
    scene = Scene(rng, {**SMALL, "LANE_DEFERRED_CYCLES": 20_000 + rng.choice([0, 1, 999, 5_000])})
    reserving = send(ACTORS[1], [send(ACTORS[0], "[]", cycles=9_000, cells=0)] * 2, cycles=20_000)
    cycles = [rng.choice([2_000, 9_000, 17_000, 19_000, 20_000]) for _ in range(4)]
    script = [send(ACTORS[1], [["burn", rng.randint(0, 900)]], cycles=each) for each in cycles]
    script.insert(rng.choice([0, 0, 4]), reserving)
    scene.run(script)
    scene.empty(5)
    return scene


@family("message-charges", "M-08", "M-09", "A-12")
def message_charges(rng: random.Random) -> Scene:
    """The sender pays for what a message reserves; the run has no more than that."""
    scene = Scene(rng, {**SMALL, "MESSAGE_BASE_CYCLES": rng.choice([1, 1_000, 2_000])})
    burn = rng.choice([0, 999, 1_000, 1_001, 1_999, 2_000])
    scene.call([send(ACTORS[1], [["burn", burn]], cycles=2_000, cells=0)])
    scene.call([send(ACTORS[1], [["burn", 2_000]], cycles=2_000, cells=0)])
    scene.call([send(ACTORS[1], [["emit", "e", "xx"]], cycles=5_000, cells=rng.choice([1, 2]))])
    scene.call([send(ACTORS[1], [["emit", "e", "xxx"]], cycles=5_000, cells=1)])
    reserve = rng.choice([CYCLES, 2_080 + rng.choice([0, 1])])
    scene.call([send(ACTORS[1], "[]", cycles=2_000, cells=0)], gas_limit=scene.base + reserve - 1)
    scene.block()
    return scene


# --- system instructions ----------------------------------------------------------------------------------------------


@family("system-deployers", "S-01")
def system_deployers(rng: random.Random) -> Scene:
    """Only a system deployer gives instructions; another sender is refused before anything else is checked."""
    scene = Scene(rng)
    scene.system(rng.choice([48, 50]), USERS[0], timer_id="ab" * 32)
    if scene._txs[0]["opcode"] == 50:
        scene._txs[0]["args"]["new_expires_at"] = 9
    scene.system(49, USERS[1], config=rng.choice([{}, {"NO_SUCH": 1}, {"MAX_TTL": 9}]))
    scene.system(49, DEPLOYER, config={})
    scene.empty()
    return scene


@family("system-cancel", "S-02", "S-03")
def system_cancel(rng: random.Random) -> Scene:
    """Instruction 48 removes any actor's timer, and succeeds for an unknown one."""
    scene = Scene(rng)
    scene.run([schedule(rng.choice([2, 3]), "[]"), schedule(4, "[]")], rng.choice(ACTORS[:2]))
    ids = scene.chain.timer_ids()
    scene.system(48, timer_id=rng.choice(ids))
    scene.system(48, timer_id=rng.choice(["00" * 32, "ab" * 32]))
    scene.empty(3)
    return scene


@family("system-extend", "S-06", "S-07", "S-08")
def system_extend(rng: random.Random) -> Scene:
    """Instruction 50 extends any actor's timer as its actor could."""
    ttl = rng.choice([5, 20])
    scene = Scene(rng, {"MAX_TTL": ttl})
    end = scene.height + 3
    scene.run([schedule(rng.choice([2, 3]), "[]", expires_at=end)])
    (timer_id,) = scene.chain.timer_ids()
    scene.system(50, timer_id="cd" * 32, new_expires_at=end + 1)
    scene.system(50, timer_id=timer_id, new_expires_at=rng.choice([end, end - 1, 0]))
    scene.system(50, timer_id=timer_id, new_expires_at=rng.choice([end + 1, scene.height + ttl + 1, 2**63]))
    scene.empty(3)
    return scene


@family("governed-parameters", "S-04", "S-05", "B-06")
def governed_parameters(rng: random.Random) -> Scene:
    """Instruction 49 sets governed parameters from the next block on: all of them or none."""
    scene = Scene(rng, {"MIN_GAS_LIMIT_PER_TIMER": 1_000})
    good: list[dict[str, Any]] = [
        {"MAX_TTL": rng.choice([3, "40"])},
        {"LANE_FEE_MULTIPLIER_MILLI": rng.choice([0, 2_000])},
        {"PRIORITY_TIERS": [1, 2, 3, 4]},
        {"MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 1_000},
        {"FAIRNESS_WINDOW_BLOCKS": 1, "PRIORITY_FLOOR": 7},
    ]
    bad: list[dict[str, Any]] = [
        {"NO_SUCH": 1},
        {"SCAN_LIMIT": 5},
        {"MAX_TTL": rng.choice([0, -1, 10**9 + 1, "x", None])},
        {"LANE_TIMER_CYCLES": 2},
        {"MAX_CYCLES_PER_FIRE": 999},
        {"PRIORITY_TIERS": [1, 2, 3]},
        {"LANE_BASEFEE_SLOPE": rng.choice([0, 9])},
    ]
    scene.system(49, config=rng.choice(good))
    scene.system(49, config=rng.choice(bad))
    scene.system(49, config=rng.choice(bad) | rng.choice(good))
    scene.call([tried(schedule(2, "[]", expires_at=scene.height + 30)), tried(schedule(1, "[]", tier="fast"))])
    scene.block()
    scene.run([tried(schedule(2, "[]", expires_at=scene.height + 30)), tried(schedule(1, "[]"))])
    scene.empty(2)
    return scene
