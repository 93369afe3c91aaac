"""The search: breadth first over the worlds, so the first violation has a shortest schedule.

A world is one state for each honest validator. What was sent follows from the states. Of worlds in which the same may
happen from now on (:mod:`kits.explore.sameness`) the first is followed. Of the others each step is
checked, and not followed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kits.explore.locals import Locals
from kits.explore.moves import Move, Moves
from kits.explore.offers import Offering, Offers
from kits.explore.replica import RESTART
from kits.explore.rules import progress_problem, world_problem
from kits.explore.sameness import Sameness
from kits.explore.scope import Facts, Scope

World = tuple[int, ...]
"""The state of each honest validator, by its number."""
TOLD_EVERY: Final = 20_000


class Step(NamedTuple):
    """A move of a schedule: which validator, and the name of the move."""

    place: int
    """The validator's place among the honest ones."""
    name: object


class Followed(NamedTuple):
    """A move, and the state to which it leads."""

    move: Move
    step: Step
    after: int


@dataclass(frozen=True)
class Found:
    """A violation, and the steps that lead to it from the start."""

    problem: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Result:
    """The end of a search."""

    scope: Scope
    states: int
    """The worlds visited; each was followed, unless ``left`` says otherwise."""
    left: int
    """The worlds that were reached and not followed."""
    moves: int
    depth: int
    local_states: tuple[int, ...]
    """The states of each honest validator."""
    outcomes: frozenset[frozenset[object]]
    """The sets of certificates of the worlds visited."""
    found: Found | None

    @property
    def is_exhausted(self) -> bool:
        return self.left == 0 and self.found is None


