"""``stampede shrink``: searches for the smallest scenario that fails in the same way as a run, with the same seed.

Failing in the same way means the same failed check, or the same exception (its type and the beginning of its message).
The result is parsed and run once more before it is written.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from rich.console import Console

from cluster.checks.kind import kinds_of
from cluster.checks.run import check_run
from cluster.commands.console.output import print_line
from cluster.commands.rerun.recorded_run import read_recorded
from cluster.commands.rerun.reduce import Fields, shrink_fields
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput, ExitCode, HarnessError
from cluster.common.files import check_target, write_for_user
from cluster.common.interrupts import Interrupts
from cluster.common.outcome import Outcome
from cluster.common.shrinking import NoCandidate, Shrinker, value_at
from cluster.common.strict_yaml import dump, parse
from cluster.common.suggestions import unknown
from cluster.common.wording import counted, quoted
from cluster.scenario import Scenario
from cluster.scenario.code.gate import option_for
from cluster.scenario.files import execute_own_code, load_scenario, minimal_fields
from cluster.scenario.overrides import differences
from cluster.watches.watched_simulation import simulate

HEAD_CHARACTERS: Final = 60
"""Number of characters of an exception's message that are compared (digits are masked); also the maximum length of a
printed value."""
SHRUNK: Final = "shrunk.yaml"
INTERRUPTED: Final = "interrupted"
DETAIL_CHARACTERS: Final = 300
NOTES_WIDTH: Final = 110


class NotShrunk(HarnessError):
    """Raised if the shrunk scenario does not fail in the same way. It shows an error in the search or in the run."""

    exit_code = ExitCode.FAIL


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of a run: a failed check, or a crash."""

    name: str
    """Name of the check; for a crash, the exception's type and the beginning of its message."""
    detail: str = field(compare=False)
    is_crash: bool = False

    def is_kept_by(self, found: Sequence[Failure], saying: str) -> Failure | None:
        """Find this failure in ``found``; ``None`` if it is not there, or if its detail lacks the text ``saying``."""
        return next((each for each in found if each == self and saying in each.detail), None)

    @property
    def text(self) -> str:
        return f"crashes with {self.name}" if self.is_crash else f"fails {self.name}"


@dataclass(frozen=True, slots=True)
class Subject:
    """What is shrunk: a scenario with its seed, its source, and what is known of the recorded run."""

    scenario: Scenario
    seed: int
    source: str
    target: Path
    """File to which the shrunk scenario is written."""
    recorded: tuple[str, ...] = ()
    """The checks that failed in the recorded run."""
    commit: str = ""
    saying: str = ""
    """Text that the failure's detail must still contain, since a check may fail for several reasons."""


def failures_of(scenario: Scenario, seed: int, checkpoint: Callable[[], None]) -> tuple[Failure, ...]:
    """Run a scenario and return its failures, in the order of the checks.

    Raises :class:`KeyboardInterrupt` on a signal, and :class:`BadInput` if a fork of the scenario comes too late."""
    try:
        record = simulate(scenario, seed, "", checkpoint=checkpoint)
        if record.interrupted:
            raise KeyboardInterrupt
        verdict = check_run(record)
    except BadInput:
        raise
    except Exception as error:  # noqa: BLE001 (a crash is a failure)
        message = " ".join(str(error).split())
        head = re.sub(r"\b(0x)?[0-9a-f]*\d[0-9a-f]*\b", "#", message)[:HEAD_CHARACTERS]
        return (Failure(f"{type(error).__name__}: {head}".rstrip(": "), message, is_crash=True),)
    return tuple(Failure(check.name, check.detail) for check in verdict.checks if check.verdict is Outcome.FAIL)


