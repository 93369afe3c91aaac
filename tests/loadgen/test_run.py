"""A real Locust run against small endpoints on real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

from cluster.common.errors import ExitCode
from cluster.common.files import write_atomically
from loadgen import run
from loadgen.runplan import PlanError, RunPlan, Statistics
from loadgen.workloads import LoadPlan
from loadgen.workloads.measures import send_key
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import CHAIN_ID, FakeChain, FakePages, ServerThread
from validator.chain.transactions import Call, parse
from validator.node.events import SubmitResult

LOOK_S = 0.05
SEED = 7
USERS = [
    {"workload": "heartbeat", "count": 3, "interval_ms": 40},
    {"workload": "flood", "count": 2, "interval_ms": 60, "options": {"timers": 5}},
    {"workload": "transfer", "count": 1, "interval_ms": 50},
]


def write_plan(folder: Path, endpoints: list[str] | None, **changes: Any) -> Path:
    """A plan file; statistics go to ``stats.json`` beside it."""
    plan = {
        "chain_id": CHAIN_ID,
        "seed": SEED,
        "endpoints": endpoints,
        "load": {"processes": 1, "users": USERS},
        "run_time_s": 60,
        "stats_file": str(folder / "stats.json"),
    }
    file = folder / "plan.json"
    file.write_text(json.dumps(plan | changes))
    return file


class LoadProcess:
    """``python -m loadgen.run``; whatever happens in a test, nothing of it is left behind."""

    def __init__(self, plan: Path, *arguments: str) -> None:
        self.folder = plan.parent
        self.process = subprocess.Popen(
            [sys.executable, "-m", "loadgen.run", "--plan", str(plan), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.output = b""

    def __enter__(self) -> LoadProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=HANGS_AFTER_S)

    def wait(self) -> int:
        """The exit code, once this process and all that hold its output open (the Locust processes) have ended."""
        self.output, _ = self.process.communicate(timeout=HANGS_AFTER_S)
        return self.process.returncode

    def statistics(self) -> Statistics:
        assert sorted(os.listdir(self.folder)) == ["plan.json", "stats.json"]
        return Statistics.model_validate_json((self.folder / "stats.json").read_bytes())


QUITTER = """
import os

from locust import User, task

class Quitter(User):
    @task
    def quit_without_a_word(self):
        os._exit(0)
"""


def test_a_process_that_ends_without_its_statistics_did_not_do_its_work(tmp_path: Path) -> None:
    """Its exit code is 0, and it may have been told to: a Locustfile of the user's does what it likes."""
    load = {"processes": 1, "users": USERS, "locust": [{"name": "quitter", "source": QUITTER}]}
    with (
        ServerThread(FakePages(FakeChain(), 0)) as server,
        LoadProcess(write_plan(tmp_path, [server.url], load=load)) as process,
    ):
        assert process.wait() == 1, process.output
        statistics = process.statistics()
    assert (statistics.is_whole, statistics.lost) == (False, ["Locust process 0 ended without its statistics"])


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_process_that_ends_well_too_early_did_not_do_its_work(tmp_path: Path, processes: int) -> None:
    chain = FakeChain()
    with (
        ServerThread(FakePages(chain, 0)) as server,
        LoadProcess(write_plan(tmp_path, [server.url], load={"processes": processes, "users": USERS})) as load,
    ):
        for user in LoadPlan.model_validate({"users": USERS}).build_users(SEED, CHAIN_ID)[:processes]:
            assert chain.wait_for_sender(user.address, HANGS_AFTER_S), "each process has begun its load"
        assert chain.wait_for_taken(5, HANGS_AFTER_S)
        psutil.Process(load.process.pid).children()[-1].terminate()
        assert load.wait() == 1
        statistics = load.statistics()
    assert b"a Locust process ended early with exit code 0" in load.output
    assert not statistics.is_whole and statistics.transactions_sent >= 5


