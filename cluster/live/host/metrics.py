"""The metrics page of one validator (``docs/http.md``)."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.live.network.transport import Transport
from cluster.live.web.prometheus_text import Samples, labelled, render_metric
from cluster.record.status import Tally
from validator.node.assembly import Validator


def render_metrics(validator: Validator, tally: Tally, transport: Transport, streams: int) -> str:
    """A validator's metrics in Prometheus' text format."""
    node, newest, counters = validator.node, tally.newest, transport.counters
    gauges: list[tuple[str, str, int]] = [
        ("stampede_height", "Newest final height.", node.height),
        ("stampede_first_block", "Height of the first block on the disk.", validator.executor.pages.first_block),
        ("stampede_view", "Current consensus view.", node.view),
        ("stampede_pending_timers", "Live timers.", tally.pending_timers),
        ("stampede_backlog", "Live timers whose trigger height has passed.", tally.backlog),
        ("stampede_mempool_transactions", "Transactions that wait for a block.", len(node.mempool)),
        ("stampede_peers", "Peers connected in both directions.", len(transport.connected)),
        ("stampede_event_streams", "Clients that events are streamed to.", streams),
    ]
    if newest is not None:
        gauges.append(("stampede_basefee_cycle", "Price of a cycle.", newest.basefee_cycle))
        gauges.append(("stampede_basefee_lane_timer", "Price of a timer lane cycle.", newest.basefee_lane_timer))
    used = labelled("file", validator.executor.used_bytes)
    lines = [render_metric("stampede_disk_bytes", "gauge", "Bytes on the disk, by folder or file.", used)]
    links = labelled("was", {} if transport.links is None else transport.links.totals())
    refused, dropped = tally.transactions_refused, tally.transactions_dropped
    totals: list[tuple[str, str, int | Samples]] = [
        ("stampede_fires_total", "Timers fired since the start.", tally.fires),
        ("stampede_transactions_total", "Transactions executed since the start.", tally.executed_transactions),
        ("stampede_messages_received_total", "Messages from peers.", counters.messages_received),
        ("stampede_messages_sent_total", "Messages to peers.", counters.messages_sent),
        ("stampede_messages_oversized_total", "Messages that were too long to be sent.", counters.messages_oversized),
        ("stampede_burned_total", "Burned since the start, in CBY units.", labelled("lane", tally.burned._asdict())),
        ("stampede_link_messages_total", "Messages that something was done to on links.", links),
        ("stampede_peer_faults_total", "What no honest peer sends, by reason.", _by_reason(tally.faults)),
        ("stampede_peer_drops_total", "What was dropped of what honest peers send too.", _by_reason(tally.dropped)),
        ("stampede_transactions_refused_total", "Transactions that the mempool refused.", _by_reason(refused)),
        ("stampede_transactions_dropped_total", "Transactions that left the mempool.", _by_reason(dropped)),
    ]
    lines += [render_metric(name, "gauge", text, value) for name, text, value in gauges]
    return "".join([*lines, *(render_metric(name, "counter", text, value) for name, text, value in totals)])


def _by_reason(counts: Mapping[str, int]) -> Samples:
    return labelled("reason", dict(sorted(counts.items())))
