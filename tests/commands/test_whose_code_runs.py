"""Whose code runs: no command that reads executes code of a scenario or a run, and the others ask before."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Final, NoReturn

import pytest
from msgspec.structs import replace

from cluster.commands.cli import main as cli
from cluster.commands.cli.completion import Completion, parsers_of
from cluster.commands.console.command import Command
from cluster.commands.load import target
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput, ExitCode
from cluster.live.handover import checkpoint
from cluster.record.archive import GENESIS_FILE
from cluster.record.folder import RESULT_FILE
from cluster.scenario import Scenario
from cluster.scenario.code.gate import RUN_FILES, Code, Gate, allowed_file, code_of, digest_of, opened
from cluster.scenario.files import load_scenario, scenario_from, scenario_text
from cluster.scenario.overrides import parse_setting
from cluster.scenario.sections.success import check_of
from kits.measure.size import measuring
from loadgen.workloads import own as workloads
from stampede import load_scenario as load_scenario_to_run
from stampede import simulate
from tests.cluster.live.handover.parts import left_run
from tests.loadgen.own_workloads import PAYS
from tests.validator.policies.own_policies import DEADLINES
from validator.policies import own as policies
from validator.policies.own import phase_of_file, read_policy
from validator.primitives.user_file import nothing_runs

CHECK: Final = """
from cluster.checks.kind import CheckKind
class Fine(CheckKind):
    def judge(self):
        return "pass", "fine"