def test_load_survives_an_endpoint_and_ends_on_sigterm(tmp_path: Path) -> None:
    chain = FakeChain()
    with (
        ServerThread(FakePages(chain, 0)) as first,
        ServerThread(FakePages(chain, 1)) as second,
        LoadProcess(write_plan(tmp_path, [first.url, second.url])) as load,
    ):
        assert chain.wait_for_taken(5, HANGS_AFTER_S, endpoint=0)
        assert chain.wait_for_taken(5, HANGS_AFTER_S, endpoint=1)
        first.close()
        at_second = sum(1 for endpoint, _ in chain.taken if endpoint == 1)
        assert chain.wait_for_taken(at_second + 30, HANGS_AFTER_S, endpoint=1)
        load.process.send_signal(signal.SIGTERM)
        assert load.wait() == 0
        statistics = load.statistics()
    users = LoadPlan.model_validate({"users": USERS}).build_users(SEED, CHAIN_ID)
    senders = {transaction.sender for _, transaction in chain.taken}
    assert senders == {user.address for user in users}
    actors = {transaction.action.to for _, transaction in chain.taken if isinstance(transaction.action, Call)}
    assert actors == {user.actor for user in users if user.workload != "transfer"}
    assert not [reason for reason in chain.refused if "nonce" not in reason], chain.refused
    assert statistics.transactions_sent >= len(chain.taken) - len(users)
    assert statistics.transactions_rejected <= len(chain.refused)
    assert statistics.requests > statistics.transactions_sent
    assert 0 < statistics.failures < statistics.requests
    assert sum(statistics.errors.values()) == statistics.failures
    buckets = statistics.timeline.buckets.values()
    assert sum(bucket.requests for bucket in buckets) == statistics.requests
    assert sum(bucket.failures for bucket in buckets) == statistics.failures
    assert sum(sum(bucket.times.values()) for bucket in buckets) == statistics.requests - statistics.failures
    sends = statistics.sends.workloads
    assert sends.keys() == {"heartbeat", "flood", "transfer"}
    noted = [key for each in sends.values() for key in each.due]
    keys = {bytes(user.address): bytes(user._key.verify_key) for user in users}
    taken = {send_key(keys[transaction.sender], transaction.nonce) for _, transaction in chain.taken}
    assert taken <= set(noted), "every transaction of the chain is one that was to be sent"


@pytest.mark.slow
def test_locusts_web_page_is_served_while_the_load_runs(tmp_path: Path) -> None:
    chain = FakeChain()
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        ServerThread(FakePages(chain, 0)) as server,
        LoadProcess(write_plan(tmp_path, [server.url]), "--ui", address) as load,
    ):
        assert chain.wait_for_taken(30, HANGS_AFTER_S), "it starts by itself"
        with urlopen(f"http://{address}/", timeout=HANGS_AFTER_S) as page:
            assert (page.status, b"Locust" in page.read()) == (200, True)
        with urlopen(f"http://{address}/stats/requests", timeout=HANGS_AFTER_S) as page:
            found = json.load(page)
        assert (found["state"], found["user_count"]) == ("running", 6)
        assert "/transactions" in {each["name"] for each in found["stats"]}
        load.process.send_signal(signal.SIGTERM)
        assert load.wait() == 0
        assert load.statistics().transactions_sent >= 30


@pytest.mark.slow
def test_several_processes_share_the_users(tmp_path: Path) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as server:
        plan = write_plan(tmp_path, [server.url], load={"processes": 2, "users": USERS})
        with LoadProcess(plan) as load:
            count = 40
            while chain.wait_for_taken(count, HANGS_AFTER_S) and len({each.sender for _, each in chain.taken}) < 6:
                count = len(chain.taken) + 1  # one process may send all of these before the other one begins
            load.process.send_signal(signal.SIGINT)
            assert load.wait() == 0
            statistics = load.statistics()
    assert len({transaction.sender for _, transaction in chain.taken}) == 6
    assert chain.refused == []
    assert (statistics.failures, statistics.transactions_rejected) == (0, 0)
    assert statistics.transactions_sent >= 40


