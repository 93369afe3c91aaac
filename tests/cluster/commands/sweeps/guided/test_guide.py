"""A guided fuzz as a whole: generations, continuation, summary, the command, and a bug that plain seeds miss."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from cluster.checks.kind import shipped
from cluster.checks.run import judge_run
from cluster.commands.cli.main import main
from cluster.commands.sweeps.drawing.genotype import Genotype
from cluster.commands.sweeps.drawing.random_scenario import random_scenario
from cluster.commands.sweeps.guided.corpus import Corpus, Entry
from cluster.commands.sweeps.guided.features import (
    MECHANISM,
    features_of,
    never_reached,
    pair_of,
    range_of,
)
from cluster.commands.sweeps.guided.guide import Guide, lines_of
from cluster.commands.sweeps.guided.schedule import GENERATION
from cluster.commands.sweeps.outcome import SeedOutcome
from cluster.commands.sweeps.tasks import GuidedTask, simulated_seed, takes_shortcuts
from cluster.common.errors import BadInput
from cluster.record.folder import SWEEP_LOG_FILE
from cluster.scenario.sections.faults import SHIPPED
from cluster.watches.watched_simulation import simulate

SEEDS = range(10, 10 + 2 * GENERATION + 3)


def outcome(seed: int, genotype: str, features: Sequence[str], verdict: str = "pass") -> SeedOutcome:
    parts_s = {"draw": 0.25, "run": 1.0, "judge": 0.5}
    return SeedOutcome(
        seed, verdict, "", [], 40, 30, {}, 0, "d", 1.75, genotype=genotype, features=list(features), parts_s=parts_s
    )


def reached(seed: int, genotype: str) -> SeedOutcome:
    """The outcome of a run that did not take place."""
    return outcome(seed, genotype, sorted({f"a{len(genotype)}", f"b{seed % 3}"}), "fail" if seed == 12 else "pass")


class Fuzz:
    """A guided fuzz whose runs are :func:`reached`."""

    def __init__(self, folder: Path, corpus: Path | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.genotypes: dict[int, str] = {}
        self.corpus = Corpus(corpus or folder / "corpus", "simplex")
        self.guide = Guide("simplex", self.genotypes, SEEDS, folder, self.corpus, "c0ffee")
        self.done: dict[int, SeedOutcome] = {}

    def run(self, done: dict[int, SeedOutcome], generations: int = 100) -> None:
        rounds = self.guide.generations(done)
        for _, left in zip(range(generations), rounds, strict=False):
            for seed in reversed(left):
                self.done[seed] = reached(seed, self.genotypes[seed])
                self.guide.add(self.done[seed])


def test_a_fuzz_that_was_interrupted_goes_on_as_it_would_have(tmp_path: Path) -> None:
    whole = Fuzz(tmp_path / "whole")
    whole.run({})
    assert sorted(whole.done) == list(SEEDS)
    begun = Fuzz(tmp_path / "begun")
    begun.run({}, generations=2)
    ended = {seed: each for seed, each in begun.done.items() if seed % 5}
    again = Fuzz(tmp_path / "begun")
    again.run(ended)
    assert not set(again.done) & set(ended)
    assert ended | again.done == whole.done
    assert whole.guide.page() == {**again.guide.page(), "seconds": whole.guide.page()["seconds"]}


def test_runs_of_another_fuzz_are_refused(tmp_path: Path) -> None:
    fuzz = Fuzz(tmp_path)
    with pytest.raises(BadInput, match="ran a plain seed as seed 11, this one would run 11: give the same --seeds"):
        fuzz.run({11: msgspec.structs.replace(reached(11, "11"), genotype="")})


def test_what_reached_something_new_is_kept_unless_it_failed(tmp_path: Path) -> None:
    fuzz = Fuzz(tmp_path / "out", tmp_path / "corpus")
    fuzz.run({})
    kept = {entry.genotype for entry in Corpus(tmp_path / "corpus", "simplex").entries}
    assert "10" in kept
    assert "12" not in kept
    page = fuzz.guide.page()
    assert page["entries"] == {"at the start": 0, "added": len(list((tmp_path / "corpus").iterdir()))}
    assert sum(page["genotypes"].values()) == len(SEEDS)
    assert page["features over seeds"][-1] == [len(SEEDS), page["features"]]
    assert page["seconds"] | {"schedule": 0} == {
        "draw": 0.25 * len(SEEDS),
        "run": len(SEEDS),
        "judge": 0.5 * len(SEEDS),
        "schedule": 0,
    }
    text = "\n".join(lines_of(page))
    assert "run 57.1%" in text or "run 57.0%" in text
    assert "never reached            mechanisms: backlog, " in text
    more = Fuzz(tmp_path / "more", tmp_path / "corpus")
    assert more.guide.page()["entries"]["at the start"] == len(more.corpus.entries) > 0


# --- features ---------------------------------------------------------------------------------------------------------


def test_counts_have_ranges() -> None:
    assert [range_of(count) for count in (1, 2, 3, 4, 7, 8, 31, 32, 127, 128, 10**6)] == [
        *(1, 2, 3, 4, 4, 8, 16, 32, 32, 128, 128)
    ]


def test_what_was_never_reached_is_told() -> None:
    kind, other = list(SHIPPED)[:2]
    seen = {
        f"{MECHANISM}:backlog": 1,
        "rule:fires as specified:4": 2,
        "rule:safety: lock": 1,
        f"overlap:{pair_of(other, kind)}": 1,
    }
    never = never_reached(seen)
    assert "backlog" not in never["mechanisms"]
    assert {rule for kind in shipped() for rule in kind.RULES} - set(never["rules"]) == {
        "fires as specified",
        "safety: lock",
    }
    pairs = len(SHIPPED) * (len(SHIPPED) + 1) // 2
    assert len(never["overlapping faults"]) == pairs - 1
    assert pair_of(kind, other) == pair_of(other, kind) not in never["overlapping faults"]


@pytest.mark.slow
def test_a_run_has_features_of_every_kind() -> None:
    judged = judge_run(simulate(random_scenario(3, "simplex"), 3, shortcuts=True))
    features = features_of(judged)
    assert features == sorted(set(features))
    kinds = {feature.partition(":")[0] for feature in features}
    assert kinds >= {
        "during",
        "fault",
        "mechanism",
        "overlap",
        "recovery",
        "reorg",
        "rule",
        "times",
        "together",
        "view",
    }
    assert {"overlap:bit_rot+slow_execution", "recovery:bit_rot:disk lost", "rule:safety: lock"} <= set(features)


# --- tasks and the command --------------------------------------------------------------------------------------------


def test_a_run_is_repeated_by_its_genotype() -> None:
    task = GuidedTask("hotstuff", genotypes={4: "17,faults=9,run=200"})
    assert task.title == "fuzz hotstuff guided"
    assert task.command(4) == "stampede fuzz --protocol hotstuff --replay 17,faults=9,run=200"
    assert task.command(5) == "stampede fuzz --protocol hotstuff --replay 5"
    assert simulated_seed(task, 4) == 200
    assert not takes_shortcuts(task, 4)
    assert takes_shortcuts(task, 5)
    again = GuidedTask.replay("hotstuff", Genotype.parse("17,faults=9,run=200"), shortcuts=False)
    assert again.title == "fuzz hotstuff 17,faults=9,run=200"
    assert again.command(200) == f"{task.command(4)} --no-shortcuts"
    assert again.scenario(200) == task.scenario(4)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "--seeds: expected A:B, or --replay GENOTYPE"),
        (["--replay", "7", "--seeds", "1:2"], "--replay runs one genotype: expected neither --seeds nor --guided"),
        (["--replay", "7", "--guided"], "--replay runs one genotype: expected neither --seeds nor --guided"),
        (["--replay", "7,x=1"], "'7,x=1' is no genotype: 'x=1': expected SEED, then changes such as faults=SEED"),
        (["--seeds", "1:2", "--corpus", "x"], "--corpus needs --guided: a plain fuzz has no corpus"),
        (["--seeds", "1:2", "--guided", "--corpus", "/dev/null"], "/dev/null: is no folder, expected one"),
    ],
)
def test_bad_input_is_one_line(
    options: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fuzz", *options, "--out", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert problem in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.slow
def test_the_command_guides_continues_and_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, out, file = tmp_path / "corpus", tmp_path / "out", tmp_path / "end.json"
    Corpus(corpus, "simplex").add(Entry("simplex", "3,links=8,run=5", ["x", "y"], "c0ffee", 1.0))
    command = ["fuzz", "--guided", "--seeds", "0:2", "--workers", "2", "--corpus", str(corpus), "--out", str(out)]
    main([*command, "--json", str(file)])
    text = capsys.readouterr().out
    assert "genotypes                1 fresh, 1 replayed" in text
    guided = json.loads(file.read_text())["guided"]
    assert guided["entries"] == {"at the start": 1, "added": 2 - 1}
    assert guided["features"] > 100
    assert json.loads((out / "summary.json").read_text())["guided"] == guided
    lines = (out / SWEEP_LOG_FILE).read_bytes()
    assert [json.loads(line)["genotype"] for line in lines.splitlines()[1:]] == ["3,links=8,run=5", "1"]
    main(command)
    assert (out / SWEEP_LOG_FILE).read_bytes() == lines, "nothing is left to run"
    assert "genotypes                1 fresh, 1 replayed" in capsys.readouterr().out
    main(["fuzz", "--replay", "3,links=8,run=5", "--workers", "1", "--out", str(tmp_path / "again")])
    (_, again) = (tmp_path / "again" / SWEEP_LOG_FILE).read_text().splitlines()
    first = json.loads(lines.splitlines()[1])
    assert json.loads(again) == {**first, "seed": 5}, "the same digest, metrics and features"
