"""A run's folder: what is written, that it reads back, and that nothing is ever overwritten."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgpack
import pytest
import yaml
from blake3 import blake3

from cluster.audit.books import keep_books
from cluster.checks.metrics import metrics as run_metrics
from cluster.checks.run import judge_run
from cluster.common.checkout import NAMESPACE_VARIABLE, checkout_commit
from cluster.common.errors import BadInput
from cluster.common.outcome import Outcome
from cluster.common.quantiles import quantile
from cluster.record.archive import ARCHIVE_MAGIC, write_blocks
from cluster.record.archived_run import read_run
from cluster.record.chain_store import FileBlocks, ServedBlocks
from cluster.record.finalizations import Finalization, Finalizations
from cluster.record.folder import new_run_folder, point_latest
from cluster.record.run import Resources, RunRecord
from cluster.report.results import finish_run, reproduce_command
from cluster.scenario.files import load_scenario
from tests.cluster.records import PRICE, make_chain, make_genesis, make_record, make_scenario, with_kill
from tests.git import git
from validator.chain.block import Block
from validator.primitives.codec import decode, tagged_hash

TIMELINE = ("at_ms", "requests", "failures", "response_p50_ms", "response_p95_ms", "response_p99_ms")
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def test_a_finished_run_has_every_file_and_the_result_its_exact_shape(tmp_path: Path) -> None:
    record = with_kill(make_record())
    verdict = finish_run(record, tmp_path / "run")
    assert verdict.outcome is Outcome.PASS
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "blocks.bin",
        "genesis.json",
        "junit.xml",
        "record.bin",
        "report.html",
        "result.json",
        "scenario.yaml",
        "series.json",
    ]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    keys = [
        "scenario",
        "backend",
        "seed",
        "commit",
        "version",
        "scenario_hash",
        "date",
        "policy",
        "preset",
        "verdict",
        "checks",
        "warnings",
        "failed_runs",
        "evaluations",
        "metrics",
        "classes",
        "load",
        "participation",
        "validators",
        "faults",
        "machine",
        "lag",
        "disks",
        "divergences",
        "digest",
        "checkpoints",
    ]
    assert list(result) == keys
    assert (result["verdict"], result["policy"], result["preset"]) == ("pass", "cip1", None)
    assert result["evaluations"]["blocks as specified"] == {"times": 12, "needed": 10}
    assert result["classes"]["others"] | {"weight_mean": 0} == {
        "actors": 1,
        "due": 17,
        "fires": 17,
        "weight_mean": 0,
        "lateness_p50_blocks": 0,
        "lateness_p95_blocks": 0,
        "lateness_p99_blocks": 0,
    }
    assert result["load"]["workloads"] == {}
    assert result["load"]["timeline"] == {"width_ms": 1_000} | {key: [] for key in TIMELINE}
    assert set(result["machine"]) == {"system", "processor", "processors", "memory_gib", "python"}
    assert result["lag"] == {"driver": {"lag_ms": 0}}
    assert [set(check) for check in result["checks"]] == [{"name", "verdict", "detail", "applies"}] * len(
        verdict.checks
    )
    assert result["validators"][3] == {
        "name": "validator-3",
        "height": 12,
        "state_root": record.validators[3].blocks[-1].computed_root.hex(),
    }
    assert all(isinstance(value, int | float) for value in result["metrics"].values())


def test_the_result_names_foreign_executors(tmp_path: Path) -> None:
    nodes = [{}, {"executor": "./mine --x \x1b"}, {}, {}]
    finish_run(make_record(scenario=make_scenario(validators=nodes)), tmp_path)
    validators = json.loads((tmp_path / "result.json").read_text())["validators"]
    assert [each.get("executor") for each in validators] == [None, "./mine --x \\x1b", None, None]


def test_the_figures_of_each_height_are_written(tmp_path: Path) -> None:
    finish_run(make_record(), tmp_path)
    series = json.loads((tmp_path / "series.json").read_text())
    assert series["height"] == list(range(1, 13))
    assert {len(values) for values in series.values()} == {12}
    assert series["finality_latency_ms"][:3] == [81, 82, 83]
    assert series["block_interval_ms"][:3] == [None, 251, 251]
    assert sum(series["fires"]) == 17


def test_a_long_series_has_means_of_ranges_and_their_extremes(monkeypatch: pytest.MonkeyPatch) -> None:
    record = make_record()
    record.proposals[5] -= 4_000
    whole = run_metrics.series(keep_books(record))
    monkeypatch.setattr(run_metrics, "MAX_SERIES_HEIGHTS", 5)
    thin = run_metrics.series(keep_books(record))
    assert thin["height"] == [1, 4, 7, 10]
    for name, values in whole.items():
        if name != "height":
            parts = [[v for v in values[start : start + 3] if v is not None] for start in range(0, 12, 3)]
            assert thin[f"{name}_min"] == [min(part) for part in parts]
            assert thin[f"{name}_max"] == [max(part) for part in parts]
            assert thin[name] == pytest.approx([sum(part) / len(part) for part in parts], abs=0.001)
    assert (thin["finality_latency_ms_max"][1] or 0) > 4_000


def test_a_live_run_has_no_digest(tmp_path: Path) -> None:
    finish_run(make_record(backend="live"), tmp_path)
    assert "digest" not in json.loads((tmp_path / "result.json").read_text())


def test_a_run_that_ended_before_anything_still_writes_what_is_known(tmp_path: Path) -> None:
    record = RunRecord(make_scenario(), "live", 1, "unknown", make_genesis(), interrupted=True)
    assert finish_run(record, tmp_path).outcome is Outcome.INCONCLUSIVE
    assert read_run(tmp_path).blocks == []


def test_a_run_reads_back(tmp_path: Path) -> None:
    record = make_record()
    finish_run(record, tmp_path)
    archived = read_run(tmp_path)
    assert archived.genesis == record.genesis
    assert archived.blocks == record.validators[0].blocks
    assert archived.result["scenario"] == "synthetic"


def test_the_scenario_is_copied_as_it_is_or_written_out(tmp_path: Path) -> None:
    record = with_kill(make_record())
    source = tmp_path / "given.yaml"
    source.write_text("# a comment\n" + yaml.safe_dump(record.scenario.model_dump(mode="json", exclude_unset=True)))
    finish_run(record, tmp_path / "one", source)
    assert (tmp_path / "one" / "scenario.yaml").read_text() == source.read_text()
    finish_run(record, tmp_path / "two")
    finish_run(record, tmp_path / "three", tmp_path / "gone.yaml")
    assert load_scenario(tmp_path / "two" / "scenario.yaml") == record.scenario
    assert load_scenario(tmp_path / "three" / "scenario.yaml") == record.scenario
    source.write_text("# changed while the run went on\nname: synthetic\n")
    finish_run(record, tmp_path / "four", source)
    assert load_scenario(tmp_path / "four" / "scenario.yaml") == record.scenario


def test_the_command_that_reproduces_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = make_record()
    given = reproduce_command(record, tmp_path / "run", Path("scenarios/smoke.yaml"))
    assert given == "stampede run scenarios/smoke.yaml --backend sim --seed 1  # at commit 0123456789ab"
    live = reproduce_command(replace(record, backend="live", seed=9), tmp_path / "a run")
    assert live == "stampede run 'a run/scenario.yaml' --seed 9  # at commit 0123456789ab"
    monkeypatch.setenv(NAMESPACE_VARIABLE, "tests")
    in_a_pod = reproduce_command(replace(record, backend="live"), tmp_path, Path("/etc/stampede/scenario.yaml"))
    assert in_a_pod == (
        "stampede k8s run --namespace tests scenario.yaml --seed 1  # in the fetched folder, at commit 0123456789ab"
    )


# --- folders ----------------------------------------------------------------------------------------------------------


def test_folders_are_numbered_and_never_used_twice(tmp_path: Path) -> None:
    names = [new_run_folder("smoke", NOW, tmp_path / "runs").name for _ in range(3)]
    assert names == ["20260304-050607-smoke", "20260304-050607-smoke-2", "20260304-050607-smoke-3"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(BadInput, match="cannot be created"):
        new_run_folder("smoke", NOW, tmp_path / "runs")


def test_latest_points_at_the_newest_run(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for _ in range(2):
        folder = new_run_folder("smoke", NOW, root)
        point_latest(folder, root)
        assert (root / "latest").resolve() == folder.resolve()
    assert (root / "latest").readlink() == Path(folder.name)
    point_latest(tmp_path, root)
    assert (root / "latest").resolve() == folder.resolve(), "a folder elsewhere is not the newest run of this root"


def test_something_else_named_latest_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    point_latest(tmp_path, tmp_path)
    assert not (tmp_path / "latest").is_symlink()


def test_the_commit_of_a_checkout(tmp_path: Path) -> None:
    assert checkout_commit(tmp_path) == "unknown"

    git(tmp_path, "init")
    assert checkout_commit(tmp_path) == "unknown"
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--no-verify", "-m", "one")
    clean = checkout_commit(tmp_path)
    assert len(clean) == 12
    found = []
    for text in ("two", "three", "two"):
        (tmp_path / "file").write_text(text)
        found.append(checkout_commit(tmp_path))
    assert all(re.fullmatch(rf"{clean}-dirty-[0-9a-f]{{8}}", each) for each in found)
    assert found[0] == found[2] != found[1], "one state of the code does not continue what another one began"
    git(tmp_path, "config", "diff.external", "true")
    assert checkout_commit(tmp_path) == found[0], "whatever the user compares files with"
    (tmp_path / "file").write_text("one")
    assert checkout_commit(tmp_path) == clean


# --- the archive ------------------------------------------------------------------------------------------------------


def test_an_archive_reads_back_and_every_damage_is_found(tmp_path: Path) -> None:
    path, no_item = tmp_path / "blocks.bin", ARCHIVE_MAGIC + (3).to_bytes(4, "big") + b"abc"
    for blocks in ([], make_chain(3).blocks):
        write_blocks(path, blocks)
        assert ServedBlocks.all_of(FileBlocks.archived(path)) == blocks
    data = path.read_bytes()
    for damaged in (
        *(b"", data[:10], data[:-1], data + b"\0", b"X" + data[1:], data[:200] + b"\xff" + data[201:]),
        no_item + tagged_hash(b"blocks archive", no_item),
    ):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match=r"/blocks\.bin: is no archive of blocks, or a damaged one$"):
            FileBlocks.archived(path)


def test_the_archive_is_what_the_page_says(tmp_path: Path) -> None:
    """``docs/protocol.md``, by MessagePack and hashes alone."""
    body = b"stampede/blocks/v1\n"
    for record in make_chain(3).blocks:
        item = msgpack.packb([record.block, record.receipts, record.computed_root], use_bin_type=True)
        body += len(item).to_bytes(4, "big") + item
    write_blocks(tmp_path / "blocks.bin", make_chain(3).blocks)
    assert (tmp_path / "blocks.bin").read_bytes() == body + blake3(b"\x0eblocks archive" + body).digest()


def test_a_folder_that_is_no_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        read_run(tmp_path / "missing")
    with pytest.raises(BadInput, match="holds no finished run: it has no result"):
        read_run(tmp_path)
    finish_run(make_record(), tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(BadInput, match="no JSON"):
        read_run(tmp_path)
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(BadInput, match="expected an object"):
        read_run(tmp_path)


# --- figures ----------------------------------------------------------------------------------------------------------


def test_the_figures_of_a_run() -> None:
    record = make_record()
    record.metrics = {"startup_seconds": 1.5}
    figures = judge_run(record).metrics
    assert figures["heights"] == 12
    assert figures["transactions"] == 36
    assert figures["fires"] == 17
    assert figures["blocks_per_second"] == pytest.approx(4, rel=0.01)
    assert figures["finality_latency_p50_ms"] == 82
    assert figures["finality_latency_p99_ms"] == 84
    assert figures["longest_stall_ms"] == 251
    assert figures["basefee_lane_first"] == figures["basefee_lane_max"] == 1_000_000
    assert figures["timers_pending_at_end"] == 7
    assert figures["lateness_max_blocks"] == 0
    assert figures["startup_seconds"] == 1.5
    assert figures["fairness_jain_index"] == 1
    assert figures["burned_cycle"] + figures["burned_cell"] + figures["burned_lane_timer"] == figures["burned"]
    assert figures["burned_lane_timer"] == 17 * 1_001 * PRICE
    headers = [decode(block.block, Block).header for block in record.validators[0].blocks]
    assert figures["burned_cell"] == sum(header.lane_cells + header.user_cells for header in headers) * PRICE > 0
    assert "memory_max_mb" not in figures


def test_the_most_that_validators_used_are_figures() -> None:
    record = make_record()
    record.resources = [Resources(0.0, 0, 2_000_000, 5, 300_000_000, 1.0, 40), Resources(9.0, 1, 1_000_000, 9)]
    figures = judge_run(record).metrics
    assert (figures["disk_max_mb"], figures["memory_max_mb"], figures["open_files_max"]) == (2, 300, 40)


def test_what_a_run_does_not_allow_is_left_out() -> None:
    record = make_record()
    record.finalizations, record.proposals = Finalizations(), {}
    figures = judge_run(record).metrics
    assert not {"blocks_per_second", "finality_latency_p50_ms", "longest_stall_ms", "first_block_ms"} & set(figures)


def test_quantiles_are_the_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [quantile(values, share) for share in (0.0, 0.5, 0.95, 0.99, 1.0)] == [1, 50, 95, 99, 100]
    assert quantile([3.0], 0.99) == 3


def test_latency_is_to_the_first_finalization_anywhere() -> None:
    record = make_record()
    record.proposals = {1: 100.0}
    record.finalizations = Finalizations(
        [Finalization(300.0, 0, 1), Finalization(150.0, 1, 1), Finalization(170.0, 1, 2)]
    )
    assert run_metrics.finality_latencies(record) == {1: 50.0}
