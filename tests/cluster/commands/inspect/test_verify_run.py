"""Re-execution of a run's folder: right ones pass, and blocks that are not those of the result do not."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cluster.audit.reexecution.bisect import OTHERS_ARE_WRONG
from cluster.commands.cli.main import main
from cluster.commands.inspect.verify_run import PACKAGES, difference_from_result, verify_run
from cluster.common.errors import BadInput, ExitCode
from cluster.record.archive import BlockRecord, write_blocks
from cluster.record.archived_run import read_run
from cluster.report.results import finish_run
from cluster.scenario import Scenario
from cluster.watches.watched_simulation import simulate
from validator.chain.block import Block
from validator.primitives.codec import decode, encode

ROOT = Path(__file__).resolve().parents[4]

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
    write_blocks(run / "blocks.bin", blocks)


def altered(record: BlockRecord, **header: Any) -> BlockRecord:
    """The record of a block whose header says something else."""
    block = decode(record.block, Block)
    changed = Block(msgspec.structs.replace(block.header, **header), block.transactions)
    return replace(record, block=encode(changed))


def wrapper(folder: Path, patch: str) -> str:
    """A Python whose execution is patched."""
    script = folder / "python"
    script.write_text(
        f"#!{sys.executable}\n"
        "import runpy, sys\n"
        "if sys.argv[1] == '-c':\n"
        "    exec(sys.argv[2])\n"
        "    sys.exit()\n"
        "from validator.chain.records import account_key\n"
        "from validator.transition.transition import Transition\n"
        f"{patch}\n"
        "sys.argv[:] = sys.argv[2:]\n"
        "runpy.run_module(sys.argv[0], run_name='__main__')\n"
    )
    script.chmod(0o755)
    return str(script)


GENEROUS = """
execute = Transition.execute
def generous(self, prepared):
    execute(self, prepared)
    if self.context.height >= 4:
        self.world.credit(self.context.proposer, 1)
