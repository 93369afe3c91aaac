"""The best allocation of a lane: a knapsack in each block, solved exactly by HiGHS.

The referee knows all values. In each block it fires, of the jobs that are due and still worth something, those with
the greatest total value that fit into the lane; the others wait. So it is the best in each block, with what the blocks
before left, and not the best over all blocks: a policy that happens to wait for a better job may exceed it by a little.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import highspy
import numpy as np

from kits.market.lab.population import Job

OPTIONS: Final = (
    ("output_flag", False),
    ("threads", 1),
    ("presolve", "off"),
    ("mip_rel_gap", 0.0),
    ("mip_abs_gap", 0.0),
    ("mip_feasibility_tolerance", 1e-9),
    ("mip_heuristic_run_feasibility_jump", False),
)
"""Options of the solver. Without gaps its answer is a best one. With the default tolerance, the rounded answer could
exceed the lane by some cycles."""


class _Solver(highspy.Highs):
    """HiGHS without callbacks: enabling them prints its version, before any option can be set."""

    def enableCallbacks(self) -> None:  # noqa: N802 (the library's name)
        self.silent()


class Knapsacks:
    """Solves knapsacks: which items to take, of a value and a weight each, within a capacity."""

    def __init__(self) -> None:
        self._solver: Any = _Solver()
        for name, value in OPTIONS:
            assert self._solver.setOptionValue(name, value) == highspy.HighsStatus.kOk, name

    def best(self, values: Sequence[int], weights: Sequence[int], capacity: int) -> list[int]:
        """The places of the items of a best choice, ascending. Values and weights are positive."""
        if sum(weights) <= capacity:
            return list(range(len(values)))
        sure, open_places = reduced(values, weights, capacity)
        left = capacity - sum(weights[place] for place in sure)
        taken = self._solve([values[place] for place in open_places], [weights[place] for place in open_places], left)
        return sorted([*sure, *(open_places[place] for place in taken)])

    def _solve(self, values: Sequence[int], weights: Sequence[int], capacity: int) -> list[int]:
        if not values:
            return []
        count = len(values)
        problem: Any = highspy.HighsLp()
        problem.num_col_, problem.num_row_ = count, 1
        problem.sense_ = highspy.ObjSense.kMaximize
        problem.col_cost_ = np.array(values, np.float64) / max(values)
        problem.col_lower_, problem.col_upper_ = np.zeros(count), np.ones(count)
        problem.row_lower_, problem.row_upper_ = np.array([-highspy.kHighsInf]), np.array([float(capacity)])
        problem.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        problem.a_matrix_.start_ = np.array([0, count])
        problem.a_matrix_.index_ = np.arange(count)
        problem.a_matrix_.value_ = np.array(weights, np.float64)
        problem.integrality_ = [highspy.HighsVarType.kInteger] * count
        self._solver.passModel(problem)
        self._solver.run()
        assert self._solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        taken = [place for place, share in enumerate(self._solver.getSolution().col_value) if share > 0.5]
        assert sum(weights[place] for place in taken) <= capacity
        return taken


def reduced(values: Sequence[int], weights: Sequence[int], capacity: int) -> tuple[list[int], list[int]]:
    """Split a knapsack's items: those that each best choice takes, and those to decide about. The others are in none.

    The items do not fit together. The lane has a price: the density of the item that the linear optimum takes in part.
    At that price the linear relaxation bounds all choices. A choice that takes an item of a lower density, or leaves
    one of a higher density, loses at least the item's distance from its weight's price (Dembo and Hammer, 1980). An
    item is decided if such a choice would be worse than the greedy one. Numbers are integers, multiplied by the weight
    of the item with the price, so the split is exact.
    """
    order = sorted(range(len(values)), key=lambda place: (-values[place] / weights[place], place))
    left, split = capacity, order[0]
    for split in order:
        if weights[split] > left:
            break
        left -= weights[split]
    price, unit = values[split], weights[split]
    distances = {place: values[place] * unit - weights[place] * price for place in order}
    linear = price * capacity + sum(distance for distance in distances.values() if distance > 0)
    slack = linear - _greedy(values, weights, capacity, order) * unit
    sure, open_places = [], []
    for place, distance in distances.items():
        if abs(distance) <= slack:
            open_places.append(place)
        elif distance > 0:
            sure.append(place)
    return sure, sorted(open_places)


def _greedy(values: Sequence[int], weights: Sequence[int], capacity: int, order: Sequence[int]) -> int:
    """The value of a choice that takes each item that still fits, in an order."""
    left, found = capacity, 0
    for place in order:
        if weights[place] <= left:
            left, found = left - weights[place], found + values[place]
    return found


@lru_cache(maxsize=16)
def best_welfare(jobs: tuple[Job, ...], lane_cycles: int, after: float = 0.0) -> int:
    """The total value of the fires that the referee chooses, in wei, of the jobs that are due after a height.

    The jobs until that height take their part of the lane, but do not count. Results are cached: the markets of a seed
    meet the same jobs under each policy.
    """
    knapsacks, waiting, welfare = Knapsacks(), list[Job](), 0
    coming = sorted(jobs, key=lambda job: (-job.due, -job.number))
    height = 0
    while coming or waiting:
        height += 1
        while coming and coming[-1].due <= height:
            waiting.append(coming.pop())
        waiting = [job for job in waiting if job.value_at(height)]
        if not waiting:
            continue
        values = [job.value_at(height) for job in waiting]
        taken = set(knapsacks.best(values, [job.cycles for job in waiting], lane_cycles))
        welfare += sum(values[place] for place in taken if waiting[place].due > after)
        waiting = [job for place, job in enumerate(waiting) if place not in taken]
    return welfare
