"""Folders of runs and sweeps, as they are left behind, without running anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from cluster.commands.sweeps.outcome import SeedOutcome

METRICS = {"heights": 50.0, "duration_s": 12.0, "finality_latency_p50_ms": 60.0, "fires_per_second": 40.0}


def write_run(folder: Path, seed: int = 1, series: Mapping[str, Any] | None = None, **changes: Any) -> Path:
    """A run's folder; ``changes`` are made to its result."""
    folder.mkdir(parents=True)
    result = {
        "scenario": "smoke",
        "backend": "sim",
        "seed": seed,
        "commit": "0123456789ab",
        "verdict": "pass",
        "checks": [{"name": "agreement", "verdict": "pass", "detail": "all the same"}],
        "metrics": METRICS,
        "classes": {"flood": {"fires": 5, "lateness_p95_blocks": 2}},
        "machine": {"processor": "one", "processors": 2},
        **changes,
    }
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "scenario.yaml").write_text("name: smoke\n")
    if series is not None:
        (folder / "series.json").write_text(json.dumps(series))
    return folder


def write_sweep(
    folder: Path, seeds: range, metrics: Mapping[int, Mapping[str, float]] | None = None, **changes: Any
) -> Path:
    """A sweep's folder with its log and its summary; ``metrics`` are those of each seed."""
    folder.mkdir(parents=True)
    lines = [msgspec.json.encode({"task": "sweep smoke 0123", "commit": "0123456789ab", **changes})]
    for seed in seeds:
        found = dict(METRICS) if metrics is None else dict(metrics[seed])
        lines.append(msgspec.json.encode(SeedOutcome(seed, "pass", "", [], 50, 40, {}, 0, "d", 1.0, found)))
    (folder / "seeds.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    summary = {"seeds": len(seeds), "passed": len(seeds), "failed": [], "undecided": []}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def drawn(seeds: range, random: Random, **means: float) -> dict[int, dict[str, float]]:
    """Figures of each seed: normally distributed around means, a tenth of it wide."""
    return {seed: {"heights": 50.0, **{n: random.gauss(m, m / 10) for n, m in means.items()}} for seed in seeds}
