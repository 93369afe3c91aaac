"""``stampede actor check`` and ``run`` as users meet them: what is printed, what it returns, what it refuses."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from kits.actors.commands import MAX_BLOCKS
from tests.kits.actors.programs import BUSY, COUNTER
from validator.primitives.params import DEFAULTS
from validator.pvm.compiler.programs import load_cycles
from validator.pvm.deployment import deploy_cycles

WRONG = """import os

class Wrong(Actor):
    def start(self, payload):
        try:
            self.count = payload / 2
        except KeyError as error:
            os.abort(error)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, source in (("counter.py", COUNTER), ("busy.py", BUSY), ("wrong.py", WRONG)):
        (tmp_path / name).write_text(source, encoding="utf-8")
    return tmp_path


def actor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """The exit code and all that is printed, by line."""
    code = main(["actor", *arguments])
    captured = capsys.readouterr()
    return code, (captured.out + captured.err).splitlines()


def line_with(lines: list[str], *parts: str) -> str:
    return next(line for line in lines if all(part in line for part in parts))


# --- check ------------------------------------------------------------------------------------------------------------


def test_check_names_every_problem_with_its_place_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = actor(capsys, "check", "wrong.py")
    assert code == ExitCode.BAD_INPUT
    assert lines == [
        "wrong.py:1:1: an import; everything that a program may use is there without one",
        "wrong.py:5:9: try; check before you act: nothing can be caught",
        "wrong.py:6:13: an assignment to self.count; keep what must last with self.set(key, value)",
        "wrong.py:6:26: /; use //: there are no floats",
        "wrong.py:8:13: the name os, which is nowhere defined; there are no modules to import: use the functions and "
        "methods that are there",
    ]


def test_check_says_what_a_fine_program_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = actor(capsys, "check", "counter.py", "busy.py")
    assert code == ExitCode.PASS
    cost = 1_000 + deploy_cycles(COUNTER)
    assert lines == [
        "counter.py: Counter is fine: handlers start, tick, forever, tell, earn; leaves bidding to the default agent; "
        f"{len(COUNTER):,} bytes; deploying it costs {cost:,} cycles and {len(COUNTER):,} cells",
        line_with(lines, "busy.py: Busy is fine", "bids for its timers"),
    ]
    assert actor(capsys, "check", "counter.py", "wrong.py")[0] == ExitCode.BAD_INPUT


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "odd.py:1:1: no class; expected: class Name(Actor): "),
        (b"class A(Actor):\r\n", "odd.py:1:16: a carriage return; end lines with a line feed alone"),
        (b"class A(Actor):\n\tx = 1\n", "odd.py:2:1: a tab; indent with spaces"),
        ("class A(Actor):\n x = 'é'\n".encode(), "odd.py:2:7: character U+00E9; programs are ASCII text"),
        (b"class A(Actor):\n x = '\xff'\n", "stampede: odd.py:2: byte 0xff is no UTF-8; programs are ASCII text"),
        (b"class A(Actor)\n", "odd.py:1:15: this is no Python; the parser says: expected ':'"),
        (b"#" * 20_000, "odd.py:1:1: 20,000 characters; expected at most 16,000"),
        (b"#" * 2_000_000, "stampede: odd.py: more than 1,024,000 bytes; a program has at most 16,000"),
    ],
)
def test_odd_files_are_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, content: bytes, said: str
) -> None:
    (folder / "odd.py").write_bytes(content)
    code, lines = actor(capsys, "check", "odd.py")
    assert code == ExitCode.BAD_INPUT and len(lines) == 1
    assert lines[0].startswith(said)
    code, again = actor(capsys, "run", "odd.py")
    assert code == ExitCode.BAD_INPUT and again == [f"stampede: {lines[0].removeprefix('stampede: ')}"]


MISSPELT = """class Misspelt(Actor):
    LIMIT = 5

    def start(self, payload):
        self.set("at", height)
        count = get("count")
        emit("a", 1)
        print("a")
        self.sett("k", 1)
        self.set("at", self.hieght)
        self.set("at", self.height())
        self.emit("drawn", random.random())
        self.emit("pi", math.pi)
        self.set("most", sortde([1]))
        self.set("limit", LIMIT)
        self.halper(payloda)
        unknown.append(1)

    def helper(self, number):
        return number
"""


