"""Loads on a master and workers: who has which user, and what is counted of whom."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.common.checkout import ROOT
from loadgen.numbers import Claim, NumberPool
from loadgen.runplan import LOCUSTFILE, RunPlan
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import FakeChain, FakePages, ServerThread
from tests.loadgen.test_run import USERS, LoadProcess, wait_for, write_plan

EVERYBODY = 6
SETTLING = 10
"""Turns of everybody after which a worker that came back has heard that its users are others'."""


def test_numbers_are_given_in_order_and_never_twice() -> None:
    pool = NumberPool(3)
    for worker in ("a", "b", "a", "b"):
        pool.claim(worker)
    assert pool.granted() == [("a", Claim(0, True)), ("b", Claim(1, True)), ("a", Claim(2, True))]
    assert pool.granted() == []
    pool.release("b", 0)
    assert pool.granted() == [], "who has not got a number cannot give it back"
    pool.release("a", 0)
    assert pool.granted() == [("b", Claim(0, False))]


def test_the_numbers_and_claims_of_a_lost_worker_are_others() -> None:
    pool = NumberPool(2)
    for worker in ("a", "b", "a", "c"):
        pool.claim(worker)
    pool.granted()
    assert pool.holders == {"a", "b", "c"}
    pool.lose("a")
    assert pool.granted() == [("c", Claim(0, False))]
    assert pool.holders == {"b", "c"}
    pool.release("a", 0)
    pool.claim("b")
    assert pool.granted() == [], "it came back, and its number is another's"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_no_number_is_at_two_workers(seed: int) -> None:
    pool, draw = NumberPool(5), random.Random(seed)
    held: dict[int, str] = {}
    for _ in range(300):
        worker, step = draw.choice("abc"), draw.random()
        if step < 0.5:
            pool.claim(worker)
        elif step < 0.9:
            own = [number for number, holder in held.items() if holder == worker]
            if own:
                number = draw.choice(own)
                pool.release(worker, number)
                del held[number]
        else:
            pool.lose(worker)
            held = {number: holder for number, holder in held.items() if holder != worker}
        for holder, claim in pool.granted():
            assert claim.number not in held
            held[claim.number] = holder
    for worker in "abc":
        pool.lose(worker)
    for _ in range(5):
        pool.claim("z")
    assert sorted(claim.number for _, claim in pool.granted()) == list(range(5)), "none was lost"


@contextmanager
def worker_of(plan: Path, load: LoadProcess, locustfile: str = str(LOCUSTFILE)) -> Iterator[subprocess.Popen[bytes]]:
    """A worker from elsewhere, as a Locust user starts it."""
    file = RunPlan.read(plan).port_file
    wait_for(load.process, file.exists)
    command = [sys.executable, "-m", "locust", "--locustfile", locustfile, "--worker", "--loglevel", "WARNING"]
    command += ["--master-host", "127.0.0.1", "--master-port", file.read_text().strip()]
    environment = {**os.environ, "TMPDIR": str(plan.parent)}  # it writes the files of its master there, and leaves them
    worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait(HANGS_AFTER_S)


def wait_for_everybody(chain: FakeChain, users: int = EVERYBODY) -> None:
    """Until each of so many users has sent something from now on."""
    with chain.changed:
        begun = len(chain.taken)
        assert chain.changed.wait_for(
            lambda: len({transaction.sender for _, transaction in chain.taken[begun:]}) == users, HANGS_AFTER_S
        )


@pytest.mark.slow
def test_a_master_and_its_workers_share_the_users(tmp_path: Path) -> None:
    chain = FakeChain()
    with (
        ServerThread(FakePages(chain, 0)) as server,
        LoadProcess(write_plan(tmp_path, [server.url]), "--workers", "2") as load,
    ):
        wait_for_everybody(chain)
        load.process.send_signal(signal.SIGINT)
        assert load.wait() == 0, load.output
        statistics = load.statistics()
    assert chain.refused == []
    assert (statistics.failures, statistics.transactions_rejected, statistics.errors) == (0, 0, {})
    assert statistics.transactions_sent == len(chain.taken), "nothing that was sent is missing in the counts"
    assert sum(sends.sent for sends in statistics.sends.workloads.values()) == len(chain.taken)
    assert sum(bucket.requests for bucket in statistics.timeline.buckets.values()) == statistics.requests


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "cut off"])
def test_others_take_over_the_users_of_a_lost_worker(tmp_path: Path, how: signal.Signals) -> None:
    chain = FakeChain()
    plan = write_plan(tmp_path, None, endpoints_file=str(tmp_path / "endpoints.json"))
    with (
        ServerThread(FakePages(chain, 0)) as server,
        LoadProcess(plan, "--listen", "127.0.0.1:0", "--expected", "2") as load,
        worker_of(plan, load) as first,
        worker_of(plan, load),
    ):
        (tmp_path / "endpoints.json").write_text(f'["{server.url}"]')
        wait_for_everybody(chain)
        first.send_signal(how)
        wait_for_everybody(chain)
        if how == signal.SIGSTOP:
            with worker_of(plan, load) as third:
                first.send_signal(signal.SIGCONT)
                wait_for_everybody(chain)
                third.send_signal(signal.SIGTERM)
                third.wait(HANGS_AFTER_S)
        for _ in range(SETTLING):
            wait_for_everybody(chain)
        refused = len(chain.refused)
        for _ in range(SETTLING):
            wait_for_everybody(chain)
        assert len(chain.refused) == refused, "no user is at two workers"
        (tmp_path / "endpoints.json").unlink()
        load.process.send_signal(signal.SIGTERM)
        assert load.wait() == 0, load.output
        statistics = load.statistics()
    (lost,) = statistics.lost
    assert lost.startswith("worker ") and lost.endswith(" was lost; others took over its users")
    assert lost.encode() in load.output
    assert statistics.transactions_sent > EVERYBODY
    nonces = sorted((transaction.sender, transaction.nonce) for _, transaction in chain.taken)
    assert len(set(nonces)) == len(nonces), "each nonce once, whoever sent it"


def test_a_master_without_a_plan_ends_with_one_line() -> None:
    command = [sys.executable, "-m", "locust", "--locustfile", str(LOCUSTFILE), "--master", "--headless"]
    ended = subprocess.run(
        [*command, "--master-bind-host", "127.0.0.1", "--master-bind-port", "0", "--loglevel", "ERROR"],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.endswith("loadgen: no plan; expected --plan FILE or STAMPEDE_LOAD_PLAN\n")


def test_users_are_as_many_as_the_plan_says() -> None:
    assert sum(int(str(group["count"])) for group in USERS) == EVERYBODY
