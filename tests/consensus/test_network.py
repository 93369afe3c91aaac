"""Whole networks of engines under seeded faults: safety at every step, progress after the faults heal."""

from __future__ import annotations

import pytest

from consensus.interface import Effect, Finalized, Propose
from consensus.keys import Ed25519Scheme
from consensus.messages import MAX_REQUESTED_VIEWS, VoteKind
from consensus.simplex import Simplex, SimplexConfig
from tests.consensus.network import Faults, Host, Network

DELAY_MS = 10


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 10])
def test_without_faults_every_view_is_final(n: int) -> None:
    network = Network(n, seed=1)
    if n == 1:
        network.faults.execution_ms = (1, 1)
    network.run(until_ms=1_000)
    chain = network.chain()
    assert network.lowest_final_view() >= 40
    assert [block.view for block in chain] == list(range(len(chain))), "no view was skipped"
    assert not network.nullifications
    assert not network.misbehaviour()


@pytest.mark.parametrize("n", [4, 7, 16])
def test_a_block_takes_two_delays_and_finality_three(n: int) -> None:
    network = Network(n, seed=2)
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
    for view in range(1, 20):
        assert proposed[view + 1] - proposed[view] == 2 * DELAY_MS
        for host in network.hosts:
            assert finalized[host.index, view] - proposed[view] == 3 * DELAY_MS


@pytest.mark.parametrize(("n", "silent"), [(4, (1,)), (7, (0, 3)), (10, (2, 5, 9))])
def test_silent_validators_cost_their_views_and_nothing_else(n: int, silent: tuple[int, ...]) -> None:
    network = Network(n, seed=3, silent=silent)
    network.run(until_ms=20_000)
    chain = network.chain()
    assert network.lowest_final_view() > 3 * n
    final = {block.view for block in chain}
    for view in range(1, network.lowest_final_view()):
        assert (view % n in silent) == (view in network.nullifications) == (view not in final)


def test_more_silent_validators_than_tolerated_stop_the_chain_safely() -> None:
    network = Network(4, seed=4, silent=(1, 2))
    network.run(until_ms=20_000)
    assert not network.finalizations
    assert {host.engine.view for host in network.hosts if host.engine} == {1}


def test_silent_leaders_are_skipped_when_asked_for() -> None:
    def views_reached(skip_views: int) -> int:
        config = SimplexConfig(400, 600, 700, skip_views=skip_views)
        network = Network(4, seed=5, silent=(1,), config=config)
        network.run(until_ms=20_000)
        network.chain()
        return max(view for host in network.hosts for _, view in host.entered)

    assert views_reached(4) > 4 * views_reached(0)


def test_invalid_blocks_are_nullified_without_waiting_for_a_timer() -> None:
    network = Network(4, seed=6, invalid_leaders=(2,))
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


@pytest.mark.parametrize("first", range(0, 160, 40))
def test_four_validators_survive_faults(first: int) -> None:
    for seed in range(first, first + 40):
        survive(Network(4, seed, faults_for(seed)))


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_seven_validators_survive_faults(first: int) -> None:
    for seed in range(1_000 + first, 1_000 + first + 20):
        survive(Network(7, seed, faults_for(seed)))


def test_four_validators_survive_faults_with_real_signatures() -> None:
    for seed in range(2_000, 2_012):
        survive(Network(4, seed, faults_for(seed), scheme=Ed25519Scheme()))


def test_a_byzantine_fault_bound_of_silent_validators_and_faults_together() -> None:
    for seed in range(3_000, 3_010):
        network = Network(7, seed, faults_for(seed), silent=(2,))
        survive(network)


@pytest.mark.parametrize(("n", "twins"), [(4, (1,)), (7, (2, 3))])
def test_twins_split_nobody_and_are_found_out(n: int, twins: tuple[int, ...]) -> None:
    """One key on two machines, each honest by itself: together they equivocate in every way."""
    accused: set[int] = set()
    for seed in range(4_000, 4_010):
        network = Network(n, seed, faults_for(seed), twins=twins)
        survive(network, byzantine=twins)
        accused |= {evidence.first.signer for evidence in network.evidence}
    assert accused == set(twins)


def test_the_same_seed_gives_the_same_run() -> None:
    digests = set()
    for _ in range(2):
        network = Network(4, 77, faults_for(77 + 8))
        network.tracing = True
        network.run(until_ms=5_000)
        digests.add(network.trace.hexdigest())
    assert len(digests) == 1


def test_a_whole_set_that_crashes_after_journaling_nullify_goes_on() -> None:
    network = Network(4, seed=8, silent=(1,))
    network.run(until_ms=410)
    network.silent = ()
    for host in network.hosts:
        if host.engine is not None:
            assert VoteKind.NULLIFY in host.engine._rounds[1].own  # type: ignore[index]
            network.crash(host)
        network.at(100, lambda host=host: network.start(host))  # type: ignore[misc]
    network.run(until_ms=4_000)
    network.chain()
    assert network.lowest_final_view() > 10


def return_to_a_backlog(engine: type[Simplex]) -> None:
    """Every block is bad for a long time; then one validator fails, and one that was away is needed for a quorum."""
    network = Network(4, seed=9, silent=(3,), invalid_leaders=(0, 1, 2), make_engine=engine)
    network.run(until_ms=80_000)
    assert not network.finalizations
    assert len(network.nullifications) > 2 * MAX_REQUESTED_VIEWS
    network.invalid_leaders = ()
    network.crash(network.hosts[2])
    network.start(network.hosts[3])
    network.run(until_ms=100_000)
    network.chain()
    assert network.lowest_final_view() > len(network.nullifications), "no progress"


def test_a_validator_that_returns_fetches_the_certificates_it_missed() -> None:
    return_to_a_backlog(Simplex)