@pytest.mark.slow
@pytest.mark.parametrize("signers", [0, 2])
def test_clients_send_for_several_users_together(tmp_path: Path, signers: int) -> None:
    chain = FakeChain()
    shared = {"processes": 1, "users": USERS, "users_per_client": 4, "signers": signers}
    with (
        ServerThread(FakePages(chain, 0)) as server,
        LoadProcess(write_plan(tmp_path, [server.url], load=shared)) as load,
    ):
        assert chain.wait_for_taken(400, HANGS_AFTER_S)
        load.process.send_signal(signal.SIGTERM)
        assert load.wait() == 0, "with the processes that sign, which hold its output open"
        statistics = load.statistics()
    assert {transaction.sender for _, transaction in chain.taken} == {
        user.address for user in LoadPlan.model_validate({"users": USERS}).build_users(SEED, CHAIN_ID)
    }
    assert (chain.refused, statistics.failures) == ([], 0)
    assert statistics.transactions_sent == len(chain.taken)
    assert statistics.requests < len(chain.taken), "accounts and transactions of several users go in one request"
    assert sum(each.late for each in statistics.sends.workloads.values()) == 0


@pytest.mark.slow
def test_a_load_without_the_process_that_signs_ends_with_one_line(tmp_path: Path) -> None:
    chain = FakeChain()
    shared = {"processes": 1, "users": USERS, "signers": 1}
    with (
        ServerThread(FakePages(chain, 0)) as server,
        LoadProcess(write_plan(tmp_path, [server.url], load=shared)) as load,
    ):
        assert chain.wait_for_taken(1, HANGS_AFTER_S)
        (signer,) = [
            each
            for each in psutil.Process(load.process.pid).children(recursive=True)
            if "loadgen.signing" in each.cmdline()
        ]
        signer.kill()
        assert load.wait() == 1
    assert b"loadgen: a process that signs has ended\n" in load.output


def wait_for(process: subprocess.Popen[bytes] | None, holds: Callable[[], bool]) -> None:
    """Until something holds, which nothing changes any more once the process has ended."""
    assert process is not None
    for _ in range(int(HANGS_AFTER_S / LOOK_S)):
        has_ended = process.poll() is not None
        if holds():
            return
        assert not has_ended, "it has ended"
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
    pytest.fail("it did not come")


@pytest.mark.slow
def test_processes_make_themselves_ready_and_wait_for_the_endpoints(tmp_path: Path) -> None:
    chain, endpoints, folder = FakeChain(), tmp_path / "endpoints.json", tmp_path / "folder"
    folder.mkdir()
    plan = write_plan(folder, None, endpoints_file=str(endpoints), load={"processes": 2, "users": USERS})
    with ServerThread(FakePages(chain, 0)) as server, LoadProcess(plan) as load:
        for process in range(2):
            wait_for(load.process, RunPlan.read(plan).ready_file(process).exists)
        assert chain.taken == []
        write_atomically(endpoints, json.dumps([server.url]))
        assert chain.wait_for_taken(40, HANGS_AFTER_S)
        load.process.send_signal(signal.SIGINT)
        assert load.wait() == 0
        statistics = load.statistics()
    assert len({transaction.sender for _, transaction in chain.taken}) == 6
    assert statistics.failures == 0


