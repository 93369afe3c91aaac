"""Paths with a byte that is not UTF-8: commands take them, and all that they print and write is UTF-8."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.common.interrupts import SIGNALS
from cluster.common.wording import json_bytes, json_text, printable, quoted, readable

HERE = os.fsdecode(b"caf\xe9")
FILE = os.fsdecode(b"sc\xe9ne.yaml")
SPELLED_FILE = "sc\\xe9ne.yaml"
SCENARIO: dict[str, Any] = {
    "name": "small",
    "load": {"users": [{"workload": "heartbeat", "count": 2, "interval_ms": 300}]},
    "stop": {"height": 12, "drain_blocks": 2},
    "success": {"heights_compared": 5, "transactions": 1, "fires": 1},
}
RUN = ("run", FILE, "--backend", "sim")
PASS, FAIL, BAD, UNDECIDED = ExitCode.PASS, ExitCode.FAIL, ExitCode.BAD_INPUT, ExitCode.INCONCLUSIVE


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The command takes signals for good; they are given back here."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a scenario; both have such a byte."""
    place = tmp_path / HERE
    place.mkdir()
    monkeypatch.chdir(place)
    (place / FILE).write_text(yaml.safe_dump(SCENARIO), encoding="utf-8")
    return place


def perform(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str]:
    """Perform a command as its process does. Returns its exit code, and all that it said, which is UTF-8."""
    said = io.BytesIO()
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, io.TextIOWrapper(said, encoding="utf-8", write_through=True))
    monkeypatch.setattr(sys, "argv", ["stampede", *words])
    code = main()
    return code, said.getvalue().decode("utf-8")


def check_texts(folder: Path) -> None:
    """All texts below a folder are UTF-8, without lone surrogates in JSON."""
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".html", ".xml", ".yaml", ".md", ".jsonl", ".txt"):
            text = path.read_text(encoding="utf-8")
            assert "\\ud" not in text, path
            if path.suffix == ".json":
                json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")
            if path.suffix == ".xml":
                ElementTree.fromstring(text)


def test_a_run_with_all_its_outputs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [os.fsdecode(b"\xe9." + suffix) for suffix in (b"json", b"xml", b"md")]
    outputs = [word for pair in zip(("--json", "--junit", "--summary"), names, strict=True) for word in pair]
    least = ("--set", "success.fires=100000")
    code, said = perform(monkeypatch, *RUN, *least, "--out", os.fsdecode(b"r\xe9"), *outputs)
    assert code == UNDECIDED, said
    assert "report   r\\xe9/report.html\n" in said
    again = next(line.partition("again")[2].strip() for line in said.splitlines() if line.startswith("again"))
    assert again.startswith("stampede run $'r\\xe9/scenario.yaml' --backend sim --seed 1")
    assert "$'r\\xe9/scenario.yaml'" in Path(names[2]).read_text(encoding="utf-8")
    check_texts(folder)
    told = subprocess.run(["bash", "-c", f"ls {again.split()[2]}"], capture_output=True, check=True).stdout
    assert told == os.fsencode(f"r{HERE[-1]}/scenario.yaml\n"), "a shell reads the path that it shows"


COMMANDS: dict[str, tuple[ExitCode, list[str]]] = {
    "validate": (PASS, ["validate", FILE]),
    "explain": (PASS, ["explain", FILE]),
    "sweep": (UNDECIDED, ["sweep", FILE, "--seeds", "1:2", "--workers", "1", "--out", os.fsdecode(b"s\xe9")]),
    "render": (PASS, ["k8s", "render", FILE, "--out", os.fsdecode(b"k\xe9")]),
    "runs": (PASS, ["runs"]),
    "runs of a folder": (PASS, ["runs", os.fsdecode(b"\xe9")]),
    "compare": (BAD, ["compare", "runs/" + HERE, "runs/" + HERE]),
    "verify": (PASS, ["verify-run", "runs/" + HERE]),
    "replay": (PASS, ["replay", "runs/" + HERE]),
    "bisect": (PASS, ["bisect", "runs/" + HERE]),
    "missing file": (BAD, ["run", os.fsdecode(b"no\xe9.yaml")]),
    "missing folder": (BAD, ["verify-run", os.fsdecode(b"no\xe9")]),
    "wrong option": (BAD, ["run", FILE, os.fsdecode(b"--\xe9")]),
    "setting": (BAD, ["run", FILE, "--set", os.fsdecode(b"name=\xe9")]),
    "policy": (BAD, ["run", FILE, "--backend", "sim", "--set", os.fsdecode(b"chain.policy=./\xe9.py")]),
    "actor": (BAD, ["actor", "check", os.fsdecode(b"\xe9.py")]),
    "prove": (BAD, ["prove", os.fsdecode(b"\xe9"), "--key", "00"]),
    "t8n": (BAD, ["t8n", "--genesis", os.fsdecode(b"\xe9"), "--blocks", "b", "--out", "o"]),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run."""
    place = tmp_path_factory.mktemp("recorded")
    file = place / "small.yaml"
    file.write_text(yaml.safe_dump(SCENARIO), encoding="utf-8")
    assert main(["run", str(file), "--backend", "sim", "--out", str(place / "run")]) == PASS
    return place / "run"


@pytest.mark.kits
@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_takes_such_paths(
    folder: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shutil.copytree(recorded, folder / "runs" / HERE)
    (folder / os.fsdecode(b"\xe9")).mkdir()
    code, words = COMMANDS[name]
    ended, said = perform(monkeypatch, *words)
    assert ended == code, said
    assert "\\udc" not in said
    check_texts(folder)


def test_an_executor_at_such_a_path_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = yaml.safe_dump(SCENARIO | {"validators": [{"executor": "./program --fast"}, {}, {}, {}]})
    (folder / FILE).write_text(text, encoding="utf-8")
    code, said = perform(monkeypatch, "validate", FILE)
    place = "validators[0].executor"
    expected = "expected a program whose path is UTF-8, as the scenario's text is"
    assert (code, said) == (BAD, f"stampede: {SPELLED_FILE}: {place}: {readable(str(folder))}/program: {expected}\n")


def test_an_index_leads_to_such_a_folder(folder: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(recorded, folder / "runs" / HERE)
    assert perform(monkeypatch, "runs")[0] == PASS
    assert 'href="caf%E9/report.html"' in (folder / "runs" / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.live
def test_a_live_run_in_such_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = perform(monkeypatch, "run", FILE, "--out", os.fsdecode(b"r\xe9"), "--set", "stop.height=6")
    assert code == PASS, said
    assert "report   r\\xe9/report.html\n" in said
    assert json.loads((folder / os.fsdecode(b"r\xe9") / "result.json").read_text(encoding="utf-8"))["verdict"] == "pass"


def test_one_spelling_everywhere() -> None:
    page = {FILE: [FILE, 1, None, ("é", True)], "é": "\ud800"}
    assert readable(FILE) == printable(FILE) == SPELLED_FILE
    assert json.loads(json_text(page)) == {SPELLED_FILE: [SPELLED_FILE, 1, None, ["é", True]], "é": "\\ud800"}
    assert json.loads(json_text(page, ensure_ascii=False)) == json.loads(json_text(page))
    assert json_bytes([FILE]) == b'["sc\\\\xe9ne.yaml"]'
    assert json_text({"a": "é\n"}) == json.dumps({"a": "é\n"}), "what is UTF-8 stays as it is"
    assert quoted("it's") == "'it'\"'\"'s'"
    assert quoted(os.fsdecode(b"it's \\ \xe9")) == "$'it\\'s \\\\ \\xe9'"
