"""Mailbox flood: messages that fill another actor's mailbox before the timers of a block run."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.attacks.base import CALL_GAS_LIMIT, Programmed, invoke
from loadgen.workloads.base import Intent, Observation, Options

PROGRAM: Final = '''
class MailboxFlood(Actor):
    """Sends long messages."""

    def flood(self, payload):
        assert self.sender == self.deployer, "only the owner"
        text = "x" * payload["bytes"]
        for number in range(payload["messages"]):
            self.send(payload["to"], "nothing", text, cycles=2000, cells=0)

    def nothing(self, payload):
        pass
'''
FORM_BYTES: Final = 5
"""Maximum bytes that the encoding of a text takes in addition to the text, for its length."""
FORM_CELLS: Final = 200
"""Cells of a call, without the texts of its messages."""
SEND_CYCLES: Final = 3_000
"""Cycles for sending one message, without its text, including the reservation for the message's run."""
BYTES_PER_CYCLE: Final = 8
"""Minimum bytes of a text that an actor makes, packs and sends per cycle."""


class MailboxFloodOptions(Options):
    """Options of :class:`MailboxFlood`."""

    target: Annotated[int, Field(ge=0, le=9_999)] = 0
    """The user whose actor's mailbox is filled, counted from 0 over all groups."""
    messages: Annotated[int, Field(ge=1, le=500)] = 8
    """Messages per turn."""
    fill_percent: Annotated[int, Field(ge=1, le=100)] = 99
    """Share of the mailbox that the messages fill together, in percent; limited by a transaction's cells."""

    def users_named(self) -> set[int]:
        return {self.target}


class MailboxFlood(Programmed[MailboxFloodOptions]):
    """An attack that fills the mailbox of the target's actor with messages in each turn."""

    name: ClassVar[str] = "mailbox-flood"
    options_type: ClassVar[type[Options]] = MailboxFloodOptions
    program: ClassVar[str] = PROGRAM
    goal: ClassVar[str] = "honest messages to the target are refused, and timers that send them fail"
    defence: ClassVar[str] = "a message's payload and run are paid in advance; `MAILBOX_BYTES` bounds what waits"
    actor_percent: ClassVar[int] = 0

    def intents(self, observation: Observation) -> list[Intent]:
        options, parameters = self.options, self.member.parameters
        room = min(parameters.mailbox_bytes * options.fill_percent // 100, parameters.lane_user_cells - FORM_CELLS)
        size = max(1, room // options.messages - FORM_BYTES)
        payload = {"to": bytes(self.member.actors[options.target]), "bytes": size, "messages": options.messages}
        cells = (size + FORM_BYTES) * options.messages + FORM_CELLS // 2
        gas_limit = CALL_GAS_LIMIT + SEND_CYCLES * options.messages + room // BYTES_PER_CYCLE
        return [invoke(self.member, "flood", payload, gas_limit, cells)]
