"""The arithmetic of an estimate, on made-up machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.scenario import Scenario
from kits.measure.size.estimate import HOST_FILES, MODEL_ERROR, Estimate, estimate
from kits.measure.size.measuring import HOSTS, Calibration, IdleTestnet, Load, Round, folder_bytes

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
        others_core_seconds=0.0,
        bytes_sent=100 * (300 * n + 200 * n * n),
        disk_bytes=100 * n * (500 + 100 * n),
        host_memory_bytes=150_000_000 + n // HOSTS * (4_000_000 + 100_000 * n),
    )


MACHINE = Calibration(
    cores=2,
    memory_bytes=16_000_000_000,
    disk_free_bytes=100_000_000_000,
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
    assert found.memory_bytes == pytest.approx(660_000_000 + 8 * (195_000_000 + 8 * (4_000_000 + 6_400_000)))
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


def rounds(*speeds: float) -> Calibration:
    """The machine, whose rounds took so many times as long, together."""
    found = [Round(*(slowed(each, by) for each in (MACHINE.small, MACHINE.large))) for by in speeds]
    small, large = found[0].small, found[0].large
    for each in found[1:]:
        small, large = small.plus(each.small), large.plus(each.large)
    return replace(MACHINE, small=small, large=large, rounds=tuple(found))


def slowed(testnet: IdleTestnet, by: float) -> IdleTestnet:
    return replace(testnet, seconds=testnet.seconds * by, core_seconds=testnet.core_seconds * by)


def test_a_steady_machine_leaves_what_the_model_misses() -> None:
    found = guess(scenario(64, 8), rounds(1.0, 1.0, 1.0))
    assert found.rate == pytest.approx(guess(scenario(64, 8)).rate)
    assert found.rate_low == pytest.approx(found.rate / (1 + MODEL_ERROR))
    assert found.rate_high == pytest.approx(found.rate * (1 + MODEL_ERROR))
    assert found.warnings == ()


@pytest.mark.parametrize("by", [2.0, 0.5])
def test_a_machine_that_changes_its_speed_is_seen(by: float) -> None:
    usual = guess(scenario(64, 8), rounds(1.0, 1.0, 1.0))
    found = guess(scenario(64, 8), rounds(1.0, by, 1.0))
    other = guess(scenario(64, 8), rounds(by, by, by))
    assert min(usual.rate, other.rate) < found.rate < max(usual.rate, other.rate)
    assert found.rate_low == pytest.approx(min(usual.rate_low, other.rate_low))
    assert found.rate_high == pytest.approx(max(usual.rate_high, other.rate_high))
    [warning] = found.warnings
    assert warning.startswith("this machine changes its speed: 16 validators made ")


def busy(testnet: IdleTestnet, own: float, others: float) -> IdleTestnet:
    """One that had ``own`` cores beside others."""
    work = testnet.core_seconds
    return replace(testnet, seconds=work / own, others_core_seconds=work / own * others)


@pytest.mark.parametrize(
    ("own", "others", "left"),
    [
        (1.4, 0.0, 1.4),  # it waits: what is idle is enough for driver and Ray
        (1.4, 0.5, 1.4 - 0.1 * 1.4 / 1.9),  # half of the 0.2 is idle, all yield alike for the rest
        (0.5, 1.5, 0.5 - 0.2 * 0.5 / 2.0),
    ],
)
def test_other_processes_take_what_they_took_while_it_was_measured(own: float, others: float, left: float) -> None:
    machine = replace(MACHINE, small=busy(MACHINE.small, own, others), large=busy(MACHINE.large, own, others))
    found = guess(scenario(64, 8), machine)
    assert found.rate == pytest.approx(left / found.block_core_ms * 1_000)


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


def test_a_file_that_goes_while_a_folder_is_measured_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").write_bytes(bytes(700))
    (tmp_path / "gone").write_bytes(bytes(300))
    is_file = Path.is_file

    def found_and_then_gone(path: Path) -> bool:
        found = is_file(path)
        if path.name == "gone":
            path.unlink()
        return found

    monkeypatch.setattr(Path, "is_file", found_and_then_gone)
    assert folder_bytes(tmp_path) == 700
