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
HOSTS_NEED_NOT = ("cluster.checks", "cluster.misbehaviour.byzantine", "kits", "loadgen.client", "spec")


def loaded_by(statement: str, forbidden: tuple[str, ...]) -> list[str]:
    """Which of these modules a fresh interpreter has loaded after a statement."""
    show = f"{statement}\nimport sys\nprint(*(each for each in {forbidden!r} if each in sys.modules))"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_reading_a_scenario_imports_nothing_that_runs_it() -> None:
    assert loaded_by("from cluster.scenario import load_scenario; load_scenario('smoke')", RUNS_ONE) == []


def test_a_host_imports_what_it_runs() -> None:
    assert loaded_by("import cluster.live.host.host", HOSTS_NEED_NOT) == []


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
    assert loaded_by("from cluster.scenario import load_scenario; load_scenario('siege')", RUNS_ONE) == ["kits"]
