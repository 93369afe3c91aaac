"""A Grafana dashboard of a testnet, over the metrics that validators serve (``docs/http.md``). Pure.

Source: Grafana's documentation, "Dashboard JSON model" (the classic model), as of Grafana 10; later versions read it.

An expression's ``{}`` is the place of the labels that select the testnet. All validators report values of the same
chain, so the dashboard shows the median of their values: a validator that catches up does not move it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

SCHEMA_VERSION: Final = 38
"""The schema version of Grafana 10.0."""
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS: Final = 24
STAT_SIZE: Final = (4, 4)
"""Size of a panel with one number: width in columns, height in units of Grafana's grid."""
SERIES_SIZE: Final = (8, 8)
STEP: Final = "15s"
"""The interval at which metrics are scraped, and rules about them evaluated."""
PER_SECOND: Final = "suffix:/s"
BYTES: Final = "bytes"
NUMBER: Final = "short"
SECONDS: Final = "s"
TESTNET_LABEL: Final = "job"
VALIDATOR_LABEL: Final = "validator"
"""Labels of what Prometheus scrapes from the endpoints of testnets: one job for each."""
EACH_VALIDATOR: Final = ""
"""Value of :attr:`Query.legend` for a query that has a line for each validator."""


class Variable(NamedTuple):
    """A selector at the top of the dashboard: a label of the metrics."""

    name: str
    label: str
    """The label's name in Prometheus."""
    chosen: str | None = None
    """The initial value; if ``None``, the first value that Prometheus knows."""


class Query(NamedTuple):
    """A Prometheus expression whose values a panel shows, and the legend of its lines."""

    expression: str
    legend: str = EACH_VALIDATOR


class Panel(NamedTuple):
    """A panel of the dashboard: a chart or a number."""

    title: str
    queries: tuple[Query, ...]
    unit: str = NUMBER
    description: str = ""
    is_stacked: bool = False


def _per_second_of_chain(gauge: str) -> str:
    """The expression of a chain's rate: the growth per second of a gauge's highest value of all validators."""
    return f"clamp_min(deriv(max({gauge}{{}})[$__rate_interval:{STEP}]), 0)"


def _median_rate(counter: str) -> str:
    return f"quantile(0.5, rate({counter}{{}}[$__rate_interval]))"


def _increase_by(label: str, counter: str) -> Query:
    return Query(f"sum by ({label}) (increase({counter}{{}}[$__rate_interval])) > 0", f"{{{{{label}}}}}")


def _quantiles(histogram: str) -> tuple[Query, ...]:
    """The median and the 95th percentile of a histogram over all validators."""
    return tuple(
        Query(f"histogram_quantile({share}, sum by (le) (rate({histogram}_bucket{{}}[$__rate_interval])))", name)
        for share, name in ((0.5, "p50"), (0.95, "p95"))
    )


NUMBERS: Final = (
    Panel("Height", (Query("max(stampede_height{})"),)),
    Panel("Validators that answer", (Query("count(stampede_height{})"),)),
    Panel("Blocks a second", (Query(_per_second_of_chain("stampede_height")),), PER_SECOND),
    Panel("Fires a second", (Query(_median_rate("stampede_fires_total")),), PER_SECOND),
    Panel("Peer faults", (Query("sum(increase(stampede_peer_faults_total{}[$__range]))"),)),
    Panel("Validators that diverged", (Query("sum(stampede_diverged{})"),)),
)
"""Panels with one number each."""

