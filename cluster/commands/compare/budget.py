"""Budgets: the metrics of a comparison with the change that each may have, the regression gate of ``stampede compare``.

A budget file is YAML with a mapping ``metrics``. A metric's value is the change in its worse direction that is allowed:
``10%`` of A's mean, or a number in the metric's unit. A metric without a clear direction needs one: ``{more: 10%}`` or
``{less: 5}``. A metric exceeds its budget if its change is significant and the whole interval of the change is beyond
the budget. The p-values are adjusted for the metrics of the budget alone, since they were chosen before the runs.
Without a file, each metric with a clear direction has a budget of zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster.commands.compare.comparison import Change, Comparison, least_runs_problem, worse_direction
from cluster.commands.compare.statistics import FALSE_DISCOVERY_RATE, adjusted
from cluster.common.errors import BadInput, ExitCode
from cluster.common.files import ENCODING
from cluster.common.outcome import Outcome, worst
from cluster.common.strict_yaml import MAX_CHARACTERS, NoYaml, parse
from cluster.common.suggestions import unknown
from cluster.report.svg import number

METRICS: Final = "metrics"
MORE: Final = "more"
LESS: Final = "less"
PERCENT: Final = re.compile(r"(?P<number>(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,9})?) ?%")
EXIT_CODES: Final = {
    Outcome.PASS: ExitCode.PASS,
    Outcome.FAIL: ExitCode.FAIL,
    Outcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True)
class Allowance:
    """The change that one metric may have."""

    sign: int
    """1 if a higher value is worse, -1 if a lower one is."""
    amount: float
    """The allowed change in the worse direction: a share of A's mean, or in the metric's unit."""
    is_share: bool

    def limit(self, mean: float) -> float:
        """The allowed change in the metric's unit. ``mean`` is A's mean."""
        return self.amount * abs(mean) if self.is_share else self.amount

    @property
    def text(self) -> str:
        amount = f"{100 * self.amount:g} %" if self.is_share else f"{self.amount:g}"
        return f"{amount} {MORE if self.sign > 0 else LESS}"


Budget = Mapping[str, Allowance]


@dataclass(frozen=True, slots=True)
class Finding:
    """One metric of the budget, judged."""

    metric: str
    outcome: Outcome
    text: str
    """The outcome in one line."""


def exit_code(findings: list[Finding]) -> ExitCode:
    """The exit code of all findings: fail before inconclusive before pass."""
    return EXIT_CODES[worst(finding.outcome for finding in findings)]


def findings_page(findings: list[Finding]) -> list[dict[str, str]]:
    """The findings as JSON."""
    return [{"metric": each.metric, "verdict": each.outcome.value, "detail": each.text} for each in findings]


def judge_budget(comparison: Comparison, budget: Budget | None) -> list[Finding]:
    """Judge each metric of a budget, in its order; ``None`` allows no metric with a clear direction to get worse.

    A metric that one of the groups lacks, or for which there are too few runs, is inconclusive. Raises
    :class:`BadInput` for a metric that neither group has.
    """
    changes = {change.name: change for change in comparison.changes}
    if budget is None:
        budget = _nothing_worse(comparison)
        if comparison.too_few and not any(changes[name].adjusted_p_value is not None for name in budget):
            return [Finding("all metrics", Outcome.INCONCLUSIVE, comparison.too_few)]
    known = comparison.first.metrics | comparison.second.metrics | changes.keys()
    for name in budget:
        if name not in known:
            raise BadInput(f"budget: {unknown('metric', name, sorted(known))}")
    tested = [name for name in budget if name in changes and changes[name].adjusted_p_value is not None]
    p_values = adjusted([changes[name].difference.p_value for name in tested])
    sure = dict(zip(tested, p_values, strict=True))
    too_few = least_runs_problem(comparison, [changes[name].difference for name in tested])
    return [_judge(name, budget[name], changes.get(name), sure.get(name), too_few) for name in budget]


def _nothing_worse(comparison: Comparison) -> Budget:
    """A budget of zero for each metric that is tested, or the same in all runs, and has a clear direction."""
    return {
        change.name: Allowance(sign, 0.0, is_share=True)
        for change in comparison.changes
        if (sign := worse_direction(change.name))
        and (change.adjusted_p_value is not None or change.difference.is_constant)
    }


def _judge(name: str, allowed: Allowance, change: Change | None, p_value: float | None, too_few: str) -> Finding:
    if change is None:
        return Finding(name, Outcome.INCONCLUSIVE, f"{name}: only one of the groups has this metric")
    difference = change.difference
    if difference.is_constant:
        return Finding(name, Outcome.PASS, f"{name}: no difference between any runs")
    if p_value is None:
        return Finding(name, Outcome.INCONCLUSIVE, f"{name}: not tested: two single runs have one value each")
    limit = allowed.limit(difference.means[0])
    ends = sorted(allowed.sign * end for end in difference.change_interval)
    before, after = (number(mean) for mean in difference.means)
    numbers = f"{before} to {after}, interval of the change {' … '.join(map(number, difference.change_interval))}"
    if p_value <= FALSE_DISCOVERY_RATE and ends[0] > limit:
        return Finding(name, Outcome.FAIL, f"{name}: worse than its budget ({allowed.text}): {numbers}")
    if too_few:
        return Finding(name, Outcome.INCONCLUSIVE, f"{name}: {too_few}")
    return Finding(name, Outcome.PASS, f"{name}: within its budget ({allowed.text}): {numbers}")


# --- reading --------------------------------------------------------------------------------------------------------


def read_budget(path: Path) -> Budget:
    """Read a budget file. Raises :class:`BadInput` with the file, the metric and the reason, in one line."""
    try:
        with path.open(encoding=ENCODING) as file:
            fields = parse(file.read(MAX_CHARACTERS + 1))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: no UTF-8") from None
    except NoYaml as error:
        raise BadInput(f"{path}: no YAML: {error}") from None
    if not isinstance(fields, dict) or set(fields) != {METRICS} or not isinstance(fields[METRICS], dict):
        raise BadInput(f"{path}: expected one field, {METRICS}: a mapping of metrics to allowed changes")
    if not fields[METRICS]:
        raise BadInput(f"{path}: {METRICS}: names no metric")
    return {_name(path, name): _allowance(path, name, value) for name, value in fields[METRICS].items()}


def _name(path: Path, name: Any) -> str:
    if not isinstance(name, str):
        raise BadInput(f"{path}: {METRICS}: {name!r} is no name of a metric")
    return name


def _allowance(path: Path, name: str, value: Any) -> Allowance:
    where = f"{path}: {METRICS}.{name}"
    sign = worse_direction(name)
    if isinstance(value, dict):
        if len(value) != 1 or not value.keys() <= {MORE, LESS}:
            raise BadInput(f"{where}: expected {MORE} or {LESS} with the allowed change")
        ((word, value),) = value.items()
        sign = 1 if word == MORE else -1
    if not sign:
        raise BadInput(f"{where}: has no clear direction: expected {{{MORE}: …}} or {{{LESS}: …}}")
    if isinstance(value, str) and (percent := PERCENT.fullmatch(value)):
        return Allowance(sign, float(percent["number"]) / 100, is_share=True)
    if type(value) in (int, float) and math.isfinite(value) and value >= 0:
        return Allowance(sign, float(value), is_share=False)
    raise BadInput(f"{where}: expected a share such as 10%, or a number from 0, got {str(value)[:40]!r}")