"""
NOT_TAKEN: Final = None
"""The command takes neither a scenario nor a run."""
COMMANDS: Final[dict[str, str | None]] = {
    # they read
    "actor check": "actor check {folder}/policy.py",
    "actor profile": NOT_TAKEN,
    "actor run": NOT_TAKEN,
    "actor stub": NOT_TAKEN,
    "compare": "compare {run} {other}",
    "completion": NOT_TAKEN,
    "conform": NOT_TAKEN,
    "conform export": NOT_TAKEN,
    "conform families": NOT_TAKEN,
    "drill": NOT_TAKEN,
    "explain": "explain {found}",
    "explore": NOT_TAKEN,
    "fuzz": NOT_TAKEN,
    "grafana": NOT_TAKEN,
    "inject": "inject {run} {{kind:kill,target:leader}}",
    "k8s delete": NOT_TAKEN,
    "k8s inject": NOT_TAKEN,
    "k8s list": NOT_TAKEN,
    "k8s logs": NOT_TAKEN,
    "k8s status": NOT_TAKEN,
    "k8s render": "k8s render {live}",
    "k8s report": NOT_TAKEN,
    "k8s role": "k8s role {live}",
    "lab run-all": NOT_TAKEN,
    "mutants": NOT_TAKEN,
    "nodes": "nodes {live}",
    "policy new": NOT_TAKEN,
    "prove": "prove {run} account 0x00",
    "runs": "runs {folder}",
    "scenarios": NOT_TAKEN,
    "schema": NOT_TAKEN,
    "size": "size {found}",
    "spec run": "spec run --genesis {folder}/t8n.json --blocks {folder}/blocks.json --out {folder}/new.json",
    "state check": "state check {run}",
    "state diff": "state diff {run} --from 1 --to 2",
    "state get": "state get {run} 0x00",
    "state scan": "state scan {run}",
    "state stats": "state stats {run}",
    "stop": "stop {run}",
    "validate": "validate {found} {live} {run}/scenario.yaml",
    "verify": "verify {run}",
    # they execute
    "attach": "attach {left}",
    "judge": "judge {run}",
    "bisect": "bisect {run}",
    "calibrate": "calibrate {live} --runs 1 --out {folder}/new",
    "dos": "dos {found} --attack same-block --out {folder}/new",
    "dos search": "dos search {found} --budget 5e13 --out {folder}/new",
    "executor": NOT_TAKEN,
    "fork": "fork {run} --at 3 --out {folder}/new",
    "k8s run": "k8s run {live} --out {folder}/new",
    "k8s up": "k8s up {live}",
    "lab list": NOT_TAKEN,
    "lab report": NOT_TAKEN,
    "lab run": NOT_TAKEN,
    "lab tune": NOT_TAKEN,
    "load": "load {live} --target http://127.0.0.1:1",
    "policy check": NOT_TAKEN,
    "policy profile": NOT_TAKEN,
    "peer": "peer {found} {run} --key {folder}/key --data {folder}/new",
    "replay": "replay {run}",
    "run": "run {live} --out {folder}/new",
    "shrink": "shrink {run} --out {folder}/new.yaml",
    "spec diff": "spec diff {run}",
    "sweep": "sweep {found} --seeds 1:2 --out {folder}/new",
    "t8n": "t8n --genesis {folder}/t8n.json --blocks {folder}/blocks.json --out {folder}/new.json",
    "up": "up {live} --out {folder}/new",
    "export": "export {run}",
    "verify-run": "verify-run {run}",
}
"""Each command, on a scenario or a run with code inside; the code writes a file if it is executed."""
WITHOUT_OPTIONS: Final = {"executor"}
"""Commands that execute what the process that has started them sends."""


def commands() -> Iterator[tuple[str, type[Command] | None, set[str]]]:
    """Each command: its words, its class, and its options."""
    for words, parser in parsers_of(cli._parser()):
        make = parser.get_default("make")
        if make is None:
            continue
        kind = Completion if words == ("completion",) else getattr(make, "__self__", None)
        options = {each for action in parser._actions for each in action.option_strings}
        yield " ".join(words), kind, options


def marking(marker: Path, source: str) -> str:
    return f"open({str(marker)!r}, 'a').close()\n{source}"


class Places:
    """A folder with scenarios and a run whose code writes :attr:`marker`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.marker = folder, folder / "marker"
        self.policy, self.workload = marking(self.marker, DEADLINES), marking(self.marker, PAYS)
        self.check = marking(self.marker, CHECK)
        users = [{"workload": "heartbeat"}, {"workload": {"name": "pays", "source": self.workload}}]
        fields: dict[str, object] = {
            "name": "found",
            "chain": {"policy": {"name": "policy", "source": self.policy}},
            "load": {"users": users},
            "validators": {"count": 1},
            "stop": {"height": 5},
            "success": {"checks": [{"name": "check", "source": self.check}]},
        }
        executor = f"touch {self.marker}"
        locust = {"files": [{"name": "users", "source": marking(self.marker, "a = 1\n")}]}
        live: dict[str, object] = fields | {
            "validators": {"nodes": [{"executor": executor}]},
            "load": {"users": users, "locust": locust},
        }
        self.found, self.live = self._scenario("found", fields), self._scenario("live", live)
        (folder / "policy.py").write_text(self.policy)
        self.by_path = folder / "own" / "own.yaml"
        self.by_path.parent.mkdir()
        self.by_path.write_text("name: own\nchain: {policy: ../policy.py}\nvalidators: 1\nstop: {height: 5}\n")
        (folder / "blocks.json").write_text(json.dumps([{"proposer": f"0x{'11' * 20}", "empty": 3}]))
        genesis = {"policy": {"name": "policy", "source": self.policy}}
        (folder / "t8n.json").write_text(json.dumps(genesis))
        (folder / "key").write_text("11" * 32)
        self.run = folder / "run"
        simulate(scenario_from(fields), 1, self.run)
        assert self.marker.exists()
        self.left = folder / "left"
        self.left.mkdir()
        left = replace(left_run(), scenario=scenario_from(fields), commit=checkout_commit())
        checkpoint.write(self.left, left)
        self.other = folder / "other"
        shutil.copytree(self.run, self.other)
        result = json.loads((self.run / RESULT_FILE).read_text())
        (self.other / RESULT_FILE).write_text(json.dumps(result | {"seed": 2}))

    def _scenario(self, name: str, fields: dict[str, object]) -> Path:
        path = self.folder / f"{name}.yaml"
        path.write_text(scenario_text(scenario_from(fields), None))
        return path

    def forget(self) -> None:
        """Remove the marker, and have this process execute texts again that it has executed."""
        self.marker.unlink(missing_ok=True)
        for cache in (policies._executed, policies.phase_of, check_of):
            cache.cache_clear()
        workloads._EXECUTED.clear()

    def perform(self, command: str, *more: str) -> int:
        """Perform a command; returns its exit code."""
        places = {
            name: str(getattr(self, name)) for name in ("folder", "found", "live", "run", "left", "other", "by_path")
        }
        with suppress(SystemExit):
            return cli.main([*(word.format(**places) for word in command.split()), *more])
        return ExitCode.BAD_INPUT


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(tmp_path_factory.mktemp("planted"))


