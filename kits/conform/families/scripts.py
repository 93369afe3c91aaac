"""Families about scripts: each operation, and what is no script (docs/protocol.md, "Scripts")."""

from __future__ import annotations

import json
import random
from typing import Any, Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import KEYS, USERS
from kits.conform.cases.odd_scripts import BAD_SCRIPTS, GOOD_ODDITIES
from kits.conform.cases.scene import ACTORS, Scene, schedule, send, tried

family: Final = FamilyTable()


@family("operations", "C-02", "C-03", "C-04", "C-05", "C-06", "C-09")
def operations(rng: random.Random) -> Scene:
    """Each operation of a script has its price in cycles and cells."""
    scene = Scene(rng)
    key = rng.choice(KEYS)
    choices: list[list[Any]] = [
        ["burn", rng.choice([0, 1, rng.randint(2, 9_000)])],
        ["get", key],
        ["set", key, rng.choice(["", "x", "ü" * 9])],
        ["del", key],
        ["emit", rng.choice(["", "e", "é" * 128]), rng.choice(["", "data", "😀"])],
        ["transfer", {"to": rng.choice([USERS[1], ACTORS[1]]), "amount": rng.choice([0, 1, 10**9])}],
        schedule(2, "[]", save_as=key),
    ]
    for operation in rng.sample(choices, 4):
        scene.call([operation])
    scene.call(rng.sample(choices, 4))
    scene.block()
    return scene


@family("bad-scripts", "C-01")
def bad_scripts(rng: random.Random) -> Scene:
    """A payload that is no script fails before its first operation."""
    scene = Scene(rng)
    for script in rng.sample(BAD_SCRIPTS, 4):
        scene.call(script)
    inner = rng.sample(BAD_SCRIPTS, 2)
    scene.call([["try", schedule(1, script)] for script in inner])
    scene.empty()
    return scene


@family("odd-scripts", "C-16", "C-17")
def odd_scripts(rng: random.Random) -> Scene:
    """Scripts in unusual forms that are valid."""
    scene = Scene(rng)
    for script in rng.sample(GOOD_ODDITIES, 4):
        scene.call(script)
    script = json.dumps([["emit", "e", "x"]], ensure_ascii=False, indent=rng.choice([None, 1]))
    scene.call(rng.choice([script, {"hex": script.encode().hex()}, {"hex": script.encode().hex().upper()}]))
    scene.call({"hex": b"[]".hex()})
    scene.call("[]")
    scene.call([["schedule", {"in": 1, "payload": {"hex": b"[]".hex()}}]])
    scene.empty()
    return scene


@family("payload-texts", "C-18")
def payload_texts(rng: random.Random) -> Scene:
    """A payload that is a list is its JSON in ASCII, in which each character has one form; ids follow from it."""
    scene = Scene(rng)
    odd = ["\x7f", "\n", "\r\t", "\b\f", "\x00", "\x1f", "\x0b", '"', "\\", "/", "é", "\u2028", "😀", "\ufffe"]
    texts = rng.sample(odd, 6)
    scene.call([["emit", "e", text] for text in texts])
    scene.call([schedule(1, [["emit", "later", text]], save_as=f"k{i}") for i, text in enumerate(texts)])
    scene.call([send(ACTORS[1], [["set", "".join(texts), "x"]])])
    scene.empty()
    return scene


@family("refusals-in-scripts", "C-15", "C-08", "C-10")
def refusals_in_scripts(rng: random.Random) -> Scene:
    """A try catches a refusal, but neither a failure of the script nor the end of cycles and cells."""
    scene = Scene(rng)
    refused: list[list[Any]] = [
        ["transfer", {"to": USERS[1], "amount": 10**31}],
        ["cancel", {"id": ""}],
        schedule(0, "[]"),
        ["emit", "e" * 257, ""],
    ]
    fatal: list[list[Any]] = [["fail", "why"], ["burn", 10**9], ["emit", "e", "x" * 30_000]]
    scene.call([tried(each) for each in rng.sample(refused, 3)] + [["emit", "after", ""]])
    scene.call([["set", "a", "b"], tried(rng.choice(fatal)), ["emit", "never", ""]])
    scene.call([["set", "a", "b"], rng.choice(refused)])
    scene.call([tried(["try", refused[0]]), tried(["fail", "x"])])
    scene.block()
    return scene


@family("event-names", "C-07", "C-06")
def event_names(rng: random.Random) -> Scene:
    """An event's name has at most 256 bytes, and costs no cells."""
    scene = Scene(rng)
    names = rng.sample(["", "e", "e" * 256, "e" * 257, "ü" * 128, "ü" * 128 + "e", "😀" * 64], 4)
    scene.run([tried(["emit", name, rng.choice(["", "x"])]) for name in [*names, "e" * 257]])
    return scene


@family("transfers-of-actors", "C-09", "C-10")
def transfers_of_actors(rng: random.Random) -> Scene:
    """An actor transfers what it has, and no more."""
    scene = Scene(rng)
    balance = scene.chain.balance(ACTORS[0])
    amounts = [balance, balance + 1, 0, 1, balance - 1]
    to = rng.choice([USERS[1], ACTORS[0], ACTORS[1], "0x" + "ff" * 20])
    scene.run([tried(["transfer", {"to": to, "amount": amount}]) for amount in [*rng.sample(amounts, 3), balance * 9]])
    return scene


@family("saved-ids", "C-12", "C-13", "T-24")
def saved_ids(rng: random.Random) -> Scene:
    """save_as stores a timer's id as text, at the price of a set; a saved text that is no id names no timer."""
    scene = Scene(rng)
    key = rng.choice(KEYS)
    scene.run([schedule(3, "[]", save_as=key), ["set", "no", rng.choice(["", "zz", "00" * 32])]])
    (timer_id,) = scene.chain.timer_ids()
    scene.call([["set", "upper", timer_id.upper()], tried(["cancel", {"saved": rng.choice(["upper", key, "no"])}])])
    scene.call([tried(["cancel", {"saved": "no"}]), tried(["extend", {"saved": "none", "expires_at": 99}])])
    scene.empty(2)
    return scene
