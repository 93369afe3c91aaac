"""A search from the command line: the loop, then the best in the simulator, shrunk, and written as a scenario."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console

from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput, ExitCode
from cluster.common.files import write_for_user
from cluster.common.interrupts import Interrupts
from cluster.common.wording import counted
from cluster.record.folder import SWEEP_SUMMARY_FILE, new_run_folder
from cluster.scenario import Scenario, change_scenario, load_scenario, minimal_fields
from cluster.scenario.overrides import options_of, options_text
from cluster.tools.console.output import console, print_line
from cluster.tools.load.dos.search.confirming import Confirmed, Confirmer
from cluster.tools.load.dos.search.evaluation import Problem
from cluster.tools.load.dos.search.evolution import size_of
from cluster.tools.load.dos.search.log import Line
from cluster.tools.load.dos.search.objectives import Objective
from cluster.tools.load.dos.search.searching import Limits, Searched, search
from cluster.tools.load.dos.search.shrinking import Shrinker
from cluster.tools.load.dos.search.space import Attack, with_load
from cluster.tools.sweeps.fanout import default_workers

FOUND_FILE: Final = "found.yaml"
SECONDS_PER_MINUTE: Final = 60
SHRINK_RUNS: Final = 80
MEASURED_SCENARIO: Final = "narrow-lanes"
MEASURED_BUDGET, MEASURED_BLOCKS = 5 * 10**13, 200
"""Of the search whose rate is measured."""
COIN_DIGITS: Final = 3
"""Significant digits of an amount in a text."""
KEPT_SHARE: Final = 0.9
"""Of the figure of an attack, what is left of it once it is shrunk."""


def without_attackers(scenario: Scenario) -> Scenario:
    """The scenario with its honest users. Raises :class:`BadInput` if there are none."""
    groups = [group for group in scenario.load.users if not group.is_attack]
    if not groups:
        raise BadInput(f"{scenario.name}: load.users: has no honest users, whom an attack could harm")
    return with_load(scenario, [group.model_dump(mode="json", exclude_unset=True) for group in groups], None)


def problem_of(options: Any) -> Problem:
    """The problem that the options state. Raises :class:`BadInput`."""
    source = f"{options.scenario} with {options_of(options.changes)}"
    scenario = without_attackers(change_scenario(load_scenario(options.scenario), options.changes, source))
    if scenario.simulator_problem:
        raise BadInput(f"{scenario.name}: {scenario.simulator_problem}")
    seed = scenario.seed if options.seed is None else options.seed
    text = json.dumps(scenario.model_dump(mode="json", exclude_unset=True))
    return Problem(text, options.objective, options.budget, seed, options.blocks)


def run_search(options: Any) -> int:
    """Search with these options; returns the exit code."""
    problem, output = problem_of(options), console()
    folder = options.out or new_run_folder(f"search-{problem.scenario.name}", datetime.now(UTC))
    limits = Limits(options.minutes * SECONDS_PER_MINUTE, options.candidates)
    objective = problem.objective
    print_line(output, f"searching  {problem.scenario.name}, seed {problem.seed}: {objective.figure_name}, in {folder}")

    def show(line: Line, is_best: bool) -> None:
        if is_best and line.figure is not None:
            print_line(output, f"  {line.number:>6}  {figure_text(objective, line.figure)}  {describe(line.attack)}")
        if line.problem:
            print_line(output, f"  {line.number:>6}  {line.problem}")

    with Interrupts() as interrupts:
        processes = options.processes or default_workers()
        searched = search(problem, folder, limits, processes, interrupts, checkout_commit(), show)
        _print_rate(output, searched)
        found: list[Confirmed] = []
        if not searched.interrupted:
            try:
                found = confirm_best(problem, searched, options.confirm, interrupts, output)
            except KeyboardInterrupt:
                searched.interrupted = True
    page = summary(problem, searched, found)
    if found:
        again = f"stampede run {shlex.quote(str(folder / FOUND_FILE))} --backend sim --seed {problem.seed}"
        notes = [f"Found by: {command_of(options, problem)}", f"Again: {again}"]
        write_for_user(folder / FOUND_FILE, found_text(problem, found[0], notes))
        print_line(output, f"written  {folder / FOUND_FILE}")
        print_line(output, f"again    {again}")
    write_for_user(folder / SWEEP_SUMMARY_FILE, json.dumps(page, indent=2) + "\n")
    return ExitCode.PASS if found else ExitCode.INCONCLUSIVE


def confirm_best(
    problem: Problem, searched: Searched, count: int, interrupts: Interrupts, output: Console
) -> list[Confirmed]:
    """The best candidates in the simulator, shrunk before; the worst for the chain first."""
    confirmer = Confirmer(problem, interrupts.checkpoint)
    objective = problem.objective
    confirmed: list[Confirmed] = []
    for line in different(searched.best, count):
        found = problem.evaluate(line.attack)
        shrinker = Shrinker(problem, line.attack, found, SHRINK_RUNS, KEPT_SHARE, interrupts.checkpoint)
        attack = shrinker.shrink()
        each = confirmer.confirm(attack, shrinker.found)
        confirmed.append(each)
        figures = [figure_text(objective, objective.figure(at.measures)) for at in (found, each.tried, each.simulated)]
        print_line(
            output,
            f"candidate {line.number}: {figures[0]}; shrunk in {counted(shrinker.runs, 'run')} from"
            f" {size_of(line.attack)} settings to {size_of(attack)}: {figures[1]}; in the simulator: {figures[2]}",
        )
        print_line(output, f"  {describe(attack)}")
    return sorted(confirmed, key=lambda each: each.simulated.fitness, reverse=True)


def different(lines: list[Line], count: int) -> list[Line]:
    """The first candidates that did something, of those with equal fitness one."""
    found: dict[Any, Line] = {}
    for line in lines:
        if line.figure is not None and line.fitness.reached > 0:
            found.setdefault(line.fitness, line)
    return list(found.values())[:count]


def describe(attack: Attack) -> str:
    """An attack in one line."""
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
        "candidates": len(searched.log.lines),
        "failed": sum(bool(line.problem) for line in best),
        "best_of_random": None if random is None else random.figure,
        "best": best[0].figure if best else None,
        "found": [
            {
                "attack": each.attack,
                "trial": objective.figure(each.tried.measures),
                "simulator": objective.figure(each.simulated.measures),
                "spend": each.simulated.measures.spend,
            }
            for each in found
        ],
    }


def figure_text(objective: Objective, figure: float | None) -> str:
    """An objective's figure as people read it."""
    if figure is None:
        return "none"
    unit = f" {objective.unit}" if objective.unit else ""
    return f"{figure:,.{COIN_DIGITS}g}{unit}" if abs(figure) < 1e6 else f"{figure:.{COIN_DIGITS}g}{unit}"


