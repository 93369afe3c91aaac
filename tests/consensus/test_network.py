"""Whole networks of engines under seeded faults: safety at every step, progress after the faults heal."""

from __future__ import annotations

import pytest

from consensus.hotstuff import HotStuff
from consensus.interface import Effect, Finalized, Propose, VotingConfig
from consensus.keys import Ed25519Scheme
from consensus.messages import MAX_REQUESTED_VIEWS
from consensus.simplex import Simplex
from consensus.types import View
from consensus.voting import VotingEngine
from tests.consensus.network import Faults, Host, MakeEngine, Network

DELAY_MS = 10
either = pytest.mark.parametrize("engine", [Simplex, HotStuff])
either_slowly = pytest.mark.parametrize("engine", [Simplex, pytest.param(HotStuff, marks=pytest.mark.slow)])
"""Of tests that take seconds; HotStuff has the same with four validators."""


@either
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 10])
def test_without_faults_every_view_is_final(n: int, engine: MakeEngine) -> None:
    network = Network(n, seed=1, make_engine=engine)
    if n == 1:
        network.faults.execution_ms = (1, 1)
    network.run(until_ms=1_000)
    chain = network.chain()
    assert network.lowest_final_view() >= 40
    assert [block.view for block in chain] == list(range(len(chain))), "no view was skipped"
    assert not network.nullifications
    assert not network.misbehaviour()


def proposed_and_finalized(n: int, engine: MakeEngine) -> tuple[Network, dict[int, int], dict[tuple[int, int], int]]:
    """When each view's block was asked for, and when it was final where, on a network with a constant delay."""
    network = Network(n, seed=2, make_engine=engine)
    proposed: dict[int, int] = {}
    finalized: dict[tuple[int, int], int] = {}

    def watch(host: Host, effect: Effect) -> None:
        if isinstance(effect, Propose):
            proposed[effect.view] = network.now_ms
        if isinstance(effect, Finalized):
            finalized[host.index, effect.certificate.view] = network.now_ms

    network.on_effect = watch
    network.run(until_ms=500)
    assert len(proposed) > 20
    return network, proposed, finalized


@pytest.mark.parametrize("n", [4, 7, 16])
def test_in_simplex_a_block_takes_two_delays_and_finality_three(n: int) -> None:
    network, proposed, finalized = proposed_and_finalized(n, Simplex)
    for view in range(1, 20):
        assert proposed[view + 1] - proposed[view] == 2 * DELAY_MS
        for host in network.hosts:
            assert finalized[host.index, view] - proposed[view] == 3 * DELAY_MS


@pytest.mark.parametrize("n", [4, 7, 16])
def test_in_hotstuff_a_block_takes_two_delays_and_finality_five(n: int) -> None:
    """Four where the finalize votes are collected. All but proposals and certificates goes to one peer."""
    network, proposed, finalized = proposed_and_finalized(n, HotStuff)
    for view in range(1, 20):
        assert proposed[view + 1] - proposed[view] == 2 * DELAY_MS
        for host in network.hosts:
            collects = host.index == (view + 2) % n
            assert finalized[host.index, view] - proposed[view] == (4 if collects else 5) * DELAY_MS
    views = len(proposed)
    assert network.messages / views < 5 * n, "messages grow with the validators, not with their square"


@either
@pytest.mark.parametrize(("n", "silent"), [(4, (1,)), (7, (0, 3)), (10, (2, 5, 9))])
def test_silent_validators_cost_their_views_only(n: int, silent: tuple[int, ...], engine: MakeEngine) -> None:
    """In HotStuff they are missed as collectors too: the view before may time out, but its block stays in the chain."""
    network = Network(n, seed=3, silent=silent, make_engine=engine)
    network.run(until_ms=20_000)
    chain = network.chain()
    assert network.lowest_final_view() > 3 * n
    final = {block.view for block in chain}
    for view in range(1, network.lowest_final_view()):
        assert (view % n in silent) == (view not in final)
        collector = view + 1 if engine is HotStuff else view
        given_up = view in network.nullifications
        assert given_up == (view % n in silent) or (given_up and collector % n in silent)


@either
def test_more_silent_validators_than_tolerated_stop_the_chain_safely(engine: MakeEngine) -> None:
    network = Network(4, seed=4, silent=(1, 2), make_engine=engine)
    network.run(until_ms=20_000)
    assert not network.finalizations
    assert {host.engine.view for host in network.hosts if host.engine} == {1}


@pytest.mark.slow
def test_silent_leaders_are_skipped_when_asked_for() -> None:
    def views_reached(skip_views: int) -> int:
        config = VotingConfig(400, 600, 700, skip_views=skip_views)
        network = Network(4, seed=5, silent=(1,), config=config)
        network.run(until_ms=20_000)
        network.chain()
        return max(view for host in network.hosts for _, view in host.entered)

    assert views_reached(4) > 4 * views_reached(0)


@either
def test_invalid_blocks_are_nullified_without_waiting_for_a_timer(engine: MakeEngine) -> None:
    network = Network(4, seed=6, invalid_leaders=(2,), make_engine=engine)
    network.run(until_ms=1_000)
    network.chain()
    entered = {int(view): at for at, view in network.hosts[0].entered}
    assert 2 in network.nullifications
    assert 2 not in network.notarizations
    assert entered[3] - entered[2] <= 3 * DELAY_MS
    assert network.lowest_final_view() > 20


