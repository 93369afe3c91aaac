"""A search from the command line: runs the search, shrinks and simulates the best candidates, and writes the result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from cluster.commands.console.crashes import command_folder
from cluster.commands.console.output import console, print_line
from cluster.commands.sweeps.fanout import default_workers
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput, ExitCode
from cluster.common.files import all_tried, write_for_user, write_json_for_user
from cluster.common.interrupts import Interrupts
from cluster.common.strict_yaml import dump
from cluster.common.units import SECONDS_PER_MINUTE
from cluster.common.wording import counted, quoted
from cluster.record.folder import SWEEP_SUMMARY_FILE
from cluster.scenario import Scenario
from cluster.scenario.code.gate import option_for
from cluster.scenario.files import load_scenario, minimal_fields
from cluster.scenario.overrides import Change, options_text
from kits.market.dos.search.confirming import CONFIRMED_SHARE, Confirmed, confirm, confirm_seeds
from kits.market.dos.search.evaluation import Problem
from kits.market.dos.search.objectives import Objective
from kits.market.dos.search.searching import Limits, Line, Searched, search, size_of
from kits.market.dos.search.space import Attack, with_load

FOUND_FILE: Final = "found.yaml"
COIN_DIGITS: Final = 3
"""Significant digits of amounts in texts."""


def without_attackers(scenario: Scenario) -> Scenario:
    """The scenario with only its honest users. Raises :class:`BadInput` if there are none."""
    groups = [group for group in scenario.load.users if not group.is_attack]
    if not groups:
        raise BadInput(f"{scenario.name}: load.users: has no honest users, whom an attack could harm")
    return with_load(scenario, [group.model_dump(mode="json", exclude_unset=True) for group in groups], None)


def load_problem(
    path: Path, changes: Sequence[Change], objective: str, budget: int, seed: int | None, blocks: int
) -> Problem:
    """The search problem of a scenario file with changes. Without ``seed`` it has the scenario's seed. Raises
    :class:`BadInput`."""
    scenario = without_attackers(load_scenario(path, changes))
    if scenario.simulator_problem:
        raise BadInput(f"{scenario.name}: {scenario.simulator_problem}")
    text = json.dumps(scenario.model_dump(mode="json", exclude_unset=True))
    return Problem(text, objective, budget, scenario.seed if seed is None else seed, blocks)


def run_search(
    problem: Problem, command: str, limits: Limits, processes: int | None, confirmed: int, out: Path | None
) -> int:
    """Search for attacks, confirm the best, and write what was found. Returns the exit code.

    ``confirmed`` is the number of candidates to confirm. ``command`` is the command that repeats the search.
    """
    with command_folder(out, f"search-{problem.scenario.name}", goes_on=True) as folder:
        return _search_in(folder, problem, command, limits, processes or default_workers(), confirmed)


def _search_in(folder: Path, problem: Problem, command: str, limits: Limits, processes: int, confirmed: int) -> int:
    output, objective = console(), problem.objective
    print_line(output, f"searching  {problem.scenario.name}, seed {problem.seed}: {objective.figure_name}, in {folder}")

    def show(line: Line, is_best: bool) -> None:
        if is_best and line.figure is not None:
            print_line(output, f"  {line.number:>6}  {figure_text(objective, line.figure)}  {describe(line.attack)}")
        if line.problem:
            print_line(output, f"  {line.number:>6}  {line.problem}")

    with Interrupts() as interrupts:
        searched = search(problem, folder, limits, processes, interrupts, checkout_commit(), show)
        _print_rate(output, searched)
        found: list[Confirmed] = []
        if not searched.interrupted:
            try:
                best = different(searched.best, confirmed)
                found = confirm_best(problem, best, processes, interrupts, output)
            except KeyboardInterrupt:
                searched.interrupted = True
    page = summary(problem, searched, found)
    is_confirmed = bool(found) and found[0].is_confirmed
    with all_tried() as trying:
        if is_confirmed:
            again = f"stampede run {quoted(str(folder / FOUND_FILE))} --backend sim --seed {problem.seed}"
            again += option_for(problem.scenario, is_copy=True)
            notes = [f"Found by: {command}", f"Again: {again}"]
            with trying():
                write_for_user(folder / FOUND_FILE, found_text(problem, found[0], notes))
                print_line(output, f"written  {folder / FOUND_FILE}")
                print_line(output, f"again    {again}")
        with trying():
            write_json_for_user(folder / SWEEP_SUMMARY_FILE, page)
    return ExitCode.PASS if is_confirmed else ExitCode.INCONCLUSIVE


def confirm_best(
    problem: Problem,
    lines: Sequence[Line],
    processes: int,
    interrupts: Interrupts,
    output: Console,
) -> list[Confirmed]:
    """Confirm candidates and print the effect of each. Returns confirmed ones first, then by fitness."""
    objective, seeds, found = problem.objective, confirm_seeds(problem), list[Confirmed]()
    for each in confirm(problem, lines, processes, interrupts):
        found.append(each)
        tried, *simulated = [
            figure_text(objective, objective.figure(at.effect)) for at in (each.tried, *each.simulated)
        ]
        answer = "confirmed" if each.is_confirmed else f"not confirmed, below {CONFIRMED_SHARE:.0%} of its harm"
        print_line(
            output,
            f"candidate {each.line.number}: {figure_text(objective, each.line.figure)};"
            f" shrunk in {counted(each.shrinking_runs, 'run')}"
            f" from {size_of(each.line.attack)} settings to {size_of(each.attack)}: {tried};"
            f" in the simulator with seeds {seeds[0]} to {seeds[-1]}: {', '.join(simulated)}: {answer}",
        )
        print_line(output, f"  {describe(each.attack)}")
    return sorted(found, key=lambda each: (each.is_confirmed, each.worst.fitness), reverse=True)


def different(lines: list[Line], count: int) -> list[Line]:
    """The first ``count`` candidates that had an effect and differ in fitness."""
    found: dict[Any, Line] = {}
    for line in lines:
        if line.figure is not None and line.fitness.reached > 0:
            found.setdefault(line.fitness, line)
    return list(found.values())[:count]


def describe(attack: Attack) -> str:
    """Describe an attack in one line of text."""
    parts = [", ".join(f"{name} {value}" for name, value in part.items()) or "defaults" for part in attack]
    return " + ".join(parts)


def summary(problem: Problem, searched: Searched, found: list[Confirmed]) -> dict[str, Any]:
    """The content of ``summary.json``."""
    objective, best, random = problem.objective, searched.best, searched.best_of_random
    return {
        "objective": objective.name,
        "figure": objective.figure_name,
        "budget": problem.budget,
        "seed": problem.seed,
        "blocks": problem.blocks,
        "candidates": len(searched.log.entries),
        "failed": sum(bool(line.problem) for line in best),
        "best_of_random": None if random is None else random.figure,
        "best": best[0].figure if best else None,
        "found": [
            {
                "attack": each.attack,
                "trial": objective.figure(each.tried.effect),
                "simulator": [objective.figure(run.effect) for run in each.simulated],
                "seeds": list(confirm_seeds(problem)),
                "confirmed": each.is_confirmed,
                "spend": each.worst.effect.metrics["spend"],
            }
            for each in found
        ],
    }


def figure_text(objective: Objective, figure: float | None) -> str:
    """An objective's figure as text."""
    if figure is None:
        return "none"
    unit = f" {objective.unit}" if objective.unit else ""
    return f"{figure:,.{COIN_DIGITS}g}{unit}" if abs(figure) < 1e6 else f"{figure:.{COIN_DIGITS}g}{unit}"


