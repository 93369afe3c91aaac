"""The comparison of guided and plain fuzz: a subtle planted bug that a corpus leads to, and the figures."""

from __future__ import annotations

import pytest

from cluster.commands.sweeps.guided.corpus import Entry
from cluster.misbehaviour.planted import planted
from tests.benchmarks.test_simulator import load

START = [
    Entry("simplex", genotype, [], "", 1.0)
    for genotype in (
        "100013,strain=100076",
        "100081,lies.13=1647123895,links=100076,pace.5=3523297019,policy.6=2533073701,run=80376724",
    )
]
"""The first two entries of a corpus that was made without any bug."""


@pytest.mark.soak
def test_a_corpus_leads_to_a_subtle_bug_that_as_many_plain_seeds_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    guided = load("guided", monkeypatch)
    mutant = planted("overpays-after-removals")
    assert 0 < guided.seeds_to_catch(mutant, guided.CORPUS, 0, 2, START) <= 2
    assert guided.seeds_to_catch(mutant, guided.PLAIN, 0, 3, ()) == 0


def test_a_bug_that_is_not_caught_counts_as_one_seed_more_than_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    guided = load("guided", monkeypatch)
    assert guided.figures_of([1, 0, 4], 8) == [4, 14 / 3, 1]


def test_a_corpus_is_made_of_seeds_that_reached_what_no_seed_before_did(monkeypatch: pytest.MonkeyPatch) -> None:
    guided = load("guided", monkeypatch)
    features = {"0": ["a"], "1": ["a"], "2": ["a", "b"]}
    monkeypatch.setattr(guided, "run", lambda genotype, protocol, mutant: str(genotype))
    monkeypatch.setattr(guided, "features_of", features.__getitem__)
    assert [(entry.protocol, entry.genotype) for entry in guided.made_corpus("simplex", 3)] == [
        ("simplex", "0"),
        ("simplex", "2"),
    ]
