"""Kinds of faults of the user's own: a file next to the scenario, or an installed package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.checks.run import check_run
from cluster.commands.explain.outline import outline
from cluster.common.errors import BadInput
from cluster.common.outcome import Outcome
from cluster.common.plugins import FAULTS
from cluster.faults.kind import problem_of
from cluster.record.run import FaultRecord
from cluster.record.saved import decode, encode
from cluster.scenario import Scenario
from cluster.scenario.code.gate import Gate, code_of, opened
from cluster.scenario.files import fault_to_add, load_scenario, scenario_from
from cluster.scenario.sections.faults import SHIPPED, Facts, OwnFault, kind_named, kind_names
from cluster.watches.watched_simulation import simulate
from tests.packages import install
from validator.primitives.user_file import UserFileError, nothing_runs

ISLAND = '''
"""An island: some validators and all others do not hear each other."""

from cluster.faults.link_kind import OfLinks
from cluster.scenario.sections.faults import Facts, Names


class Island(OfLinks):
    """The links of an island to all others are cut."""

    FACTS = Facts(drops_messages=True, slows_progress=True)

    members: Names

    @property
    def whom(self):
        return ", ".join(self.members)

    @property
    def named(self):
        return [("members", self.members)]

    def effect(self, names):
        inside = [index for index, name in enumerate(names) if name in self.members]
        outside = [index for index in range(len(names)) if index not in inside]
        return self.hitting([(inside, outside), (outside, inside)])

    def impaired(self, names):
        return tuple(self.members)
'''
BARE = """
from cluster.scenario.sections.faults import BaseFault


class Bare(BaseFault):
    kind: Literal["bare"]
"""
SCENARIO = """
name: own-fault
validators: 4
load: {users: [{workload: heartbeat, count: 4}, {workload: transfer, count: 2}]}
faults:
  - {kind: ./island.py, members: [validator-1], at_height: 5, for_ms: 2000}
stop: {height: 20}
success: {heights_compared: 10, transactions: 5, fires: 5}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "island.py").write_text(ISLAND, encoding="utf-8")
    (tmp_path / "scenario.yaml").write_text(SCENARIO, encoding="utf-8")
    return tmp_path


def refusal(folder: Path, text: str, source: str = ISLAND) -> str:
    """Why a scenario cannot be run."""
    (folder / "island.py").write_text(source, encoding="utf-8")
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    with opened(Gate(allows=True)), pytest.raises(BadInput) as caught:
        load_scenario(folder / "scenario.yaml")
    return str(caught.value).removeprefix(f"{folder / 'scenario.yaml'}: ")


def test_it_is_performed_and_judged_like_any_other(folder: Path) -> None:
    with opened(Gate(allows=False)):
        record = simulate(load_scenario(folder / "scenario.yaml"), 1)
    (fault,) = record.faults
    assert (fault.kind, fault.whom, fault.impaired) == ("island", "validator-1", ("validator-1",))
    assert fault.took_effect and fault.evidence.endswith("messages dropped")
    assert fault.facts == Facts(drops_messages=True, slows_progress=True)
    verdict = check_run(record)
    assert verdict.outcome is Outcome.PASS, [each for each in verdict.checks if each.verdict is not Outcome.PASS]
    assert decode(encode(fault), FaultRecord) == fault, "whoever judges it again does not need the file"
    copy = Scenario.model_validate_json(record.scenario.model_dump_json())
    assert simulate(copy, 1).digest == record.digest, "the scenario has the text"


def test_reading_and_explaining_execute_nothing(folder: Path) -> None:
    (folder / "island.py").write_text("raise SystemExit('executed')\n", encoding="utf-8")
    with nothing_runs():
        scenario = load_scenario(folder / "scenario.yaml")
        tables = {table.title: table.rows for table in outline(scenario)}
    (fault,) = scenario.faults
    assert isinstance(fault, OwnFault)
    assert [(code.place, code.name) for code in code_of(scenario)] == [("faults[0].kind", "island.py")]
    assert "fault: island, as island.py has it" in {row[1] for row in tables["Timeline"]}
    length = next(value for estimate, value in tables["Estimates"] if estimate == "length of the run")
    assert length.startswith("about "), "it is not taken to last for ever"
    assert scenario.live_problem is None and scenario.simulator_problem is None


def test_what_is_wrong_is_found_before_it_runs(folder: Path) -> None:
    wrong = SCENARIO.replace("members: [validator-1]", "members: [validator-9]")
    assert refusal(folder, wrong).startswith("faults[0].members: no validator is named 'validator-9'")
    assert refusal(folder, SCENARIO.replace("members", "member")).startswith("faults[0].members: is missing")
    assert refusal(folder, SCENARIO, "x = 1 / 0\n").startswith("faults[0]: file island.py, line 1: ZeroDivisionError")
    assert refusal(folder, SCENARIO, "x = 1\n").endswith("expected one class of a fault, got none")
    (folder / "cut.py").write_text(ISLAND, encoding="utf-8")
    assert refusal(folder, SCENARIO.replace("./island.py", "./cut.py")).endswith(
        "a kind of fault is named cut; expected another name"
    )
    no_kind = f"from typing import Literal\n{BARE}".replace("kind:", "members:")
    assert "expected a subclass of FaultKind that has a COURSE" in refusal(folder, SCENARIO, no_kind)
    with opened(Gate(allows=True, forbids=True)), pytest.raises(BadInput, match=r"has code, .*--no-code refuses it"):
        load_scenario(folder / "scenario.yaml")