def test_a_name_that_is_nearly_right_is_guessed_and_each_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "misspelt.py").write_text(MISSPELT, encoding="utf-8")
    _, lines = actor(capsys, "check", "misspelt.py")
    modules = "there are no modules to import: use the functions and methods that are there"
    assert [line.removeprefix("misspelt.py:") for line in lines] == [
        "5:24: the name height, which is nowhere defined; did you mean self.height?",
        "6:17: a call of get; did you mean self.get(…)?",
        "7:9: a call of emit; did you mean self.emit(…)?",
        "8:9: a call of print; did you mean self.emit(…)?",
        "9:9: self.sett(…), which is nowhere defined; did you mean self.set(…)?",
        "10:24: self.hieght, which is nowhere defined; did you mean self.height?",
        "11:24: a call of self.height; read it without brackets: self.height",
        f"12:28: the name random, which is nowhere defined; {modules}",
        f"13:25: the name math, which is nowhere defined; {modules}",
        "14:26: a call of sortde; did you mean sorted(…)?",
        "15:27: the name LIMIT, which is nowhere defined; did you mean self.LIMIT?",
        "16:9: self.halper(…), which is nowhere defined; did you mean self.helper(…)?",
        "17:9: the name unknown, which is nowhere defined; assign it first",
    ]


