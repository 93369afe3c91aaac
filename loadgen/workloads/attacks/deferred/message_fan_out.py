"""Message fan-out: every message sends two more, as long as its cycles suffice."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.attacks.base import CALL_GAS_LIMIT, Programmed, invoke
from loadgen.workloads.base import Intent, Observation, Options

PROGRAM: Final = '''
class FanOut(Actor):
    """Each message sends two more."""

    OWN = 4000
    LEAST = 2000

    def start(self, payload):
        assert self.sender == self.deployer, "only the owner"
        for number in range(payload["messages"]):
            self.send(self.address, "spread", [payload["cycles"], payload["cells"]],
                      cycles=payload["cycles"], cells=payload["cells"])

    def spread(self, payload):
        assert self.sender == self.address, "only this actor"
        cycles = (payload[0] - self.OWN) // 2
        cells = (payload[1] - 64) // 2
        if cycles >= self.LEAST and cells >= 0:
            for number in range(2):
                self.send(self.address, "spread", [cycles, cells], cycles=cycles, cells=cells)
'''
MESSAGE_CELLS: Final = 10_000
"""Cells reserved for a message that begins a fan-out."""
SEND_CYCLES: Final = 1_000
"""Cycles for sending one message, without the reservation for the message's run."""
FORM_CELLS: Final = 32
"""Cells of a message's payload, at most."""


class MessageFanOutOptions(Options):
    """Options of :class:`MessageFanOut`."""

    messages: Annotated[int, Field(ge=1, le=48)] = 10
    """Messages per turn that begin a fan-out."""
    cycles: Annotated[int, Field(ge=2_000, le=100_000)] = 100_000
    """Cycles reserved for each of them, and divided between the messages that it sends."""


class MessageFanOut(Programmed[MessageFanOutOptions]):
    """An attack that sends messages in each turn, each of which sends two more, as long as its cycles suffice."""

    name: ClassVar[str] = "message-fan-out"
    options_type: ClassVar[type[Options]] = MessageFanOutOptions
    program: ClassVar[str] = PROGRAM
    goal: ClassVar[str] = "messages multiply over many blocks, and others wait for their turn in the queue"
    defence: ClassVar[str] = (
        "a message's run is paid out of its sender's own cycles; `LANE_DEFERRED_CYCLES` and two messages a run bound it"
    )
    actor_percent: ClassVar[int] = 0

    def intents(self, observation: Observation) -> list[Intent]:
        parameters, messages = self.member.parameters, self.options.messages
        cycles = min(self.options.cycles, parameters.message_cycles)
        cells = min(MESSAGE_CELLS, parameters.message_cells)
        payload = {"messages": messages, "cycles": cycles, "cells": cells}
        gas_limit = CALL_GAS_LIMIT + messages * (cycles + SEND_CYCLES)
        return [invoke(self.member, "start", payload, gas_limit, messages * (cells + FORM_CELLS) + FORM_CELLS)]
