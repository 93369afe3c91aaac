"""Where a live testnet listens, and what is no such address."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import BadInput, ExitCode
from cluster.live.web.addresses import ON_THE_LOOPBACK, PORTS_VARIABLE, Served, listening_address, ports_from
from stampede import Scenario, run, up

SMALL = Scenario.model_validate({"name": "small"})
ELSEWHERE = "203.0.113.7"
"""An address for documentation, which no machine has."""


def test_it_is_the_loopback_and_a_free_port_unless_asked() -> None:
    assert str(ON_THE_LOOPBACK) == "127.0.0.1, a free port"
    assert str(Served("127.0.0.2", 9464)) == "127.0.0.2, port 9464"


@pytest.mark.parametrize("text", ["127.0.0.2", "10.0.0.5"])
def test_an_address(text: str) -> None:
    assert listening_address(text) == text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "'' is no IPv4 address: expected one of this machine"),
        ("localhost", "'localhost' is no IPv4 address"),
        ("::1", "'::1' is no IPv4 address"),
        (7, "7 is no IPv4 address"),
        ("0.0.0.0", "0.0.0.0 is no address that others can be told: expected one of this machine"),
        ("224.0.0.1", "224.0.0.1 is no address that others can be told"),
    ],
)
def test_what_is_no_address_is_one_line(given: object, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        listening_address(given)


def test_from_python_it_is_said_before_a_folder_is_made(tmp_path: Path) -> None:
    for start in (run, up):
        with pytest.raises(BadInput, match=r"^bind: 'here' is no IPv4 address: expected one of this machine$"):
            start(SMALL, out=tmp_path / "run", bind="here").__enter__()  # type: ignore[union-attr]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["run", "up"])
def test_an_address_of_another_machine_is_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text("name: small\n", encoding="utf-8")
    out = str(tmp_path / "run")
    assert main([command, str(file), "--out", out, "--bind", ELSEWHERE]) == ExitCode.BAD_INPUT
    told = capsys.readouterr().err
    assert f"the testnet's endpoint cannot be served on {ELSEWHERE}, a free port: " in told
    assert main([command, str(file), "--out", out, "--bind", "everywhere"]) == ExitCode.BAD_INPUT
    assert "argument --bind: 'everywhere' is no IPv4 address: expected one of this machine" in capsys.readouterr().err


def test_the_simulator_listens_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "small.yaml"
    file.write_text("name: small\n", encoding="utf-8")
    assert main(["run", str(file), "--backend", "sim", "--bind", "127.0.0.2"]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err == "stampede: --bind needs --backend live: the simulator does not listen\n"


def test_ports_are_those_that_are_given() -> None:
    assert list(ports_from({})) == list(ports_from({PORTS_VARIABLE: ""})) == [0]
    assert list(ports_from({PORTS_VARIABLE: "20000-20002"})) == [20000, 20001, 20002]
    for wrong in ("20000", "20002-20000", "0-5", "1-65536", "a-b", "1-2-3", "-5"):
        with pytest.raises(ValueError, match="expected FIRST-LAST, two ports from 1 to 65,535"):
            ports_from({PORTS_VARIABLE: wrong})
