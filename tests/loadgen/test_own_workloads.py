"""Workloads of one's own: a text in place of the name of one that ships."""

from __future__ import annotations

import builtins
import json
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from loadgen.runplan import Statistics
from loadgen.workloads import WORKLOADS, LoadPlan, LoadUser, Observation, OwnWorkload, WorkloadError
from loadgen.workloads.actor_program import source_of
from loadgen.workloads.own import EXECUTES, MODULE_PREFIX, execute
from loadgen.workloads.registry import GROUP
from tests.loadgen.fake_validator import FakeChain, FakePages, ServerThread
from tests.loadgen.own_workloads import BEGINNING, PAYS, acting, group
from tests.loadgen.test_distribution import wait_for_everybody, worker_of
from tests.loadgen.test_own_locust import block
from tests.loadgen.test_run import USERS, LoadProcess, write_plan
from tests.packages import install
from validator.chain.transactions import Call, Transfer, parse

SEED = 3
START = Observation(1, 0, 1_000_000, 1_000_000, 1_000_000)
PULSE = block("python", "Your own workload")


def plan(*groups: dict[str, Any]) -> LoadPlan:
    return LoadPlan.model_validate({"users": list(groups)})


def first_user(source: str) -> LoadUser:
    return plan(group(source, count=2)).build_users(SEED, "chain")[0]


def problem(*groups: dict[str, Any]) -> str:
    """The problem of a plan whose own code may be executed."""
    with pytest.raises(ValidationError) as raised:
        LoadPlan.model_validate({"users": list(groups)}, context=EXECUTES)
    (error,) = raised.value.errors()
    return str(error["msg"]).removeprefix("Value error, ")


def test_the_example_of_the_page_pays_in_pulses() -> None:
    made = plan(group(PULSE, "pulse", count=2, options={"payments": 2}), {"workload": "transfer"})
    users = made.build_users(SEED, "chain")
    assert made.titles == ["pulse", "pulse", "transfer"]
    assert users[0].next_transactions(START) == []
    paid = [parse(wire, "chain") for wire in users[0].next_transactions(replace(START, height=2))]
    assert [(type(each.action), each.value, each.nonce) for each in paid] == [(Transfer, 1, 0), (Transfer, 2, 1)]
    again = made.build_users(SEED, "chain")[0].next_transactions(replace(START, height=2))
    assert [parse(wire, "chain") for wire in again] == paid, "the same from the same seed"
    assert not made.attackers


def test_a_group_says_what_kind_it_is() -> None:
    facts = "name = 'raid'", "is_attack = True", "is_runner = True", "is_deployer = True", "actor_percent: int = 20"
    source = PAYS + "".join(f"    {fact}\n" for fact in facts)
    made = plan({"workload": "transfer"}, group(source, count=2, budget=1_000))
    (_, raid) = made.users
    assert (raid.kind.name, raid.title, raid.is_attack, raid.funding) == ("raid", "raid", True, (400, 100))
    assert made.attackers == (1, 2)
    accounts = list(made.genesis_accounts(SEED))
    assert made.genesis_runners(SEED) == tuple(sorted(accounts[1:])) and made.genesis_deployers(SEED) == accounts[1:]


def test_it_may_extend_one_that_ships_and_have_an_actor_of_its_own() -> None:
    source = (
        "from loadgen.workloads.heartbeat import Heartbeat\nfrom loadgen.workloads.actor_program import source_of\n"
        "class Mine(Heartbeat):\n"
        "    @classmethod\n    def actor_code(cls, options):\n        return source_of('token')\n"
    )
    made = plan(group(source, "mine", options={"beats": 3}))
    assert made.titles == ["mine"] and made.users[0].options == {"beats": 3}
    (actor,) = made.genesis_actors(SEED).values()
    assert actor.code == source_of("token")
    (wire,) = made.build_users(SEED, "chain")[0].next_transactions(START)
    assert isinstance(parse(wire, "chain").action, Call)


