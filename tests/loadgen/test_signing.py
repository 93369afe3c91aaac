"""Processes that sign: the same signatures as users make, and nothing left of them."""

from __future__ import annotations

import pytest

from loadgen.signing import SigningError, SigningPool
from loadgen.workloads import LoadPlan, LoadUser, Observation
from loadgen.workloads.user import Outgoing
from validator.chain.transactions import parse

CHAIN_ID = "chain"
SEED = 3
START = Observation(1, 0, 1_000_000, 1_000_000, 1_000_000)


def users(count: int) -> list[LoadUser]:
    plan = LoadPlan.model_validate({"users": [{"workload": "transfer", "count": count}]})
    return plan.build_users(SEED, CHAIN_ID)


def outgoing(count: int) -> list[Outgoing]:
    return [each for user in users(count) for each in user.next_outgoing(START)]


def sign_again(pool: SigningPool) -> list[bytes]:
    """The same batch, as a process's second one."""
    batch = outgoing(30)
    pool.sign(batch)
    return [each.wire for each in batch]


def test_signatures_are_the_users_own() -> None:
    pool = SigningPool(SEED, 1)
    try:
        batch = outgoing(30)
        pool.sign(batch)
        assert [each.wire for each in batch] == [wire for user in users(30) for wire in user.next_transactions(START)]
        assert all(parse(each.wire, CHAIN_ID) for each in batch)
        wires = [each.wire for each in batch]
        assert sign_again(pool) == wires
        pool.sign(batch)
        assert [each.wire for each in batch] == wires, "what is signed is not signed again"
    finally:
        pool.close()


def test_a_process_that_ended_is_an_error_and_not_a_missing_signature() -> None:
    pool = SigningPool(SEED, 1)
    (process,) = pool._processes
    process.kill()
    process.wait()
    with pytest.raises(SigningError, match="a process that signs has ended"):
        pool.sign(outgoing(1))
    pool.close()


def test_the_processes_end_with_their_pool() -> None:
    pool = SigningPool(SEED, 2)
    processes = list(pool._processes)
    assert [process.poll() for process in processes] == [None, None]
    pool.close()
    assert [process.returncode for process in processes] == [0, 0]