@pytest.mark.slow
def test_a_validator_that_moves_gets_its_load_at_its_new_endpoint(tmp_path: Path) -> None:
    chain, endpoints, folder = FakeChain(), tmp_path / "endpoints.json", tmp_path / "folder"
    folder.mkdir()
    plan = write_plan(folder, None, endpoints_file=str(endpoints), load={"processes": 1, "users": USERS})
    with ServerThread(FakePages(chain, 0)) as first, ServerThread(FakePages(chain, 1)) as moved:
        write_atomically(endpoints, json.dumps([first.url]))
        with LoadProcess(plan) as load:
            assert chain.wait_for_taken(5, HANGS_AFTER_S, endpoint=0)
            write_atomically(endpoints, json.dumps([moved.url]))
            first.close()
            assert chain.wait_for_taken(30, HANGS_AFTER_S, endpoint=1), "no other endpoint was ever given"
            write_atomically(endpoints, "no list")  # somebody's mistake: the load goes on with what it knows
            assert chain.wait_for_taken(300, HANGS_AFTER_S, endpoint=1)
            load.process.send_signal(signal.SIGTERM)
            assert load.wait() == 0
            statistics = load.statistics()
    assert statistics.failures < statistics.requests


@pytest.mark.slow
def test_a_load_that_waits_for_endpoints_can_be_stopped(tmp_path: Path) -> None:
    with LoadProcess(write_plan(tmp_path, None, endpoints_file=str(tmp_path / "none.json"))) as load:
        wait_for(load.process, RunPlan.read(tmp_path / "plan.json").ready_file(0).exists)
        load.process.send_signal(signal.SIGTERM)
        assert load.wait() == 0
        assert load.statistics() == Statistics()


@pytest.mark.parametrize(
    "content", ["[", *(pytest.param(text, marks=pytest.mark.slow) for text in ('{"a": 1}', '["127.0.0.1:80"]'))]
)
def test_endpoints_that_are_none_end_the_load_with_one_line(tmp_path: Path, content: str) -> None:
    endpoints = tmp_path / "endpoints.json"
    endpoints.write_text(content)
    with LoadProcess(write_plan(tmp_path, None, endpoints_file=str(endpoints))) as load:
        assert load.wait() == 1
    first, *rest = load.output.decode().splitlines()
    assert first.startswith(f"loadgen: {endpoints}: no list of endpoints: ")
    assert rest == ["loadgen: a Locust process ended early with exit code 2"]


def test_no_locust_outlives_a_killed_run(tmp_path: Path) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as server, LoadProcess(write_plan(tmp_path, [server.url])) as load:
        assert chain.wait_for_taken(1, HANGS_AFTER_S)
        load.process.kill()
        assert load.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_the_end_of_input_ends_the_load(tmp_path: Path) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as server:
        plan = write_plan(tmp_path, [server.url])
        with LoadProcess(plan, "--until-eof") as load:
            assert chain.wait_for_taken(1, HANGS_AFTER_S)
            assert load.wait() == 0  # communicate() closes the input
            assert load.statistics().transactions_sent > 0


@pytest.mark.slow
def test_the_time_limit_ends_the_load(tmp_path: Path) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as server:
        for run_time_s in (2**power for power in range(8)):  # a busy machine sends nothing in a second
            with LoadProcess(write_plan(tmp_path, [server.url], run_time_s=run_time_s)) as load:
                assert load.wait() == 0
                if load.statistics().transactions_sent:
                    break
    assert chain.taken


@pytest.mark.slow
def test_a_recovering_validator_is_passed_over(tmp_path: Path) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as first, ServerThread(FakePages(chain, 1)) as second:
        first.pages.ready = False
        with LoadProcess(write_plan(tmp_path, [first.url, second.url])) as load:
            assert chain.wait_for_taken(10, HANGS_AFTER_S)
            load.process.send_signal(signal.SIGTERM)
            assert load.wait() == 0
            statistics = load.statistics()
    assert {endpoint for endpoint, _ in chain.taken} == {1}
    assert any("503" in reason for reason in statistics.errors)


