"""Families about the deployment of Python actors (docs/protocol.md, "Python actors")."""

from __future__ import annotations

import random
from typing import Any, Final

from kits.conform.cases.family import FamilyTable
from kits.conform.cases.names import USERS
from kits.conform.cases.scene import ACTORS, Actor, Scene
from kits.conform.families.programs.calls import BIDDER, COUNTER, program_call
from validator.pvm.deployment import byte_cycles, deploy_cycles

family: Final = FamilyTable()
ROOM: Final = {"LANE_USER_CYCLES": 20_000_000}
OWNED: Final = """\
class Owned(Actor):
    def who(self, payload):
        self.emit("deployer", self.deployer)
"""
USUAL: Final = """\
class UsualProgram(Actor):
    def remember(self, payload):
        self.set("remembered_value", payload)
"""
"""A program with no more tokens than usual for its size."""
DENSE: Final = """\
class D(Actor):
    def f(self, payload):
        a = [1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9]
        self.emit("n", len(a) + 1 - 1 + 1 - 1 + 1 - 1 + 1 - 1 + 1 - 1 + 1 - 1 + 1 - 1)
"""
"""A program with more tokens than usual for its size."""
HANDLERS: Final = {COUNTER: "add", OWNED: "who", USUAL: "remember"}
REFUSED: Final = (
    "class A(Actor:\n    pass\n",
    "x = 1\n",
    "import os\n",
    "class A(Actor):\n    def f(self, payload):\n        open('x')\n",
    "class A(Actor):\n    def f(self, payload):\n        return 0.5\n",
    "class A(Actor):\n    def f(self, payload):\n        self.__dict__\n",
    "class A(Actor):\n    def f(self, payload):\n        import os\n",
    "class A:\n    def f(self, payload):\n        pass\n",
    "class A(Actor):\n    def f(self, payload):\n        exec('1')\n",
)


def _name(rng: random.Random, code: str) -> str:
    """The code with a drawn comment, so that it is another program."""
    return f"# {rng.randint(0, 999)}\n{code}"


@family("deployed-programs", "D-01", "D-03", "D-12", "P-02")
def deployed_programs(rng: random.Random) -> Scene:
    """A deployed program runs from its block on, loading is paid then too, and its deployer is the sender."""
    scene = Scene(rng, ROOM)
    sender = rng.choice(USERS[:3])
    counter = scene.deploy(_name(rng, COUNTER), sender)
    owned = scene.deploy(OWNED, sender, value=rng.choice([0, 1]))
    number = rng.choice([3, 4])
    for _ in range(2):
        program_call(scene, "add", number, counter)
    if rng.random() < 0.5:
        scene.block()
    program_call(scene, "who", None, owned)
    scene.block()
    return scene


@family("program-prices", "D-03", "D-04", "D-05", "A-12", "A-13")
def program_prices(rng: random.Random) -> Scene:
    """A program's characters and its surplus tokens are paid before it is examined; one cycle less is OutOfCycles."""
    scene = Scene(rng, ROOM)
    for code in rng.sample([_name(rng, USUAL), _name(rng, DENSE), rng.choice(REFUSED)], 3):
        exact = scene.base + deploy_cycles(code)
        scene.deploy(code, gas_limit=exact + rng.choice([0, 0, 1]))
        scene.deploy(code, gas_limit=exact - 1)
        scene.deploy(code, gas_limit=scene.base + max(0, byte_cycles(code) - rng.choice([0, 1])))
        scene.deploy(code, cells_limit=len(code) - 1)
    scene.block()
    return scene


@family("refused-programs", "D-06", "D-09")
def refused_programs(rng: random.Random) -> Scene:
    """A text that is no program of the language is refused: it is paid for, and the value comes back."""
    scene = Scene(rng, ROOM)
    for code in rng.sample(REFUSED, 3):
        address = scene.deploy(code, value=rng.choice([1, 10**6]))
        scene.call([], address)
    scene.deploy(USUAL)
    scene.block()
    return scene


@family("equal-programs", "D-10")
def equal_programs(rng: random.Random) -> Scene:
    """Actors with the same source share one record of it, and each pays for all of it."""
    scene = Scene(rng, ROOM, {ACTORS[0]: Actor(code=rng.choice([COUNTER, OWNED]))})
    code = rng.choice([COUNTER, OWNED, USUAL])
    first = scene.deploy(code, USERS[0])
    second = scene.deploy(code, rng.choice(USERS[:2]))
    if rng.random() < 0.5:
        scene.block()
    for address in (first, second):
        program_call(scene, HANDLERS[code], 1, address)
    scene.block()
    return scene


@family("deployed-agents", "D-11", "P-09")
def deployed_agents(rng: random.Random) -> Scene:
    """A deployed program with get_gas_bid becomes its actor's agent."""
    scene = Scene(rng, {"GBA_MAX_CYCLES": 100_000, **ROOM}, basefee=rng.choice([7, 1_000]))
    actor = scene.deploy(_name(rng, BIDDER), value=10**24)
    bid: Any = {"max_fee_per_cycle": 3 * scene.lane_price, "max_priority_fee_per_cycle": rng.choice([0, 2])}
    program_call(scene, "set_bid", bid, actor)
    program_call(scene, "plan", 1, actor)
    scene.empty()
    return scene
