"""Families about transactions: admission, charges, fees, values (docs/protocol.md, "Admission and fees")."""

from __future__ import annotations

import random
from typing import Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import DEPLOYER, STRANGER, USERS
from kits.conform.cases.scene import ACTORS, CELLS, CYCLES, Actor, Scene, schedule, tried
from validator.chain.transactions import deployed_address
from validator.primitives.types import address_text

family: Final = FamilyTable()
POOR: Final = USERS[3]


@family("transfers", "A-15", "B-03")
def transfers(rng: random.Random) -> Scene:
    """Transfers move a value, and pay base cycles alone."""
    scene = Scene(rng)
    for _ in range(rng.randint(1, 3)):
        for _ in range(rng.randint(1, 3)):
            to = rng.choice([USERS[1], STRANGER, ACTORS[0], "0x" + "00" * 19 + "05"])
            scene.transfer(to, rng.choice([0, 1, rng.randint(2, 10**9)]), rng.choice(USERS[:2]))
        scene.block()
    return scene


@family("nonces", "A-01", "A-14")
def nonces(rng: random.Random) -> Scene:
    """A transaction has the nonce of its account, which rises by one whatever follows."""
    scene = Scene(rng)
    for _ in range(rng.randint(0, 2)):
        scene.transfer(STRANGER, 1)
    wrong = rng.choice([1, 2, 2**40])
    scene.sentence = f"One nonce is {wrong} too high; another transaction fails and uses up its nonce."
    scene.call([["fail", "x"]])
    nonce = scene.chain.nonce(USERS[0])
    scene.refused("transfer", {"to": STRANGER, "value": 5, "nonce": nonce + 10 + wrong})
    scene.transfer(STRANGER, 2)
    scene.block()
    scene.refused("transfer", {"to": STRANGER, "value": 1, "nonce": max(0, scene.chain.nonce(USERS[0]) - 1)})
    scene.transfer(STRANGER, 3)
    scene.block()
    return scene


@family("fees-too-low", "A-02", "A-03")
def fees_too_low(rng: random.Random) -> Scene:
    """A fee limit below its basefee keeps a transaction out, one at the basefee does not."""
    scene = Scene(rng, basefee=rng.choice([7, 1_000]))
    name, basefee = rng.choice(
        [("max_fee_per_cycle", scene.chain.basefee_cycle), ("max_fee_per_cell", scene.chain.basefee_cell)]
    )
    short = rng.choice([1, 1, basefee])
    scene.sentence = f"{name} is {short} below the basefee of {basefee}, then at it."
    scene.refused("transfer", {"to": STRANGER, "value": 1, name: basefee - short})
    scene.transaction("transfer", USERS[0], {"to": STRANGER, "value": 1, name: basefee})
    scene.block()
    other = "max_fee_per_cell" if name == "max_fee_per_cycle" else "max_fee_per_cycle"
    scene.refused("transfer", {"to": STRANGER, "value": 1, other: 0})
    scene.block()
    return scene


@family("gas-too-low", "A-04")
def gas_too_low(rng: random.Random) -> Scene:
    """A gas limit below TX_BASE_CYCLES keeps a transaction out, one that is equal does not."""
    scene = Scene(rng, {"TX_BASE_CYCLES": rng.choice([2, 500, 1_000])})
    scene.refused("transfer", {"to": STRANGER, "value": 1, "gas_limit": scene.base - rng.choice([1, scene.base])})
    scene.transfer(STRANGER, 1, gas_limit=scene.base)
    scene.block()
    return scene


@family("user-lane", "A-05")
def user_lane(rng: random.Random) -> Scene:
    """The gas limit has to fit into what the block's transactions left of LANE_USER_CYCLES."""
    used = rng.randint(0, 3_000)
    lane = rng.choice([20_000, 60_000])
    scene = Scene(rng, {"LANE_USER_CYCLES": lane})
    scene.call([["burn", used]], gas_limit=scene.base + used + rng.choice([0, 500]))
    left = lane - scene.base - used
    over = rng.choice([1, 1, 1_000])
    scene.sentence = f"A limit is {over} above the {left} cycles that are left; the next one fits."
    scene.refused("call", {"to": ACTORS[0], "handler": "run", "payload": "[]", "gas_limit": left + over})
    scene.call([], gas_limit=left)
    scene.block()
    return scene