def test_no_users_is_no_load(tmp_path: Path) -> None:
    with LoadProcess(write_plan(tmp_path, ["http://127.0.0.1:1"], load={"users": []})) as load:
        assert load.wait() == 0
        assert load.statistics() == Statistics()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"endpoints": None}, "plan: expected either endpoints or endpoints_file"),
        ({"endpoints_file": "a.json"}, "plan: expected either endpoints or endpoints_file"),
        ({"endpoints": []}, "endpoints: List should have at least 1 item"),
        ({"endpoints": ["127.0.0.1:80"]}, "endpoints: '127.0.0.1:80' is no endpoint"),
        ({"seed": -1}, "seed: Input should be greater than or equal to 0"),
        ({"params": {"TX_BASE_CYCLES": 0}}, "params: TX_BASE_CYCLES: 0 is out of range"),
        ({"load": {"users": [{"workload": "x"}]}}, "load.users.0.workload: unknown workload 'x'"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
    ],
)
def test_wrong_plans(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    plan = write_plan(tmp_path, **({"endpoints": ["http://127.0.0.1:1"]} | changes))
    with pytest.raises(PlanError) as caught:
        RunPlan.read(plan)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_plan_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    with LoadProcess(tmp_path / "none.json") as load:
        assert load.wait() == 2
    assert load.output.decode() == f"loadgen: {tmp_path / 'none.json'}: cannot be read: No such file or directory\n"


def run_until_both_sent(tmp_path: Path, load: dict[str, Any], early: bytes, late: bytes) -> tuple[FakeChain, bool]:
    """Run a load until a user sends. Also returns whether all transactions are of two users, one after the other."""
    chain = FakeChain()
    with (
        ServerThread(FakePages(chain, 0)) as server,
        LoadProcess(write_plan(tmp_path, [server.url], load=load)) as process,
    ):
        assert chain.wait_for_sender(late, HANGS_AFTER_S)
        process.process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    senders = [transaction.sender for _, transaction in chain.taken]
    assert {early, late} == set(senders)
    return chain, senders == sorted(senders, key=[early, late].index)


@pytest.mark.slow
def test_a_crash_of_the_load_has_its_own_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*_: object, **__: object) -> int:
        raise KeyError("planted")

    monkeypatch.setattr(run, "_run", crash)
    assert run.main(["--plan", str(write_plan(tmp_path, ["http://127.0.0.1:1"]))]) == ExitCode.CRASH
    assert capsys.readouterr().err.endswith("KeyError: 'planted'\n")


def test_users_come_and_go_by_height(tmp_path: Path) -> None:
    """The chain has one height more each time that it is asked."""
    users = [
        {"workload": "transfer", "interval_ms": 40, "until_height": 3},
        {"workload": "transfer", "interval_ms": 40, "from_height": 4},
    ]
    early, late = (user.address for user in LoadPlan.model_validate({"users": users}).build_users(SEED, CHAIN_ID))
    chain, is_in_turn = run_until_both_sent(tmp_path, {"users": users}, early, late)
    assert is_in_turn, "the one left before the other came"
    assert chain.height >= 4


@pytest.mark.slow
def test_groups_have_phases_of_their_own(tmp_path: Path) -> None:
    """The load's phases would let nobody act."""
    users = [
        {"workload": "transfer", "interval_ms": 40, "phases": [{"kind": "pause", "from_height": 3}]},
        {"workload": "transfer", "interval_ms": 40, "phases": [{"kind": "pause", "until_height": 4}]},
        {"workload": "transfer", "interval_ms": 40},
    ]
    load = {"users": users, "phases": [{"kind": "pause"}]}
    early, late, _ = (user.address for user in LoadPlan.model_validate(load).build_users(SEED, CHAIN_ID))
    _, is_in_turn = run_until_both_sent(tmp_path, load, early, late)
    assert is_in_turn, "one began to pause before the other ceased to"


