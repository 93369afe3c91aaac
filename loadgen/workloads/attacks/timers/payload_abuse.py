"""Payload abuse: timers with payloads as long as the limits allow.

``MAX_TIMER_PAYLOAD`` allows 1 MiB by default, but a timer is scheduled by a transaction, which uses a cell per byte and
has at most ``LANE_USER_CELLS`` cells: 1,000,000 by default. So a payload of 1 MiB needs a wider lane.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.attacks.base import CALL_GAS_LIMIT, Programmed, invoke
from loadgen.workloads.base import Intent, Observation, Options

PROGRAM: Final = '''
class PayloadAbuse(Actor):
    """Schedules timers with long payloads, which it makes itself."""

    def store(self, payload):
        assert self.sender == self.deployer, "only the owner"
        text = "x" * payload["bytes"]
        self.schedule(self.height + payload["ahead"], text, "read", gas_limit=payload["gas"])

    def read(self, payload):
        assert self.sender == self.address, "only the timer"
        self.emit("read", len(payload))
'''
FORM_CELLS: Final = 200
"""Cells of a call, without the text that is a timer's payload."""
TEXT_HEAD: Final = 5
"""Maximum bytes that the encoding of a text takes in addition to the text, for its type and length."""
FIRE_CYCLES: Final = 5_000
"""Cycles of a fire, without reading its payload."""
BYTES_PER_SCHEDULED_CYCLE: Final = 2
"""Minimum bytes of a payload that an actor makes, packs, hashes and schedules per cycle."""
BYTES_PER_READ_CYCLE: Final = 8
"""Minimum bytes of a payload that a fire reads per cycle."""


class PayloadAbuseOptions(Options):
    """Options of :class:`PayloadAbuse`."""

    payload_bytes: Annotated[int, Field(ge=1, le=1_048_576)] = 1_048_576
    """Bytes of a payload; limited by a timer's maximum and by a transaction's cells."""
    ahead_blocks: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """Blocks until the timer is due."""


class PayloadAbuse(Programmed[PayloadAbuseOptions]):
    """An attack that schedules one timer with a very long payload in each turn."""

    name: ClassVar[str] = "payload-abuse"
    options_type: ClassVar[type[Options]] = PayloadAbuseOptions
    program: ClassVar[str] = PROGRAM
    goal: ClassVar[str] = "state and blocks swell by payloads that wait for their timers"
    defence: ClassVar[str] = (
        "`MAX_TIMER_PAYLOAD` bounds a payload, each byte is a paid cell, and the cell basefee rises"
    )
    actor_percent: ClassVar[int] = 20

    def intents(self, observation: Observation) -> list[Intent]:
        options, parameters = self.options, self.member.parameters
        if not self.member.timer_room(observation):
            return []
        most = min(parameters.lane_user_cells - FORM_CELLS, parameters.max_timer_payload - TEXT_HEAD)
        size = max(1, min(options.payload_bytes, most))
        payload = {"bytes": size, "ahead": options.ahead_blocks, "gas": FIRE_CYCLES + size // BYTES_PER_READ_CYCLE}
        gas_limit = CALL_GAS_LIMIT + size // BYTES_PER_SCHEDULED_CYCLE
        return [invoke(self.member, "store", payload, gas_limit, size + FORM_CELLS)]
