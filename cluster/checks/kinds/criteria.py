"""The check ``criteria``: a scenario's bounds on metrics and samples (``success.metrics``, ``.samples``), and the bound
on waits that a user's policy states.

A metric out of its bounds fails the run, and so do samples if more of them are out of bounds than the scenario allows.
A missing metric or sample makes the run inconclusive, and so does any breach in a run that was ended early.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import isinf
from typing import Final

from cluster.audit.figures import RunKind
from cluster.checks.kind import CheckKind, Judged, Subject
from cluster.checks.metrics.actor_classes import name_of
from cluster.checks.metrics.metrics import samples
from cluster.checks.verdict import Result, of_parts
from cluster.common.outcome import Outcome
from cluster.common.wording import counted
from cluster.scenario.sections.success import Criterion, SampleCriterion
from validator.policies.own import stated_wait_blocks

SHOWN_DIGITS: Final = 6
LONGEST_WAIT: Final = "lateness_max_blocks"


class Criteria(CheckKind):
    """Every metric and enough samples are within the bounds that the scenario sets, and no timer waited longer than its
    policy states."""

    name = "criteria"
    SUBJECT = Subject.CRITERIA

    def __init__(self, run: Judged) -> None:
        super().__init__(run)
        self.success = self.record.scenario.success
        self.broken = Outcome.INCONCLUSIVE if self.record.interrupted else Outcome.FAIL
        policy = self.record.genesis.policy_file
        self.most_blocks = None if policy is None else stated_wait_blocks(policy)

    def idle(self) -> str:
        success = self.success
        sets_any = success.metrics or success.samples or success.max_failed_fires is not None
        return "" if sets_any or self.most_blocks is not None else "the scenario sets none"

    def judge(self) -> Result:
        success, broken, policy = self.success, self.broken, self.record.genesis.policy_file
        metrics = self.run.all_metrics if success.metrics or self.most_blocks is not None else {}
        taken = samples(self.books, self.run.actors) if success.samples else {}
        results = [_judge_metric(name, criterion, metrics, broken) for name, criterion in success.metrics.items()]
        results += [_judge_samples(name, criterion, taken[name], broken) for name, criterion in success.samples.items()]
        if policy is not None and self.most_blocks is not None and LONGEST_WAIT in metrics:
            verdict, text = _judge_metric(LONGEST_WAIT, Criterion(at_most=self.most_blocks), metrics, broken)
            results.append((verdict, f"{text} by {policy.file}"))
        if success.max_failed_fires is not None:
            results.append(self._judge_failed_fires())
        return of_parts(results)

    def _judge_failed_fires(self) -> Result:
        ledger = self.books.ledger
        failed, fires = ledger.outcomes.failed[RunKind.FIRE], ledger.timers.fires
        allowed = self.success.failed_fires_allowed(fires)
        text = f"{failed:,} of {counted(fires, 'fire')} failed, at most {self.success.max_failed_fires} allowed"
        if allowed is None or failed <= allowed:
            return Outcome.PASS, text
        worst = next(each for each in ledger.outcomes.failures if each.kind is RunKind.FIRE)
        name = name_of(worst.actor, self.run.actor_classes)
        return self.broken, f"{text}; most often {name}, {worst.times:,} times: {worst.error}"


def _judge_metric(name: str, criterion: Criterion, metrics: Mapping[str, float], broken: Outcome) -> Result:
    value = metrics.get(name)
    if value is None:
        return Outcome.INCONCLUSIVE, f"the run has no {name}"
    verb = "allowed" if criterion.at_least is None else "required"
    text = f"{name} {_number(value)}, {criterion.text} {verb}"
    return (Outcome.PASS if criterion.holds(value) else broken), text


def _judge_samples(name: str, criterion: SampleCriterion, values: Counter[float], broken: Outcome) -> Result:
    count = values.total()
    if not count:
        return Outcome.INCONCLUSIVE, f"the run has no sample of {name}"
    breaches = [value for value in values if not criterion.holds(value)]
    breached = sum(values[value] for value in breaches)
    text = f"{name}: {count - breached:,} of {count:,} samples are {criterion.text}"
    if breached:
        text += f", {_range(breaches)} are not ({breached / count:.1%}, {criterion.breach_share:.1%} allowed)"
    return (Outcome.PASS if breached <= criterion.breach_share * count else broken), text


def _range(values: list[float]) -> str:
    least, most = _number(min(values)), _number(max(values))
    return least if least == most else f"{least} to {most}"


def _number(value: float) -> str:
    if isinf(value):
        return "infinite"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.{SHOWN_DIGITS}g}"
