"""Copies of the transition with one broken rule each, as tools for ``stampede conform``.

``python -m tests.kits.conform.planted NAME`` serves like ``stampede t8n --serve``. A bug is a change
of the text of one function or method.
"""

from __future__ import annotations

import struct
import sys
from contextlib import AbstractContextManager

from cluster.commands.cli.main import main as stampede
from cluster.misbehaviour.planted import Planted
from kits.conform.case import Case, Page
from kits.conform.t8n import outcome_of, serve_t8n
from kits.conform.t8n_input import blocks_of, genesis_of
from kits.conform.tool import ToolFailure
from tests.kits.conform.text_patch import TextPatch

TRANSITION = "validator.transition.transition:Transition"
PHASE = "validator.execution.timer_phase:TimerPhase"
CALLS = "validator.execution.timer_calls"
HOST = "validator.execution.handler_context:HandlerContext"
JOBS = "validator.execution.jobs"
PRICING = "validator.scheduler.pricing"


_MOVE = "context.move(transaction.sender, target, transaction.value)"
_CALL = "self.call(context, handler, payload)"
_DEPLOY = "self.deploy(target, code, transaction.sender)"
_BREAK = "\n" + 16 * " "
_TIPS = "self.world.credit(self.context.proposer, self.user_lane.tips)"
_TIMERS = """\
if not self.terms.rules.timers_first:
            self.trigger_timers()
            self.run_timers()"""
_DEEPER = "\n        "