def shrinker_of(
    subject: Subject, failure: Failure, runs: int, checkpoint: Callable[[], None], tell: Callable[[str], None]
) -> Shrinker[Fields, Failure]:
    """The search for the smallest fields with the same failure.

    It has at most ``runs`` runs, not counting the initial run and the verification.
    """

    def same_failure(fields: Fields) -> Failure | None:
        try:
            scenario = Scenario.model_validate(fields)
            execute_own_code(scenario, "candidate")
        except (ValidationError, BadInput):
            raise NoCandidate from None
        try:
            found = failures_of(scenario, subject.seed, checkpoint)
        except BadInput:
            return None
        same = failure.is_kept_by(found, subject.saying)
        if same is not None:
            tell(f"run {shrinker.runs:>3}: {size_of(scenario)}")
        return same

    whole = minimal_fields(subject.scenario) | {"seed": subject.seed}
    shrinker = Shrinker(whole, failure, same_failure, runs)
    return shrinker


def size_of(scenario: Scenario) -> str:
    """The size of a scenario as text."""
    counts = {
        "fault": len(scenario.faults),
        "validator": scenario.validators.count,
        "user": scenario.load.user_count,
        "setting": sum(1 for _ in _settings(minimal_fields(scenario))),
    }
    stop = scenario.stop
    end = f"height {stop.height}" if stop.duration_s is None else f"{stop.duration_s:,} s"
    return f"{', '.join(counted(count, word) for word, count in counts.items())}, {end}"


def shrink(
    given: Path, seed: int | None, out: Path | None, runs: int, check: str | None, saying: str, console: Console
) -> ExitCode:
    """Shrink a run's folder or a scenario file, and write the result. Raises :class:`HarnessError`."""
    subject = replace(_subject(given, seed, out), saying=saying)
    if subject.target.is_file():
        raise BadInput(f"{subject.target}: exists already: choose another --out")
    check_target(subject.target)
    with Interrupts() as interrupts:
        failure = _failure(subject, check, interrupts.checkpoint)
        tell = partial(print_line, console)
        tell(f"{subject.source}, seed {subject.seed}: {failure.text}")
        shrinker = shrinker_of(subject, failure, runs, interrupts.checkpoint, tell)
        try:
            shrink_fields(shrinker)
            ending = f"{runs} runs are used up (--runs)" if shrinker.is_used_up else ""
        except KeyboardInterrupt:
            ending = INTERRUPTED
        text = scenario_text(subject, shrinker, ending)
        if ending != INTERRUPTED:
            verify(text, subject, failure)
        write_for_user(subject.target, text)
    for line in changes_made(subject.scenario, Scenario.model_validate(shrinker.best)):
        tell(f"  {line}")
    end = f"{ending}, so it may not be minimal" if ending else "nothing more can be removed"
    tell(f"{shrinker.runs} runs; {end}; {failure.text}: {shrinker.failure.detail[:DETAIL_CHARACTERS]}")
    tell(f"written  {subject.target}")
    tell(f"again    {_command(subject)}")
    return ExitCode.INCONCLUSIVE if ending == INTERRUPTED else ExitCode.PASS


def verify(text: str, subject: Subject, failure: Failure) -> None:
    """Parse the text of the shrunk scenario and run it. Raises :class:`NotShrunk` unless it fails in the same way."""
    scenario = Scenario.model_validate(parse(text))
    found = failures_of(scenario, subject.seed, lambda: None)
    if failure.is_kept_by(found, subject.saying) is None:
        result = found[0].text if found else "does not fail at all"
        raise NotShrunk(f"the shrunk scenario {result}, expected that it {failure.text}: nothing is written")


# --- parts ----------------------------------------------------------------------------------------------------------


def _subject(given: Path, seed: int | None, out: Path | None) -> Subject:
    if not given.exists():
        raise BadInput(f"{given}: no such folder or file: expected a run's folder or a scenario")
    if not given.is_dir():
        scenario = load_scenario(given)
        target = out or given.with_name(f"{given.stem}-{SHRUNK}")
        return Subject(scenario, scenario.seed if seed is None else seed, str(given), target)
    run = read_recorded(given)
    if seed is None:
        return Subject(run.scenario, run.seed, str(given), out or given / SHRUNK, run.failed, run.commit)
    return Subject(run.scenario, seed, str(given), out or given / SHRUNK)


