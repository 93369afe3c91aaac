"""The Python actor of a composed attack, and calls to it."""

from __future__ import annotations

from textwrap import indent
from typing import Any, Final

from loadgen.workloads.attacks.base import CALL_CELLS_LIMIT, invoke
from loadgen.workloads.attacks.composed.options import Agent, ComposedOptions
from loadgen.workloads.base import Intent, Member, Observation

PROGRAM: Final = '''
class Composed(Actor):
    """Schedules timers, which work, write and schedule further ones."""

    def plan(self, payload):
        assert self.sender == self.deployer, "only the owner"
        for number in range(payload["timers"]):
            height = payload["height"] + number % payload["spread"]
            self.schedule(height, payload["fire"], "fire", gas_limit=payload["gas"],
                          expires_at=height + payload["wait"], max_fee_per_cycle=payload["max_fee"],
                          max_priority_fee_per_cycle=payload["tip"], tier=payload["tier"])
        for number in range(payload["jobs"]):
            self.request_job("x", 1, "answered")
        if payload["drain"] > 0:
            self.transfer(self.deployer, self.balance * payload["drain"] // 100)

    def fire(self, payload):
        assert self.sender == self.address, "only the timer"
        self.burn(payload["burn"])
        if payload["cells"] > 0:
            self.set("text", "x" * payload["cells"])
        for number in range(payload["respawn"]):
            self.schedule(self.height + payload["every"], payload, "fire", gas_limit=payload["gas"])

    def answered(self, payload):
        self.consume_result(payload["job"])
'''
HEAD: Final = "\n    def get_gas_bid(self, context):\n"
BIDS: Final = {
    Agent.SLOW: "while True:\n    self.burn(100)",
    Agent.FAILING: 'assert False, "no answer"',
    Agent.LOW: 'return {"max_fee_per_cycle": 0, "max_priority_fee_per_cycle": 0}',
    Agent.HIGH: 'return {"max_fee_per_cycle": 2**96 - 1, "max_priority_fee_per_cycle": 2**96 - 1}',
    Agent.SNIPING: (
        'tip = context["previous_block_p50_priority_tip_per_cycle"] + 1\n'
        'return {"max_fee_per_cycle": 2 * context["basefee_lane_timer"] + tip, "max_priority_fee_per_cycle": tip}'
    ),
}
"""Python statements of each bidding agent's handler ``get_gas_bid``."""
PLAN_CYCLES: Final = 6_000
"""Cycles of a call of the handler ``plan``, without its timers and jobs."""
SCHEDULE_CYCLES: Final = 4_500
"""Maximum cycles for scheduling one timer, in a call of ``plan`` or in a fire."""
FIRE_CYCLES: Final = 5_000
"""Cycles of a fire, without its work, the text that it writes, and the timers that it schedules."""
BYTES_PER_CYCLE: Final = 8
"""Minimum bytes of a text that an actor makes, copies and packs per cycle."""
TIMER_CELLS: Final = 128
"""Cells of a timer's payload, at most."""
JOB_CYCLES, JOB_CELLS = 2_500, 64
"""Cycles and cells for requesting one job, without the reservation for its callback."""
KEY_CELLS: Final = 100
"""Maximum cells that writing a text takes in addition to the text: those of the key and of the encoding."""


def actor_code(agent: Agent) -> str:
    """The text of the actor's program, with the handler of the given bidding agent."""
    return PROGRAM if agent is Agent.NONE else PROGRAM + HEAD + indent(BIDS[agent], " " * 8) + "\n"


def plan_call(
    options: ComposedOptions, member: Member, observation: Observation, height: int, bid: dict[str, Any]
) -> Intent | None:
    """The turn's call of the handler ``plan``, which schedules timers from ``height`` on with the fee fields ``bid``,
    requests jobs and pays back. ``None`` if there is nothing to do."""
    parameters = member.parameters
    cells = max(0, min(options.write_cells, parameters.max_cells_per_fire) - KEY_CELLS)
    needed = FIRE_CYCLES + options.burn + cells // BYTES_PER_CYCLE + SCHEDULE_CYCLES * options.respawn
    least, most = parameters.min_gas_limit_per_timer, parameters.max_cycles_per_fire_auction_phase
    gas = min(max(needed * options.gas_percent // 100, least), most)
    jobs = jobs_that_fit(options.jobs, member)
    job_cycles, job_cells = parameters.message_cycles + JOB_CYCLES, parameters.message_cells + JOB_CELLS
    cycles_left = parameters.lane_user_cycles - parameters.tx_base_cycles - PLAN_CYCLES - jobs * job_cycles
    size = min(options.timers, member.timer_room(observation), cycles_left // SCHEDULE_CYCLES)
    if size <= 0 and not jobs and not options.drain_percent:
        return None
    fees = {"max_fee": None, "tip": None, "tier": None} if options.agent is not Agent.NONE else bid
    plan = {
        "timers": max(0, size),
        "height": height,
        "spread": options.spread_blocks,
        "wait": options.wait_blocks,
        "gas": gas,
        "jobs": jobs,
        "drain": options.drain_percent,
        "fire": {
            "burn": options.burn,
            "cells": cells,
            "respawn": options.respawn,
            "every": options.respawn_blocks,
            "gas": gas,
        },
        **fees,
    }
    return invoke(
        member,
        "plan",
        plan,
        PLAN_CYCLES + SCHEDULE_CYCLES * max(0, size) + jobs * job_cycles,
        CALL_CELLS_LIMIT + TIMER_CELLS * max(0, size) + jobs * job_cells,
    )


def jobs_that_fit(wanted: int, member: Member) -> int:
    """Number of the ``wanted`` jobs that fit into half of a transaction, so that timers fit in addition to them."""
    parameters = member.parameters
    by_cycles = parameters.lane_user_cycles // 2 // (parameters.message_cycles + JOB_CYCLES)
    return min(wanted, by_cycles, parameters.lane_user_cells // 2 // (parameters.message_cells + JOB_CELLS))