_BUGS: dict[str, tuple[str, str, str, str]] = {
    "nonce-not-checked": ("nonces", f"{TRANSITION}.admit", "transaction.nonce != account.nonce", "False"),
    "cycle-fee-not-checked": (
        "fees-too-low",
        f"{TRANSITION}.admit",
        "transaction.max_fee_per_cycle < prices.basefee_cycle or ",
        "",
    ),
    "cell-fee-not-checked": (
        "fees-too-low",
        f"{TRANSITION}.admit",
        " or transaction.max_fee_per_cell < prices.basefee_cell",
        "",
    ),
    "gas-not-checked": ("gas-too-low", f"{TRANSITION}.admit", "< parameters.tx_base_cycles", "< 0"),
    "value-not-in-funds": (
        "insufficient-funds",
        f"{TRANSITION}.admit",
        "transaction.value + cycles_cost",
        "cycles_cost",
    ),
    "tip-not-clipped": (
        "tips",
        f"{TRANSITION}.admit",
        "min(transaction.max_priority_fee_per_cycle, transaction.max_fee_per_cycle - prices.basefee_cycle)",
        "transaction.max_priority_fee_per_cycle % 2**20",
    ),
    "user-lane-off-by-one": ("user-lane", f"{TRANSITION}._fits_its_lane", "gas_limit <= limit", "gas_limit < limit"),
    "cell-lane-endless": (
        "cell-lane",
        f"{TRANSITION}._fits_its_lane",
        " and lane.cells + transaction.cells_limit <= p.lane_user_cells",
        "",
    ),
    "system-lane-shared": (
        "system-lane",
        f"{TRANSITION}._fits_its_lane",
        "lane.system_cycles, p.lane_system_cycles",
        "0, p.lane_user_cycles",
    ),
    "refund-without-tip": ("tips", f"{TRANSITION}.execute", "upfront - burned - tips", "upfront - burned"),
    "limits-counted-as-used": (
        "transfers",
        f"{TRANSITION}.execute",
        "lane.cells += meter.cells_used",
        "lane.cells += meter.cells_limit + 1",
    ),
    "payload-free": ("payload-charge", f"{TRANSITION}.run_action", "meter.charge(0, len(payload))", "pass"),
    "value-after-the-call": (
        "values",
        f"{TRANSITION}.run_action",
        _MOVE + _BREAK + _CALL,
        _CALL + _BREAK + _MOVE,
    ),
    "anyone-is-deployer": (
        "system-deployers",
        f"{TRANSITION}.run_instruction",
        "if context.sender not in",
        "if False and context.sender not in",
    ),
    "tips-after-the-timers": (
        "order-in-a-block",
        f"{TRANSITION}.finish",
        _TIPS + _DEEPER + _TIMERS,
        _TIMERS + _DEEPER + _TIPS,
    ),
    "messages-before-timers": (
        "messages",
        f"{TRANSITION}.run_message",
        "return meter.cycles_used - result.cycles_reserved",
        "return meter.cycles_used + 10**9",
    ),
    "message-base-free": ("messages", f"{TRANSITION}.run_deferred", "self.terms.parameters.message_base_cycles", "0"),
    "reserved-not-subtracted": ("deferred-lane", f"{TRANSITION}.run_message", "- result.cycles_reserved", ""),
    "cell-basefee-fixed": (
        "cell-basefee",
        f"{TRANSITION}.close",
        "chain.basefee_cell, cells, p",
        "chain.basefee_cell, p.block_cells_target, p",
    ),
    "fires-not-in-the-basefee": ("crowded", f"{TRANSITION}.close", "user.cycles + lane.cycles", "user.cycles"),
    "scan-limit-ignored": ("scan-limit", f"{PHASE}.scan", "self.is_full or looked_at >= p.scan_limit", "self.is_full"),
    "lane-of-cells-endless": ("lane-of-cells", f"{PHASE}.is_full", "use.cells >= p.lane_timer_cells", "False"),
    "fires-endless": ("fires-in-a-block", f"{PHASE}.is_full", "len(self.fires) >= p.max_fires_per_block", "False"),
    "insolvent-fires-for-less": (
        "insolvent-payers",
        f"{PHASE}.fire_or_destroy",
        "balance >= needed",
        "balance > needed",
    ),
    "fire-base-free": ("fires-that-fail", f"{PHASE}.fire", "run.meter.charge(p.fire_base_cycles)", "pass"),
    "fire-refund-without-tip": ("order-of-tips", f"{PHASE}.settle", "- burned_lane - tip)", "- burned_lane)"),
    "cap-ignored": (
        "payer-caps",
        f"{PHASE}.available",
        "balance if timer.payer_cap is None else min(balance, timer.payer_cap)",
        "balance",
    ),
    "cells-not-reserved": (
        "insolvent-payers",
        f"{PHASE}.max_cost",
        " + self.terms.parameters.max_cells_per_fire * self.prices.basefee_cell",
        "",
    ),
    "height-may-be-now": ("heights", f"{CALLS}:_check_height", "height <= current", "height < current"),
    "payload-off-by-one": (
        "timer-payloads",
        f"{CALLS}:_check_sizes",
        "> parameters.max_timer_payload",
        ">= parameters.max_timer_payload",
    ),
    "timers-without-a-limit": (
        "timer-limit",
        f"{CALLS}:schedule",
        ">= parameters.max_timers_per_actor",
        "> parameters.max_timers_per_actor",
    ),
    "allowance-not-used-up": ("fee-payers", f"{CALLS}:schedule", "allowance.left -= payer_cap", "pass"),
    "gas-limit-too-low": (
        "gas-limits",
        f"{CALLS}:_check_gas_limit",
        "gas_limit < terms.parameters.min_gas_limit_per_timer",
        "False",
    ),
    "expiry-not-lowered": ("expiries", f"{CALLS}:_expiry", "min(request.expires_at, latest)", "request.expires_at"),
    "anyone-cancels": ("cancelling", f"{CALLS}:_own_timer", "timer.actor != actor", "False"),
    "extends-backwards": ("extending", f"{CALLS}:_extend", "expires_at <= timer.expires_at or ", ""),
    "tier-and-priority": (
        "fees-out-of-range",
        f"{CALLS}:_check_fees",
        "if request.max_priority_fee_per_cycle is not None:",
        "if False:",
    ),
    "basefee-step-of-zero": ("cycle-basefee", f"{PRICING}:next_basefee", "max(step, 1)", "step"),
    "minimum-ignored": (
        "empty-blocks",
        f"{PRICING}:next_basefee",
        "max(parameters.min_basefee, basefee - step)",
        "basefee - step",
    ),
    "multiplier-ignored": (
        "lane-multiplier",
        f"{PRICING}:lane_price",
        "parameters.lane_fee_multiplier_milli // 1_000",
        "1",
    ),
    "get-free": ("operations", f"{HOST}.kv_get", "self._pay(costs.KV_GET_CYCLES)", "pass"),
    "set-counts-characters": (
        "operations",
        f"{HOST}.kv_set",
        "len(key.encode()) + len(value)",
        "len(key) + len(value)",
    ),
    "emit-free-of-cells": ("operations", f"{HOST}.emit", ", len(data.encode())", ""),
    "names-without-a-limit": ("event-names", f"{HOST}.emit", "if not is_name(name, may_be_empty=True):", "if False:"),
    "messages-without-a-limit": ("too-many-messages", f"{HOST}.send", "self.messages_left == 0", "False"),
    "clamping-not-reported": (
        "fees-below-the-lane-price",
        f"{HOST}.schedule_timer",
        "accepted.clamped_from is not None",
        "False",
    ),
    "deployed-characters-free": (
        "program-prices",
        f"{TRANSITION}.run_action",
        "charge(byte_cycles(code), ",
        "charge(0, ",
    ),
    "deployed-cells-free": (
        "deployed-scripts",
        f"{TRANSITION}.run_action",
        "(byte_cycles(code), len(code.encode()))",
        "(byte_cycles(code))",
    ),
    "deployed-tokens-free": ("program-prices", f"{TRANSITION}.run_action", "meter.charge(token_cycles(code))", "pass"),
    "deployed-value-kept": ("deployed-scripts", f"{TRANSITION}.run_action", _MOVE + _BREAK + _DEPLOY, _DEPLOY),
    "address-of-the-next-nonce": (
        "deployed-scripts",
        f"{TRANSITION}._target",
        "transaction.nonce",
        "transaction.nonce + 1",
    ),
    "actor-replaced": ("taken-addresses", f"{TRANSITION}.deploy", "self.world.actor(address) is not None", "False"),
    "refused-program-accepted": (
        "refused-programs",
        f"{TRANSITION}.deploy",
        'raise HandlerFailure("ProgramInvalid") from None',
        'deployed = deployment("builtin:script", deployer)',
    ),
    "deployed-by-itself": (
        "deployed-programs",
        f"{TRANSITION}.deploy",
        "deployment(code, deployer)",
        "deployment(code, address)",
    ),
    "deployed-agent-not-asked": (
        "deployed-agents",
        "validator.pvm.deployment:deployment",
        "if compiled(code).bids else",
        "if False else",
    ),
    "job-ends-early": ("job-ends", f"{JOBS}:find", "height > job.ends_at", "height >= job.ends_at"),
    "jobs-end-at-once": (
        "job-ends",
        f"{JOBS}:end_jobs",
        "counters.first_end + JOBS_ENDED_PER_BLOCK",
        "counters.next_end",
    ),
    "consumed-jobs-forgotten": ("job-ends", f"{JOBS}:end_callback", "not job.consumed or job.ends_at < height", "True"),
    "log-not-compacted": (
        "compaction",
        "validator.state.engines.plain:_Appender.compact",
        "window_limit(engine.live, engine.slack)",
        "10**9",
    ),
    "rest-rounded-down": (
        "fire-scores",
        "validator.policies.gba_auction:fire_score",
        "ONE - ONE * fire.cycles // parameters.lane_timer_cycles",
        "ONE * (parameters.lane_timer_cycles - fire.cycles) // parameters.lane_timer_cycles",
    ),
    "ring-without-reach": (
        "calendar-tiers",
        "validator.scheduler.calendar:Calendar._is_far",
        "timer.trigger_height >= timer.scheduled_at + p.ring_buffer_size",
        "True",
    ),
    "genesis-without-empty-accounts": (
        "genesis-forms",
        "cluster.local_chain.bare_chain:BareChain.__init__",
        "genesis_batch(genesis)",
        "genesis_batch(__import__('dataclasses').replace(genesis, accounts={"
        "at: held for at, held in genesis.accounts.items() if held}))",
    ),
    "envelope-for-any-handler": (
        "envelopes",
        "validator.pvm.dispatch:resolve_handler",
        ' or not is_name(inner["_handler"])',
        "",
    ),
    "out-of-cycles-is-cheap": (
        "out-of-cycles",
        "validator.primitives.meter:Meter.charge",
        "self.cycles_used = self.cycles_limit",
        "pass",
    ),
}
"""For each bug: a family that finds it, the function, a text in its source, and what is there in its place."""

BUGS = {name: Planted(name, TextPatch(*patch), family) for name, (family, *patch) in _BUGS.items()}
"""The broken rules by name. What must fail of each is the named family of cases."""


def planted(name: str) -> AbstractContextManager[None]:
    """Have the rule broken within the block, wherever the function was imported."""
    patch: TextPatch = BUGS[name].patch
    return patch.in_function()


class PlantedTool:
    """A tool in this process whose transition has a broken rule."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0

    def answer(self, case: Case, wants_steps: bool = False) -> Page:
        self.asked += 1
        genesis = genesis_of(case.genesis)
        with planted(self.name):
            try:
                return outcome_of(genesis, blocks_of(case.blocks, genesis), wants_steps)
            except (AssertionError, ArithmeticError, LookupError, struct.error) as error:
                raise ToolFailure(f"ended with exit code 1: {type(error).__name__}") from None

    def close(self) -> None:
        """There is no process."""


def main(arguments: list[str]) -> int:
    name, *options = arguments
    with planted(name):
        if options:
            return stampede(["t8n", *options])
        serve_t8n(sys.stdin.buffer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