@family("system-lane", "A-06")
def system_lane(rng: random.Random) -> Scene:
    """System instructions have a separate lane of cycles."""
    base = rng.choice([500, 1_000])
    scene = Scene(rng, {"LANE_SYSTEM_CYCLES": 2 * base, "TX_BASE_CYCLES": base, "LANE_USER_CYCLES": 60_000})
    args = {"opcode": 48, "args": {"timer_id": "ab" * 32}}
    scene.system(48, timer_id="cd" * 32)
    scene.refused("system", {**args, "gas_limit": base + rng.choice([1, 7])}, DEPLOYER)
    scene.transaction("system", DEPLOYER, {**args, "gas_limit": base})
    scene.transfer(STRANGER, 1)
    scene.block()
    return scene


@family("cell-lane", "A-07")
def cell_lane(rng: random.Random) -> Scene:
    """Transactions of all kinds share LANE_USER_CELLS."""
    lane = rng.choice([1_000, 9_000])
    scene = Scene(rng, {"LANE_USER_CELLS": lane})
    text = "x" * rng.randint(1, 400)
    used = len(f'[["emit","e","{text}"]]') + len(text)
    scene.call([["emit", "e", text]], cells_limit=used + rng.choice([0, 10]))
    left = lane - used
    scene.refused("call", {"to": ACTORS[0], "handler": "run", "payload": "[]", "cells_limit": left + 1})
    scene.call([], cells_limit=left)
    scene.block()
    return scene


@family("insufficient-funds", "A-08")
def insufficient_funds(rng: random.Random) -> Scene:
    """The sender's balance has to cover the value and the upfront charge."""
    basefee, base = rng.choice([1, 7, 1_000]), rng.choice([1, 500])
    priority, value, cells = rng.choice([0, 3]), rng.choice([0, 5]), rng.choice([0, 10])
    upfront = base * (basefee + priority) + cells * basefee
    short = rng.choice([0, 1])
    scene = Scene(rng, {"TX_BASE_CYCLES": base}, balances={POOR: upfront + value - short}, basefee=basefee)
    fees = {"max_fee_per_cycle": basefee + 5, "max_priority_fee_per_cycle": priority, "cells_limit": cells}
    scene.sentence = f"It is {short} short." if short else "It is just enough."
    scene.transaction("transfer", POOR, {"to": STRANGER, "value": value, **fees}, refused=bool(short))
    scene.refused("transfer", {"to": STRANGER, "value": upfront + value + 1, **fees}, POOR)
    scene.block()
    return scene


@family("tips", "A-09", "B-03")
def tips(rng: random.Random) -> Scene:
    """The tip is the priority, at most the room between the fee limit and the basefee, and goes to the proposer."""
    scene = Scene(rng)
    for _ in range(rng.randint(1, 3)):
        basefee = scene.chain.basefee_cycle
        room = rng.choice([0, 1, basefee])
        priority = rng.choice([0, room, room + 1, 2**96 - 1])
        fees = {"max_fee_per_cycle": basefee + room, "max_priority_fee_per_cycle": priority}
        script = [["burn", rng.randint(0, 900)]]
        scene.transaction("call", USERS[0], {"to": ACTORS[0], "handler": "run", "payload": script, **fees})
        scene.transaction("transfer", USERS[1], {"to": STRANGER, "value": 1, **fees})
        scene.block(rng.choice([USERS[1], ACTORS[1], STRANGER]))
    return scene


@family("refunds", "A-10", "A-11")
def refunds(rng: random.Random) -> Scene:
    """Cycles and cells that are not used are returned at the price at which they were taken."""
    scene = Scene(rng)
    for _ in range(2):
        script = [["burn", rng.randint(0, 5_000)], ["set", "k", "v" * rng.randint(0, 50)]]
        scene.call(script, gas_limit=scene.base + CYCLES * rng.choice([1, 2]), cells_limit=CELLS)
        scene.block()
    return scene


@family("payload-charge", "A-11", "A-13")
def payload_charge(rng: random.Random) -> Scene:
    """A call pays for the bytes of its payload before its handler runs."""
    scene = Scene(rng)
    payload = "[]" + " " * rng.randint(0, 40)
    short = rng.choice([0, 1, len(payload)])
    scene.sentence = f"The cells limit is {short} short of the payload's {len(payload)} bytes."
    scene.call(payload, cells_limit=len(payload) - short)
    scene.call({"hex": payload.encode().hex()}, cells_limit=len(payload))
    scene.block()
    return scene


