"""Families about the content of state and its root (docs/protocol.md, "State", and docs/state.md)."""

from __future__ import annotations

import random
from typing import Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import USERS
from kits.conform.cases.running_chain import RunningChain
from kits.conform.cases.scene import ACTORS, Scene, schedule

family: Final = FamilyTable()


@family("tree", "R-01", "R-02", "R-03")
def tree(rng: random.Random) -> Scene:
    """The state root alone: keys are added, changed and removed, in one block and over several."""
    scene = Scene(rng, actors=1)
    keys = [f"{rng.randint(0, 999)}" for _ in range(5)]
    for _ in range(4):
        script = []
        for _ in range(rng.randint(1, 6)):
            key = rng.choice(keys)
            script.append(["del", key] if rng.random() < 0.3 else ["set", key, rng.choice(["", "v", "w" * 40])])
        scene.run(script)
    scene.run([["set", "end", "a"]])
    scene.run([["set", "end", "b"]])
    scene.run([["del", "end"]])
    scene.empty()
    return scene


@family("long-keys", "R-04")
def long_keys(rng: random.Random) -> Scene:
    """A storage key of more than 256 bytes goes by its hash."""
    scene = Scene(rng)
    keys = ["k" * 256, "k" * 257, "ü" * 128, "ü" * 129]
    scene.run([["set", key, rng.choice(["a", ""])] for key in rng.sample(keys, 3)] + [["set", "k" * 300, "x"]])
    scene.run([["del", rng.choice(keys)], ["get", keys[1]], ["set", keys[1], "b"]])
    return scene


@family("long-payloads", "R-05", "R-06", "R-07")
def long_payloads(rng: random.Random) -> Scene:
    """A timer's payload of more than 1,024 bytes is stored apart from its record."""
    scene = Scene(rng)
    sizes = [1_024, 1_025, rng.choice([1_023, 3_000])]
    scene.run([schedule(after + 1, "[]".ljust(size), save_as=f"k{size}") for after, size in enumerate(sizes)])
    scene.run([["try", ["extend", {"saved": "k1025", "expires_at": 10**9}]], ["cancel", {"saved": f"k{sizes[2]}"}]])
    scene.empty(2)
    return scene


@family("calendar", "R-13", "R-14")
def calendar(rng: random.Random) -> Scene:
    """Timers wait in the ring, the epoch queue or the overflow tree, by how far off they are."""
    length = rng.choice([1, 2, 3])
    params = {
        "EPOCH_LENGTH": length,
        "RING_BUFFER_SIZE": length + rng.choice([0, 1]),
        "EPOCH_HORIZON": rng.choice([1, 2]),
    }
    scene = Scene(rng, params)
    scene.run([schedule(rng.randint(1, 14), "[]", save_as=f"k{i}") for i in range(4)] + [schedule(9), schedule(3)])
    scene.run([["cancel", {"saved": rng.choice(["k0", "k1", "k2", "k3"])}]] if rng.random() < 0.5 else [schedule(12)])
    scene.empty(rng.randint(2, 5))
    return scene


@family("calendar-tiers", "R-17", "R-18")
def calendar_tiers(rng: random.Random) -> Scene:
    """The ring reaches RING_BUFFER_SIZE blocks, whatever the epochs; the epoch queue counts as ring in its epoch."""
    length = rng.choice([2, 3])
    reach = 3 * length
    scene = Scene(rng, {"EPOCH_LENGTH": length, "RING_BUFFER_SIZE": reach, "EPOCH_HORIZON": 1})
    waits = [reach - 1, reach, reach + 1, reach + length, rng.randint(1, 4 * length)]
    scene.run([schedule(after) for after in waits])
    scene.empty(rng.randint(reach, reach + 2))
    scene.run([schedule(rng.choice(waits))])
    return scene


@family("compaction", "R-16", every=4)
def compaction(rng: random.Random) -> Scene:
    """When the log has more than 2.5 entries per live key and 4,096, its oldest active entries are appended again."""
    scene = Scene(rng, {"LANE_USER_CYCLES": 10**8})
    keys = [f"{number}" for number in range(rng.randint(300, 500))]
    scene.run([["set", "old", "value"]], ACTORS[1])
    entries = 0
    while entries < 5 * (len(keys) + 50) // 2 + 4_300:
        value = rng.choice(["", "x", "y"]) + str(scene.height)
        scene.run([["set", key, value] for key in keys], gas_limit=scene.base + 200 * len(keys))
        entries += len(keys)
    scene.run([["del", key] for key in rng.sample(keys, 3)])
    return scene


@family("accounts", "R-01", "R-20", "A-15")
def accounts(rng: random.Random) -> Scene:
    """Giving nothing creates no account; an account that once existed stays."""
    scene = Scene(rng)
    stranger = "0x" + f"{rng.randint(1, 2**160 - 1) | 2**159:040x}"
    scene.transfer(stranger, 0)
    scene.block()
    scene.transfer(stranger, rng.choice([0, 1]))
    scene.call([["transfer", {"to": USERS[3], "amount": rng.choice([0, 3])}], ["set", "k", "v"]], ACTORS[1])
    scene.block(stranger)
    value = rng.choice([1, 10**9])
    emptied = scene.deploy(value=value)
    scene.call([["transfer", {"to": USERS[3], "amount": value}]], emptied)
    scene.block()
    return scene


@family("genesis-forms", "R-22")
def genesis_forms(rng: random.Random) -> Scene:
    """A genesis with accounts of balance 0, left-out keys, numbers as decimal texts, and keys in any order."""
    scene = Scene(rng, balances={USERS[3]: 0}, preset=rng.choice([None, "hardened"]), runners=rng.choice([0, 2]))
    genesis = scene.genesis
    for account in genesis["accounts"].values():
        account["balance"] = rng.choice([int, str])(account["balance"])
    for actor in genesis["actors"].values():
        for key in ("balance", "gba"):
            if rng.random() < 0.5:
                actor.pop(key, None)
    params = genesis["params"]
    genesis["params"] = {name: rng.choice([int, str])(params[name]) for name in rng.sample(list(params), len(params))}
    if rng.random() < 0.5:
        del genesis["system_deployers"]
    for key in ("accounts", "actors"):
        genesis[key] = dict(rng.sample(list(genesis[key].items()), len(genesis[key])))
    scene.chain = RunningChain(genesis)
    scene.empty()
    scene.run([["set", "k", "v"]], ACTORS[1])
    return scene
