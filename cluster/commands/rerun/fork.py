"""``stampede fork``: repeats a recorded run, with other settings from a height on.

Until that height is first final, every height's digest is compared with the recorded one. Then the settings change
(:mod:`cluster.scenario.sections.forks`). The new run's scenario includes the fork, so its folder is like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

from cluster.commands.rerun.recorded_run import RecordedRun, read_recorded
from cluster.commands.rerun.replay import DoesNotRepeat
from cluster.commands.run.scenario_run import PlannedRun, perform_run
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput, ExitCode
from cluster.common.interrupts import Interrupts
from cluster.record.run import RunObserver, RunRecord
from cluster.scenario import Scenario
from cluster.scenario.files import change_scenario, minimal_fields, scenario_from
from cluster.scenario.overrides import Change, differences
from cluster.scenario.sections.forks import WHOLE, check_change, check_may_change
from cluster.watches.watched_simulation import WatchedSimulation

SHOWN_DIGITS: Final = 12


class _Forked(WatchedSimulation):
    """A simulation of a forked scenario. Just before its last fork it is compared with the recorded run.

    Raises :class:`DoesNotRepeat` if they differ.
    """

    origin: RecordedRun

    def take_fork(self, number: int) -> None:
        if number == len(self.loop.given.forks) - 1:
            for height, digest in self.record.checkpoints.items():
                if self.origin.checkpoints.get(height) != digest:
                    raise DoesNotRepeat(self.origin.difference(f"the runs differ before height {height} is final"))
        super().take_fork(number)


def fork(folder: Path, height: int, changes: Sequence[Change], seed: int | None, out: Path | None) -> ExitCode:
    """Repeat the run in a folder with changes from a height on, judge the new run and write its folder.

    Raises :class:`HarnessError`.
    """
    origin = read_recorded(folder)
    scenario = forked_scenario(origin, height, changes, seed)

    def perform(_: Path, observer: RunObserver, interrupts: Interrupts) -> AbstractContextManager[RunRecord]:
        simulation = _Forked(
            scenario,
            origin.seed,
            checkout_commit(),
            observer.on_sample,
            observer.on_notice,
            checkpoint=interrupts.checkpoint,
        )
        simulation.origin = origin
        observer.on_begin(simulation.record)
        return nullcontext(simulation.run())

    return perform_run(PlannedRun(scenario, "sim", perform), out).verdict.exit_code


def forked_scenario(origin: RecordedRun, height: int, changes: Sequence[Change], seed: int | None) -> Scenario:
    """The recorded scenario with one more fork. Forks of the scenario from that height on are dropped.

    Raises :class:`BadInput`.
    """
    source = f"{origin.folder} at height {height}"
    if height not in origin.checkpoints:
        reached = max(origin.checkpoints, default=0)
        why = f"it reached height {reached}" if reached else "its result.json has no checkpoints"
        raise BadInput(f"{source}: the run cannot be forked there: {why}")
    whole = origin.scenario
    kept = [each for each in whole.forks if each.at_height < height]
    before = _without_forks(whole) if not kept else whole.after_fork(len(kept) - 1)
    after = _changed(before, changes, source)
    section: dict[str, Any] = {
        "at_height": height,
        "origin": f"{origin.folder.name}, digest {origin.digest[:SHOWN_DIGITS]}, commit {origin.commit}",
        "changes": {change.path: change.value for change in _changes(before, after, source)},
    }
    if seed is not None:
        section["seed"] = seed
    data = whole.model_dump(mode="json", exclude_unset=True)
    data["forks"] = [*(each.model_dump(mode="json", exclude_unset=True) for each in kept), section]
    return scenario_from(data, source)


def _changed(before: Scenario, changes: Sequence[Change], source: str) -> Scenario:
    try:
        return change_scenario(before, changes, source)
    except BadInput:
        for change in changes:  # a field that cannot change is reported before a wrong value
            _check(partial(check_may_change, change.path), source)
        raise


def _check(check: Callable[[], None], source: str) -> None:
    try:
        check()
    except ValueError as error:
        raise BadInput(f"{source}: {error}") from None


def _changes(before: Scenario, after: Scenario, source: str) -> list[Change]:
    found = list(differences(before.model_dump(mode="json"), after.model_dump(mode="json"), whole=WHOLE))
    for change in found:
        _check(partial(check_change, change.path), source)
    faults = minimal_fields(after).get("faults", [])
    return [Change("faults", faults) if change.path == "faults" else change for change in found]


def _without_forks(scenario: Scenario) -> Scenario:
    return Scenario.model_validate(scenario.model_dump(mode="json", exclude_unset=True, exclude={"forks"}))