SERIES: Final = (
    Panel("Height by validator", (Query("stampede_height{}"),)),
    Panel(
        "Blocks and views a second",
        (
            Query(_per_second_of_chain("stampede_height"), "blocks"),
            Query(_per_second_of_chain("stampede_view"), "views"),
        ),
        PER_SECOND,
    ),
    Panel(
        "Failed views a second",
        (
            Query(
                f"clamp_min({_per_second_of_chain('stampede_view')} - {_per_second_of_chain('stampede_height')}, 0)",
                "failed",
            ),
        ),
        PER_SECOND,
        "Views that gave no final block.",
    ),
    Panel("Block interval", _quantiles("stampede_block_interval_seconds"), SECONDS),
    Panel(
        "Finality latency", _quantiles("stampede_finality_latency_seconds"), SECONDS, "From first execution to final."
    ),
    Panel("Delay of fires", _quantiles("stampede_fire_delay_blocks"), NUMBER, "In blocks, from the trigger height."),
    Panel(
        "Executor's jobs",
        (
            Query(
                "sum by (kind) (rate(stampede_executor_job_seconds_sum{}[$__rate_interval]))"
                " / sum by (kind) (rate(stampede_executor_job_seconds_count{}[$__rate_interval]))",
                "{{kind}}",
            ),
        ),
        SECONDS,
        "Mean duration: of a final block, its commit to the disk.",
    ),
    Panel("Heights behind the newest", (Query("scalar(max(stampede_height{})) - stampede_height{}"),)),
    Panel("Peers by validator", (Query("stampede_peers{}"),), NUMBER, "Peers connected in both directions."),
    Panel(
        "Messages a second",
        (
            Query("sum(rate(stampede_messages_sent_total{}[$__rate_interval]))", "sent"),
            Query("sum(rate(stampede_messages_received_total{}[$__rate_interval]))", "received"),
            Query("sum(rate(stampede_messages_oversized_total{}[$__rate_interval]))", "too long to be sent"),
        ),
        PER_SECOND,
    ),
    Panel(
        "Fires and transactions a second",
        (
            Query(_median_rate("stampede_fires_total"), "fires"),
            Query(_median_rate("stampede_transactions_total"), "transactions"),
        ),
        PER_SECOND,
    ),
    Panel(
        "Timers",
        (
            Query("quantile(0.5, stampede_pending_timers{})", "live"),
            Query("quantile(0.5, stampede_backlog{})", "backlog"),
        ),
        NUMBER,
        "Backlog: live timers whose trigger height has passed.",
    ),
    Panel("Mempool by validator", (Query("stampede_mempool_transactions{}"),)),
    Panel(
        "Basefees",
        (
            Query("quantile(0.5, stampede_basefee_cycle{})", "a cycle"),
            Query("quantile(0.5, stampede_basefee_lane_timer{})", "a cycle of the timer lane"),
        ),
    ),
    Panel(
        "Burned a second",
        (Query("quantile by (lane) (0.5, rate(stampede_burned_total{}[$__rate_interval]))", "{{lane}}"),),
        PER_SECOND,
        "In units of CBY, by the price at which it was burned.",
    ),
    Panel(
        "Transactions that were not executed",
        (
            _increase_by("reason", "stampede_transactions_refused_total"),
            _increase_by("reason", "stampede_transactions_dropped_total"),
        ),
        NUMBER,
        "Refused by a mempool, or dropped from one.",
    ),
    Panel("Disk by validator", (Query("sum without (file) (stampede_disk_bytes{})"),), BYTES, is_stacked=True),
    Panel("Disk by content", (Query("sum by (file) (stampede_disk_bytes{})", "{{file}}"),), BYTES, is_stacked=True),
    Panel("Oldest block on the disk", (Query("stampede_first_block{}"),)),
    Panel(
        "Peer faults",
        (_increase_by("reason", "stampede_peer_faults_total"),),
        NUMBER,
        "What no honest peer sends, by reason.",
    ),
    Panel(
        "Dropped of peers",
        (_increase_by("reason", "stampede_peer_drops_total"),),
        NUMBER,
        "What was dropped of what honest peers send too, by reason.",
    ),
    Panel(
        "Messages changed on links",
        (_increase_by("was", "stampede_link_messages_total"),),
        NUMBER,
        "By emulated links, and by faults of the validators' transport.",
    ),
    Panel(
        "HTTP requests a second",
        (Query("sum by (status) (rate(stampede_http_requests_total{}[$__rate_interval]))", "{{status}}"),),
        PER_SECOND,
    ),
    Panel("Event streams", (Query("stampede_event_streams{}"),)),
)
"""Panels with lines over time."""


def dashboard_text() -> str:
    """The dashboard of the testnets that Prometheus scrapes by their own endpoints, as JSON."""
    page = dashboard("Stampede", [Variable("testnet", TESTNET_LABEL)], f"{{{{{VALIDATOR_LABEL}}}}}")
    return json.dumps(page, indent=1) + "\n"


def dashboard(title: str, variables: Sequence[Variable], validator: str) -> dict[str, Any]:
    """The dashboard, as Grafana imports it from JSON.

    ``variables`` select the testnet from all in the data source, each within the selection of the previous ones.
    ``validator`` is the legend of a validator's line in Grafana's syntax, such as ``{{validator}}``.
    """
    selector = _selector(variables)
    return {
        "uid": f"stampede-{hashlib.blake2b(title.encode(), digest_size=8).hexdigest()}",
        "title": title,
        "tags": ["stampede"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_datasource(), *_choices(variables)]},
        "panels": list(_panels(selector, validator)),
    }


def _selector(variables: Sequence[Variable]) -> str:
    return "{" + ", ".join(f'{each.label}="${each.name}"' for each in variables) + "}"


# --- variables ------------------------------------------------------------------------------------------------------


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus"}


def _choices(variables: Sequence[Variable]) -> Iterator[dict[str, Any]]:
    for position, each in enumerate(variables):
        asked = f"label_values(stampede_height{_selector(variables[:position])}, {each.label})"
        chosen = {} if each.chosen is None else {"current": {"text": each.chosen, "value": each.chosen}}
        yield {
            "name": each.name,
            "type": "query",
            "datasource": DATASOURCE,
            "query": {"query": asked, "refId": "A"},
            "refresh": 2,
            "sort": 1,
            **chosen,
        }


# --- panels ---------------------------------------------------------------------------------------------------------


def _panels(selector: str, validator: str) -> Iterator[dict[str, Any]]:
    """The panels of the dashboard, row by row: first those with numbers, then those with lines."""
    top = number = 0
    for panels, (width, height), kind in ((NUMBERS, STAT_SIZE, _stat()), (SERIES, SERIES_SIZE, _lines())):
        in_a_row = COLUMNS // width
        for position, panel in enumerate(panels):
            number += 1
            row, column = divmod(position, in_a_row)
            place = {"x": column * width, "y": top + row * height, "w": width, "h": height}
            yield _panel(panel, number, place, selector, validator) | kind
        top += -(-len(panels) // in_a_row) * height


def _panel(panel: Panel, number: int, place: dict[str, int], selector: str, validator: str) -> dict[str, Any]:
    stacking = {"fillOpacity": 20, "stacking": {"mode": "normal", "group": "A"}} if panel.is_stacked else {}
    return {
        "id": number,
        "title": panel.title,
        **({"description": panel.description} if panel.description else {}),
        "gridPos": place,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": stacking}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": DATASOURCE,
                "expr": query.expression.replace("{}", selector),
                "legendFormat": query.legend or validator,
            }
            for position, query in enumerate(panel.queries)
        ],
    }


def _stat() -> dict[str, Any]:
    reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    return {"type": "stat", "options": {"reduceOptions": reduced, "colorMode": "none", "graphMode": "area"}}


def _lines() -> dict[str, Any]:
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    return {"type": "timeseries", "options": {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}}
