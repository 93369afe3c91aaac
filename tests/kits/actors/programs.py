"""Programs that tests of the developer's tools play."""

from __future__ import annotations

from pathlib import Path

from cluster.local_chain.programs import ProgramFile
from kits.actors.session import Limits, Session, play
from validator.pvm.language.subset import parse
from validator.pvm.runtime.machine import Vm

LIMITS = Limits(balance=10**18, gas_limit=1_000_000)

COUNTER = """
class Counter(Actor):
    def start(self, payload):
        self.set("every", payload or 2)
        self.schedule(self.height + 1, None, "tick")

    def tick(self, payload):
        count = self.get("count", 0) + 1
        self.set("count", count)
        self.emit("tick", count)
        if count == 3:
            self.give_up(count)
        self.schedule(self.height + self.get("every"), None, "tick")

    def give_up(self, count):
        values = [
            10 // (count - 3)
            for i in range(count)
        ]
        self.set("values", values)

    def forever(self, payload):
        while True:
            pass

    def tell(self, payload):
        self.send(payload, "start", 1, 50_000, 1_000)

    def earn(self, payload):
        self.emit("earned", self.value)
"""

BUSY = """
class Busy(Actor):
    WORDS = ("one", "two", "three")

    async def start(self, payload):
        tasks = []
        for word in self.WORDS:
            tasks.append(self.spawn(self.work(word)))
        total = 0
        for task in tasks:
            total += await task
        self.set("total", total)
        self.schedule(self.height + 1, {"total": total, "words": list(self.WORDS)}, "sort")
        self.schedule(self.height + 2, 7, "sort")

    async def work(self, word):
        await self.pause()
        self.set(word, word * 40)
        return len(self.get(word))

    def sort(self, payload):
        found = {word: [i * i for i in range(9) if i % 2] for word in sorted(payload["words"], True)}
        turn = 0
        while turn < 5 and found["one"] != [turn]:
            turn += 1
        digest = keccak256(("-".join(payload["words"]) + str(turn)).encode())
        self.set("digest", [digest, found])

    def get_gas_bid(self, context):
        price = context["basefee_lane_timer"]
        return {"max_fee_per_cycle": 3 * price, "max_priority_fee_per_cycle": 5 // (self.height % 2)}
"""


def file_of(source: str, name: str = "program.py") -> ProgramFile:
    return ProgramFile(Path(name), source, parse(source))


def played(*sources: str, calls: tuple[str, ...] = (), blocks: int = 6, limits: Limits = LIMITS, vm: Vm) -> Session:
    return play([file_of(source) for source in sources], calls, blocks, limits, vm)