def test_dataclasses_and_annotations_as_texts_work() -> None:
    source = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Kept:\n    turns: int = 0\n"
        + PAYS.replace("COUNTED = []", "class Mine(Options):\n    kept: Width = 1\nWidth = int")
    ).replace("class Own(Workload):\n", "class Own(Workload):\n    options_type = Mine\n")
    assert first_user(source).next_transactions(START)


def test_what_a_module_keeps_does_not_outlive_a_run() -> None:
    source = acting("COUNTED.append(1)", "return [self.pay(len(COUNTED))]")
    made = plan(group(source, count=2))
    runs = [[user.next_transactions(START) for user in made.build_users(SEED, "chain")] for _ in range(2)]
    assert runs[0] == runs[1]
    assert [parse(wires[0], "chain").value for wires in runs[0]] == [1, 2], "users of one run share it"


def test_a_plan_is_whole_in_json() -> None:
    made = plan(group(PAYS), {"workload": "transfer"})
    assert LoadPlan.model_validate_json(made.model_dump_json()) == made
    assert json.loads(made.model_dump_json())["users"][1]["workload"] == "transfer"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = (", "file own.py, line 1: '(' was never closed"),
        (
            "import no_such_module\n" + PAYS,
            "file own.py, line 1: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (
            "def f():\n    return 1 / 0\nf()\n" + PAYS,
            "file own.py, line 2: ZeroDivisionError: division by zero",
        ),
        ("raise SystemExit(3)\n" + PAYS, "file own.py, line 1: SystemExit: 3"),
        (
            "import json\njson.loads('{\\n}}')\n" + PAYS,
            "file own.py, line 2: JSONDecodeError: Extra data: line 2 column 2 (char 3)",
        ),
        ("x = 1", "file own.py: expected one subclass of loadgen.workloads.base.Workload, got none"),
        (
            "from loadgen.workloads.transfer import Transfer",
            "file own.py: expected one subclass of loadgen.workloads.base.Workload, got none",
        ),
        (
            BEGINNING,
            "file own.py: expected one subclass of loadgen.workloads.base.Workload, got none"
            " (Own has no method intents)",
        ),
        (
            PAYS + "class Other(Own):\n    pass\n",
            "file own.py: expected one subclass of loadgen.workloads.base.Workload, got Own, Other",
        ),
        (
            PAYS + "    name = 'heartbeat'\n",
            "file own.py: another workload is named heartbeat; expected another name",
        ),
        (
            PAYS + "    name = 'My Own'\n",
            "file own.py: Own.name: expected lower-case letters, digits, - and _, got 'My Own'",
        ),
        (
            PAYS + "Own.options_type = dict\n",
            "file own.py: Own.options_type: expected a subclass of loadgen.workloads.base.Options",
        ),
        (PAYS + "    actor_percent = 101\n", "file own.py: Own.actor_percent: expected 0 to 100, got 101"),
        (PAYS + "    is_attack = 'yes'\n", "file own.py: Own.is_attack: expected True or False, got 'yes'"),
        (
            PAYS + "    is_attack = not COUNTED\n",
            "file own.py, line 15: Own.is_attack: expected a value written out, since it is read without executing the"
            " file",
        ),
        (
            PAYS + "Own.is_attack = True\n",
            "file own.py: Own.is_attack: is True when the file runs, but False as its class is written",
        ),
    ],
)
def test_a_text_that_is_no_workload_is_one_line(source: str, line: str) -> None:
    assert problem(group(source)) == line


def test_a_plan_is_read_without_executing_its_workloads() -> None:
    runs = "import builtins\nbuiltins.own_workload_has_run = True\n"
    made = plan(group(runs + PAYS, budget=100, options={"none": 1}), {"workload": "transfer"})
    assert made.titles == ["own", "transfer"] and not made.attackers and made.users[0].funding == (50, 50)
    assert len(made.genesis_actors(SEED, executes_own=False)) == 2
    assert not hasattr(builtins, "own_workload_has_run")
    try:
        with pytest.raises(WorkloadError, match=r"^workload own: options\.none: Extra inputs are not permitted$"):
            made.genesis_actors(SEED)
        assert hasattr(builtins, "own_workload_has_run"), "the options are those of a class that the file makes"
    finally:
        vars(builtins).pop("own_workload_has_run", None)


