"""Alerts and recorded series of testnets for Prometheus, over the metrics of validators (``docs/http.md``). Pure.

Source: Prometheus' documentation, "Alerting rules" and "Recording rules". It recommends ``level:metric:operation`` as
the name of a recorded series.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from cluster.common.strict_yaml import dump
from cluster.report.grafana import STEP, TESTNET_LABEL, VALIDATOR_LABEL

GROUP: Final = "stampede"
BEHIND_HEIGHTS: Final = 50
RUNBOOKS: Final = "docs/alerts.md"
"""The page with a section for each alert, as a path in the project."""
LARGE_BACKLOG: Final = 100
"""Late timers up to which a growing backlog is no alert: a burst that is worked off looks the same at first."""


class Alert(NamedTuple):
    """An alert."""

    name: str
    expression: str
    lasting: str
    """The duration for which the expression must hold."""
    severity: str
    summary: str

    def rule(self, runbooks: str | None) -> dict[str, Any]:
        """The alert as a rule of Prometheus. ``runbooks`` is the address of :data:`RUNBOOKS` if it is published."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.lasting,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "runbook_url": f"{runbooks or RUNBOOKS}#{self.name.lower()}"},
        }


def alerts(selector: str, testnet: Sequence[str], validator: str) -> Iterator[Alert]:
    """The alerts that need to know nothing of a testnet but its metrics.

    ``selector`` is that of the metrics, in braces, or empty. ``testnet`` are the labels by which testnets differ, and
    ``validator`` the label of a validator, or of the pod of several.
    """
    labels = f"({', '.join(testnet)})"
    by, on = f"by {labels}", f"on {labels}"
    height, backlog = f"stampede_height{selector}", f"quantile {by} (0.5, stampede_backlog{selector})"
    yield Alert(
        "StampedeStalled",
        f"max {by} ({height}) == max {by} ({height} offset 2m)",
        "1m",
        "critical",
        "No validator has finalised a block for three minutes.",
    )
    yield Alert(
        "StampedeRootsDisagree",
        f"stampede_diverged{selector} > 0",
        "0s",
        "critical",
        "A validator's execution gave another state root than the final block has.",
    )
    yield Alert(
        "StampedeValidatorBehind",
        f"max {by} ({height}) - {on} group_right {height} > {BEHIND_HEIGHTS}",
        "2m",
        "warning",
        f"A validator is more than {BEHIND_HEIGHTS} heights behind.",
    )
    yield Alert(
        "StampedeBacklogGrows",
        f"deriv({backlog}[10m:{STEP}]) > 0 and {backlog} > {LARGE_BACKLOG}",
        "10m",
        "warning",
        f"More than {LARGE_BACKLOG} timers are late, and for ten minutes there have been ever more.",
    )
    reasons = ", ".join([*testnet, validator, "reason"])
    yield Alert(
        "StampedePeerFaults",
        f"sum by ({reasons}) (increase(stampede_peer_faults_total{selector}[5m])) > 0",
        "0s",
        "warning",
        "A validator received what no honest peer sends.",
    )


def rules_text(runbooks: str | None = None) -> str:
    """A rule file, in YAML."""
    return dump(rules(runbooks), width=120)


def rules(runbooks: str | None = None) -> dict[str, Any]:
    """The rules of all testnets that Prometheus scrapes by their own endpoints, as the content of a rule file.

    ``runbooks`` is the address of :data:`RUNBOOKS` if it is published.
    """
    testnet = TESTNET_LABEL
    no_quorum = Alert(
        "StampedeNoQuorum",
        f"3 * sum by ({testnet}) (stampede_validator_up) <= 2 * count by ({testnet}) (stampede_validator_up)",
        "1m",
        "critical",
        "At most two thirds of the validators serve their metrics.",
    )
    found = [
        *_recorded(testnet),
        *(each.rule(runbooks) for each in (*alerts("", [testnet], VALIDATOR_LABEL), no_quorum)),
    ]
    return {"groups": [{"name": GROUP, "interval": STEP, "rules": found}]}


def _recorded(testnet: str) -> Iterator[dict[str, str]]:
    """Series that are shown often, or over long times."""
    by = f"by ({testnet})"
    height = f"deriv(max {by} (stampede_height)[1m:{STEP}])"
    latency = f"sum by ({testnet}, le) (rate(stampede_finality_latency_seconds_bucket[1m]))"
    delay = f"sum by ({testnet}, le) (rate(stampede_fire_delay_blocks_bucket[1m]))"
    for name, expression in (
        ("blocks:rate1m", f"clamp_min({height}, 0)"),
        ("fires:rate1m", f"quantile {by} (0.5, rate(stampede_fires_total[1m]))"),
        ("transactions:rate1m", f"quantile {by} (0.5, rate(stampede_transactions_total[1m]))"),
        ("backlog:median", f"quantile {by} (0.5, stampede_backlog)"),
        ("finality_latency_seconds:p95", f"histogram_quantile(0.95, {latency})"),
        ("fire_delay_blocks:p95", f"histogram_quantile(0.95, {delay})"),
    ):
        yield {"record": f"{testnet}:stampede_{name}", "expr": expression}
