"""The status of a live testnet, as its own endpoint shows it: pure, from the driver's knowledge."""

from __future__ import annotations

from typing import Any

from cluster.live.driver.control_server import Overview
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.supervised_host import Host
from cluster.record.run import FaultRecord, RunRecord


def look_over(record: RunRecord, hosts: Hosts, height: int, at_ms: float) -> Overview:
    """A look at the testnet, ``at_ms`` after the run began; ``height`` is the highest final one."""
    newest = record.samples[-1] if record.samples else None
    names = record.scenario.validators.names
    addresses = {address.index: address.url for address in hosts.addresses}
    running = [fault for fault in record.faults if fault.begun_ms is not None and fault.ended_ms is None]
    figures = {
        "height": height,
        "fires": 0 if newest is None else newest.fires,
        "transactions": 0 if newest is None else newest.transactions,
        "pending_timers": 0 if newest is None else newest.pending_timers,
        "backlog": 0 if newest is None else newest.backlog,
    }
    status = {
        "scenario": record.scenario.name,
        "seed": record.seed,
        "commit": record.commit,
        "at_ms": round(at_ms),
        **figures,
        "validators": [
            _validator_page(hosts.host_of(index), index, name, addresses.get(index)) for index, name in enumerate(names)
        ],
        "faults": [_fault_page(fault) for fault in record.faults],
        "problems": record.problems,
    }
    gauges = {
        "stampede_testnet_height": ("Highest final height of any validator.", height),
        "stampede_testnet_fires": ("Timers fired, of the heights that were seen.", figures["fires"]),
        "stampede_testnet_transactions": ("Transactions committed likewise.", figures["transactions"]),
        "stampede_testnet_faults_running": ("Faults of the scenario that are under way.", len(running)),
        "stampede_testnet_problems": ("What went wrong around the run so far.", len(record.problems)),
        "stampede_testnet_run_seconds": ("Since the run began.", round(at_ms / 1_000)),
    }
    labels = {"scenario": record.scenario.name, "chain_id": record.genesis.chain_id}
    return Overview(status, {names[index]: url for index, url in addresses.items()}, gauges, labels)


def _validator_page(host: Host, index: int, name: str, url: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "url": url,
        "host": host.number,
        "pid": host.pid,
        "host_is": host.phase.value,
        "height": host.height(index),
    }


def _fault_page(fault: FaultRecord) -> dict[str, Any]:
    return {
        "kind": fault.kind,
        "target": fault.target,
        "begun_ms": None if fault.begun_ms is None else round(fault.begun_ms),
        "ended_ms": None if fault.ended_ms is None else round(fault.ended_ms),
        "evidence": fault.evidence,
    }
