"""The prototype of other ways for Simplex's votes measures what it says."""

from __future__ import annotations

from types import ModuleType

import pytest

from consensus.interface import Finalized, Notarized, Nullified, Parent
from consensus.leader import ANNOUNCERS
from consensus.messages import VoteKind
from consensus.simplex import Simplex
from consensus.types import View, fault_bound
from tests.benchmarks.test_simulator import load
from tests.consensus.bench import ROOT, Bench, block

N = 7
QUORUM = N - fault_bound(N)
VIEWS = 24


@pytest.fixture
def votes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("vote_traffic", monkeypatch)


def messages_of_simplex(n: int) -> int:
    """A proposal, votes of two kinds, and certificates of two kinds; the leader's first vote is in its proposal."""
    return (n - 1) * (1 + (n - 1) + n + 2 * ANNOUNCERS)


def test_simplex_as_it_is_takes_the_messages_checks_and_delays_that_its_rules_imply(votes: ModuleType) -> None:
    found = votes.steady(votes.VARIANTS["everyone"], N)
    assert found.messages == messages_of_simplex(N)
    assert found.checks == pytest.approx(2 * (QUORUM - 1), rel=0.05)
    assert (found.block, found.notarization, found.finality) == (2.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("variant", "delays"),
    [("finalize to 3", (2, 2, 4)), ("to 3 leaders", (2, 3, 5)), ("to 1 leader", (2, 3, 5)), ("tree to 1", (3, 4, 7))],
)
def test_whoever_collects_votes_takes_a_delay(votes: ModuleType, variant: str, delays: tuple[int, int, int]) -> None:
    found = votes.steady(votes.VARIANTS[variant], 9)
    assert (found.block, found.notarization, found.finality) == delays
    assert found.messages < messages_of_simplex(9)


def test_a_collector_that_drops_votes_slows_all_but_simplex_as_it_is(votes: ModuleType) -> None:
    good, withheld = (
        {
            name: votes.outcome(votes.VARIANTS[name], 4, 1, votes.CASES[case], VIEWS)
            for name in ("everyone", "to 1 leader")
        }
        for case in ("good", "withheld")
    )
    assert withheld["everyone"] == good["everyone"]
    assert withheld["to 1 leader"].blocks < 0.8 * good["to 1 leader"].blocks


def test_forged_signatures_of_an_aggregator_are_checked_and_do_not_count(votes: ModuleType) -> None:
    tree = votes.VARIANTS["tree to all"]
    good, forged = (votes.outcome(tree, 4, 1, votes.CASES[case], VIEWS) for case in ("good", "forged"))
    assert forged.checks > good.checks
    assert 0 < forged.blocks < good.blocks


def test_a_certificate_is_forged_in_its_last_signatures_alone(votes: ModuleType) -> None:
    bench = Bench(start=False)
    good = bench.certificate(VoteKind.NOTARIZE, View(1), "b1")
    bad = votes.forged(good, 1)
    assert list(good.signed.values())[:-1] == list(bad.signed.values())[:-1]
    assert bad.signed[max(bad.signed)] == bytes(64)


def test_a_run_that_breaks_safety_ends(votes: ModuleType) -> None:
    bench, network = Bench(start=False), votes.VoteNetwork(Simplex, 4, 1, votes.STEADY)
    network.check(Notarized(bench.certificate(VoteKind.NOTARIZE, 1, "a")))
    with pytest.raises(votes.Unsafe, match="two blocks in view 1"):
        network.check(Notarized(bench.certificate(VoteKind.NOTARIZE, 1, "b")))
    network.check(Finalized(bench.certificate(VoteKind.FINALIZE, 1, "a")))
    with pytest.raises(votes.Unsafe, match="view 1 is final and nullified"):
        network.check(Nullified(bench.certificate(VoteKind.NULLIFY, 1)))


def test_a_final_block_beside_the_chain_ends_a_run(votes: ModuleType) -> None:
    network = votes.VoteNetwork(Simplex, 4, 1, votes.STEADY)
    network.parents = {block("a"): ROOT, block("b"): Parent(View(1), block("a")), block("c"): ROOT}
    network.final = {View(1): block("a"), View(2): block("b")}
    assert network.chain() == [1, 2]
    network.final[View(2)] = block("c")
    with pytest.raises(votes.Unsafe, match="not in the chain"):
        network.chain()


def test_what_was_not_run_has_a_dash_in_the_table(votes: ModuleType) -> None:
    values = {votes.named(f"{variant} 4 {key}"): 1.0 for variant in votes.VARIANTS for key in votes.Steady._fields}
    values |= {votes.named(f"{variant} 4 good blocks"): 2.0 for variant in votes.VARIANTS}
    columns = votes.table_of(values).columns
    assert {tuple(column.cells) for column in columns[-5:-3]} == {("2, inf",) * 6, ("–",) * 6}


def test_a_usual_run_has_no_dear_case_and_a_full_one_has_all(votes: ModuleType) -> None:
    lanes = {lane.metrics[0].name: lane.least for lane in votes.lanes(votes.Size.USUAL)}
    assert lanes["everyone_64_silent_blocks"] == votes.Size.USUAL
    assert lanes["everyone_64_forged_blocks"] == lanes["everyone_128_good_blocks"] == votes.Size.FULL