@family("out-of-cycles", "A-12", "A-16")
def out_of_cycles(rng: random.Random) -> Scene:
    """A charge beyond the cycles uses up all of them, and reverts the handler."""
    scene = Scene(rng)
    cost = rng.randint(1, 5_000)
    short = rng.choice([0, 1, cost])
    script = [["set", "a", "b"], ["burn", cost], ["emit", "done", ""]]
    scene.sentence = f"The limit is {short} short."
    scene.call(script, gas_limit=scene.base + 250 + cost - short, value=rng.choice([0, 9]))
    scene.call([["get", "a"], ["burn", 10**9]], value=4)
    scene.block()
    return scene


@family("out-of-cells", "A-13", "A-16")
def out_of_cells(rng: random.Random) -> Scene:
    """A charge beyond the cells reverts the handler, and its cycles stay charged."""
    scene = Scene(rng)
    text = "v" * rng.randint(1, 60)
    short = rng.choice([0, 1, len(text)])
    size = len(f'[["set","k","{text}"],["emit","e",""]]')
    scene.call([["set", "k", text], ["emit", "e", ""]], cells_limit=size + 1 + len(text) - short)
    scene.call([["emit", "e", "long"]], cells_limit=20, value=3)
    scene.block()
    return scene


@family("unknown-actors", "A-17", "A-16")
def unknown_actors(rng: random.Random) -> Scene:
    """A call of an account that is no actor fails after its base charge, and its value comes back."""
    scene = Scene(rng)
    to = rng.choice([USERS[1], STRANGER, "0x" + "00" * 19 + "09", "0x" + "00" * 20])
    scene.call([["emit", "e", "x"]], to, value=rng.choice([0, 7]))
    scene.call([], value=rng.choice([1, 10**6]))
    scene.block()
    return scene


@family("reserved-addresses", "A-18", "A-17", "T-11")
def reserved_addresses(rng: random.Random) -> Scene:
    """Addresses up to 0x00…0f are the system's: they take what they are given, and nothing of theirs is spent."""
    scene = Scene(rng)
    addresses = ["0x" + f"{number:040x}" for number in (0, rng.randint(1, 14), 15, 16)]
    for address in addresses:
        scene.transfer(address, rng.choice([1, 10**9]))
    scene.call([], rng.choice([addresses[0], addresses[2], "0x" + f"{9:040x}"]), value=rng.choice([0, 5]))
    scene.call([tried(["transfer", {"to": addresses[1], "amount": 7}])])
    scene.call([tried(schedule(1, "[]", fee_payer=rng.choice(addresses), payer_cap=1))], timer_allowance=10)
    registered = {"hex": "91c414" + rng.choice(addresses)[2:]}
    contract = "0x" + f"{10:040x}"
    scene.transaction("call", DEPLOYER, {"to": contract, "handler": "register_runner", "payload": registered})
    scene.block()
    return scene


@family("deployed-scripts", "D-01", "D-02", "D-08")
def deployed_scripts(rng: random.Random) -> Scene:
    """A deployment makes an actor at an address that follows from the sender and the nonce, and gives it the value."""
    scene = Scene(rng)
    value = rng.choice([1, 10**6])
    addresses = [scene.deploy(sender=USERS[0], value=value)]
    if rng.random() < 0.5:
        scene.call([["fail", "x"]])
    addresses.append(scene.deploy(sender=rng.choice(USERS[:2])))
    scene.deploy(cells_limit=13)
    scene.call([["transfer", {"to": USERS[2], "amount": value}], ["set", "k", "v"]], addresses[0])
    if rng.random() < 0.5:
        scene.block()
    scene.call([["emit", "here", rng.choice(["", "x"])]], addresses[1], USERS[1])
    scene.block()
    return scene


@family("taken-addresses", "D-07", "D-09")
def taken_addresses(rng: random.Random) -> Scene:
    """A deployment at the address of an actor fails, and its value comes back."""
    nonce = rng.choice([0, 1])
    taken = address_text(deployed_address(bytes.fromhex(USERS[0][2:]), nonce))
    scene = Scene(rng, actors={ACTORS[0]: Actor(), taken: Actor(balance=rng.choice([0, 5]))})
    for _ in range(2):
        scene.deploy(value=rng.choice([1, 7]))
    scene.call([["set", "k", "v"]], taken)
    scene.block()
    return scene


@family("values", "A-15")
def values(rng: random.Random) -> Scene:
    """The value of a call is in the actor's balance when its handler runs."""
    scene = Scene(rng)
    value = rng.choice([1, 10**6])
    balance = scene.chain.balance(ACTORS[0])
    amount = balance + value + rng.choice([0, 0, 1])
    scene.call([["transfer", {"to": USERS[2], "amount": amount}]], value=value)
    scene.block()
    return scene