Transition.execute = generous
"""


@pytest.mark.slow
def test_a_right_run_passes_under_every_hash_seed(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify-run", str(run), "--hash-seeds", "0", "77"]) == ExitCode.PASS
    first, second = capfd.readouterr().out.splitlines()
    blocks = list(read_run(run).blocks)
    rest = f"{len(blocks)} heights re-executed to the same roots, the last one {blocks[-1].computed_root.hex()}"
    version = platform.python_version()
    assert (first, second) == tuple(f"pass: Python {version}, hash seed {seed}: {rest}" for seed in (0, 77))


@pytest.mark.slow
def test_an_archive_that_was_cut_fails(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = list(read_run(run).blocks)
    keep_blocks(run, whole[:5])
    assert verify_run(run) is ExitCode.FAIL
    first, second = capfd.readouterr().out.splitlines()
    assert first == f"fail: recorded {len(whole)} heights, the archive holds 5"
    assert second.startswith("pass: Python "), "the blocks that are there are right"
    keep_blocks(run, [])
    assert difference_from_result(read_run(run)) == f"recorded {len(whole)} heights, the archive holds 0"


@pytest.mark.slow
def test_one_altered_root_is_found(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    blocks = list(read_run(run).blocks)
    blocks[6] = replace(blocks[6], computed_root=bytes(32))
    keep_blocks(run, blocks)
    assert verify_run(run) is ExitCode.FAIL
    (line,) = capfd.readouterr().out.splitlines()
    assert ": height 7: execution gives state root " in line
    assert line.endswith(f"recorded was {'00' * 32}")


@pytest.mark.slow
def test_one_altered_receipt_is_found(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    blocks = list(read_run(run).blocks)
    blocks[6] = replace(blocks[6], receipts=blocks[5].receipts)
    keep_blocks(run, blocks)
    assert verify_run(run) is ExitCode.FAIL
    assert capfd.readouterr().out.endswith(": height 7: execution gives other receipts\n")


def test_an_altered_header_is_found_and_named(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    blocks = list(read_run(run).blocks)
    blocks[6] = altered(blocks[6], state_root=bytes(32))
    keep_blocks(run, blocks)
    assert verify_run(run) is ExitCode.FAIL
    first, note = capfd.readouterr().out.splitlines()
    assert first.endswith(": height 7: the block does not execute to its header: execution gives another state_root")
    assert OTHERS_ARE_WRONG in note


@pytest.mark.slow
def test_a_python_that_executes_otherwise_is_found_and_named(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    python = wrapper(tmp_path, GENEROUS)
    assert main(["verify-run", str(run), "--python", python, "--python", sys.executable]) == ExitCode.FAIL
    first, step, key, *_, last = capfd.readouterr().out.splitlines()
    assert first.startswith(f"fail: Python {platform.python_version()}, hash seed ")
    assert f"({python}): height " in first
    assert step.startswith("  step     transaction ")
    assert key.startswith("  key      account 0x") and " balance 1, nonce 0 on Python " in key
    assert last.startswith("pass: "), "this Python is right"


def test_a_python_that_dies_is_inconclusive(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert verify_run(run, [wrapper(tmp_path, "raise SystemExit('out of order')")]) is ExitCode.INCONCLUSIVE
    assert capfd.readouterr().out.endswith("the process ended with 1: out of order\n")


@pytest.mark.slow
def test_pythons_that_cannot_execute_are_told_what_to_do(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\necho 3.12.1 blake3,nacl\n")
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 2.7.18 blake3\n")
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho hello\n")
    for script in (bare, old, other):
        script.chmod(0o755)
    missing = tmp_path / "missing"
    assert verify_run(run, [str(bare), str(old), str(other), str(missing), sys.executable]) is ExitCode.BAD_INPUT
    told = capfd.readouterr()
    lacks, outdated, no_python, nothing = told.err.splitlines()
    assert lacks.startswith(
        f"stampede: {bare}: Python 3.12.1 lacks blake3, pynacl; install with: {bare} -m pip install"
    )
    assert f"pynacl=={importlib.metadata.version('pynacl')}" in lacks
    assert outdated == f"stampede: {old}: is Python 2.7.18; expected 3.11 or newer"
    expected = "it does not say its version; expected the path of a Python 3.11 or newer"
    assert no_python == f"stampede: {other}: does not run as a Python: {expected}"
    assert nothing == f"stampede: {missing}: cannot be run: No such file or directory"
    assert told.out.startswith("pass: "), "the others go on"


def test_a_shadow_process_needs_no_more_than_is_asked_for() -> None:
    follower, files = (
        "cluster.audit.reexecution.follower",
        "[getattr(m, '__file__', '') or '' for m in sys.modules.values()]",
    )
    compiled = "validator.primitives.compiled"
    show = f"import sys, {follower}, {compiled}; {compiled}.load_compiler(); print({files})"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True, cwd=ROOT)
    found = {name for name in re.findall(r"site-packages/(\w+)", done.stdout) if not name.startswith("_")}
    dependencies = {"cffi", "pycparser", "llvmlite", "yaml", "typing_extensions"}  # of numba and PyNaCl; some if there
    assert found - dependencies == set(PACKAGES)
    installed = re.search(r"^SHADOW_PACKAGES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert installed is not None and set(installed[1].split()) == closure(PACKAGES.values())


def closure(names: Iterable[str]) -> set[str]:
    """Distributions with all that they need under any of the Pythons, by what their metadata says."""
    found, left = set[str](), list(names)
    while left:
        name = canonicalize_name(left.pop())
        if name in found:
            continue
        found.add(name)
        needed = [Requirement(text) for text in importlib.metadata.requires(name) or ()]
        left += [each.name for each in needed if any(is_needed(each, version) for version in ("3.11", "3.12", "3.13"))]
    return found


def is_needed(requirement: Requirement, version: str) -> bool:
    here = {"python_version": version, "python_full_version": f"{version}.0", "extra": ""}
    return requirement.marker is None or requirement.marker.evaluate(here)


def test_hash_seeds_are_checked(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in ("-1", "x", str(2**32)):
        assert main(["verify-run", str(run), "--hash-seeds", seed]) == ExitCode.BAD_INPUT
    assert "is not a valid hash seed: expected an integer from 0 to 4,294,967,295" in capsys.readouterr().err


def test_blocks_that_no_validator_is_recorded_with_fail(run: Path) -> None:
    edit_result(run, validators=[])
    assert difference_from_result(read_run(run)) == f"recorded 0 heights, the archive holds {len(read_run(run).blocks)}"


def test_another_last_root_fails(run: Path) -> None:
    held = read_run(run).blocks[-1].computed_root.hex()
    tips = read_run(run).result["validators"]
    edit_result(run, validators=[{**tip, "state_root": "ab" * 32} for tip in tips])
    assert difference_from_result(read_run(run)) == (
        f"recorded state root {'ab' * 32} at height {len(read_run(run).blocks)}, the archive holds {held}"
    )


def test_only_the_longest_validators_count(run: Path) -> None:
    tips = read_run(run).result["validators"]
    tips[0].update(height=3, state_root="ab" * 32)
    tips[1].update(height=0, state_root=None)
    edit_result(run, validators=tips)
    assert difference_from_result(read_run(run)) is None


@pytest.mark.slow
def test_a_run_without_blocks_is_inconclusive(run: Path) -> None:
    keep_blocks(run, [])
    edit_result(run, validators=[])
    assert verify_run(run) is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize(
    "validators", [None, 7, [7], [{}], [{"height": "5", "state_root": None}], [{"height": 5, "state_root": 7}]]
)
def test_a_result_without_tips_is_bad_input(run: Path, validators: Any) -> None:
    edit_result(run, validators=validators)
    with pytest.raises(BadInput, match=r"^result\.json: validators: expected a list"):
        verify_run(run)
