"""The arithmetic of an estimate, on made-up machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.scenario import Scenario
from cluster.tools.explain.size.calibration import HOSTS, Calibration, IdleTestnet, Load
from cluster.tools.explain.size.estimate import HOST_FILES, Estimate, estimate

PER_VALIDATOR_S, PER_MESSAGE_S, CHECK_S = 0.002, 0.000_1, 0.000_05
FILES = 20_000


def measured(n: int) -> IdleTestnet:
    """One whose costs follow the model exactly: two cores fully used."""
    block_s = PER_VALIDATOR_S * n + PER_MESSAGE_S * n * n + 2 * CHECK_S * n * HOSTS
    return IdleTestnet(
        validators=n,
        blocks=100,
        seconds=100 * block_s / 2,
        core_seconds=100 * block_s,
        bytes_sent=100 * (300 * n + 200 * n * n),
        disk_bytes=100 * n * (500 + 100 * n),
        host_memory_bytes=150_000_000 + n // HOSTS * (4_000_000 + 100_000 * n),
    )


MACHINE = Calibration(
    cores=2,
    memory_bytes=16_000_000_000,
    disk_free_bytes=100_000_000_000,
    others_cores=0.0,
    verification_s=CHECK_S,
    empty_host_bytes=150_000_000,
    small=measured(4),
    large=measured(16),
    load=Load(0.0, 0.0, 0.0, 0.0),
)


def scenario(n: int = 64, hosts: int = 8, **sections: Any) -> Scenario:
    given = {
        "name": "estimated",
        "validators": {"count": n, "hosts": hosts},
        "consensus": {"block_interval_ms": 0},
        "links": {"latency_ms": 0, "jitter_ms": 0},
        "stop": {"height": 995, "drain_blocks": 5, "timeout_s": 10_000},
    }
    return Scenario.model_validate(given | sections)


def guess(of: Scenario, machine: Calibration = MACHINE, cores: int | None = None, files: int = FILES) -> Estimate:
    return estimate(of, machine, cores, files)


def test_costs_follow_the_two_testnets() -> None:
    found = guess(scenario(64, 8))
    block_s = PER_VALIDATOR_S * 64 + PER_MESSAGE_S * 64**2 + 2 * CHECK_S * 64 * 8
    assert found.block_core_ms == pytest.approx(1_000 * block_s)
    assert found.block_bytes == pytest.approx(300 * 64 + 200 * 64**2)
    assert found.rate == pytest.approx((2 - 0.2) / block_s)
    assert found.limit == "the 2 cores"
    assert found.bandwidth_bytes == pytest.approx(found.block_bytes * found.rate)
    assert found.seconds == pytest.approx(1_000 / found.rate)
    assert found.files == HOST_FILES + 8 * 63 * 2
    assert found.disk_bytes == pytest.approx(1_000 * 65 * (500 + 6_400))
    assert found.memory_bytes == pytest.approx(1_000_000_000 + 8 * (205_000_000 + 8 * (4_000_000 + 6_400_000)))
    assert found.problems == ()


def test_more_cores_are_faster_until_a_host_is_the_limit() -> None:
    few, many, most = (guess(scenario(64, 8), cores=cores) for cores in (2, 4, 1_000))
    assert few.rate < many.rate < most.rate
    assert most.limit.startswith("the busiest host")
    assert most.rate == pytest.approx(8 / (most.block_core_ms / 1_000))
    assert guess(scenario(64, 64), cores=1_000).rate > most.rate


def test_the_protocol_waits_for_interval_and_messages() -> None:
    slow = scenario(4, 4, consensus={"block_interval_ms": 250}, links={"latency_ms": 20, "jitter_ms": 0})
    found = guess(slow)
    assert found.limit.startswith("the protocol")
    assert found.rate == pytest.approx(1 / (0.290 + found.block_core_ms / 4_000))
    assert found.rate == found.wanted_rate
    assert found.cores == pytest.approx(0.2 + found.rate * found.block_core_ms / 1_000)


def test_the_load_takes_cores_from_the_blocks() -> None:
    idle = guess(scenario(16, 4))
    loaded = guess(scenario(16, 4), replace(MACHINE, load=Load(0.05, 20.0, 100.0, 1_000.0)))
    assert loaded.rate == pytest.approx(idle.rate * (2 - 0.2 - 16 * 0.05 - 20 * 0.003) / (2 - 0.2))
    assert loaded.disk_bytes > idle.disk_bytes


@pytest.mark.parametrize(
    ("machine", "sections", "files", "resource"),
    [
        (replace(MACHINE, memory_bytes=1_000_000_000), {}, FILES, "memory"),
        (replace(MACHINE, disk_free_bytes=100_000_000), {}, FILES, "disk"),
        (MACHINE, {}, 1_000, "open files"),
        (MACHINE, {"stop": {"height": 995, "timeout_s": 10}}, FILES, "time"),
    ],
)
def test_what_does_not_fit_is_named(machine: Calibration, sections: Any, files: int, resource: str) -> None:
    [problem] = guess(scenario(64, 8, **sections), machine, files=files).problems
    assert problem.startswith(resource + ": ")


def test_a_timeout_below_a_block_time_is_warned_of() -> None:
    """A block of 64 takes 0.4 s; 512 validators would need 15 s for one."""
    assert guess(scenario(64, 8)).warnings == ()
    [warning] = guess(scenario(512, 8)).warnings
    assert warning.startswith("consensus.leader_timeout_ms: ")


def test_pruning_bounds_the_disk() -> None:
    days: dict[str, Any] = {"stop": {"height": 100_000, "drain_blocks": 0, "timeout_s": 80_000}}
    kept: dict[str, Any] = {"storage": {"keep_blocks": 1_000, "segment_kib": 1_024}}
    everything, bounded = guess(scenario(**days)), guess(scenario(**days, **kept))
    assert bounded.disk_bytes < everything.disk_bytes / 20


def test_a_testnet_that_got_cheaper_by_size_gives_no_negative_cost() -> None:
    odd = replace(MACHINE, large=replace(MACHINE.large, core_seconds=0.001, bytes_sent=1))
    found = guess(scenario(64, 8), odd)
    assert found.block_core_ms > 0
    assert found.block_bytes >= 0