@pytest.fixture
def places(planted: Places, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.chdir(planted.folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(planted.folder / "config"))
    planted.forget()
    return planted


def test_each_command_says_whether_it_executes_code() -> None:
    found = {words: (kind, options) for words, kind, options in commands()}
    assert {words for words in found if not words.startswith("drill ")} == COMMANDS.keys()
    for words, (kind, options) in found.items():
        assert isinstance(kind.RUNS_CODE, bool) if kind is not None else words.startswith("drill "), words
        executes = kind is None or (kind.RUNS_CODE and words not in WITHOUT_OPTIONS)
        assert ({"--allow-code", "--no-code"} <= options) == executes, words


READING: Final = [words for words, kind, _ in commands() if kind is not None and not kind.RUNS_CODE and COMMANDS[words]]
EXECUTING: Final = [words for words, kind, _ in commands() if kind is not None and kind.RUNS_CODE and COMMANDS[words]]


@pytest.mark.parametrize("words", READING)
def test_commands_that_read_execute_no_code(
    words: str, places: Places, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure_the_load_alone(scenario: Scenario, tell: Callable[[str], None]) -> NoReturn:
        measuring._measure_load(scenario)
        raise BadInput("measured")

    monkeypatch.setattr(measuring, "calibrate", measure_the_load_alone)
    monkeypatch.setattr(measuring, "SIMULATED_HEIGHTS", 5)
    code = places.perform(str(COMMANDS[words]))
    assert not places.marker.exists()
    shown = capsys.readouterr()
    assert code != ExitCode.CRASH, shown.err
    if words in ("compare", "explain", "k8s render", "k8s role", "runs", "validate"):
        assert code == ExitCode.PASS, shown.err
    assert words != "size" or shown.err == "stampede: measured\n"


@pytest.mark.parametrize("words", EXECUTING)
def test_commands_that_execute_refuse_code_inside(
    words: str, places: Places, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "_status", lambda url: {"chain_id": "chain"})
    monkeypatch.setattr(target, "_parameters", lambda url: None)
    assert places.perform(str(COMMANDS[words])) == ExitCode.BAD_INPUT
    assert not places.marker.exists() and not (places.folder / "new").exists()
    (line,) = capsys.readouterr().err.splitlines()
    assert "has code inside, policy.py (" in line and digest_of(places.policy) in line, line
    assert "give --allow-code, or add its SHA-256 to " in line and str(allowed_file()) in line


def test_allowed_code_is_told_once_and_runs(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    running = "run {found} --backend sim --out {folder}/allowed"
    for command in (running, "verify-run {run}", "judge {run}", "export {run}", str(COMMANDS["t8n"])):
        places.forget()
        places.perform(command, "--allow-code")
        told = [line for line in capsys.readouterr().err.splitlines() if "policy.py" in line]
        place = "chain.policy" if command.startswith("run ") else "policy"
        lines = len(places.policy.splitlines())
        wanted = f"stampede: executes policy.py ({place}), {lines} lines, SHA-256 {digest_of(places.policy)}, inside "
        assert len(told) == 1 and told[0].startswith(wanted), command
        if not command.startswith("verify-run"):  # the processes that it starts execute
            assert places.marker.exists()


def test_a_served_request_is_its_senders_unless_no_code_may_run(
    places: Places, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    genesis, blocks = (json.loads((places.folder / f"{name}.json").read_text()) for name in ("t8n", "blocks"))
    request = {"genesis": genesis, "blocks": blocks}
    for option, expected in (("--no-code", ExitCode.BAD_INPUT), ("--allow-code", ExitCode.PASS), ("", ExitCode.PASS)):
        places.forget()
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(json.dumps(request).encode())))
        assert places.perform(f"t8n --serve {option}") == expected
        assert places.marker.exists() == (expected == ExitCode.PASS)
        (line,) = capsys.readouterr().err.splitlines()
        if expected == ExitCode.PASS:
            assert line.startswith("stampede: executes policy.py (policy), ")
        else:
            assert line.startswith("stampede: standard input: has code, policy.py") and "--no-code refuses" in line


def test_code_by_path_runs_and_is_told_unless_no_code_may(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert places.perform("run {by_path} --backend sim --out {folder}/refused --no-code") == ExitCode.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"stampede: {places.by_path}: has code, policy.py (chain.policy), ")
    assert line.endswith(": --no-code refuses it") and not places.marker.exists()
    drill = "drill outage --backend sim --set chain.policy=./policy.py --out {folder}/refused --no-code"
    assert places.perform(drill) == ExitCode.BAD_INPUT and not places.marker.exists()
    assert places.perform("run {by_path} --allow-code --no-code") == ExitCode.BAD_INPUT
    capsys.readouterr()
    places.perform("run {by_path} --backend sim --out {folder}/own/run")
    shown = capsys.readouterr()
    assert places.marker.exists() and shown.err.count("executes policy.py (chain.policy), ") == 1
    assert "--allow-code" not in shown.out, "the command that repeats the run names the file"


def test_a_digest_in_the_users_file_allows_a_text(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    allowed_file().parent.mkdir(parents=True)
    try:
        allowed_file().write_text(f"\n{digest_of(places.policy).upper()}  a policy that I have read\n")
        with pytest.raises(BadInput, match=r"found\.yaml: has code inside, pays\.py \(load\.users\[1\]\.workload\)"):
            load_scenario_to_run(places.found)
        texts = (places.policy, places.workload, places.check)
        allowed_file().write_text("".join(f"{digest_of(text)} a text\n" for text in texts))
        assert load_scenario_to_run(places.found).name == "found"
        assert places.marker.exists()
        with opened(Gate(allows=False, forbids=True)), pytest.raises(BadInput, match="--no-code refuses it"):
            load_scenario(places.found)
        allowed_file().write_bytes(b"\xff")
        with pytest.raises(BadInput, match="allowed-code: cannot be read"):
            load_scenario_to_run(places.found)
    finally:
        allowed_file().unlink()
        allowed_file().parent.rmdir()


def test_python_asks_for_files_and_not_for_the_callers_own(places: Places) -> None:
    with pytest.raises(BadInput, match=r"found\.yaml: has code inside, policy\.py"):
        simulate(places.found)
    assert not places.marker.exists()
    assert load_scenario_to_run(places.by_path).name == "own" and places.marker.exists()
    assert load_scenario_to_run(places.found, allow_code=True).name == "found"
    own = {
        "name": "own",
        "chain": {"policy": {"name": "own", "source": DEADLINES}},
        "stop": {"height": 3},
        "validators": 1,
    }
    assert simulate(own, settings=["seed=2"]).record.seed == 2


def test_a_file_in_a_runs_folder_is_inside_of_it(places: Places, tmp_path: Path) -> None:
    assert {RESULT_FILE, GENESIS_FILE} == set(RUN_FILES)
    (tmp_path / "policy.py").write_text(places.policy)
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("name: own\nchain: {policy: ./policy.py}\n")
    with opened(Gate(allows=False)):
        load_scenario(scenario)
    (tmp_path / RESULT_FILE).touch()
    with opened(Gate(allows=False)), pytest.raises(BadInput, match="has code inside"):
        load_scenario(scenario)


@pytest.mark.parametrize(
    ("command", "is_by_path"),
    [
        ("./node --serve", True),
        ("../node", False),
        ("./link -c evil", False),
        ("/bin/sh -c evil", False),
        ("../../../../../../../bin/sh -c evil", False),
        ("python node.py", False),
        ("stampede executor --tree", True),
        ("stampede run found.yaml", False),
    ],
)
def test_the_command_of_an_executor_is_code(tmp_path: Path, command: str, is_by_path: bool) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/link").symlink_to("/bin/sh")
    path = tmp_path / "own/own.yaml"
    path.write_text(f"name: own\nvalidators: [{{executor: {command!r}}}, {{}}, {{}}, {{}}]\n")
    with opened(Gate(allows=False)) as gate:
        if is_by_path:
            load_scenario(path)
        else:
            with pytest.raises(BadInput, match=r"has code inside, .* \(validators\.executor\), 1 line, SHA-256 "):
                load_scenario(path)
    assert not gate.used_permission


def test_what_the_user_types_is_the_users(places: Places) -> None:
    plain = places.folder / "plain.yaml"
    plain.write_text("name: plain\n")
    with opened(Gate(allows=False)) as gate:
        load_scenario(plain, [parse_setting("validators=[{executor: /bin/node}]")])
    assert not gate.used_permission


def test_a_gate_tells_a_text_once() -> None:
    told: list[str] = []
    gate = Gate(allows=True, tell=told.append)
    for _ in range(2):
        gate.take([Code("chain.policy", "a.py", "x = 1\n"), Code("policy", "a.py", "x = 1\n")], "a.yaml")
    assert len(told) == 1 and gate.used_permission


def test_a_command_that_reads_cannot_execute() -> None:
    _, policy_file = read_policy("policy", f"{DEADLINES}# another text\n")
    with nothing_runs(), pytest.raises(AssertionError, match=r"^policy\.py is executed by a command that only reads"):
        phase_of_file(policy_file)
    assert phase_of_file(policy_file).replaces == {"order"}


def test_a_rendered_command_allows_the_code_of_its_scenario(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("", " --command sweep 1:3", " --command soak"):
        assert places.perform(f"k8s render {{found}}{words}") == ExitCode.PASS
        assert "--allow-code" in capsys.readouterr().out
        assert places.perform(f"k8s render smoke{words}") == ExitCode.PASS
        assert "--allow-code" not in capsys.readouterr().out


def test_a_copy_of_a_run_is_repeated_with_its_code_allowed(places: Places) -> None:
    result = json.loads((places.run / RESULT_FILE).read_text())
    assert f"{places.run}/scenario.yaml --allow-code" in json.dumps(result) or "--allow-code" in (
        places.run / "report.html"
    ).read_text(encoding="utf-8")
    assert {each.name for each in code_of(load_scenario(places.run / "scenario.yaml"))} == {
        "policy.py",
        "pays.py",
        "check.py",
    }