def faults_for(seed: int) -> Faults:
    """Swarm fashion: some kinds of fault are off in each seed."""
    return Faults(
        loss=(0.0, 0.05, 0.3)[seed % 3],
        duplication=(0.0, 0.2)[seed % 2],
        min_delay_ms=20,
        max_delay_ms=(20, 80, 400)[seed // 3 % 3],
        sync_ms=((0, 0), (0, 30))[seed // 2 % 2],
        execution_ms=((0, 0), (0, 40), (0, 500))[seed // 5 % 3],
        partition_every_ms=(0, 800)[seed // 4 % 2],
        one_way=seed // 8 % 2 == 1,
        crash_every_ms=(0, 300)[seed // 7 % 2],
        torn_writes=seed // 3 % 2 == 1,
        compaction=(0.0, 0.1)[seed // 6 % 2],
        healed_at_ms=4_000,
    )


def survive(network: Network, byzantine: tuple[int, ...] = ()) -> None:
    """Faults until they heal, then progress within a bound; nobody but ``byzantine`` is accused."""
    network.run(until_ms=network.faults.healed_at_ms + 2_000)
    network.chain()
    reached = max(view for host in network.hosts for _, view in host.entered)
    network.run(until_ms=network.now_ms + 15_000, stop=lambda: network.lowest_final_view() >= reached + 8)
    network.chain()
    assert network.lowest_final_view() >= reached + 8, "no progress after the faults healed"
    assert {evidence.first.signer for evidence in network.evidence} <= set(byzantine)
    assert byzantine or not network.misbehaviour()


@pytest.mark.parametrize(
    ("first", "engine"),
    [
        *((0, engine) for engine in (Simplex, HotStuff)),
        *(
            pytest.param(first, engine, marks=pytest.mark.slow if first == 20 else pytest.mark.soak)
            for first in range(20, 80, 20)
            for engine in (Simplex, HotStuff)
        ),
        *(pytest.param(first, Simplex, marks=pytest.mark.soak) for first in range(80, 160, 20)),
    ],
)
def test_four_validators_survive_faults(first: int, engine: MakeEngine) -> None:
    for seed in range(first, first + 20):
        survive(Network(4, seed, faults_for(seed), make_engine=engine))


@either_slowly
@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in (5, 20, 30))])
def test_seven_validators_survive_faults(first: int, engine: MakeEngine) -> None:
    for seed in range(1_000 + first, 1_000 + first + 5):
        survive(Network(7, seed, faults_for(seed), make_engine=engine))


@pytest.mark.slow
@either_slowly
def test_four_validators_survive_faults_with_real_signatures(engine: MakeEngine) -> None:
    for seed in range(2_000, 2_012):
        survive(Network(4, seed, faults_for(seed), scheme=Ed25519Scheme(), make_engine=engine))


@pytest.mark.slow
@either
def test_a_byzantine_fault_bound_of_silent_validators_and_faults_together(engine: MakeEngine) -> None:
    for seed in range(3_000, 3_010):
        network = Network(7, seed, faults_for(seed), silent=(2,), make_engine=engine)
        survive(network)


@either
@pytest.mark.parametrize(("n", "twins"), [(4, (1,)), pytest.param(7, (2, 3), marks=pytest.mark.slow)])
def test_twins_split_nobody_and_are_found_out(n: int, twins: tuple[int, ...], engine: MakeEngine) -> None:
    """One key on two machines, each honest by itself: together they equivocate in every way."""
    accused: set[int] = set()
    for seed in range(4_000, 4_010):
        network = Network(n, seed, faults_for(seed), twins=twins, make_engine=engine)
        survive(network, byzantine=twins)
        accused |= {evidence.first.signer for evidence in network.evidence}
    assert accused == set(twins)


@either
def test_the_same_seed_gives_the_same_run(engine: MakeEngine) -> None:
    digests = set()
    for _ in range(2):
        network = Network(4, 77, faults_for(77 + 8), make_engine=engine)
        network.tracing = True
        network.run(until_ms=5_000)
        digests.add(network.trace.hexdigest())
    assert len(digests) == 1


@either
def test_a_whole_set_that_crashes_after_journaling_that_it_gave_up_goes_on(engine: type[VotingEngine]) -> None:
    network = Network(4, seed=8, silent=(1,), make_engine=engine)
    network.run(until_ms=410)
    network.silent = ()
    for host in network.hosts:
        if host.engine is not None:
            assert engine._gives_up in host.engine._rounds[View(1)].own
            network.crash(host)
        network.at(100, lambda host=host: network.start(host))  # type: ignore[misc]
    network.run(until_ms=4_000)
    network.chain()
    assert network.lowest_final_view() > 10


def return_to_a_backlog(engine: MakeEngine) -> None:
    """Every block is bad for a long time; then one validator fails, and one that was away is needed for a quorum."""
    network = Network(4, seed=9, silent=(3,), invalid_leaders=(0, 1, 2), make_engine=engine)
    network.run(until_ms=1_200_000)
    assert not network.finalizations
    assert len(network.nullifications) > 2 * MAX_REQUESTED_VIEWS
    network.invalid_leaders = ()
    network.crash(network.hosts[2])
    network.start(network.hosts[3])
    network.run(until_ms=1_300_000)
    network.chain()
    assert network.lowest_final_view() > len(network.nullifications), "no progress"


@either
def test_a_validator_that_returns_fetches_the_certificates_it_missed(engine: MakeEngine) -> None:
    return_to_a_backlog(engine)
