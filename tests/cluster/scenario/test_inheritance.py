"""What a scenario inherits from the file that it extends, and which file is blamed for what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.common.errors import BadInput, ExitCode
from cluster.scenario import Scenario
from cluster.scenario.files import MAX_PARENTS, load_scenario, scenario_text
from cluster.scenario.inheritance import Layer, holder_of, merge_layers

PARENT = """
name: parent
seed: 7
validators: 7
links: {loss: 0.1, topology: {kind: random-regular, degree: 2}}
stop: {height: 30, timeout_s: 60}
faults: [{kind: kill, target: leader, at_height: 5}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write("parent.yaml", PARENT)
    return tmp_path


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def problem_of(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        load_scenario(path)
    line = str(caught.value)
    assert line.splitlines() == [line]
    return line


# --- merging --------------------------------------------------------------------------------------------------------


def test_mappings_merge_deeply_and_lists_and_values_replace(folder: Path) -> None:
    child = load_scenario(
        write("child.yaml", "extends: parent.yaml\nname: child\nstop: {height: 20}\nfaults: []\nlinks: {loss: 0.2}\n")
    )
    assert (child.name, child.seed, child.validators.count) == ("child", 7, 7)
    assert (child.stop.height, child.stop.timeout_s) == (20, 60)
    assert (child.faults, child.links.loss) == ([], 0.2)
    assert child.links.topology.kind == "random-regular"


def test_a_child_that_says_nothing_is_its_parent(folder: Path) -> None:
    assert load_scenario(write("child.yaml", "extends: parent.yaml")) == load_scenario(Path("parent.yaml"))


def test_a_short_form_is_merged_as_what_it_stands_for(folder: Path) -> None:
    child = load_scenario(write("child.yaml", "extends: parent.yaml\nvalidators: {nodes: [{name: anna}]}"))
    assert (child.validators.count, child.validators.names[:2]) == (7, ["anna", "validator-1"])
    grandchild = load_scenario(write("other.yaml", "extends: child.yaml\nvalidators: 4"))
    assert grandchild.validators.names[0] == "validator-0", "a number replaces the section"


def test_a_topology_of_another_kind_keeps_nothing_of_the_old_one(folder: Path) -> None:
    child = load_scenario(write("child.yaml", "extends: parent.yaml\nlinks: {topology: {kind: star}}"))
    assert child.links.topology.model_dump() == {"kind": "star", "hub": None}
    same = load_scenario(write("same.yaml", "extends: parent.yaml\nlinks: {topology: {degree: 4}}"))
    assert same.links.topology.model_dump()["degree"] == 4


def test_a_parent_is_found_beside_its_child_and_may_have_one_itself(folder: Path) -> None:
    write("base/middle.yaml", "extends: ../parent.yaml\nseed: 8\n")
    child = load_scenario(write("own/child.yaml", "extends: ../base/middle.yaml\nname: child\n"))
    assert (child.name, child.seed, child.stop.height) == ("child", 8, 30)


def test_merging_changes_no_layer() -> None:
    below: dict[str, Any] = {"name": "a", "stop": {"height": 9}}
    layers = [Layer(Path("b"), {"extends": "a", "stop": {"drain_blocks": 1}}), Layer(Path("a"), below)]
    assert merge_layers(layers) == {"name": "a", "stop": {"height": 9, "drain_blocks": 1}}
    assert below == {"name": "a", "stop": {"height": 9}}


# --- what is wrong, and where ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parent", "child", "line"),
    [
        ("stop: {hight: 9}", "stop: {height: 9}", "p.yaml: stop.hight: unknown field; "),
        ("stop: {height: 9}", "stop: {hight: 9}", "c.yaml: stop.hight: unknown field; "),
        ("seed: -1", "seed: -2", "c.yaml: seed: expected at least 0, got -2"),
        ("seed: -1", "", "p.yaml: seed: expected at least 0, got -1"),
        ("faults: [{kind: kill, target: f, at_height: 39}]", "stop: {height: 9}", "p.yaml: faults[0].at_height: 39 is"),
        (
            "faults: [{kind: kill}]",
            "faults: [{kind: wipe}]",
            "c.yaml: faults[0].target: is missing; expected the name of a validator",
        ),
        ("validators: 4", "validators: {hosts: 5}", "c.yaml: validators.hosts: 5 hosts for 4"),
        ("validators: {hosts: 9}", "validators: {count: 8}", "p.yaml: validators.hosts: 9 hosts for 8"),
        ("links: {topology: ring}", "links: {topology: {hub: a}}", "c.yaml: links.topology.hub: unknown field; "),
        (
            "links: {topology: {kind: star, hub: a}}",
            "validators: 9",
            "p.yaml: links.topology.hub: no validator is",
        ),
    ],
)
def test_the_file_that_holds_the_wrong_field_is_named(folder: Path, parent: str, child: str, line: str) -> None:
    write("p.yaml", f"name: p\n{parent}\n")
    said = problem_of(write("c.yaml", f"extends: p.yaml\n{child}\n"))
    assert said.startswith(line)
    assert said.endswith("(inherited by c.yaml)") == line.startswith("p.yaml")


def test_a_short_form_has_no_fields_of_its_parent() -> None:
    layers = [Layer(Path("c"), {"validators": 4}), Layer(Path("p"), {"validators": {"hosts": 2}})]
    assert holder_of(["validators", "hosts"], layers) == Path("c")
    layers = [Layer(Path("c"), {"validators": {"count": 4}}), Layer(Path("p"), {"validators": {"hosts": 2}})]
    assert holder_of(["validators", "hosts"], layers) == Path("p")


def test_a_field_that_nobody_gives_is_missed_in_the_child() -> None:
    layers = [Layer(Path("c"), {"extends": "p"}), Layer(Path("p"), {"seed": 1})]
    assert holder_of(["name"], layers) == Path("c")
    assert holder_of([], layers) == Path("c")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("extends: nowhere.yaml", "c.yaml: extends: nowhere.yaml: cannot be read: No such file or directory"),
        ("extends: .", "c.yaml: extends: .: cannot be read: Is a directory"),
        ("extends: 7", "c.yaml: extends: expected the path of a scenario file, got 7"),
        ("extends: ''", "c.yaml: extends: expected the path of a scenario file, got ''"),
        ("extends:", "c.yaml: extends: expected the path of a scenario file, got None"),
        ("extends: c.yaml", "c.yaml: extends: is a circle: c.yaml > c.yaml"),
        ("extends: round.yaml", "round.yaml: extends: is a circle: c.yaml > round.yaml > c.yaml"),
        ("extends: torn.yaml", "torn.yaml: no YAML: line 1: "),
        ('extends: "a\\0b"', "c.yaml: extends: a\0b: cannot be read: embedded null byte"),
    ],
)
def test_a_wrong_parent_is_one_line(folder: Path, text: str, line: str) -> None:
    write("round.yaml", "extends: ./c.yaml")
    write("torn.yaml", "name: [")
    assert problem_of(write("c.yaml", text)).startswith(line)


