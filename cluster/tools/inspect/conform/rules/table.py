"""All numbered rules, and which of them an execution reached."""

from __future__ import annotations

from typing import Final

from cluster.tools.inspect.conform.cases.running_chain import RunningChain
from cluster.tools.inspect.conform.rules.actors import (
    JOB_RULES,
    MESSAGE_RULES,
    PROGRAM_RULES,
    SCRIPT_RULES,
    STATE_RULES,
    SYSTEM_RULES,
)
from cluster.tools.inspect.conform.rules.blocks import ADMISSION_RULES, BASEFEE_RULES, BLOCK_RULES
from cluster.tools.inspect.conform.rules.deployments import DEPLOYMENT_RULES
from cluster.tools.inspect.conform.rules.observation import Observation
from cluster.tools.inspect.conform.rules.policies import BIAS_RULES, CANDIDATE_RULES, GBA_RULES, WATCH_RULES
from cluster.tools.inspect.conform.rules.rule import Rule
from cluster.tools.inspect.conform.rules.timers import AGENT_RULES, SCHEDULING_RULES, TURN_RULES

RULES: Final[dict[str, Rule]] = {
    rule.id: rule
    for rules in (
        BLOCK_RULES,
        ADMISSION_RULES,
        BASEFEE_RULES,
        SCHEDULING_RULES,
        TURN_RULES,
        AGENT_RULES,
        MESSAGE_RULES,
        SYSTEM_RULES,
        SCRIPT_RULES,
        PROGRAM_RULES,
        DEPLOYMENT_RULES,
        JOB_RULES,
        STATE_RULES,
        CANDIDATE_RULES,
        GBA_RULES,
        BIAS_RULES,
        WATCH_RULES,
    )
    for rule in rules
}
"""The rules by their ids, in the order of the documents."""


def reached_by(chain: RunningChain) -> frozenset[str]:
    """Ids of the rules that the execution of a case reached."""
    seen = Observation(chain.genesis, chain.blocks)
    return frozenset(name for name, rule in RULES.items() if seen.blocks and rule.reached(seen))
