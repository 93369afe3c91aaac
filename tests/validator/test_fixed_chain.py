"""A fixed chain's roots: pinned, and the same in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hangs import HANGS_AFTER_S
from tests.validator import fixed_chain
from validator.scheduler.fairness import FireCounts

ROOT = Path(__file__).resolve().parents[2]
HASH_SEEDS = ("0", "1", "12345")


@pytest.mark.parametrize("seed", HASH_SEEDS)
def test_another_process_with_another_hash_seed_reaches_the_pinned_roots(seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.validator.fixed_chain"]
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=True
    )
    assert json.loads(run.stdout) == json.loads(fixed_chain.VECTOR.read_text(encoding="utf-8"))


def test_the_chain_shows_what_it_is_for() -> None:
    blocks = [block for chain in json.loads(fixed_chain.VECTOR.read_text(encoding="utf-8")).values() for block in chain]
    assert len(blocks) == 3 * fixed_chain.BLOCKS
    assert len({block["state_root"] for block in blocks}) == len(blocks)
    reasons = {reason for block in blocks for reason in block["destroyed"] + block["carried"]}
    assert reasons >= {"expired", "insufficient_funds", "lane_full", "below_basefee"}
    assert sum(block["fires"] for block in blocks) > 100
    assert {outcome for block in blocks for outcome in block["queries"]} == {"ok", "unpaid"}
    assert {error for block in blocks for error in block["messages"]} == {"", "ScriptFailed", "TimerArgDeprecated"}
    assert {error for block in blocks for error in block["errors"]} >= {"", "NotSystemDeployer", "ConfigInvalid"}


def test_conservation_holds_at_the_end() -> None:
    for variant in fixed_chain.VARIANTS:
        fixed_chain.build(variant).require_conservation()


def test_another_rule_gives_other_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FireCounts, "divisor", lambda _: 2)
    assert fixed_chain.render() != fixed_chain.VECTOR.read_text(encoding="utf-8")
