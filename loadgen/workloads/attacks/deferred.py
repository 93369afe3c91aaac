"""Attacks on deferred work: messages, mailboxes and jobs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.attacks.base import CALL_CELLS_LIMIT, CALL_GAS_LIMIT, Programmed, invoke
from loadgen.workloads.base import Intent, Observation, Options

MAILBOX_PROGRAM: Final = '''
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
MAILBOX_FORM_CELLS: Final = 200
"""Cells of a call, without the texts of its messages."""
MAILBOX_SEND_CYCLES: Final = 3_000
"""Cycles for sending one message, without its text, including the reservation for the message's run."""
MAILBOX_BYTES_PER_CYCLE: Final = 8
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
    program: ClassVar[str] = MAILBOX_PROGRAM
    goal: ClassVar[str] = "honest messages to the target are refused, and timers that send them fail"
    defence: ClassVar[str] = "a message's payload and run are paid in advance; `MAILBOX_BYTES` bounds what waits"
    actor_percent: ClassVar[int] = 0

    def intents(self, observation: Observation) -> list[Intent]:
        options, parameters = self.options, self.member.parameters
        room = min(
            parameters.mailbox_bytes * options.fill_percent // 100,
            parameters.lane_user_cells - MAILBOX_FORM_CELLS,
        )
        size = max(1, room // options.messages - FORM_BYTES)
        payload = {"to": bytes(self.member.actors[options.target]), "bytes": size, "messages": options.messages}
        cells = (size + FORM_BYTES) * options.messages + MAILBOX_FORM_CELLS // 2
        gas_limit = CALL_GAS_LIMIT + MAILBOX_SEND_CYCLES * options.messages + room // MAILBOX_BYTES_PER_CYCLE
        return [invoke(self.member, "flood", payload, gas_limit, cells)]


FAN_OUT_PROGRAM: Final = '''
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
FAN_OUT_SEND_CYCLES: Final = 1_000
"""Cycles for sending one message, without the reservation for the message's run."""
FAN_OUT_FORM_CELLS: Final = 32
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
    program: ClassVar[str] = FAN_OUT_PROGRAM
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
        gas_limit = CALL_GAS_LIMIT + messages * (cycles + FAN_OUT_SEND_CYCLES)
        return [
            invoke(
                self.member,
                "start",
                payload,
                gas_limit,
                messages * (cells + FAN_OUT_FORM_CELLS) + FAN_OUT_FORM_CELLS,
            )
        ]


JOBS_PROGRAM: Final = '''
class UnansweredJobs(Actor):
    """Asks for results that nobody gives."""

    def ask(self, payload):
        assert self.sender == self.deployer, "only the owner"
        for number in range(payload["jobs"]):
            self.request_job("x" * payload["bytes"], 1, "answered")

    def answered(self, payload):
        self.consume_result(payload["job"])
'''
JOBS_PER_ACTOR: Final = 64
"""Maximum number of an actor's open jobs (SPEC §14)."""
REQUEST_CYCLES: Final = 2_000
"""Cycles for requesting one job, without the reservation for its callback and without its payload."""
JOBS_BYTES_PER_CYCLE: Final = 2
"""Minimum bytes of a payload that an actor makes, packs and hashes per cycle."""
JOBS_FORM_CELLS: Final = 16
"""Cells of a payload's encoding, at most."""


class UnansweredJobsOptions(Options):
    """Options of :class:`UnansweredJobs`."""

    jobs: Annotated[int, Field(ge=1, le=40)] = 8
    """Jobs per turn."""
    payload_bytes: Annotated[int, Field(ge=0, le=14_000)] = 1_000
    """Bytes of a job's payload."""


class UnansweredJobs(Programmed[UnansweredJobsOptions]):
    """An attack whose actor requests jobs until it has the maximum number of open ones."""

    name: ClassVar[str] = "unanswered-jobs"
    options_type: ClassVar[type[Options]] = UnansweredJobsOptions
    program: ClassVar[str] = JOBS_PROGRAM
    goal: ClassVar[str] = "unanswered jobs stay in state, and their callbacks threaten to come all at once"
    defence: ClassVar[str] = (
        "a request pays for its callback; an actor has 64 open jobs at most, and each is gone after 3,600 blocks"
    )
    actor_percent: ClassVar[int] = 0

    def intents(self, observation: Observation) -> list[Intent]:
        options, parameters = self.options, self.member.parameters
        jobs = min(options.jobs, JOBS_PER_ACTOR - len(observation.open_jobs))
        if jobs <= 0:
            return []
        cycles = parameters.message_cycles + REQUEST_CYCLES + options.payload_bytes // JOBS_BYTES_PER_CYCLE
        cells = parameters.message_cells + options.payload_bytes + JOBS_FORM_CELLS
        payload = {"jobs": jobs, "bytes": options.payload_bytes}
        return [invoke(self.member, "ask", payload, CALL_GAS_LIMIT + jobs * cycles, CALL_CELLS_LIMIT + jobs * cells)]