def test_a_path_needs_a_file() -> None:
    fields = {"name": "a", "faults": [{"kind": "./island.py", "at_height": 5}]}
    with pytest.raises(ValueError, match="is a path, which only a scenario that is read from a file may have"):
        Scenario.model_validate(fields)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that registers the kind ``island``, and some that do not fit."""
    text = ISLAND.replace("    members: Names", '    kind: Literal["island"]\n    members: Names')
    points = "\n".join(f"{name} = their_faults:Island" for name in ("island", "atoll", "cut"))
    points = f"[{FAULTS}]\n{points}\nbare = their_faults:Bare\n"
    install(tmp_path / "theirs", "their_faults", points, f"from typing import Literal\n{text}{BARE}")
    monkeypatch.syspath_prepend(tmp_path / "theirs")
    caches = (kind_names, kind_named)
    for each in caches:
        each.cache_clear()
    yield
    sys.modules.pop("their_faults", None)
    for each in caches:
        each.cache_clear()


def test_an_installed_package_registers_kinds_by_name(package: None) -> None:
    assert set(kind_names()) - set(SHIPPED) == {"island", "atoll", "bare"}
    fields = {"kind": "island", "members": ["validator-1"], "at_height": 5, "for_ms": 100}
    (fault,) = Scenario.model_validate({"name": "a", "faults": [fields]}).faults
    assert fault.kind_name == "island" and fault.whom == "validator-1"
    assert kind_named("cut").__module__ == SHIPPED["cut"], "none that ships is replaced"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("atoll", "expected a class whose name is 'atoll', got "),
        ("bare", "expected a subclass of FaultKind that has a COURSE, got "),
    ],
)
def test_a_kind_of_a_package_that_does_not_fit_is_refused(package: None, name: str, problem: str) -> None:
    with pytest.raises(BadInput, match=rf"^their_faults: .*, its stampede\.faults {name}, cannot be used: .*{problem}"):
        kind_named(name)


EVIL = {"name": "evil", "source": "raise SystemExit('executed')"}


def test_the_gate_sees_the_kinds_that_forks_bring() -> None:
    changes = {"faults": [{"kind": EVIL, "at_height": 12}]}
    scenario = Scenario.model_validate({"name": "a", "forks": [{"at_height": 8, "changes": changes}]})
    (code,) = code_of(scenario)
    assert (code.place, code.name) == ("forks[0].changes: faults[0].kind", "evil.py")
    fields = {"name": "a", "forks": [{"at_height": 8, "changes": changes}]}
    with opened(Gate(allows=False)), pytest.raises(BadInput, match=r"forks\[0\]\.changes: faults\[0\]\.kind"):
        scenario_from(fields)


def test_a_fork_keeps_a_fault_that_has_begun(folder: Path) -> None:
    text = SCENARIO + "forks: [{at_height: 8, changes: {links.loss: 0.01}}]\n"
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    with opened(Gate(allows=True)):
        record = simulate(load_scenario(folder / "scenario.yaml"), 1)
    (fault,) = record.faults
    assert fault.took_effect and len(record.former) == 1


def test_a_running_testnet_takes_no_code() -> None:
    with (
        nothing_runs(),
        pytest.raises(BadInput, match=r"^kind: a custom kind has code, which only the scenario's file"),
    ):
        fault_to_add(Scenario.model_validate({"name": "a"}), {"kind": EVIL, "at_height": 9}, has_end=True)


OF_ONE_BACKEND = """
from cluster.faults.kinds.kill import KillFault

class Mine(KillFault):
    @property
    def simulator_problem(self):
        return (".down_ms", "not here")
"""


def test_it_may_refuse_a_backend() -> None:
    mine = {"kind": {"name": "mine", "source": OF_ONE_BACKEND}, "target": "random", "at_height": 5, "reorders": True}
    scenario = Scenario.model_validate({"name": "a", "faults": [mine]})
    assert problem_of(scenario, "live") == live_problem_of("reorders")
    with pytest.raises(BadInput, match=r"^a: faults\[0\]\.down_ms: not here$"):
        simulate(scenario, 1)


def live_problem_of(field: str) -> str | None:
    """What the live testnet says of the kind that ships."""
    kill = {"kind": "kill", "target": "random", "at_height": 5, field: True}
    return Scenario.model_validate({"name": "a", "faults": [kill]}).live_problem


@pytest.mark.parametrize(
    ("method", "when"),
    [
        ("check_fits(self, validators, stop)", "is read"),
        ("effect(self, names)", "runs"),
        ("impaired(self, names)", "runs"),
    ],
)
def test_an_error_in_it_is_one_line(folder: Path, method: str, when: str) -> None:
    source = ISLAND + f"\n    def {method}:\n        return {{}}['nothing']\n"
    line = source.splitlines().index("        return {}['nothing']") + 1
    said = f"file island.py, line {line}: KeyError: 'nothing'"
    if when == "is read":
        assert refusal(folder, SCENARIO, source) == said
        return
    (folder / "island.py").write_text(source, encoding="utf-8")
    with opened(Gate(allows=True)), pytest.raises(UserFileError) as caught:
        simulate(load_scenario(folder / "scenario.yaml"), 1)
    assert str(caught.value) == said
