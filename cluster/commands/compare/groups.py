"""The groups of runs that are compared, read from their folders.

A folder belongs to a run (``result.json``), a sweep (``seeds.jsonl``: one run per seed) or a scorecard
(``scorecard.json``: one run per seed; the file itself may be given), or it holds such folders. Groups that cannot be
compared are refused in one line.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from blake3 import blake3

from cluster.commands.compare.scenario_diff import FieldDifference, differences, words_of
from cluster.commands.sweeps.outcome import SeedOutcome
from cluster.commands.sweeps.tasks import scenario_name
from cluster.common.errors import BadInput
from cluster.common.wording import first_few
from cluster.record.folder import (
    RESULT_FILE,
    SCENARIO_FILE,
    SCORECARD_FILE,
    SCORECARD_FORMAT,
    SERIES_FILE,
    SWEEP_LOG_FILE,
    read_result,
    seed_of,
    tell_version,
)

MAX_RUNS: Final = 100_000
OF_SCORECARDS: Final = (
    "lateness_p99",
    "lateness_max",
    "honest_fires_ratio",
    "user_transactions_ratio",
    "block_cycles_ratio",
    "state_bytes_added",
    "delay_blocks",
    "recovery_blocks",
    "spend",
    "spend_per_fire_displaced",
)
"""The metrics of a scorecard that are compared. They are few: with all metrics, no single one could be significant."""
HOLD_RUNS: Final = (RESULT_FILE, SWEEP_LOG_FILE, SCORECARD_FILE)
"""Files that identify a folder's kind; the first one that exists is read."""
WORDS_OF_BACKENDS: Final = {"sim": "simulated (virtual time)", "live": "live (wall-clock time)"}


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run that is compared: where it comes from, and its metrics."""

    source: Path
    seed: int
    backend: str
    scenario: str
    """The scenario's name, or the title of a sweep without a single scenario."""
    text: str
    """Digest of the scenario's file, which distinguishes scenarios of the same name; empty if unknown."""
    commit: str
    machine: str
    verdict: str
    metrics: Mapping[str, float]
    series: Mapping[str, Sequence[float | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that are compared as one sample."""

    name: str
    runs: tuple[ComparedRun, ...]

    @property
    def seeds(self) -> list[int]:
        return sorted(run.seed for run in self.runs)

    @property
    def metrics(self) -> set[str]:
        """Names of the metrics that at least one run has."""
        return {name for run in self.runs for name in run.metrics}

    def of(self, attribute: str) -> list[str]:
        """The distinct values of an attribute of the runs, most frequent first."""
        return [value for value, _ in Counter(getattr(run, attribute) for run in self.runs).most_common()]

    def values(self, metric: str) -> list[float]:
        """The metric's value of each run that has it, in the order of seeds."""
        ordered = sorted(self.runs, key=lambda run: run.seed)
        return [run.metrics[metric] for run in ordered if metric in run.metrics]


def read_group(folders: Sequence[Path]) -> Group:
    """Read the runs of folders as one group. Raises :class:`BadInput`."""
    runs: list[ComparedRun] = []
    for folder in folders:
        found = list(_runs_of(folder))
        if not found:
            raise BadInput(f"{folder}: holds no run: none of {', '.join(HOLD_RUNS)}, nor folders with them")
        runs += found
        if len(runs) > MAX_RUNS:
            raise BadInput(f"{folder}: more than {MAX_RUNS:,} runs in a group")
    for run in runs:
        if not run.metrics.get("heights"):
            raise BadInput(f"{run.source}, seed {run.seed}: has no final block, so there is nothing to compare")
    return Group(", ".join(str(folder) for folder in folders), tuple(runs))


def refuse_incomparable(first: Group, second: Group) -> None:
    """Raise :class:`BadInput` if the groups cannot be compared, because of different backends or repeated runs."""
    backends = {backend for group in (first, second) for backend in group.of("backend")}
    if len(backends) > 1:
        kinds = " and ".join(WORDS_OF_BACKENDS.get(backend, backend) for backend in sorted(backends))
        raise BadInput(f"runs that are {kinds} cannot be compared: their times mean different things")
    keys = [[(run.source.resolve(), run.seed) for run in group.runs] for group in (first, second)]
    if both := set(keys[0]) & set(keys[1]):
        source, seed = min(both)
        raise BadInput(f"{source}, seed {seed}: is in both groups")
    if twice := [key for group in keys for key, count in Counter(group).items() if count > 1]:
        raise BadInput(f"{twice[0][0]}, seed {twice[0][1]}: is twice in one group")


def warnings(first: Group, second: Group, apart: Sequence[FieldDifference] | None) -> Iterator[str]:
    """Warnings as text: reasons why a difference between the groups may mean little.

    ``apart`` is the result of :func:`scenario_differences`.
    """
    for group, letter in ((first, "A"), (second, "B")):
        if len(group.of("scenario")) > 1:
            yield f"{letter} has runs of {len(group.of('scenario'))} scenarios"
        if len(group.of("commit")) > 1:
            yield f"{letter} has runs of {len(group.of('commit'))} commits: {_listed(group.of('commit'))}"
        bad = Counter(run.verdict for run in group.runs if run.verdict != "pass")
        if bad:
            counts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(bad.items()))
            yield f"not all runs of {letter} passed: {counts} of {len(group.runs):,}"
    yield from _differ(first, second, "scenario", "scenarios")
    if apart is None:
        yield "the scenarios have the same name, but are not the same"
    elif apart:
        yield f"the scenarios have the same name, but are not the same: {words_of(apart)}"
    yield from _differ(first, second, "commit", "commits")
    if first.of("backend") == ["live"]:
        yield from _differ(first, second, "machine", "machines")


def scenario_differences(first: Group, second: Group) -> list[FieldDifference] | None:
    """The fields in which the groups' files of one scenario differ: of the first scenario whose files differ.

    Empty if the files have the same meaning, or if the groups have different sets of scenario names; ``None`` if the
    fields are unknown. If a group has several files of that name, the most frequent one counts.
    """
    if set(first.of("scenario")) != set(second.of("scenario")):
        return []
    for name in first.of("scenario"):
        one, other = (Counter(run.text for run in group.runs if run.scenario == name) for group in (first, second))
        if one.keys() != other.keys():
            here, there = (_run_of(*pair, name) for pair in ((first, one), (second, other)))
            if here.text == there.text:
                return None
            return differences(here.source / SCENARIO_FILE, there.source / SCENARIO_FILE)
    return []


def _run_of(group: Group, texts: Counter[str], name: str) -> ComparedRun:
    """A run of the group whose scenario has this name and the most frequent file digest in ``texts``."""
    ((text, _),) = texts.most_common(1)
    return next(run for run in group.runs if (run.scenario, run.text) == (name, text))


def _differ(first: Group, second: Group, attribute: str, words: str) -> Iterator[str]:
    one, other = (group.of(attribute) for group in (first, second))
    if set(one) != set(other):
        yield f"{words} differ: {_listed(one)} in A, {_listed(other)} in B"


def _listed(values: Sequence[str]) -> str:
    return first_few([value or "unknown" for value in values], 3)


# --- reading --------------------------------------------------------------------------------------------------------


def _runs_of(folder: Path) -> Iterable[ComparedRun]:
    if folder.is_file():
        return _read_scorecard(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder")
    if (folder / RESULT_FILE).exists():
        return [_read_run(folder)]
    if (folder / SWEEP_LOG_FILE).exists():
        return _read_sweep(folder)
    if (folder / SCORECARD_FILE).exists():
        return _read_scorecard(folder / SCORECARD_FILE)
    below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    return [run for path in below if any((path / name).exists() for name in HOLD_RUNS) for run in _runs_of(path)]


def _read_run(folder: Path) -> ComparedRun:
    result = read_result(folder)
    try:
        return ComparedRun(
            source=folder,
            seed=seed_of(result),
            backend=str(result["backend"]),
            scenario=str(result["scenario"]),
            text=_digest(folder / SCENARIO_FILE),
            commit=str(result["commit"]),
            machine=_machine(result.get("machine", {})),
            verdict=str(result["verdict"]),
            metrics=_finite({**result["metrics"], **_flattened(result.get("classes", {}))}),
            series=_series(folder / SERIES_FILE),
        )
    except KeyError as error:
        raise BadInput(f"{folder / RESULT_FILE}: is no run's result: {error.args[0]} is missing") from None
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise BadInput(f"{folder / RESULT_FILE}: is no run's result: a field is of another type or size") from None


def _series(path: Path) -> dict[str, Any]:
    """The metrics by height from a file; empty if the file does not exist."""
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[float | None]])
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise BadInput(f"{path}: no metrics of blocks: {error}") from None


