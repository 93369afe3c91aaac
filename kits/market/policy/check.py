"""What ``stampede policy check`` finds: lines that may give other results in another process, parameters that no line
reads, and what fails in a drawn run, whose blocks two more processes execute under other hash seeds."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Final

from cluster.audit.reexecution.again import execute_again
from cluster.checks.run import judge_run
from cluster.common.errors import ExitCode
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.scenario import Scenario
from cluster.scenario.code.policy_source import warnings_in
from cluster.watches.watched_simulation import simulate
from validator.chain.genesis import PolicyFile
from validator.primitives.user_file import place_of

HASH_SEEDS: Final = 2


@dataclass(frozen=True)
class Checked:
    """The result of a check."""

    lines: list[str]
    """What was found, a line each."""
    exit_code: ExitCode


def check(scenario: Scenario, policy: PolicyFile) -> Checked:
    """Read a policy, and run the scenario, whose policy it is."""
    lines = [f"{place_of(policy.file, line)}: {what}" for line, what in warnings_in(policy.source)]
    lines += [
        f"file {policy.file}: policy_parameters.{name}: no line reads self.own[{name!r}]" for name in _unread(policy)
    ]
    is_clean = not lines
    record = simulate(scenario, scenario.seed)
    execute_again(record, hash_seeds=HASH_SEEDS)
    judged = judge_run(record)
    failed = [each for each in judged.verdict.checks if each.verdict is Outcome.FAIL]
    lines += [f"seed {scenario.seed}: {each.name}: {each.detail}" for each in failed]
    ran = f"seed {scenario.seed}: {counted(len(judged.books.chain), 'block')}"
    if failed or not is_clean:
        return Checked([*lines, ran], ExitCode.FAIL)
    fires = int(judged.metrics.get("fires") or 0)
    if not fires:
        return Checked([f"{ran}: no timer fired, so nothing is known"], ExitCode.INCONCLUSIVE)
    return Checked([f"{ran}, {counted(fires, 'fire')}, the same under {HASH_SEEDS + 1} hash seeds"], ExitCode.PASS)


def _unread(policy: PolicyFile) -> list[str]:
    """The parameters that a policy states and whose names its text has nowhere else."""
    texts = [node.value for node in ast.walk(ast.parse(policy.source)) if isinstance(node, ast.Constant)]
    return [name for name, _ in policy.parameters if texts.count(name) < 2]
