"""The check ``criteria``: the bounds that a scenario sets to the run's figures (``success.metrics``, ``.samples``).

A figure out of its bounds fails the run, and so do samples of which more are out of bounds than the scenario lets. A
figure that the run does not have, or of which it has no sample, leaves it inconclusive. So does whatever is out of
bounds in a run that was ended early: it might still have come right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from cluster.audit.books import Books
from cluster.checks.metrics.metrics import metrics, samples
from cluster.checks.verdict import Check
from cluster.common.outcome import Outcome, worst
from cluster.scenario.sections.success import Criterion, SampleCriterion

SHOWN_DIGITS: Final = 6

Result = tuple[Outcome, str]


def check_criteria(books: Books) -> Check:
    """Every figure and enough samples are within the bounds that the scenario sets."""
    success = books.record.scenario.success
    if not success.metrics and not success.samples:
        return Check.without_cause("criteria", "the scenario sets none")
    broken = Outcome.INCONCLUSIVE if books.record.interrupted else Outcome.FAIL
    figures = metrics(books) if success.metrics else {}
    taken = samples(books) if success.samples else {}
    results = [_judge_metric(name, criterion, figures, broken) for name, criterion in success.metrics.items()]
    results += [_judge_samples(name, criterion, taken[name], broken) for name, criterion in success.samples.items()]
    outcome = worst(result for result, _ in results)
    return Check("criteria", outcome, "; ".join(text for result, text in results if result is outcome))


def _judge_metric(name: str, criterion: Criterion, figures: Mapping[str, float], broken: Outcome) -> Result:
    value = figures.get(name)
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
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.{SHOWN_DIGITS}g}"
