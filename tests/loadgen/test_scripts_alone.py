"""Which workloads put Python programs on the chain, as docs/executor.md says, and the scenario that has none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cluster.scenario.files import load_scenario
from loadgen.workloads.base import Workload
from loadgen.workloads.registry import WORKLOADS
from validator.chain.transactions import SCRIPT_CODE

ROOT = Path(__file__).parents[2]
NEEDED: dict[str, dict[str, Any]] = {"program": {"program": "heartbeat"}, "runner": {"serves": 0}}
"""Options without a default."""


def programs_of(kind: type[Workload[Any]]) -> bool:
    """Whether a workload's default options put a program on the chain."""
    options = kind.options_type(**NEEDED.get(kind.name, {}))
    return any(code != SCRIPT_CODE for code in (kind.actor_code(options), *options.programs().values()))


def listed(title: str) -> list[str]:
    (row,) = re.findall(rf"^\| {title} \|(.*)\|$", (ROOT / "docs" / "executor.md").read_text(encoding="utf-8"), re.M)
    return re.findall(r"`([a-z-]+)`(?! with)", row)


def test_the_page_lists_the_workloads() -> None:
    with_programs = [name for name, kind in WORKLOADS.items() if programs_of(kind)]
    assert sorted(listed("Python programs")) == sorted(with_programs)
    assert sorted(listed("scripts alone")) == sorted(WORKLOADS.keys() - set(with_programs))


def test_the_scenario_has_scripts_alone() -> None:
    scenario = load_scenario(ROOT / "scenarios" / "load" / "scripts-alone.yaml")
    assert {actor.code for actor in scenario.load.genesis_actors(1).values()} == {SCRIPT_CODE}
    for group in scenario.load.users:
        assert set(group.parsed_options().programs().values()) <= {SCRIPT_CODE}
