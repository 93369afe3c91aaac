"""The filled chains of benchmarks are chains like any other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.benchmarks.test_simulator import load
from tests.validator.chains import index_contents
from validator.chain.genesis import Policy
from validator.primitives.params import Parameters
from validator.pvm.runtime.host import ScheduleRequest
from validator.scheduler.index import SchedulerIndex
from validator.state.working_set import World

FILLED = 50
PER_HEIGHT = 10


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = load("chains", monkeypatch)
    monkeypatch.setattr(module, "SCHEDULED_PER_BLOCK", 20)
    return module


@pytest.mark.parametrize("policy", Policy)
def test_a_filled_chain_has_the_index_of_its_state_and_goes_on(chains: Any, policy: Policy) -> None:
    with chains.BenchmarkChain(Parameters(), chains.actors(3), policy=policy) as chain:

        def timers(first: int) -> Iterator[tuple[Any, ScheduleRequest]]:
            for number in range(FILLED):
                request = ScheduleRequest(
                    first + number // PER_HEIGHT, b"[]", gas_limit=1_000, max_fee_per_cycle=10**12
                )
                yield chains.actor_address(number % 3), request

        chain.fill(FILLED, timers)
        assert chain.next_height == 4, "20 timers a block"
        for _ in range(FILLED // PER_HEIGHT):
            assert index_contents(chain.index) == index_contents(SchedulerIndex.rebuild(chain.genesis, chain.view))
            assert len(chain.block().receipts.fires) == PER_HEIGHT


@pytest.mark.parametrize("count", [2, 4, 21])
def test_a_filling_has_as_many_timers_as_it_says(chains: Any, count: int) -> None:
    with chains.BenchmarkChain(Parameters(), chains.actors(1)) as chain:
        requests = [(chains.actor_address(0), ScheduleRequest(9, b"[]"))] * 3
        with pytest.raises(AssertionError, match=f"{count} timers were said"):
            chain.fill(count, lambda first: requests)


def test_a_filling_that_advances_the_index_outside_of_a_block_is_found(chains: Any) -> None:
    """Planted, as a filling once did."""

    class Planted(chains.BenchmarkChain):
        @contextmanager
        def block_without_transactions(self) -> Iterator[World]:
            world = World(self.view)
            yield world
            self.index.advance(world.changes())

    with (
        Planted(Parameters(), chains.actors(1)) as chain,
        pytest.raises(IndexError),
    ):
        chain.fill(1, lambda first: [(chains.actor_address(0), ScheduleRequest(first, b"[]"))])
