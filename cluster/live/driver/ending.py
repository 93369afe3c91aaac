"""The end of a live run: its validators come to rest, and what they have is collected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cluster.common.interrupts import Interrupts
from cluster.common.units import MILLISECONDS_PER_SECOND
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.live_run import LiveRun
from cluster.live.processes.history import Phase
from cluster.record.run import RunRecord

FREEZE_TIMEOUT_S: Final = 20.0
LOOKS_AT_THE_END: Final = 2
"""Looks at the hosts once they are at rest. The first may still take an answer from before that."""


def freeze_and_collect(run: LiveRun, hosts: Hosts, checkpoint: Callable[[], None]) -> None:
    """Bring the validators to rest, and collect their state. ``checkpoint`` is called often, and may raise."""
    record, watch, audit = run.record, run.watch, run.audit
    hosts.resume_all()
    failed = hosts.ask_each("freeze", FREEZE_TIMEOUT_S, checkpoint)
    for host, reason in failed:
        record.problems.append(f"host {host.number} did not come to rest: {reason}")
    for _ in range(LOOKS_AT_THE_END):
        hosts.look(watch.height, starts=False)
    run.files.keep()
    record.duration_ms = run.clock.now_ms()
    watch.trace.close(record.duration_ms)
    watch.take_lags(hosts)
    _note_totals(run, hosts)
    for host in hosts.all:
        if host.phase is not Phase.UP and host.not_ready and watch.height:
            names = ", ".join(record.scenario.validators.names[index] for index in host.not_ready)
            record.problems.append(f"{names} did not answer at the end: host {host.number} is {host.phase.value}")
    restless = [host for host, _ in failed]
    urls = hosts.urls([host for host in hosts.all if host not in restless])
    run.notice(f"height {watch.height}: asking {len(urls)} validators for their blocks and accounts")
    audit.collect(urls, checkpoint)


def _note_totals(run: LiveRun, hosts: Hosts) -> None:
    """Record the run's metrics that only the driver knows."""
    totals, metrics = hosts.totals(), run.record.metrics
    metrics["messages_sent"] = totals.messages
    metrics["messages_dropped"] = totals.lost
    metrics["bytes_sent"] = totals.size
    metrics["core_seconds"] = totals.core_seconds
    metrics.update(run.watch.busyness.metrics())
    first_ms = run.record.finalizations.first_ms
    if first_ms is not None:
        metrics["startup_seconds"] = first_ms / MILLISECONDS_PER_SECOND
    metrics["judge_core_seconds"] = run.audit.judge_core_seconds


def note_interruption(record: RunRecord, notice: Callable[[str], None]) -> None:
    record.interrupted = True
    notice("interrupted: collecting what is known; interrupt again to end without it")


def check_twice(interrupts: Interrupts, record: RunRecord, notice: Callable[[str], None]) -> None:
    """Check for signals while the record is collected. The first marks the run as interrupted; the next one raises."""
    try:
        interrupts.checkpoint()
    except KeyboardInterrupt:
        if record.interrupted:
            raise
        note_interruption(record, notice)
