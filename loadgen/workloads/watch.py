"""Watch: timers that watch keys of actors, and writes to those keys.

Each turn lets keys of the user's actor be watched, writes one, and schedules timers, half of which watch that actor's
keys, and half those of any user's actor. Some turns forbid a key again. A call that is refused is inside a ``try``:
policies without watched keys refuse all but the writes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.base import Intent, Observation, Options, Workload
from loadgen.workloads.script import (
    WATCHER_CYCLES,
    Operation,
    Script,
    allow_watching,
    attempt,
    burn,
    encode_script,
    fire_gas_limit,
    put,
    send,
    watch,
)
from validator.primitives.types import address_text

KEYS: Final = ("watched/a", "watched/b")
VALUES: Final = ("0", "1", "2")
"""So few values that some writes change nothing."""
MESSAGE_CYCLES: Final = 40_000


class WatchOptions(Options):
    """Options of :class:`Watch`."""

    timers: Annotated[int, Field(ge=1, le=50)] = 3
    """Timers per turn."""
    forbid_percent: Annotated[int, Field(ge=0, le=100)] = 10
    """Share of the turns that forbid a key to be watched."""
    life_blocks: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Blocks after which a timer expires if its key has not changed."""
    burn: Annotated[int, Field(ge=0, le=100_000)] = 1_000
    """Cycles of work per fire."""


class Watch(Workload[WatchOptions]):
    """Watches keys of all users' actors, and changes those of the user's actor."""

    name: ClassVar[str] = "watch"
    options_type: ClassVar[type[Options]] = WatchOptions

    def intents(self, observation: Observation) -> list[Intent]:
        random = self.member.random
        forbidden = random.choice(KEYS) if random.randrange(100) < self.options.forbid_percent else None
        script = [attempt(allow_watching(key, key != forbidden)) for key in KEYS]
        script.append(self._write())
        room = min(self.options.timers, self.member.timer_room(observation))
        script += [attempt(self._schedule(observation)) for _ in range(room)]
        if random.random() < 0.3:
            later = encode_script([self._write()]).decode()
            script.append(send(address_text(self.member.actor), "run", later, MESSAGE_CYCLES, 100))
        intent = self.member.call(script)
        return [replace(intent, gas_limit=intent.gas_limit + self._watchers_cycles)]

    @property
    def _watchers_cycles(self) -> int:
        """What the watchers of a key cost a write at most."""
        return WATCHER_CYCLES * (1 + self.member.parameters.max_watchers_per_key)

    def _write(self) -> Operation:
        return put(self.member.random.choice(KEYS), self.member.random.choice(VALUES))

    def _schedule(self, observation: Observation) -> Operation:
        random, payload = self.member.random, Script([burn(self.options.burn)])
        needed = 0
        if random.random() < 0.3:
            payload.append(self._write())
            needed = self._watchers_cycles
        return watch(
            address_text(random.choice((self.member.actor, random.choice(self.member.actors)))),
            random.choice(KEYS),
            payload,
            bid=random.choice((0, 10**6, 10**9)),
            gas_limit=fire_gas_limit(payload, self.member.parameters) + needed,
            expires_at=observation.height + self.options.life_blocks,
        )
