"""Testnets that are asked what they are, and the load that is planned for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.commands.cli.main import main
from cluster.commands.load.loading import write_plan
from cluster.commands.load.target import find_target, plan_of_scenario, plan_of_workload
from cluster.common.errors import BadInput, ExitCode
from loadgen.runplan import STOP_TIMEOUT_S, RunPlan
from loadgen.workloads import LoadPlan
from tests.loadgen.fake_validator import CHAIN_ID, FakeChain, FakePages, ServerThread
from tests.loadgen.own_workloads import PAYS
from validator.primitives.types import Address

SEED = 4
SCENARIO = "name: tiny\nvalidators: 4\nseed: 4\nload: {users: [{workload: transfer, count: 3}]}\nstop: {height: 5}\n"


class Pages(FakePages):
    """A validator that has a chain id, and accounts with money for the users of :data:`SEED` alone."""

    def __init__(self, chain_id: str = CHAIN_ID) -> None:
        super().__init__(FakeChain(), 0)
        self.chain_id = chain_id
        users = LoadPlan.model_validate({"users": [{"workload": "transfer", "count": 3}]})
        self.rich = set(users.genesis_accounts(SEED))

    async def status(self) -> dict[str, Any]:
        return {"chain_id": self.chain_id, "height": 3}

    def account(self, address: Address) -> dict[str, Any]:
        return super().account(address) | {"balance": 7 if address in self.rich else 0}

    def parameters(self) -> dict[str, Any]:
        return {"policy": "cip1", "preset": None, "parameters": {"MAX_TTL": 99, "NEWER_THAN_THIS": 1}}


@pytest.fixture
def url() -> Iterator[str]:
    with ServerThread(Pages()) as server:
        yield server.url


def test_a_validator_says_its_chain_and_parameters(url: str) -> None:
    target = find_target([url])
    assert (target.validators, target.chain_id, target.seed) == ((url,), CHAIN_ID, None)
    assert target.parameters is not None and target.parameters.max_ttl == 99


def test_validators_of_two_chains_are_refused(url: str) -> None:
    with ServerThread(Pages("other")) as other, pytest.raises(BadInput, match="expected validators of one chain"):
        find_target([url, other.url])


class StatusPages(FakePages):
    """Somebody else's status page."""

    def __init__(self, page: dict[str, Any]) -> None:
        super().__init__(FakeChain(), 0)
        self.page = page

    async def status(self) -> dict[str, Any]:
        return self.page


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ({"validators": [{"name": "a"}], "seed": 1}, "its status page has no url"),
        ({"validators": [{"url": "http://127.0.0.1:9"}], "seed": 1}, "its status page has no host_is"),
        ({"validators": [{"url": "http://127.0.0.1:9", "host_is": "up"}]}, "its status page has no seed"),
        ({"validators": ["a"], "seed": 1}, "its status page has no list of validators"),
        ({"validators": 4, "seed": 1}, "its status page has no list of validators"),
        ({"validators": [{"url": 9, "host_is": "up"}], "seed": 1}, "its status page has another form"),
        ({"validators": [{"url": "http://127.0.0.1:9", "host_is": "up"}], "seed": "x"}, "has another form"),
    ],
)
def test_a_status_page_of_something_else_is_one_line(page: dict[str, Any], words: str) -> None:
    with ServerThread(StatusPages(page)) as server, pytest.raises(BadInput) as caught:
        find_target([server.url])
    text = str(caught.value)
    assert text.startswith(f"{server.url}: ") and words in text and "expected a validator, or a testnet" in text


def test_an_external_validator_gets_no_load(url: str) -> None:
    """The testnet has no process of it."""
    outsider = {"url": "http://127.0.0.1:9", "host_is": "up", "pid": None}
    page = {"validators": [outsider, {"url": url, "host_is": "up", "pid": 7}], "seed": SEED}
    with ServerThread(StatusPages(page)) as server:
        assert find_target([server.url]).validators == (url,)