def _read_sweep(folder: Path) -> Iterator[ComparedRun]:
    path = folder / SWEEP_LOG_FILE
    try:
        lines = path.read_bytes().splitlines()
        begun = msgspec.json.decode(lines[0], type=dict[str, str]) if lines else {}
        tell_version(folder, begun.get("version"))
        title, text = begun.get("task", "sweep"), _digest(folder / SCENARIO_FILE)
        scenario = scenario_name(title) if text else title  # a sweep of random scenarios has no scenario file
        for line in lines[1:]:
            outcome = msgspec.json.decode(line, type=SeedOutcome)
            if not outcome.metrics:
                raise BadInput(f"{path}: seed {outcome.seed} has no metrics: the sweep is of an older version")
            yield ComparedRun(
                source=folder,
                seed=outcome.seed,
                backend="sim",
                scenario=scenario,
                text=text,
                commit=begun.get("commit", ""),
                machine="",
                verdict="pass" if outcome.passed else outcome.verdict if outcome.failed else "undecided",
                metrics=_finite(outcome.metrics),
            )
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise BadInput(f"{path}: is no sweep's log: {error}") from None


def _read_scorecard(path: Path) -> list[ComparedRun]:
    """Read a scorecard as one run per seed, with the metrics of all attacks. Raises :class:`BadInput`."""
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        if card["format"] != SCORECARD_FORMAT:
            raise ValueError
        first, last = card["window"]
        return [
            ComparedRun(
                source=path,
                seed=seed,
                backend=card.get("backend", "sim"),
                scenario=card["scenario"],
                text="",
                commit=card["commit"],
                machine="",
                verdict=card["outcome"],
                metrics=_finite({"heights": last - first + 1} | _of_attacks(card, seed)),
            )
            for seed in card["seeds"]
        ]
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadInput(f"{path}: is no scorecard of stampede dos") from None


def _of_attacks(card: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The compared metrics of a seed in a scorecard. A key contains metric, attack and variant."""
    found = {}
    for variant, attacks in card["variants"].items():
        for attack, score in attacks.items():
            if seed in score["seeds"]:
                place = score["seeds"].index(seed)
                where = f"{attack}, {variant}"
                found.update({f"{name} ({where})": score["values"][name][place] for name in OF_SCORECARDS})
    return found


def _flattened(classes: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Turn the lateness metrics of each class of actors into metrics keyed by name and class."""
    return {
        f"{metric} ({name})": value
        for name, metrics in classes.items()
        for metric, value in metrics.items()
        if metric.startswith("lateness")
    }


def _finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    found = {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _machine(page: Mapping[str, Any]) -> str:
    return ", ".join(str(page[name]) for name in ("processor", "processors", "memory_gib", "python") if name in page)


def _digest(path: Path) -> str:
    try:
        return blake3(path.read_bytes()).hexdigest()
    except OSError:
        return ""