def _failure(subject: Subject, check: str | None, checkpoint: Callable[[], None]) -> Failure:
    """Run the scenario, and choose the failure that the shrunk scenario must keep.

    It is that of the given check; without one, the first recorded failure or, if none is recorded, the first found.
    """
    found = failures_of(subject.scenario, subject.seed, checkpoint)
    names = [kind.name for kind in kinds_of(subject.scenario)]
    if check is not None and check not in (*names, *(each.name for each in found)):
        raise BadInput(f"--check: {unknown('check', check, names)}")
    wanted = check or next(iter(subject.recorded), None)
    failure = next((each for each in found if wanted is None or each.name == wanted), None)
    if failure is None and check is None and found and found[0].is_crash:
        failure = found[0]
    if failure is not None and subject.saying not in failure.detail:
        detail = f"without {subject.saying!r} in its detail: {failure.detail[:DETAIL_CHARACTERS]}"
        raise BadInput(f"{subject.source}, seed {subject.seed}: {failure.text}, {detail}")
    if failure is None:
        instead = f"it {found[0].text} instead" if found else "it does not fail at all"
        what = f"does not fail {wanted}: {instead}" if wanted else "does not fail"
        when = (
            f" (it did at commit {subject.commit}, this is {checkout_commit()})" if wanted in subject.recorded else ""
        )
        raise BadInput(f"{subject.source}, seed {subject.seed}: {what}{when}")
    return failure


def _command(subject: Subject) -> str:
    allowing = option_for(subject.scenario, is_copy=True)
    return f"stampede run {quoted(str(subject.target))} --backend sim --seed {subject.seed}{allowing}"


def scenario_text(subject: Subject, shrinker: Shrinker[Fields, Failure], ending: str) -> str:
    """The text of the shrunk scenario's file, with a comment on its origin.

    ``ending`` says why the search ended early; empty if it did not.
    """
    shrunk, failure = Scenario.model_validate(shrinker.best), shrinker.failure
    notes = [
        f"Shrunk from {subject.source} in {shrinker.runs} runs, at commit {checkout_commit()}.",
        *([f"It may not be minimal: {ending}."] if ending else []),
        f"With seed {subject.seed} it {failure.text}: {failure.detail[:DETAIL_CHARACTERS]}",
        f"Again: {_command(subject)}",
        "Removed or changed:",
        *(f"  {line}" for line in changes_made(subject.scenario, shrunk)),
    ]
    header = "".join(f"# {line}\n" for note in notes for line in _wrapped(note))
    smallest = minimal_fields(shrunk) | {"seed": subject.seed}
    ordered = {name: smallest[name] for name in type(shrunk).model_fields if name in smallest}
    return header + "\n" + dump(ordered)


def _wrapped(text: str) -> Iterator[str]:
    line = "".join(c if c.isprintable() else " " for c in text)
    yield from textwrap.wrap(line, NOTES_WIDTH, subsequent_indent="    ", break_on_hyphens=False) or [""]


def changes_made(before: Scenario, after: Scenario) -> Iterator[str]:
    """The differences between the scenario before and after shrinking, as lines of text."""
    for what, many, few in (
        ("faults", len(before.faults), len(after.faults)),
        ("validators", before.validators.count, after.validators.count),
        ("users", before.load.user_count, after.load.user_count),
        ("forks", len(before.forks), len(after.forks)),
        ("epochs", len(before.validators.epochs), len(after.validators.epochs)),
    ):
        if many != few:
            yield f"{what}: {many} → {few}"
    large, small = minimal_fields(before), minimal_fields(after)
    for change in differences(large, small):
        if change.path.partition(".")[0] in ("faults", "forks", "seed") or change.path in _COUNTED:
            continue
        old = value_at(large, tuple(change.path.split(".")))
        yield f"{change.path}: {_short(old)} → {'default' if change.removes else _short(change.value)}"


_COUNTED: Final = frozenset({"validators.count", "validators.nodes", "validators.epochs", "load.users"})


def _short(value: Any) -> str:
    text = "default" if value is None else json.dumps(value)
    return text if len(text) <= HEAD_CHARACTERS else f"{text[: HEAD_CHARACTERS - 1]}…"


def _settings(value: Any) -> Iterator[Any]:
    """The scalar values in nested lists and dicts."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _settings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _settings(inner)
    else:
        yield value