def test_nobody_answers() -> None:
    with pytest.raises(BadInput, match=r"expected a validator or a testnet at http://127\.0\.0\.1:9$"):
        find_target(["http://127.0.0.1:9"])


def test_a_scenarios_load_is_planned_with_the_targets_parameters(url: str, tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(SCENARIO)
    planned = plan_of_scenario(find_target([url]), file, (), None)
    assert (planned.seed, planned.load.user_count, planned.parameters.max_ttl) == (SEED, 3, 99)
    with pytest.raises(
        BadInput, match=r"user 0's account 0x[0-9a-f]{40} holds nothing on chain fake; expected .* seed 5"
    ):
        plan_of_scenario(find_target([url]), file, (), 5)
    file.write_text("name: tiny\nvalidators: 4\nstop: {height: 5}\n")
    with pytest.raises(BadInput, match=r"load.users: the scenario has no load; expected at least one group"):
        plan_of_scenario(find_target([url]), file, (), None)


def test_a_workload_is_planned_from_its_options(url: str) -> None:
    target = find_target([url])
    planned = plan_of_workload(target, "flood", 3, 50, ["timers=7"], SEED)
    (group,) = planned.load.users
    assert (group.workload, group.count, group.interval_ms, group.options) == ("flood", 3, 50, {"timers": 7})
    assert {each.arrival for each in planned.made_open().load.users} == {"open"}
    assert [planned.scaled(factor).load.users[0].interval_ms for factor in (0.5, 2, 1_000)] == [100, 25, 1]
    with pytest.raises(BadInput, match="user 5's account"):
        plan_of_workload(target, "flood", 6, 50, [], SEED)


def test_a_workload_of_ones_own_is_planned_from_its_file(url: str, tmp_path: Path) -> None:
    (tmp_path / "pays.py").write_text(PAYS)
    planned = plan_of_workload(find_target([url]), str(tmp_path / "pays.py"), 3, 50, [], SEED)
    assert planned.load.titles == ["pays"] * 3
    with pytest.raises(
        BadInput, match=r"^--workload: load\.users\[0\]\.workload: .*pay\.py: no such file; did you mean"
    ):
        plan_of_workload(find_target([url]), str(tmp_path / "pay.py"), 3, 50, [], SEED)


def test_locust_users_of_ones_own_are_a_load(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text("a = 1\n")
    file = tmp_path / "tiny.yaml"
    file.write_text("name: tiny\nvalidators: 4\nload: {locust: {files: ./own.py, users: 5}}\nstop: {height: 5}\n")
    target = find_target([url])
    planned = plan_of_scenario(target, file, (), None)
    write_plan(target, planned, 9, tmp_path / "plan.json")
    folder = tmp_path / "plan.locustfiles"
    command = capsys.readouterr().out.split()
    assert command[:3] == ["locust", "--locustfile", f"{folder / 'stampede_users.py'},{folder / 'own.py'}"]
    assert command[5:] == ["--users", "5", "--spawn-rate", "5", "--stop-timeout", str(STOP_TIMEOUT_S)]
    assert (folder / "own.py").read_text() == "a = 1\n"
    assert RunPlan.read(tmp_path / "plan.json").load == planned.load.model_copy(update={"processes": 1})
    assert main(["load", str(file), "--target", url, "--find-knee"]) == ExitCode.BAD_INPUT
    assert "--find-knee: not with load.locust" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("workload", "option", "words"),
    [
        ("flod", "timers=7", "unknown workload 'flod'; did you mean flood"),
        ("flood", "timers", "--option timers: expected NAME=VALUE"),
        ("flood", "timers=[", "the value is no YAML"),
        ("flood", "timers=0", "options.timers"),
        ("flood", "tmers=1", "tmers"),
    ],
)
def test_a_wrong_workload_is_one_line(url: str, workload: str, option: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        plan_of_workload(find_target([url]), workload, 1, 50, [option], SEED)
    assert words in str(caught.value) and "\n" not in str(caught.value)
