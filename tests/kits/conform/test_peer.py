"""``stampede peer``: its key, its planted bug, and its end with standard input or at a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.commands.cli.main import main
from cluster.common.checkout import own_environment
from cluster.common.errors import BadInput, ExitCode
from cluster.scenario.files import scenario_text
from kits.conform.peer import read_secret
from tests.cluster.outsider import SECRET, scenario_with
from tests.hangs import HANGS_AFTER_S
from tests.ports import free_ports


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "key").write_text(f"{SECRET.hex()}\n")
    (tmp_path / "scenario.yaml").write_text(scenario_text(scenario_with(free_ports()), None))
    places = ["--key", str(tmp_path / "key"), "--data", str(tmp_path / "data")]
    return ["peer", str(tmp_path / "scenario.yaml"), str(tmp_path / "run"), *places]


def test_a_secret_is_64_hex_digits_and_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(BadInput, match=r"key: cannot be read: No such file"):
        read_secret(file)
    for wrong in ("", SECRET.hex()[2:], "x" * 64, "é"):
        file.write_text(wrong)
        with pytest.raises(BadInput, match=r"key: expected an Ed25519 secret in 64 hex digits$"):
            read_secret(file)
    file.write_text(SECRET.hex())
    assert read_secret(file) == SECRET


def test_an_unknown_bug_is_bad_input(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--mutant", "wrong-balanse"]) == ExitCode.BAD_INPUT
    assert "--mutant: unknown mutant 'wrong-balanse'; did you mean wrong-balance?" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("ends_by", ["input", "signal"])
def test_it_ends_well(words: list[str], ends_by: str) -> None:
    command = [sys.executable, "-m", "cluster.commands.cli.main", *words, *(["--until-eof"] * (ends_by == "input"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=own_environment(), stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith(b"peer: waits for ")
        if ends_by == "input":
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_AFTER_S) == ExitCode.PASS
        assert process.stderr.read() == b""