@pytest.mark.slow
def test_a_load_that_goes_on_is_where_it_would_be(tmp_path: Path) -> None:
    chain = FakeChain()
    phase = {"kind": "ramp", "from_ms": 0, "until_ms": 3_600_000, "from_rate": 0.0, "to_rate": 0.0}
    load_plan = {"users": [{"workload": "transfer", "interval_ms": 40, "arrival": "open"}], "phases": [phase]}
    hour_ago = int(time.time() * 1_000) - 3_600_000
    with ServerThread(FakePages(chain, 0)) as server:
        plan = write_plan(tmp_path, [server.url], load=load_plan, began_epoch_ms=hour_ago)
        with LoadProcess(plan) as load:
            assert chain.wait_for_taken(10, HANGS_AFTER_S), "the phase without turns is over"
            load.process.send_signal(signal.SIGTERM)
            assert load.wait() == 0
            (sends,) = load.statistics().sends.workloads.values()
    assert sends.skipped < 1_000, "the 90,000 turns that were due while nobody was there are left out"


class HeldPages(FakePages):
    """An endpoint that keeps the transactions of some senders waiting for a while."""

    def __init__(self, chain: FakeChain, held: Collection[bytes]) -> None:
        super().__init__(chain, 0)
        self._held = held
        self._released: asyncio.Event | None = None
        self.waiting = threading.Event()
        self.passes = False

    async def submit(self, transactions: list[bytes]) -> Sequence[SubmitResult]:
        if not self.passes and parse(transactions[0], CHAIN_ID).sender in self._held:
            self._released = self._released or asyncio.Event()
            self.waiting.set()
            await self._released.wait()
        return await super().submit(transactions)

    def release(self) -> None:
        """On the server's loop."""
        self.passes = True
        if self._released is not None:
            self._released.set()


def test_a_server_that_stalls_hides_nothing_from_an_open_loop(tmp_path: Path) -> None:
    """A closed user has no turn at all while it waits for the server. The turns of an open one are due all the same."""
    load = {
        "users": [
            {"workload": "transfer", "interval_ms": 40, "arrival": "open"},
            {"workload": "flood", "interval_ms": 40, "options": {"timers": 1}},
            {"workload": "heartbeat", "interval_ms": 40, "options": {"beats": 1}},
        ]
    }
    opened, closed, _ = (user.address for user in LoadPlan.model_validate(load).build_users(SEED, CHAIN_ID))
    chain = FakeChain()
    with (
        ServerThread(HeldPages(chain, {opened, closed})) as server,
        LoadProcess(write_plan(tmp_path, [server.url], load=load)) as process,
    ):
        assert server.pages.waiting.wait(HANGS_AFTER_S)
        assert chain.wait_for_taken(len(chain.taken) + 30, HANGS_AFTER_S), "the third user's turns pass the time"
        server.call(server.pages.release)
        for sender in (opened, closed):
            assert chain.wait_for_sender(sender, HANGS_AFTER_S)
        assert chain.wait_for_taken(len(chain.taken) + 20, HANGS_AFTER_S)
        process.process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        sends = process.statistics().sends.workloads
    due = {name: sorted(sends[name].due.values()) for name in ("transfer", "flood")}
    gaps = {name: max(after - before for before, after in pairwise(found)) for name, found in due.items()}
    assert gaps["flood"] >= 20 * 40, "nothing was asked for, so nothing was late"
    assert sends["flood"].late == 0
    assert sends["transfer"].late >= 10
    assert gaps["transfer"] == 40, "whatever became of the turns before"


LOADED = """
import sys
sys.argv[1:] = {arguments!r}
from loadgen import locust_process
if not locust_process.needs_web(sys.argv):
    locust_process.load_less()
import locust.main, loadgen.locustfile
print("flask" in sys.modules)
"""


@pytest.mark.parametrize(
    ("arguments", "loads"),
    [
        (["--locustfile", "a.py", "--headless"], "False"),
        (["--locustfile", "a.py", "--autostart"], "True"),
        (["--locustfile", "a.py,b.py", "--headless"], "True"),
    ],
)
def test_a_locust_without_a_web_page_loads_no_web_server(arguments: list[str], loads: str) -> None:
    command = [sys.executable, "-c", LOADED.format(arguments=arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == loads