def test_a_file_that_cannot_be_read_is_one_line_and_the_others_are_checked(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    os.mkfifo(folder / "pipe.py")
    code = main(["actor", "check", "nowhere.py", "counter.py", "pipe.py", ".", "busy.py"])
    captured = capsys.readouterr()
    assert code == ExitCode.BAD_INPUT
    assert captured.err.splitlines() == [
        "stampede: nowhere.py: cannot be read: No such file or directory",
        "stampede: pipe.py: is no regular file",
        "stampede: .: cannot be read: Is a directory",
    ]
    assert [line.split(" ")[1] for line in captured.out.splitlines()] == ["Counter", "Busy"]


def test_reports_and_complaints_stand_in_the_order_of_the_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file, too, where standard output is written in blocks and errors at once."""
    log = folder / "log"
    with log.open("a") as output, log.open("a", buffering=1) as errors:
        monkeypatch.setattr(sys, "stdout", output)
        monkeypatch.setattr(sys, "stderr", errors)
        main(["actor", "check", "counter.py", "nowhere.py", "busy.py"])
    written = log.read_text()
    assert written.index("Counter") < written.index("nowhere.py") < written.index("Busy")


UNHEARD = """class Unheard(Actor):
    NEXT = "tikc"

    def start(self, payload):
        self.schedule(self.height + 1)
        self.schedule(self.height + 1, None, self.NEXT)
        self.schedule(self.height + 1, handler="help")
        self.send(self.address, "stop")
        self.send(payload, "anything")
        self.request_job(None, 3, "get_gas_bid")
        self.request_job(None, 3, payload)
        self.schedule(self.height + 1, None, "tick")
        self.emit("stop", "nothing")

    def tick(self, payload):
        self.help(1)

    def help(self, amount):
        return amount
"""


def test_handlers_that_nobody_can_call_are_warned_of(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "unheard.py").write_text(UNHEARD, encoding="utf-8")
    code, lines = actor(capsys, "check", "unheard.py")
    assert code == ExitCode.PASS
    assert [line.removeprefix("unheard.py:") for line in lines[:-1]] == [
        "5:9: warning: a timer that names no handler calls handle_timer, and there is none; name one, or write it",
        "6:46: warning: no handler 'tikc'; did you mean tick?",
        "7:48: warning: no handler 'help'; help(self, amount) is a helper: a handler has one parameter, and it is "
        "called payload",
        "8:33: warning: no handler 'stop'; handlers are: start, tick",
        "10:35: warning: no handler 'get_gas_bid'; only the chain calls it, for bids",
    ]
    assert lines[-1].startswith("unheard.py: Unheard is fine but for 5 warnings: handlers start, tick; ")
    listening = UNHEARD.replace("def help(self, amount)", "def handle_timer(self, payload)").replace(
        "self.help(1)", "pass"
    )
    (folder / "unheard.py").write_text(listening, encoding="utf-8")
    assert "handle_timer" not in actor(capsys, "check", "unheard.py")[1][0]


UNFIT = """class Unfit(Actor):
    LEVEL = "Fast"

    def start(self, payload):
        self.schedule(self.height + 2, None, "start", tier="FAST")
        self.schedule(self.height + 2, None, "start", tier=self.LEVEL)
        self.schedule(self.height + 2, None, "start", tier=2)
        self.schedule(self.height + 2, None, "start", tier=FAST)
        self.schedule(self.height + 2, None, "start", tier="fast")
        self.schedule(self.height + 2, None, "start", tier=payload)
        self.emit("data", {"a": 1})
        self.emit("data", [each for each in payload])
        self.emit("data", None)
        self.emit("data", 1)
        self.emit("data")

    def order(self, payload):
        rows = []
        for each in payload:
            rows.append([each, 1])
        rows.sort()
        pairs = [(each, 1) for each in payload]
        pairs.sort()
        return sorted(rows) + sorted([{"a": 1}]) + sorted(payload) + sorted({"a": [1]})
"""


def test_arguments_that_a_call_never_takes_are_warned_of(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "unfit.py").write_text(UNFIT, encoding="utf-8")
    code, lines = actor(capsys, "check", "unfit.py")
    data, sortable = "give it a text, a number or bytes", "sort numbers, texts, bytes or tuples of these"
    assert code == ExitCode.PASS
    assert [line.removeprefix("unfit.py:") for line in lines[:-1]] == [
        "5:60: warning: no tier 'FAST'; did you mean FAST?",
        "6:60: warning: no tier self.LEVEL; did you mean FAST?",
        "7:60: warning: no tier 2; tiers are: ECONOMY, STANDARD, FAST, URGENT",
        f"11:27: warning: an event with a dict as its data; {data}",
        f"12:27: warning: an event with a list as its data; {data}",
        f"13:27: warning: an event with None as its data; {data}",
        f"21:9: warning: values that cannot be sorted: a list among them; {sortable}",
        f"24:16: warning: values that cannot be sorted: a list among them; {sortable}",
        f"24:31: warning: values that cannot be sorted: a dict among them; {sortable}",
    ]


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (
            'self.schedule(self.height + 2, tier="FAST")',
            "tier: expected one of economy, standard, fast, urgent, got 'FAST'",
        ),
        ('self.emit("data", {"a": 1})', "expected a text, a number or bytes as an event's data, got a dict"),
        ("return sorted([[2], [1]])", "expected numbers, texts, bytes or tuples of these to sort, got a list"),
    ],
)
def test_an_error_is_shown_with_its_words_and_its_line(
    capsys: pytest.CaptureFixture[str], folder: Path, handler: str, why: str
) -> None:
    source = f"class Fails(Actor):\n    def start(self, payload):\n        {handler}\n"
    (folder / "fails.py").write_text(source, encoding="utf-8")
    for tool in ("run", "profile"):
        lines = actor(capsys, tool, "fails.py")[1]
        place = next(index for index, line in enumerate(lines) if "✕" in line)
        assert lines[place].endswith(f"Error: {why}")
        assert lines[place + 1].strip() == f"fails.py:3 in start: {handler}"


def test_an_actor_without_a_handler_is_warned_of(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "mute.py").write_text("class Mute(Actor):\n    def help(self, amount):\n        return amount\n")
    code, lines = actor(capsys, "check", "mute.py")
    assert code == ExitCode.PASS and len(lines) == 2
    assert lines[0] == (
        "mute.py:1:1: warning: an actor without a handler, which cannot be called; a handler is a method whose one "
        "parameter is payload"
    )
    assert "fine but for 1 warning:" in lines[1]


def test_a_bid_that_loading_leaves_few_cycles_for_is_warned_of(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    head = "class Long(Actor):\n    def handle_timer(self, payload):\n"
    bid = "    def get_gas_bid(self, context):\n        return {}\n"
    fitting = "".join(f"        self.emit('name', {number})\n" for number in range(10_000, 10_200))
    (folder / "long.py").write_text(head + fitting * 2 + bid, encoding="utf-8")
    price = load_cycles(head + fitting * 2 + bid)
    assert DEFAULTS.gba_max_cycles // 2 < price < DEFAULTS.gba_max_cycles
    code, lines = actor(capsys, "check", "long.py")
    assert code == ExitCode.PASS and len(lines) == 2
    assert lines[0] == (
        f"long.py:403:5: warning: get_gas_bid has 10,000 cycles, of which loading the program takes {price:,}; make "
        "the program shorter, or let the default agent bid"
    )
    (folder / "long.py").write_text(head + fitting + bid, encoding="utf-8")
    assert load_cycles(head + fitting + bid) <= DEFAULTS.gba_max_cycles // 2
    (line,) = actor(capsys, "check", "long.py")[1]
    assert "warning" not in line
    (folder / "long.py").write_text(head + fitting * 2, encoding="utf-8")
    (line,) = actor(capsys, "check", "long.py")[1]
    assert "leaves bidding to the default agent" in line


def test_what_ships_gives_no_cause_for_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    shipped = sorted((Path(__file__).parents[3] / "actors").glob("*.py"))
    code, lines = actor(capsys, "check", *map(str, shipped))
    assert code == ExitCode.PASS and len(lines) == len(shipped) > 7


# --- run --------------------------------------------------------------------------------------------------------------


def test_run_shows_blocks_storage_and_use(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = actor(capsys, "run", "counter.py", "--blocks", "3")
    assert code == ExitCode.PASS
    assert line_with(lines, "block 1 ").split()[2:4] == ["deploy", "Counter"]
    assert line_with(lines, "block 2 ").split()[2:4] == ["call", "Counter.start(None)"]
    assert line_with(lines, "block 3 ").split()[2:4] == ["fire", "Counter.tick(None)"]
    assert line_with(lines, "block 4 ").split()[2:] == ["nothing"]
    assert line_with(lines, "event tick: 1")
    assert line_with(lines, "timer ", " for block 5")
    assert line_with(lines, "  count ").split() == ["count", "2"]
    assert line_with(lines, "fire  Counter.tick").split()[2:4] == ["2", "0"]
    assert lines[-1] == "5 blocks, 4 runs: none failed"


def test_a_failure_is_shown_with_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = actor(capsys, "run", "counter.py", "--call", "start=1", "--call", "forever", "--blocks", "6")
    assert code == ExitCode.FAIL
    failed = lines.index(line_with(lines, "Counter.tick(None)", "✕ ZeroDivisionError"))
    assert lines[failed + 1].strip() == "counter.py:17 in give_up: 10 // (count - 3)"
    assert lines[failed + 2].strip() == "called at counter.py:12 in tick: self.give_up(count)"
    failed = lines.index(line_with(lines, "Counter.forever(None)", "✕ OutOfCycles"))
    assert lines[failed + 1].strip().startswith("counter.py:24 in forever")
    assert line_with(lines, "2 failed")


def test_a_failing_bid_is_shown_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = actor(capsys, "run", "busy.py", "--blocks", "2")
    assert code == ExitCode.FAIL
    place = next(i for i, line in enumerate(BUSY.split("\n"), start=1) if "5 //" in line)
    assert line_with(lines, "Busy.get_gas_bid()", "✕ ZeroDivisionError")
    assert line_with(lines, f"busy.py:{place} in get_gas_bid: return")
    assert line_with(lines, "event GbaFallback of Busy: ", "reason failed")
    assert line_with(lines, "bids at most ", "a tip of 5 included")


def test_messages_between_programs(capsys: pytest.CaptureFixture[str]) -> None:
    calls = ("--call", 'tell={"address_of": "Counter2"}', "--call", "Counter2.start")
    code, lines = actor(capsys, "run", "counter.py", "--other", "counter.py", *calls, "--blocks", "0")
    assert code == ExitCode.PASS
    assert line_with(lines, "message", "Counter2.start(1)")
    assert line_with(lines, "call", "Counter2.start(None)")


def test_value_and_payloads_reach_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = actor(
        capsys, "run", "counter.py", "--call", "earn", "--value", "77", "--balance", "5", "--blocks", "0"
    )
    assert code == ExitCode.PASS
    assert line_with(lines, "event earned: 77") and line_with(lines, "Counter holds 82")


def test_what_a_program_says_cannot_reach_the_terminal_raw(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    said = r'self.emit("a\x1b[31m", "b\x07"); self.set("k\n", "v\x1b"); raise ActorError("\x1b]0;x")'
    for cut in (said, said.rpartition(";")[0]):
        (folder / "rude.py").write_text(f"class Rude(Actor):\n def start(self, payload):\n  {cut}\n", encoding="utf-8")
        _, lines = actor(capsys, "run", "rude.py", "--blocks", "0", "--call", 'start="\\u001b[2J"')
        assert all(line.isprintable() for line in lines)


def test_the_same_command_prints_the_same_and_writes_it(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    arguments = ("run", "busy.py", "--other", "counter.py", "--call", "start", "--json", "out.json")
    first, page = actor(capsys, *arguments), (folder / "out.json").read_text(encoding="utf-8")
    assert actor(capsys, *arguments) == first
    assert (folder / "out.json").read_text(encoding="utf-8") == page
    found = json.loads(page)
    assert found["actors"]["Busy"]["storage"]["total"] == 440
    assert found["actors"]["Busy"]["storage"]["digest"][0].keys() == {"hex"}
    runs = [run for block in found["blocks"] for run in block["runs"]]
    assert {run["kind"] for run in runs} == {"deploy", "call", "bid", "fire"}
    assert [run["failed_at"] for run in runs if run["kind"] == "fire" and run["error"]] == [
        [{"method": "sort", "line": next(i for i, t in enumerate(BUSY.split("\n"), 1) if "found = " in t)}]
    ]
    assert found["failures"] == sum(run["error"] is not None for run in runs)


@pytest.mark.parametrize("tool", ["run", "profile"])
@pytest.mark.parametrize("path", ["no/out.json", "."])
def test_where_the_json_cannot_go_is_said_before_the_run(
    capsys: pytest.CaptureFixture[str], tool: str, path: str
) -> None:
    assert main(["actor", tool, "counter.py", "--json", path]) == ExitCode.BAD_INPUT
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(f"stampede: {path}: cannot be written: ")


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nowhere.py"], "nowhere.py: cannot be read: No such file or directory"),
        (["run", "."], ".: cannot be read: Is a directory"),
        (
            ["run", "wrong.py"],
            "wrong.py:1:1: an import; everything that a program may use is there without one (4 more",
        ),
        (["run", "counter.py", "--other", "wrong.py"], "wrong.py:1:1: an import; "),
        (
            ["run", "counter.py", "--blocks", "-1"],
            "argument --blocks: '-1' is not a valid number of blocks: expected an integer from 0 to 100,000",
        ),
        (["run", "counter.py", "--blocks", str(MAX_BLOCKS + 1)], "argument --blocks: "),
        (["run", "counter.py", "--blocks", "9" * 9_999], "argument --blocks: "),
        (
            ["run", "counter.py", "--balance", "1e3"],
            "argument --balance: '1e3' is not a valid amount: expected an integer from 0 to ",
        ),
        (
            ["run", "counter.py", "--gas-limit", "999"],
            "argument --gas-limit: '999' is not a valid gas limit: expected an integer from 1,000 to ",
        ),
        (
            ["run", "counter.py", "--call", "tik"],
            "--call tik: counter.py has no handler 'tik'; did you mean tick? It has",
        ),
        (["run", "counter.py", "--call", ""], "--call : counter.py has no handler ''; it has handlers: start, "),
        (
            ["run", "counter.py", "--call", "give_up=1"],
            "--call give_up: counter.py:15: give_up(self, count) is a helper: ",
        ),
        (
            ["run", "busy.py", "--call", "get_gas_bid"],
            "--call get_gas_bid: busy.py:29: get_gas_bid is called by the chain",
        ),
        (["run", "counter.py", "--call", "Other.start"], "--call Other.start: no actor 'Other'; there are Counter"),
        (["run", "counter.py", "--call", "start="], "--call start: no JSON: Expecting value"),
        (["run", "counter.py", "--call", "start=soon"], "--call start: no JSON: Expecting value"),
        (["run", "counter.py", "--call", "start=1.5"], "--call start: 1.5 is no integer"),
        (["run", "counter.py", "--call", f"start={2**256}"], "--call start: an integer of more than 256 bits"),
        (["run", "counter.py", "--call", 'start={"a":1,"a":2}'], "--call start: field 'a' is given twice"),
        (
            ["run", "counter.py", "--call", 'start={"hex":"0"}'],
            "--call start: hex: expected pairs of hex digits, got '0'",
        ),
        (
            ["run", "counter.py", "--call", 'start=[{"address_of":"X"}]'],
            "--call start: $[0].address_of: no actor 'X' on",
        ),
        (["run", "counter.py", "--call", "start=" + "[" * 40 + "]" * 40], "--call start: too large or too deep"),
        (
            ["run", "counter.py", "--blocks", "0", "--json", "no/out.json"],
            "no/out.json: cannot be written: no: No such file",
        ),
        (["profile", "nowhere.py"], "nowhere.py: cannot be read: No such file or directory"),
        (["stub", "--out", "no/stub.pyi"], "no/stub.pyi: cannot be written: no: No such file or directory"),
        (["check"], "the following arguments are required: FILE"),
        ([], "the following arguments are required: TOOL"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    code = main(["actor", *arguments])
    lines = capsys.readouterr().err.splitlines()
    assert code == ExitCode.BAD_INPUT and len(lines) == 1
    assert lines[0].startswith(f"stampede: {said}")
