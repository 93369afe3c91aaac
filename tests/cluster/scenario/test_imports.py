"""Reading a scenario imports no code that runs one: names are resolved where a scenario has them."""

from __future__ import annotations

import subprocess
import sys

import pytest

RUNS_ONE = (
    "cluster.misbehaviour.byzantine",
    "kits",
    "numba",
    "validator.execution.timer_phase",
    "validator.node.executor",
    "validator.pvm.runtime.machine",
)
"""What only a node needs, or a scenario that names a behaviour or a planted bug."""
HOSTS_NEED_NOT = (
    "cluster.audit.books",
    "cluster.checks",
    "cluster.misbehaviour.byzantine",
    "cluster.scenario.files",
    "kits",
    "loadgen.client",
    "loadgen.workloads.attacks.lane",
    "loadgen.workloads.flood",
    "numba",
    "spec",
    "yaml",
)
DRIVERS_NEED_NOT = ("cluster.checks", "cluster.report", "jinja2", "loadgen.workloads.attacks.lane", "numba")
"""What a live run needs at its end."""
LOADS_NEED_NOT = ("cluster", "loadgen.workloads.attacks.lane", "loadgen.workloads.flood", "numba", "numpy", "yaml")


def loaded_by(statement: str, forbidden: tuple[str, ...]) -> list[str]:
    """Which of these modules a fresh interpreter has loaded after a statement."""
    show = f"{statement}\nimport sys\nprint(*(each for each in {forbidden!r} if each in sys.modules))"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_reading_a_scenario_imports_nothing_that_runs_it() -> None:
    assert loaded_by("from cluster.scenario.files import load_scenario; load_scenario('smoke')", RUNS_ONE) == []


def test_a_host_imports_what_it_runs() -> None:
    assert loaded_by("import cluster.live.host.host", HOSTS_NEED_NOT) == []


def test_a_driver_starts_a_testnet_without_the_report() -> None:
    started = "import cluster.commands.run.scenario_run, cluster.watches.live.audited_testnet"
    assert loaded_by(started, DRIVERS_NEED_NOT) == []
    assert "cluster.report" in loaded_by(f"{started}\nimport cluster.commands.run.ending", DRIVERS_NEED_NOT)


def test_a_load_imports_the_workloads_that_it_runs() -> None:
    assert loaded_by("import loadgen.run", LOADS_NEED_NOT) == []
    flood = "{'chain_id': 'a', 'seed': 1, 'endpoints_file': 'a', 'stats_file': 'b', 'run_time_s': 1, 'params': {}, "
    flood += "'load': {'users': [{'workload': 'flood'}]}}"
    reads = f"from loadgen.runplan import RunPlan; RunPlan.model_validate({flood})"
    assert loaded_by(reads, LOADS_NEED_NOT) == ["loadgen.workloads.flood"]


@pytest.mark.parametrize(
    ("statement", "loads"),
    [
        ("from validator.scheduler.fairness import rounded_weight", []),
        ("from validator.scheduler.fairness import rounded_weight; rounded_weight(1, 2, 3, 4)", ["numba"]),
    ],
)
def test_the_compiler_is_loaded_for_the_first_call(statement: str, loads: list[str]) -> None:
    assert loaded_by(statement, ("numba",)) == loads


@pytest.mark.kits
@pytest.mark.parametrize(
    ("node", "loads"),
    [("byzantine='garbage'", "cluster.misbehaviour.byzantine"), ("mutant='wrong-balance'", "kits")],
)
def test_a_name_loads_the_code_that_it_is_of(node: str, loads: str) -> None:
    """The fault that the tests above must find."""
    field, _, value = node.partition("=")
    scenario = f"{{'name': 'a', 'validators': [{{}}, {{}}, {{}}, {{{field!r}: {value}}}]}}"
    statement = f"from cluster.scenario import Scenario; Scenario.model_validate({scenario})"
    assert loads in loaded_by(statement, RUNS_ONE)


@pytest.mark.kits
def test_a_section_of_a_kit_loads_the_kit_alone() -> None:
    assert loaded_by("from cluster.scenario.files import load_scenario; load_scenario('siege')", RUNS_ONE) == ["kits"]