class Search:
    """One exploration."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._facts = Facts()
        self._offering = Offering(scope, self._facts)
        self._moves = Moves(scope)
        self._locals = [Locals(scope, self._facts, index) for index in scope.honest]
        self._followed: dict[tuple[int, int, int], tuple[Followed, ...]] = {}
        self._problems: dict[int, str | None] = {}
        self._sameness = Sameness(scope, self._moves, self._locals)
        self._worlds: list[World] = []
        self._befores = array("q")
        """The world before each world but the first."""
        self._steps: list[Step] = []
        """The step that led from there."""
        self._known: set[object] = set()
        self._outcomes: dict[int, frozenset[object]] = {}
        self._tried = 0
        self._longer: Found | None = None
        """The first violation after a world that is not followed: worlds of the next depth may have as short ones."""

    def run(
        self,
        max_states: int,
        is_over: Callable[[], bool] = lambda: False,
        tell: Callable[[int, int], None] = lambda states, depth: None,
    ) -> Result:
        """Visit worlds until all are known, one breaks a rule, ``max_states`` are known, or time is over.

        ``tell`` is called with the number of worlds and the depth now and then.
        """
        found = self._visit(tuple(0 for _ in self._locals), None)
        at, depth, ends, longer = 0, 0, len(self._worlds), None
        while found is None and at < len(self._worlds) and len(self._worlds) <= max_states:
            if at == ends:
                if longer is not None:
                    break
                depth, ends, longer = depth + 1, len(self._worlds), self._longer
            if at % TOLD_EVERY == TOLD_EVERY - 1:
                tell(len(self._worlds), depth)
            if at % 256 == 0 and is_over():
                break
            found = self._follow(at)
            at += 1
        found = found or self._longer
        local_states = tuple(len(each.all) for each in self._locals)
        outcomes = frozenset(self._outcomes.values())
        left = len(self._worlds) - at
        return Result(self.scope, len(self._worlds), left, self._tried, depth, local_states, outcomes, found)

    # --- worlds -------------------------------------------------------------------------------------------------------

    def _follow(self, at: int) -> Found | None:
        """Visit the worlds after one."""
        world = self._worlds[at]
        offers = self._offers(world)
        lives = self._lives(world)
        is_at_rest = self._can_give_up(offers)
        for place, number in enumerate(world):
            for followed in self._followed_from(place, number, offers):
                if not self._is_allowed(followed.move, lives, offers):
                    continue
                self._tried += 1
                step = followed.step
                if (problem := self._locals[place].problems[followed.after]) is not None:
                    return self._found(problem, at, step)
                if not followed.move.is_probe:
                    is_at_rest &= followed.move.name == RESTART
                    after = (*world[:place], followed.after, *world[place + 1 :])
                    if (found := self._visit(after, (at, step))) is not None:
                        return found
        return self._check_rest(at, world) if is_at_rest else None

    def _check_steps(self, world: World, offers: Offers, way: tuple[int, Step] | None, steps: list[Step]) -> None:
        """Check each step from a world that is not followed: an engine that breaks a rule may break it there alone."""
        if self._longer is not None:
            return
        for place, number in enumerate(world):
            for followed in self._followed_from(place, number, offers):
                problem = self._locals[place].problems[followed.after]
                if problem is not None and self._is_allowed(followed.move, self._lives(world), offers):
                    self._longer = self._found_after(problem, way, [*steps, followed.step])
                    return

    def _check_rest(self, at: int, world: World) -> Found | None:
        """Check that each validator is past all views where nothing more can happen."""
        states = zip(self.scope.honest, self._locals, world, strict=True)
        problem = progress_problem(self.scope, ((index, each.all[number].view) for index, each, number in states))
        return None if problem is None else self._found(problem, at, None)

    def _visit(self, world: World, way: tuple[int, Step] | None) -> Found | None:
        """Enter a world, or the one to which its eager moves lead, if it is new; check its rules."""
        world, steps, problem = self._settled(world)
        if problem is not None:
            return self._found_after(problem, way, steps)
        offers = self._offers(world)
        key = self._key(world, offers)
        if key in self._known:
            self._check_steps(world, offers, way, steps)
            return None
        self._known.add(key)
        self._worlds.append(world)
        if way is not None:
            self._befores.append(way[0])
            self._steps.append(way[1])
        if offers.number not in self._problems:
            self._problems[offers.number] = world_problem(self.scope, self._facts, offers)
            highs = (
                ("timeouts", view, of[self.scope.quorum - 1].vote.parent_view) for view, of in offers.timeouts.items()
            )
            self._outcomes[offers.number] = frozenset((*offers.certificates, *highs))
        problem = self._problems[offers.number]
        return None if problem is None else self._found_after(problem, way, steps)

    def _key(self, world: World, offers: Offers) -> object:
        return self._sameness.key(world, offers, self._lives(world))

    def _settled(self, world: World) -> tuple[World, list[Step], str | None]:
        """The world to which the eager moves lead, these moves, and the first rule that one of them breaks."""
        steps: list[Step] = []
        while (eager := self._eager(world)) is not None:
            place, followed = eager
            steps.append(followed.step)
            world = (*world[:place], followed.after, *world[place + 1 :])
            if (problem := self._locals[place].problems[followed.after]) is not None:
                return world, steps, problem
        return world, steps, None

    def _eager(self, world: World) -> tuple[int, Followed] | None:
        """The first eager move of a world that changes something."""
        if not self.scope.reduced:
            return None
        offers = self._offers(world)
        for place, number in enumerate(world):
            followed = self._followed_from(place, number, offers)
            if followed and followed[0].move.is_eager:
                return place, followed[0]
        return None

    def _can_give_up(self, offers: Offers) -> bool:
        return self.scope.give_ups is None or offers.given_up < self.scope.give_ups

    def _is_allowed(self, move: Move, lives: int, offers: Offers) -> bool:
        """Whether the scope's limits of restarts and of votes that give views up allow a move."""
        if move.name == RESTART:
            return lives < self.scope.crashes
        return not move.gives_up or self._can_give_up(offers)

    def _lives(self, world: World) -> int:
        """The number of restarts so far."""
        return sum(each.all[number].life for each, number in zip(self._locals, world, strict=True))

    def _offers(self, world: World) -> Offers:
        said = 0
        for place, number in enumerate(world):
            said |= self._locals[place].all[number].said
        return self._offering.of(said)

    def _followed_from(self, place: int, number: int, offers: Offers) -> tuple[Followed, ...]:
        """The moves of a validator that change something; an eager one alone."""
        key = place, number, offers.number
        known = self._followed.get(key)
        if known is None:
            known = self._followed[key] = tuple(self._steps_from(place, number, offers))
        return known

    def _steps_from(self, place: int, number: int, offers: Offers) -> list[Followed]:
        locals_, steps = self._locals[place], []
        before = locals_.all[number]
        for move in self._moves.of(self.scope.honest[place], before, offers):
            after = locals_.step(number, move.name, move.occurrences)
            is_gain = move.is_eager and locals_.all[after].said & ~before.said
            if after == number:
                continue
            if is_gain or (move.is_eager and not self._is_of_proposal(move)):
                return [Followed(move, Step(place, move.name), after)]
            steps.append(Followed(move._replace(is_eager=False), Step(place, move.name), after))
        return steps

    @staticmethod
    def _is_of_proposal(move: Move) -> bool:
        return getattr(move.name, "is_proposal", False)

    # --- the way to a violation ---------------------------------------------------------------------------------------

    def _found(self, problem: str, at: int, step: Step | None) -> Found:
        if step is None:
            return self._found_after(problem, self._way(at), self._eager_steps(at))
        return self._found_after(problem, (at, step), [])

    def _found_after(self, problem: str, way: tuple[int, Step] | None, last: list[Step]) -> Found:
        steps = last[::-1]
        while way is not None:
            at, step = way
            steps += [step, *self._eager_steps(at)[::-1]]
            way = self._way(at)
        return Found(problem, tuple(steps[::-1]))

    def _way(self, at: int) -> tuple[int, Step] | None:
        """The world before a world, and the step that led from there."""
        return None if at == 0 else (self._befores[at - 1], self._steps[at - 1])

    def _eager_steps(self, at: int) -> list[Step]:
        """The eager moves after the step that led to a world."""
        way = self._way(at)
        world = tuple(0 for _ in self._locals)
        if way is not None:
            before, (place, name) = way
            world = self._worlds[before]
            followed = self._followed_from(place, world[place], self._offers(world))
            after = next(each.after for each in followed if each.move.name == name)
            world = (*world[:place], after, *world[place + 1 :])
        steps = []
        while (eager := self._eager(world)) is not None:
            place, step = eager
            steps.append(step.step)
            world = (*world[:place], step.after, *world[place + 1 :])
        return steps
