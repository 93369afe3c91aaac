"""Re-execution of a run's folder: right ones pass, and blocks that are not those of the result do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cluster.archive import BlockRecord, encode_blocks
from cluster.errors import BadInput, ExitCode
from cluster.results import finish_run, read_run
from cluster.scenario import Scenario
from cluster.simulation.driver import simulate
from cluster.verify import Reexecution, reexecute, verify_run

SCENARIO = Scenario.model_validate(
    {
        "name": "verified",
        "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
        "stop": {"height": 8, "drain_blocks": 2},
    }
)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verified")
    finish_run(simulate(SCENARIO, 1), folder)
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """A folder that a test may spoil."""
    return Path(shutil.copytree(original, tmp_path / "run"))


def edit_result(run: Path, **changes: Any) -> None:
    path = run / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def keep_blocks(run: Path, blocks: list[BlockRecord]) -> None:
    (run / "blocks.bin").write_bytes(encode_blocks(blocks))


def outcome(run: Path) -> Reexecution:
    return reexecute(read_run(run))


def test_a_right_run_passes(run: Path) -> None:
    assert outcome(run).difference is None
    assert outcome(run).heights >= 10
    assert verify_run(run) is ExitCode.PASS


def test_an_archive_that_was_cut_fails(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = read_run(run).blocks
    keep_blocks(run, whole[:5])
    assert verify_run(run) is ExitCode.FAIL
    assert capfd.readouterr().out == f"fail: recorded {len(whole)} heights, the archive holds 5\n"
    keep_blocks(run, [])
    assert outcome(run).difference == f"recorded {len(whole)} heights, the archive holds 0"
    assert outcome(run).exit_code is ExitCode.FAIL


def test_blocks_that_no_validator_is_recorded_with_fail(run: Path) -> None:
    edit_result(run, validators=[])
    assert outcome(run).difference == f"recorded 0 heights, the archive holds {len(read_run(run).blocks)}"


def test_another_last_root_fails(run: Path) -> None:
    held = read_run(run).blocks[-1].computed_root.hex()
    tips = read_run(run).result["validators"]
    edit_result(run, validators=[{**tip, "state_root": "ab" * 32} for tip in tips])
    assert outcome(run).difference == (
        f"recorded state root {'ab' * 32} at height {len(read_run(run).blocks)}, the archive holds {held}"
    )


def test_only_the_longest_validators_count(run: Path) -> None:
    tips = read_run(run).result["validators"]
    tips[0].update(height=3, state_root="ab" * 32)
    tips[1].update(height=0, state_root=None)
    edit_result(run, validators=tips)
    assert outcome(run).difference is None


def test_a_run_without_blocks_is_inconclusive(run: Path) -> None:
    keep_blocks(run, [])
    edit_result(run, validators=[])
    assert outcome(run).exit_code is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize(
    "validators", [None, 7, [7], [{}], [{"height": "5", "state_root": None}], [{"height": 5, "state_root": 7}]]
)
def test_a_result_without_tips_is_bad_input(run: Path, validators: Any) -> None:
    edit_result(run, validators=validators)
    with pytest.raises(BadInput, match=r"^result\.json: validators: expected a list"):
        outcome(run)