def found_text(problem: Problem, found: Confirmed, notes: list[str]) -> str:
    """The scenario of a confirmed attack, with a comment that says what it does and where it comes from."""
    scenario = problem.attacked(found.attack).model_copy(
        update={"name": f"{problem.scenario.name}-found", "seed": problem.seed}
    )
    fields: dict[str, Any] = minimal_fields(scenario) | {"seed": problem.seed}
    fields["success"] = {"transactions": 0, "fires": 0, "heights_compared": min(30, problem.blocks)}
    header = "".join(f"# {line}\n" for line in [*notes, *_effects(problem, found)])
    return header + "\n" + yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)


def _effects(problem: Problem, found: Confirmed) -> Iterator[str]:
    objective = problem.objective
    for where, each in (("trial chain", found.tried), ("simulator", found.simulated)):
        measures = each.measures
        yield (
            f"On the {where}: {objective.figure_name} {figure_text(objective, objective.figure(measures))}; spend"
            f" {measures.spend:.{COIN_DIGITS}g}, honest timers delayed by {measures.delay_blocks:,.0f} blocks together,"
            f" honest fires {measures.honest_fires_ratio or 0:.0%} of the usual."
        )


def command_of(options: Any, problem: Problem) -> str:
    """The command of this search."""
    words = ["stampede dos search", shlex.quote(str(options.scenario)), f"--objective {problem.objective_name}"]
    words += [f"--budget {problem.budget}", f"--blocks {problem.blocks}", f"--seed {problem.seed}"]
    return " ".join([*words, *options_text(options.changes)])


def search_candidates_per_minute(folder: Path, candidates: int, processes: int) -> float:
    """The rate of a search on the default scenario, for benchmarks; ``folder`` is new. The start of Ray counts."""
    scenario = load_scenario(MEASURED_SCENARIO)
    text = json.dumps(scenario.model_dump(mode="json", exclude_unset=True))
    problem = Problem(text, "lateness", MEASURED_BUDGET, scenario.seed, MEASURED_BLOCKS)
    with Interrupts() as interrupts:
        searched = search(problem, folder, Limits(None, candidates), processes, interrupts)
    return searched.evaluated / searched.seconds * SECONDS_PER_MINUTE


def _print_rate(output: Console, searched: Searched) -> None:
    minutes = searched.seconds / SECONDS_PER_MINUTE
    rate = f", {searched.evaluated / minutes:,.0f} a minute" if minutes > 0 and searched.evaluated else ""
    end = "; interrupted" if searched.interrupted else ""
    print_line(output, f"{counted(len(searched.log.lines), 'candidate')}{rate}{end}")
