"""``stampede validate`` and ``explain`` on the command line, with right and wrong files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.scenario.files import shipped_scenarios


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("right.yaml").write_text("name: right\ndescription: Nothing special.\n")
    Path("ring.yaml").write_text("extends: right.yaml\nname: ring\nlinks: {topology: ring}\n")
    Path("forked.yaml").write_text("extends: ring.yaml\nname: forked\nforks: [{at_height: 9}]\n")
    Path("wrong.yaml").write_text("name: wrong\nstop: {hight: 9}\n")
    Path("elsewhere.yaml").write_text("name: elsewhere\nfaults: [{kind: upgrade, at_height: 5, code: .}]\n")
    Path("cluster/live/host").mkdir(parents=True)
    Path("cluster/live/host/host.py").touch()
    Path("nowhere.yaml").write_text("name: nowhere\nfaults: [{kind: upgrade, at_height: 5, code: none}]\n")
    Path("heir.yaml").write_text("extends: wrong.yaml\nname: heir\n")
    return tmp_path


def test_each_file_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["validate", "right.yaml", "wrong.yaml", "ring.yaml", "forked.yaml", "heir.yaml", "none.yaml"])
    assert code == ExitCode.BAD_INPUT
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "right.yaml: valid (live and sim)",
        "ring.yaml: valid (live and sim)",
        "forked.yaml: valid (sim only: forks: only the simulator can repeat the past (--backend sim))",
    ]
    assert said.err.splitlines() == [
        "stampede: wrong.yaml: stop.hight: unknown field; did you mean height?",
        "stampede: wrong.yaml: stop.hight: unknown field; did you mean height? (inherited by heir.yaml)",
        "stampede: none.yaml: cannot be read: No such file or directory",
    ]


def test_a_file_may_run_on_one_backend_alone_and_must_run_on_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "elsewhere.yaml"]) == ExitCode.PASS
    assert capsys.readouterr().out.startswith("elsewhere.yaml: valid (live only: faults[0].code: only the live ")
    assert main(["validate", "nowhere.yaml"]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err.startswith(
        "stampede: nowhere.yaml: no backend can run it: live: faults[0].code: none is not a checkout"
    )
    assert main(["run", "elsewhere.yaml", "--backend", "sim"]) == ExitCode.BAD_INPUT
    assert "elsewhere.yaml: faults[0].code: only the live" in capsys.readouterr().err


def test_everything_that_is_wrong_with_a_file_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("worse.yaml").write_text(
        "name: worse\nstop: {height: 0}\nchain: {params: {SCAN_LIMITS: 3}, polcy: fifo}\n"
        "load: {users: [{workload: floood}]}\n"
    )
    assert main(["validate", "worse.yaml"]) == ExitCode.BAD_INPUT
    said = capsys.readouterr()
    assert said.out == ""
    assert sorted(said.err.splitlines()) == [
        "stampede: worse.yaml: chain.params.SCAN_LIMITS: unknown parameter; did you mean SCAN_LIMIT?",
        "stampede: worse.yaml: chain.polcy: unknown field; did you mean policy?",
        "stampede: worse.yaml: load.users[0].workload: unknown workload 'floood'; did you mean flood?",
        "stampede: worse.yaml: stop.height: expected at least 1, got 0",
    ]


def test_right_files_are_a_success() -> None:
    assert main(["validate", "right.yaml", "ring.yaml"]) == ExitCode.PASS
    assert main(["validate"]) == ExitCode.BAD_INPUT


def test_what_will_happen_is_told_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "ring.yaml", "--set", "stop.height=33"]) == ExitCode.PASS
    said = capsys.readouterr().out
    assert said.startswith("ring\nNothing special.\n")
    for line in ("Timeline", "height 33 (about 10.4 s)", "Latencies", "4 links; the median path leads over 1"):
        assert line in said
    assert not list(Path().glob("*.html"))


def test_a_terminal_gets_nothing_that_it_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    Path("loud.yaml").write_text(
        "name: loud\n"
        'description: "\\e]0;owned\\a\\e[31mred\\r\\nand more"\n'
        'faults: [{kind: upgrade, at_height: 5, code: "\\e[2J"}]\n'
    )
    Path("wrong.yaml").write_text('name: a\n"\\e[31mcolour": 1\n')
    assert main(["explain", "loud.yaml"]) == ExitCode.PASS
    said = capsys.readouterr().out
    assert said.startswith("loud\n\\x1b]0;owned\\x07\\x1b[31mred\nand more\n")
    assert "\\x1b[2J)" in said
    assert main(["validate", "wrong.yaml"]) == ExitCode.BAD_INPUT
    assert "\\x1b[31mcolour: unknown field; " in (also := capsys.readouterr().err)
    assert "\x1b" not in said + also and "\x07" not in said


def test_a_page_can_go_into_runs_before_there_is_any(folder: Path) -> None:
    assert main(["explain", "right.yaml", "--out", "runs/a.html"]) == 0
    assert (folder / "runs" / "a.html").exists()


def test_a_page_and_a_picture_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("out.html", "out.svg"):
        assert main(["explain", "ring.yaml", "--out", name]) == ExitCode.PASS
        assert capsys.readouterr().out == f"written to {name}\n"
    assert Path("out.html").read_text().startswith("<!DOCTYPE html>")
    assert Path("out.svg").read_text().startswith("<svg ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain", "wrong.yaml"], "wrong.yaml: stop.hight: unknown field; did you mean height?"),
        (["explain", "none.yaml"], "none.yaml: cannot be read"),
        (
            ["explain", "right.yaml", "--set", "stop.hight=3"],
            "right.yaml with --set: stop.hight: unknown field; did you mean height?",
        ),
        (["explain", "right.yaml", "--unset", "name"], "right.yaml with --unset: name: is missing"),
        (["explain", "right.yaml", "--out", "out.png"], "'out.png': expected a name that ends in .html or .svg"),
        (
            ["explain", "right.yaml", "--out", "no/such/out.svg"],
            "no/such/out.svg: cannot be written: no/such: No such file",
        ),
        (["explain", "forked.yaml", "--backend", "live"], "forked.yaml: forks: only the simulator can repeat"),
        (["explain", "right.yaml", "--backend", "cloud"], "unknown choice 'cloud'; known: live, sim"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir())
    assert main(arguments) == ExitCode.BAD_INPUT
    said = capsys.readouterr()
    assert words in said.err and said.err.count("\n") == 1
    assert said.out == ""
    assert sorted(os.listdir()) == before


def test_a_backend_that_can_run_it_is_no_problem() -> None:
    assert main(["explain", "forked.yaml", "--backend", "sim", "--out", "a.svg"]) == ExitCode.PASS
    assert main(["explain", "right.yaml", "--backend", "live", "--out", "a.svg"]) == ExitCode.PASS


def test_the_scenarios_that_ship_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios"]) == ExitCode.PASS
    text = capsys.readouterr().out
    rows = {line.split()[0]: line for line in text.splitlines()[1:] if line and line[0] != " "}
    assert set(rows) == set(shipped_scenarios())
    assert rows["smoke"].split()[1:5] == ["live,", "sim", "11", "s"]
    assert rows["byzantine-twins"].split()[1] == "sim"
    assert "Four validators under a timer flood" in rows["smoke"]
