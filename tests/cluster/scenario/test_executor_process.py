"""The pipes to a foreign executor: answers, and each way in which a program may fail to give one."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

import pytest

from cluster.common.checkout import CLOCK_VARIABLE, SAFE_PATH, SAFE_PATH_IS_OURS
from cluster.common.errors import BadInput
from cluster.misbehaviour.planted import RunCounter
from cluster.scenario.executor_process import ExecutorProcess, arguments_of, foreign_executor
from cluster.scenario.files import load_scenario
from cluster.scenario.model import Scenario
from cluster.scenario.node_setup import parts_of
from tests.hangs import HANGS_AFTER_S
from tests.validator.chains import make_genesis
from validator.node.executor import stream
from validator.node.executor.stream import ExecutorError

OPEN = stream.encode_message(stream.Open(stream.VERSION, stream.chain_of(make_genesis()), 0, b""))


def started(program: str, timeout_s: float = HANGS_AFTER_S) -> ExecutorProcess:
    """An executor that is a Python program."""
    return ExecutorProcess(f'{sys.executable} -c "{program}"', timeout_s)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.kits
def test_the_reference_executor_answers_and_ends_with_the_validator() -> None:
    child = ExecutorProcess("stampede executor")
    assert stream.decode_answer(child.ask(OPEN)) == stream.Done()
    large = stream.encode_message(stream.Load(((b"s" + bytes(20), bytes(3_000_000)),), False))
    assert stream.decode_answer(child.ask(large)) == stream.Done()
    pid = child.pid
    child.close()
    child.close()
    assert not is_running(pid)


def test_an_executor_that_is_dropped_ends() -> None:
    child = started("import sys; sys.stdin.buffer.read()")
    pid = child.pid
    del child
    gc.collect()
    assert not is_running(pid)


READS = "import sys, os; sys.stdin.buffer.read(4); "
FAILURES = {
    "it hangs": (READS + "sys.stdin.buffer.read()", 0.05, ": gave no answer within 0.05 s"),
    "it does not read": ("import time; time.sleep(1000)", 0.05, ": gave no answer within 0.05 s"),
    "it crashes": (READS + "1/0", HANGS_AFTER_S, ": ended with exit code 1: ZeroDivisionError"),
    "it ends": ("", HANGS_AFTER_S, "ended with exit code 0"),
    "it is killed": (READS + "os.kill(os.getpid(), 9)", HANGS_AFTER_S, "was ended by signal 9"),
    "it closes its output": (READS + "os.close(1); sys.stdin.buffer.read()", HANGS_AFTER_S, ": closed its output"),
    "it announces too much": (
        READS + "os.write(1, bytes([255] * 9)); sys.stdin.buffer.read()",
        HANGS_AFTER_S,
        "a message of 4,294,967,295 bytes, expected at most 67,108,864",
    ),
    "it says more than it is asked": (
        READS + "os.write(1, bytes([0, 0, 0, 1, 7, 7])); sys.stdin.buffer.read()",
        HANGS_AFTER_S,
        ": sent 1 bytes after its answer",
    ),
    "it complains a lot": (
        READS + "os.write(2, bytes([120]) * 500000 + bytes([10]) + b'no luck'); sys.exit(3)",
        HANGS_AFTER_S,
        ": ended with exit code 3: no luck",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_executor_is_one_line(name: str) -> None:
    program, timeout_s, line = FAILURES[name]
    child = started(program, timeout_s)
    with pytest.raises(ExecutorError) as found:
        child.ask(bytes(200_000))
    assert str(found.value).startswith("executor ") and line in str(found.value) and "\n" not in str(found.value)
    assert not is_running(child.pid)


OURS = {
    SAFE_PATH: SAFE_PATH_IS_OURS,
    "RAY_AUTH_TOKEN": "secret",
    "PYTHONBREAKPOINT": "ray.util.rpdb.set_trace",
    "SPT_NOENV": "1",
    CLOCK_VARIABLE: "boot 1.5",
    "PYTHONHASHSEED": "1002",
}
"""Variables of a live host that the driver or Ray set."""


def test_a_program_gets_the_users_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {"PYTHONPATH": "/theirs", "PYTHONBREAKPOINT": "mine.stop"}
    for name, value in (OURS | {"PYTHONPATH": "/theirs"}).items():
        monkeypatch.setenv(name, value)
    found = _environment_of_a_child(tmp_path)
    assert {name: found.get(name) for name in OURS | theirs} == dict.fromkeys(OURS) | {"PYTHONPATH": "/theirs"}
    assert found["PATH"] == os.environ["PATH"]
    monkeypatch.delenv(CLOCK_VARIABLE)
    for name, value in (theirs | {SAFE_PATH: "1"}).items():
        monkeypatch.setenv(name, value)
    found = _environment_of_a_child(tmp_path)
    expected = theirs | {SAFE_PATH: "1", "PYTHONHASHSEED": "1002"}
    assert {name: found.get(name) for name in expected} == expected, "what the user has set stays"


def _environment_of_a_child(folder: Path) -> dict[str, str]:
    program = folder / "program.py"
    written = folder / "environment.json"
    program.write_text(f"import json, os\nopen({str(written)!r}, 'w').write(json.dumps(dict(os.environ)))\n")
    with pytest.raises(ExecutorError, match="ended with exit code 0"):
        ExecutorProcess(f"{sys.executable} {program}").ask(OPEN)
    found: dict[str, str] = json.loads(written.read_text())
    return found


@pytest.mark.kits
def test_modules_of_the_working_directory_are_a_programs_own_and_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "validator.py").write_text("import sys\nsys.exit('theirs')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SAFE_PATH, SAFE_PATH_IS_OURS)  # as the command line has it
    with pytest.raises(ExecutorError, match="ended with exit code 1: theirs"):
        ExecutorProcess(f"{sys.executable} -m validator").ask(OPEN)
    monkeypatch.delenv(SAFE_PATH)  # as Stampede's functions in another program have it
    child = ExecutorProcess("stampede executor")
    assert stream.decode_answer(child.ask(OPEN)) == stream.Done()
    child.close()


def test_a_program_that_is_missing_is_one_line() -> None:
    with pytest.raises(ExecutorError, match="executor '/none/such x' cannot be started: No such file or directory"):
        ExecutorProcess("/none/such x")


def test_a_request_that_is_too_long_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_FRAME_BYTES", 3)
    with pytest.raises(ExecutorError, match="a message of 4 bytes, expected at most 3"):
        started("import sys; sys.stdin.buffer.read()").ask(b"1234")


# --- the field of a scenario ------------------------------------------------------------------------------------------


def plan(**node: object) -> Scenario:
    return Scenario.model_validate({"name": "a", "validators": [{}, node, {}, {}]})


def test_the_field_selects_the_executor() -> None:
    scenario = plan(executor="stampede executor --mutant double-fire")
    parts = [parts_of(scenario, index, RunCounter()).executor for index in range(2)]
    assert [issubclass(each, foreign_executor("x").__bases__) for each in parts] == [False, True]
    assert arguments_of("a 'b c' d") == ["a", "b c", "d"]
    assert arguments_of("stampede executor")[0] == sys.executable


@pytest.mark.kits
@pytest.mark.parametrize(
    ("node", "line"),
    [
        ({"executor": " "}, "expected a command, such as 'stampede executor'"),
        ({"executor": "a 'b"}, "no closing quotation: expected a command as in a shell"),
        ({"executor": "a", "mutant": "double-fire"}, "a validator with an executor has no planted bug"),
    ],
)
def test_a_wrong_command_is_refused(node: dict[str, str], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        plan(**node)


def test_a_path_is_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    for section in ("[{executor: ./mine --fast}, {}, {}, {}]", "{nodes: [{executor: ./mine --fast}]}"):
        file.write_text(f"name: a\nvalidators: {section}\n")
        assert load_scenario(file).validators.node(0).executor == f"{tmp_path.resolve()}/mine --fast"
    file.write_text("name: a\nvalidators: [{executor: [a]}]\n")
    with pytest.raises(BadInput):
        load_scenario(file)
