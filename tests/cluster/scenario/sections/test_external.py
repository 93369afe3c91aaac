"""External validators in a scenario: their key in the genesis, their addresses, what no scenario can do to them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from nacl.signing import SigningKey
from pydantic import ValidationError

from cluster.commands.cli.main import main
from cluster.common.errors import BadInput, ExitCode
from cluster.scenario import Scenario
from cluster.scenario.files import fault_to_add, scenario_from
from cluster.scenario.genesis import build_genesis, validator_set, validator_signer
from cluster.scenario.sections.validators import ExternalSection
from consensus.keys import Ed25519Scheme

OTHER_KEY = bytes(SigningKey(b"\x0a" * 32).verify_key).hex()
KEY = bytes(SigningKey(b"\x09" * 32).verify_key).hex()
EXTERNAL = {"public_key": KEY, "address": "192.0.2.7:7000"}


def fields(*faults: dict[str, Any], node: dict[str, Any] | None = None, **validators: Any) -> dict[str, Any]:
    nodes = [{}, {}, {}, {"external": EXTERNAL} if node is None else node]
    return {"name": "outsider", "validators": {"count": 4, "nodes": nodes, **validators}, "faults": list(faults)}


def problem(*faults: dict[str, Any], node: dict[str, Any] | None = None, **validators: Any) -> str:
    """The one line with which the scenario is refused."""
    with pytest.raises(BadInput) as error:
        scenario_from(fields(*faults, node=node, **validators))
    (line,) = str(error.value).splitlines()
    return line


def test_the_genesis_has_its_key_and_the_seeds_of_all_others() -> None:
    scheme, scenario = Ed25519Scheme(), Scenario.model_validate(fields())
    genesis = build_genesis(scenario, 7, validator_set(scheme, scenario, 7))
    assert [key.hex() for key in genesis.validators] == [
        *(validator_signer(scheme, 7, index).public_key.hex() for index in range(3)),
        KEY,
    ]


def test_its_pages_are_at_the_next_port_unless_an_address_is_given() -> None:
    def section(**given: str) -> ExternalSection:
        return ExternalSection.model_validate({**EXTERNAL, **given})

    assert (section().peers, section().url) == (("192.0.2.7", 7000), "http://192.0.2.7:7001")
    assert section(http="node.example:80").url == "http://node.example:80"
    assert section(address="[::1]:9").peers == ("::1", 9)
    assert section(address="[::1]:9").url == "http://[::1]:10"


@pytest.mark.parametrize(
    "address",
    [
        *("192.0.2.7", "192.0.2.7:0", "192.0.2.7:65536", "a b:1", ":1", "::1:9", "[:::::]:9", "[::1%lo]:9"),
        *("a..b:1", ".:1", f"{'x' * 64}.example:1", f"{'x.' * 130}x:1"),  # no resolver takes these
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    assert "external.address: expected host:port" in problem(node={"external": {**EXTERNAL, "address": address}})


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"address": "192.0.2.8:7000"}, "nodes[1].external.public_key: nodes[0] has the same one"),
        ({"public_key": OTHER_KEY}, "nodes[1].external.address: nodes[0].external.address is at 192.0.2.7, port 7000"),
        (
            {"public_key": OTHER_KEY, "address": "192.0.2.7:7001"},
            "nodes[1].external.address: nodes[0].external.http is at 192.0.2.7, port 7001",
        ),
        (
            {"public_key": OTHER_KEY, "address": "192.0.2.7:9", "http": "192.0.2.7:9"},
            "nodes[1].external.http: nodes[1].external.address is at 192.0.2.7, port 9",
        ),
    ],
)
def test_no_two_have_one_key_or_one_address(other: dict[str, str], expected: str) -> None:
    with pytest.raises(BadInput) as error:
        scenario_from({"name": "two", "validators": [{"external": EXTERNAL}, {"external": EXTERNAL | other}, {}, {}]})
    assert expected in str(error.value)


def test_the_harness_runs_one_at_least() -> None:
    with pytest.raises(BadInput, match=r"validators\.nodes: all validators are external; expected at least one that"):
        scenario_from({"name": "none", "validators": [{"external": EXTERNAL}]})


def test_the_last_port_has_no_next_one() -> None:
    last = {**EXTERNAL, "address": "a:65535"}
    assert "no port after it" in problem(node={"external": last})
    with_http = {"external": {**last, "http": "a:1"}}
    assert Scenario.model_validate(fields(node=with_http)).validators.external[3].url == "http://a:1"


def test_a_key_that_another_validator_has_is_refused() -> None:
    own = validator_signer(Ed25519Scheme(), 1, 0).public_key.hex()
    line = problem(node={"external": {**EXTERNAL, "public_key": own}})
    assert "validators.nodes[3].external.public_key: it is the key that validator-0 has with seed 1" in line
    assert "public_key" in problem(node={"external": {**EXTERNAL, "public_key": "ab"}})


NO_KEYS = {
    "no point": "ab" * 32,
    "the neutral point": "01" + "00" * 31,
    "a point of order 2": "ec" + "ff" * 30 + "7f",
    "a point of order 8": "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "not canonical": "ee" + "ff" * 30 + "7f",
}


@pytest.mark.parametrize("kind", NO_KEYS)
def test_a_key_that_no_secret_has_is_refused(kind: str) -> None:
    line = problem(node={"external": {**EXTERNAL, "public_key": NO_KEYS[kind]}})
    assert "validators.nodes[3].external.public_key: no secret has this Ed25519 key" in line


def test_the_key_that_the_seed_gives_the_validator_itself_is_fine() -> None:
    own = validator_signer(Ed25519Scheme(), 1, 3).public_key.hex()
    assert Scenario.model_validate(fields(node={"external": {**EXTERNAL, "public_key": own}})).validators.external


@pytest.mark.kits
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mutant", "wrong-balance"),
        ("executor", "stampede executor"),
        ("byzantine", ["double-signer"]),
        ("joins_at_height", 3),
        ("sync_ms", 5),
        ("job_ms", 5),
        ("clock_speed", 2.0),
    ],
)
def test_what_only_the_harness_could_set_is_refused(name: str, value: Any) -> None:
    line = problem(node={"external": EXTERNAL, name: value})
    assert f"nodes[3].{name}: the harness does not run an external validator" in line


def test_it_has_a_host_for_itself() -> None:
    assert "next to the external validator validator-3" in problem(hosts=3)
    assert "expected 4 hosts" in problem(hosts=2)


@pytest.mark.parametrize("kind", ["kill", "wipe", "disk_full", "failed_sync", "bit_rot", "upgrade"])
def test_faults_of_processes_and_disks_cannot_name_it(kind: str) -> None:
    fault = {"kind": kind, "target": "validator-3", "at_height": 3} | ({"version": "2"} if kind == "upgrade" else {})
    line = problem(fault)
    assert (
        f"faults[0].target: validator-3 is external: the harness has neither its process nor its disk for a {kind}"
        in line
    )


@pytest.mark.parametrize(
    ("kind", "extra"),
    [
        ("pause", {}),
        ("slow_disk", {"sync_ms": 9}),
        ("slow_execution", {"job_ms": 9}),
        ("clock_skew", {"clock_speed": 2.0}),
    ],
)
def test_impairments_cannot_name_it(kind: str, extra: dict[str, Any]) -> None:
    fault = {"kind": kind, "target": "validator-3", "at_height": 3, "for_ms": 100, **extra}
    assert re.search(rf"faults\[0\].*validator-3 is external.*{kind}", problem(fault))


def test_faults_of_links_can_name_it() -> None:
    fault = {"kind": "partition", "groups": [["validator-3"]], "at_height": 3, "for_ms": 100}
    scenario = Scenario.model_validate(fields(fault))
    assert scenario.live_problem is None
    added = fault_to_add(scenario, {**fault, "at_height": 9}, has_end=True)
    assert added.kind_name == "partition"
    with pytest.raises(BadInput, match="validator-3 is external"):
        fault_to_add(scenario, {"kind": "kill", "target": "validator-3", "at_height": 9}, has_end=True)


def test_a_region_that_contains_it_is_refused_for_a_fault_of_processes() -> None:
    inside = {"external": EXTERNAL, "region": "eu"}
    assert "validator-3 is external" in problem({"kind": "kill", "target": "region:eu", "at_height": 3}, node=inside)


def test_the_simulator_refuses_it() -> None:
    scenario = Scenario.model_validate(fields())
    assert scenario.live_problem is None
    given = scenario.simulator_problem
    assert given is not None and given.startswith("validators.nodes[3].external: ")
    assert Scenario.model_validate(fields(node={})).simulator_problem is None


@pytest.mark.kits
def test_the_commands_refuse_it_with_one_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "outsider.yaml"
    section = f"public_key: {KEY}, address: 192.0.2.7:7000"
    file.write_text(f"name: outsider\nvalidators: [null, null, null, {{external: {{{section}}}}}]\n")
    for command in (["run", str(file), "--backend", "sim"], ["k8s", "render", str(file)]):
        assert main(command) == ExitCode.BAD_INPUT
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert "validators.nodes[3].external: " in line
    assert main(["explain", str(file)]) == ExitCode.PASS
    assert "external, at 192.0.2.7:7000" in capsys.readouterr().out


def test_a_section_refuses_other_fields() -> None:
    with pytest.raises(ValidationError):
        ExternalSection.model_validate({**EXTERNAL, "url": "http://a:1"})