def found_text(problem: Problem, found: Confirmed, notes: list[str]) -> str:
    """The scenario of a confirmed attack, with a comment on its effect and origin."""
    scenario = problem.attacked(found.attack).model_copy(
        update={"name": f"{problem.scenario.name}-found", "seed": problem.seed}
    )
    fields: dict[str, Any] = minimal_fields(scenario) | {"seed": problem.seed}
    fields["success"] = {"transactions": 0, "fires": 0, "heights_compared": min(30, problem.blocks)}
    header = "".join(f"# {line}\n" for line in [*notes, *_effects(problem, found)])
    return header + "\n" + dump(fields)


def _effects(problem: Problem, found: Confirmed) -> Iterator[str]:
    objective = problem.objective
    places = [f"In the simulator with seed {seed}" for seed in confirm_seeds(problem)]
    for where, each in zip(["On the trial chain", *places], [found.tried, *found.simulated], strict=True):
        did = each.effect.metrics
        yield (
            f"{where}: {objective.figure_name} {figure_text(objective, objective.figure(each.effect))}; spend"
            f" {did['spend']:.{COIN_DIGITS}g}, honest timers delayed by {did['delay_blocks']:,.0f} blocks together,"
            f" honest fires {did['honest_fires_ratio'] or 0:.0%} of the usual."
        )


def command_of(problem: Problem, path: Path, changes: Sequence[Change], policy: str | None = None) -> str:
    """The command that searches for the problem's attacks again."""
    words = ["stampede dos search", quoted(str(path)), f"--objective {problem.objective_name}"]
    words += [] if policy is None else [f"--policy {quoted(policy)}"]
    words += [f"--budget {problem.budget}", f"--blocks {problem.blocks}", f"--seed {problem.seed}"]
    return " ".join([*words, *options_text(changes)]) + option_for(problem.scenario, is_copy=False)


def _print_rate(output: Console, searched: Searched) -> None:
    minutes = searched.seconds / SECONDS_PER_MINUTE
    rate = f", {searched.evaluated / minutes:,.0f} a minute" if minutes > 0 and searched.evaluated else ""
    end = "; interrupted" if searched.interrupted else ""
    print_line(output, f"{counted(len(searched.log.entries), 'candidate')}{rate}{end}")
