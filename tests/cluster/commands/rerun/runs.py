"""Small scenarios, and folders of runs of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode

SMALL: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "consensus": {
        "signatures": "keyed-hash",
        "block_interval_ms": 50,
        "leader_timeout_ms": 400,
        "advance_timeout_ms": 600,
        "rebroadcast_ms": 500,
    },
    "load": {"users": [{"workload": "flood", "count": 2, "interval_ms": 300, "options": {"timers": 8}}]},
    "faults": [
        {"kind": "pause", "target": "validator-0", "at_height": 4, "for_ms": 500},
        {"kind": "kill", "target": "validator-1", "at_height": 6, "down_ms": 500},
    ],
    "stop": {"height": 14, "timeout_s": 60, "drain_blocks": 2},
    "success": {"heights_compared": 8, "transactions": 2, "fires": 2},
}
NOISE: list[dict[str, Any]] = [
    {"kind": "pause", "target": "validator-0", "at_height": 4, "for_ms": 500},
    {"kind": "degrade", "at_height": 5, "for_ms": 400, "loss": 0.2},
    {"kind": "clock_skew", "target": "random", "at_height": 7, "for_ms": 900, "clock_speed": 2},
]


def scenario(**changes: Any) -> dict[str, Any]:
    """The small scenario with other sections."""
    return copy.deepcopy({**SMALL, **changes})


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def run(folder: Path, content: dict[str, Any], expected: ExitCode = ExitCode.PASS, *options: str) -> Path:
    """The folder of a run of the scenario, as the command writes it."""
    path = write(folder / "given.yaml", content)
    out = folder / "run"
    assert main(["run", str(path), "--backend", "sim", "--out", str(out), *options]) == expected
    return out
