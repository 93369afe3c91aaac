"""The comparison of guided and plain fuzz: a subtle planted bug that a corpus leads to, and the table."""

from __future__ import annotations

import pytest

from cluster.misbehaviour.mutants.registry import MUTANTS
from cluster.tools.sweeps.drawing.guided.corpus import Entry
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
    mutant = MUTANTS["overpays-after-removals"]
    assert 0 < guided.seeds_to_catch(mutant, guided.CORPUS, 0, 2, START) <= 2
    assert guided.seeds_to_catch(mutant, guided.PLAIN, 0, 3, ()) == 0


def test_the_table_has_each_bug_and_the_medians(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    guided = load("guided", monkeypatch)
    results = [
        {"bug": bug, "way": way, "sample": 0, "seeds": seeds, "cpu_s": 2.0}
        for bug, way, seeds in (("a", "plain", 1), ("a", "corpus", 1), ("b", "plain", 0), ("b", "corpus", 4))
    ]
    guided.print_table(results, 8)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:3]] == [["a", "1", "1"], ["b", "-", "4"]]
    assert "corpus against plain, all (2 samples): median 2.5 against 5 seeds" in lines[3]
    assert "not caught by the first plain seed (1 samples): median 4 against 9 seeds" in lines[4]
    assert lines[3].endswith("not caught 0 against 1")
