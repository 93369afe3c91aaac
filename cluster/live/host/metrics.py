"""The metrics page of one validator (``docs/http.md``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, get_args

from cluster.live.host.threads import Done
from cluster.live.network import handshake
from cluster.live.network.transport import Transport
from cluster.live.web.prometheus_text import Histogram, Samples, labelled, render_histograms, render_metric
from cluster.record.status import Tally
from consensus.interface import FAULT_REASONS, HARMLESS_REASONS
from consensus.messages import Evidence
from validator.node.assembly import Validator
from validator.node.evidence import INVALID_BLOCK
from validator.node.executor.jobs import Build, Execute, Finalize, Job
from validator.node.mempool import Departure, Refusal

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bounds of the buckets of durations, in seconds."""
BLOCKS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""Bounds of the buckets of delays, in blocks."""
TIMED_JOBS: Final = {Build: "build", Execute: "execute", Finalize: "finalize"}
"""The executor's jobs whose durations are counted, with their label."""
PEER_FAULTS: Final = frozenset(
    {
        *FAULT_REASONS,
        *(f"evidence_{kind}" for kind in (INVALID_BLOCK, *(each.__name__ for each in get_args(Evidence)))),
        *handshake.REASONS,
        *("refused", "handshake_broken", "handshake_timeout", "too_many_handshakes", "oversized_frame"),
        *("undecodable", "oversized", "bad_transactions", "bad_block", "bad_final_blocks", "invalid_block"),
        *("bad_view", "bad_offer", "bad_manifest", "bad_chunk"),
    }
)
"""Reasons of peer faults: of consensus, its evidence, the handshake, the transport, the node, a join."""
MAX_HEIGHTS_AWAITED: Final = 4_096
"""Maximum number of heights that were seen and are not final."""


class Timings:
    """What a validator measures of its blocks, as histograms. ``now_s`` gives seconds from any origin."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._seen_s: dict[int, float] = {}
        """When the validator first executed or built a block of each height that is not final."""
        self._final_s: float | None = None
        self._block_interval = Histogram(SECONDS)
        self._finality_latency = Histogram(SECONDS)
        self._fire_delay = Histogram(BLOCKS)
        self._jobs = {label: Histogram(SECONDS) for label in TIMED_JOBS.values()}

    def seen(self, height: int) -> None:
        """Note that the validator begins to execute a block of this height, or has built one."""
        if len(self._seen_s) < MAX_HEIGHTS_AWAITED:
            self._seen_s.setdefault(height, self._now_s())

    def done(self, job: Job, done: Done) -> None:
        """Note a job that ended."""
        label = TIMED_JOBS.get(type(job))
        if label is not None:
            self._jobs[label].observe(done.seconds)
        for delay in done.fire_delays:
            self._fire_delay.observe(delay)

    def final(self, height: int) -> None:
        """Note that a block of this height is final."""
        now_s = self._now_s()
        if self._final_s is not None:
            self._block_interval.observe(now_s - self._final_s)
        self._final_s = now_s
        if (seen_s := self._seen_s.get(height)) is not None:
            self._finality_latency.observe(now_s - seen_s)
        for settled in [each for each in self._seen_s if each <= height]:
            del self._seen_s[settled]

    def render(self) -> str:
        """The histograms in Prometheus' text format."""
        alone = (
            ("stampede_block_interval_seconds", "Time between two final blocks.", self._block_interval),
            (
                "stampede_finality_latency_seconds",
                "From a block's first execution here to final.",
                self._finality_latency,
            ),
            ("stampede_fire_delay_blocks", "Blocks from a timer's trigger height to its fire.", self._fire_delay),
        )
        pages = [render_histograms(name, text, "", {"": histogram}) for name, text, histogram in alone]
        told = "Duration of the executor's jobs: of a final block, its commit to the disk."
        return "".join([*pages, render_histograms("stampede_executor_job_seconds", told, "kind", self._jobs)])


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
        (
            "stampede_diverged",
            "1 if the validator's execution gave another state root.",
            int(node.diverged is not None),
        ),
        ("stampede_peers", "Peers connected in both directions.", len(transport.connected)),
        ("stampede_event_streams", "Clients that events are streamed to.", streams),
    ]
    if newest is not None:
        gauges.append(("stampede_basefee_cycle", "Price of a cycle.", newest.basefee_cycle))
        gauges.append(("stampede_basefee_lane_timer", "Price of a timer lane cycle.", newest.basefee_lane_timer))
    used = labelled("file", validator.executor.used_bytes)
    lines = [render_metric("stampede_disk_bytes", "gauge", "Bytes on the disk, by folder or file.", used)]
    links = labelled("was", {} if transport.links is None else transport.links.totals())
    faults, drops = _by_reason(tally.faults, PEER_FAULTS), _by_reason(tally.dropped, HARMLESS_REASONS)
    refused = _by_reason(tally.transactions_refused, Refusal)
    dropped = _by_reason(tally.transactions_dropped, Departure)
    totals: list[tuple[str, str, int | Samples]] = [
        ("stampede_fires_total", "Timers fired since the start.", tally.fires),
        ("stampede_transactions_total", "Transactions executed since the start.", tally.executed_transactions),
        ("stampede_messages_received_total", "Messages from peers.", counters.messages_received),
        ("stampede_messages_sent_total", "Messages to peers.", counters.messages_sent),
        ("stampede_messages_oversized_total", "Messages that were too long to be sent.", counters.messages_oversized),
        ("stampede_burned_total", "Burned since the start, in CBY units.", labelled("lane", tally.burned._asdict())),
        ("stampede_link_messages_total", "Messages that something was done to on links.", links),
        ("stampede_peer_faults_total", "What no honest peer sends, by reason.", faults),
        ("stampede_peer_drops_total", "What was dropped of what honest peers send too.", drops),
        ("stampede_transactions_refused_total", "Transactions that the mempool refused.", refused),
        ("stampede_transactions_dropped_total", "Transactions that left the mempool.", dropped),
    ]
    lines += [render_metric(name, "gauge", text, value) for name, text, value in gauges]
    return "".join([*lines, *(render_metric(name, "counter", text, value) for name, text, value in totals)])


def _by_reason(counts: Mapping[str, int], reasons: Iterable[str]) -> Samples:
    """Counts of all ``reasons``. One that did not occur has 0: Prometheus sees no increase in a first sample."""
    return labelled("reason", dict(sorted({**dict.fromkeys(reasons, 0), **counts}.items())))