def test_names_and_options_are_checked() -> None:
    assert "expected different names" in problem(group(PAYS), group(PAYS + "\n"))
    assert plan(group(PAYS), group(PAYS)).titles == ["own", "own"], "groups may have the same file"
    assert problem({"workload": "./own.py"}) == (
        "'./own.py' is a path, which only a scenario that is read from a file may have"
    )
    assert problem(group(PULSE, "pulse", options={"payments": 9})) == "Input should be less than or equal to 8"
    assert problem(group(PAYS, options={"any": 1})) == "Extra inputs are not permitted"
    wrong = PULSE.replace("options_type = PulseOptions", "options_type = PulseOptions\n    name = 'heartbeat'")
    assert "another workload is named heartbeat" in problem(group(wrong, "pulse"))
    odd = PULSE.replace(" = 3", " = 3\n    def model_post_init(self, context):\n        {}['a']\n")
    assert problem(group(odd, "pulse")).startswith("file pulse.py, line ") and "KeyError" in problem(
        group(odd, "pulse")
    )


@pytest.mark.parametrize(
    ("turn", "line"),
    [
        ("return 1 / 0", "file own.py, line 14: ZeroDivisionError: division by zero"),
        ("return self.member.peers[9]", "file own.py, line 14: IndexError: tuple index out of range"),
        ("return None", "file own.py: intents: expected a list of Intent, got None"),
        ("return [3]", "file own.py: intents: expected a list of Intent, got [3]"),
        ("return [self.pay(-1)]", f"file own.py: intents: value: expected a whole number below {2**128}, got -1"),
        ("return [self.pay(0.5)]", f"file own.py: intents: value: expected a whole number below {2**128}, got 0.5"),
        (
            "return [Intent('x', 1, 1)]",
            "file own.py: intents: action: expected Transfer, Deploy, Call or System, got 'x'",
        ),
        (
            "return [Intent(Transfer(object), 1, 1)]",
            "file own.py: intents: action: Encoding objects of type type is unsupported,"
            " got Transfer(to=<class 'object'>)",
        ),
    ],
)
def test_a_turn_that_goes_wrong_names_file_and_line(turn: str, line: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        first_user(acting(turn)).next_transactions(START)
    assert str(raised.value) == line


def test_other_methods_that_go_wrong_name_file_and_line() -> None:
    begins = PAYS + "    def __init__(self, options, member):\n        raise KeyError('a')\n"
    with pytest.raises(WorkloadError, match=re.escape("file own.py, line 16: KeyError: 'a'")):
        first_user(begins)
    watches = PAYS + "    @property\n    def watched(self):\n        return self.other\n"
    with pytest.raises(WorkloadError, match=re.escape("file own.py, line 17: AttributeError: 'Own' object has no")):
        first_user(watches)
    drops = PAYS + "    def dropped(self, intent):\n        assert intent.value == 2, 'lost'\n"
    user = first_user(drops)
    (wire,) = user.next_transactions(START)
    with pytest.raises(WorkloadError, match=re.escape("file own.py, line 16: AssertionError: lost")):
        user.rejected(wire)


def test_a_module_is_found_under_its_name() -> None:
    own = OwnWorkload(name="my-own", source=PAYS)
    assert execute(own) is not execute(own)
    assert own.module.startswith(f"{MODULE_PREFIX}my_own_") and own.module in sys.modules
    assert OwnWorkload(name="my-own", source=PAYS + "\n").module != own.module


# --- Locust ---------------------------------------------------------------------------------------------------------

OWN_USERS = [*USERS, group(acting("return [self.pay()]"), "own", count=2, interval_ms=50)]
BROKEN = [
    *USERS,
    group(acting("self.turns = getattr(self, 'turns', 0) + 1", "return [self.pay(3 // (4 - self.turns))]")),
]
LINE = "file own.py, line 15: ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.slow
def test_locust_runs_it_beside_others(tmp_path: Path) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as server:
        file = write_plan(tmp_path, [server.url], load={"processes": 2, "users": OWN_USERS})
        with LoadProcess(file) as load:
            wait_for_everybody(chain, plan(*OWN_USERS).user_count)
            load.process.send_signal(signal.SIGTERM)
            assert load.wait() == 0, load.output
            statistics = load.statistics()
    assert statistics.sends.workloads.keys() == {"heartbeat", "flood", "transfer", "own"}
    assert not statistics.failures and not statistics.lost


@pytest.mark.slow
@pytest.mark.parametrize("has_workers", [False, True], ids=["alone", "workers"])
def test_an_exception_ends_the_load_and_is_told(tmp_path: Path, has_workers: bool) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as server:
        file = write_plan(tmp_path, [server.url], load={"processes": 1, "users": BROKEN})
        with LoadProcess(file, *(["--workers", "2"] if has_workers else [])) as load:
            assert load.wait() == 1, load.output
            statistics = load.statistics()
    assert f"loadgen: {LINE}".encode() in load.output
    assert statistics.lost == [LINE]
    assert statistics.transactions_sent >= 3, "what was sent until then counts"


@pytest.mark.slow
def test_a_worker_from_elsewhere_has_the_text_from_its_master(tmp_path: Path) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as server:
        file = write_plan(tmp_path, [server.url], load={"processes": 1, "users": OWN_USERS})
        with LoadProcess(file, "--listen", "127.0.0.1:0") as load, worker_of(file, load):
            wait_for_everybody(chain, plan(*OWN_USERS).user_count)
            load.process.send_signal(signal.SIGTERM)
            assert load.wait() == 0, load.output
    statistics = Statistics.model_validate_json((tmp_path / "stats.json").read_bytes())
    assert "own" in statistics.sends.workloads


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Installs a package with a workload ``stranger``, of a source, and ``flood``, which ships."""

    def install_source(source: str) -> None:
        points = f"[{GROUP}]\nstranger = strangers_loads:Own\nflood = strangers_loads:Own\n"
        install(tmp_path / "site", "strangers_loads", points, source)

    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(vars(WORKLOADS), "_installed", raising=False)
    yield install_source
    sys.modules.pop("strangers_loads", None)
    vars(WORKLOADS).pop("_installed", None)


def test_a_package_adds_a_workload_and_replaces_none_that_ships(installed: Callable[[str], None]) -> None:
    installed(PAYS + "    name = 'stranger'\n")
    assert "stranger" in WORKLOADS and "strangers_loads" not in sys.modules, "nothing is loaded for a name"
    plan = LoadPlan.model_validate({"users": [{"workload": "stranger"}, {"workload": "flood"}]})
    assert [group.kind.__module__ for group in plan.users] == ["strangers_loads", "loadgen.workloads.flood"]
    assert plan.users[0].title == "stranger" and len(WORKLOADS) == len(list(WORKLOADS)) == len(WORKLOADS.shipped) + 1


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (PAYS, "ValueError: expected a class whose name is 'stranger', got"),
        ("Own = 1", "ValueError: expected a subclass of Workload, got 1"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_package_whose_workload_cannot_be_used_is_told_in_one_line(
    installed: Callable[[str], None], source: str, problem: str
) -> None:
    installed(source)
    with pytest.raises(ValidationError) as caught:
        LoadPlan.model_validate({"users": [{"workload": "stranger"}]})
    (error,) = caught.value.errors()
    told = f"strangers_loads: strangers_loads:Own, its {GROUP} stranger, cannot be used: {problem}"
    assert told in error["msg"] and "\n" not in error["msg"] and error["loc"] == ("users", 0, "workload")