def test_files_behind_each_other_are_bounded(folder: Path) -> None:
    for number in range(MAX_PARENTS + 1):
        write(f"{number}.yaml", f"extends: {number + 1}.yaml\n")
    write(f"{MAX_PARENTS + 1}.yaml", "name: a\n")
    assert load_scenario(Path("1.yaml")).name == "a"
    assert "extends a chain of more than" in problem_of(Path("0.yaml"))


# --- runs -----------------------------------------------------------------------------------------------------------


def test_settings_come_after_what_is_inherited_and_the_run_has_it_all(folder: Path) -> None:
    write("quiet.yaml", "name: quiet\nvalidators: 4\nstop: {height: 3, drain_blocks: 0}\n")
    write("child.yaml", "extends: quiet.yaml  # most of it\nname: child\nconsensus: {signatures: keyed-hash}\n")
    assert main(["run", "child.yaml", "--backend", "sim", "--out", "out"]) == ExitCode.INCONCLUSIVE
    alone = Path("out/scenario.yaml")
    assert "extends" not in yaml.safe_load(alone.read_text())
    assert load_scenario(alone) == load_scenario(Path("child.yaml"))
    assert "stampede run child.yaml --backend sim" in Path("out/report.html").read_text()
    main(["run", "child.yaml", "--backend", "sim", "--out", "set", "--set", "stop.height=4"])
    assert load_scenario(Path("set/scenario.yaml")).stop.height == 4


def test_a_file_that_inherits_nothing_keeps_its_comments(folder: Path) -> None:
    path = write("plain.yaml", "# why\nname: plain\n")
    assert scenario_text(load_scenario(path), path) == "# why\nname: plain\n"
    assert scenario_text(Scenario(name="other"), path) == "name: other\n", "the file says something else by now"
