"""What a drill is: a scenario built from a few options, and what is expected of it, said before and judged after.

A drill is a frozen dataclass whose fields are its options (:func:`option`). Its expectations become checks of their own
in the verdict, behind those of every run (:mod:`cluster.checks.run`): each has a name, a sentence that is printed
before the run, and a judge that reads the run's books. Where what a drill is about did not come about, the expectation
is *inconclusive*, never met.

Options build the scenario, which may be changed before it runs: a judge goes by the scenario that ran. It asks the
options for bounds alone that no scenario has. Where changes took away what the drill is about, it is inconclusive, and
so is what an interrupted run did not get to.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Final

from cluster.audit.books import Books
from cluster.checks.verdict import Check
from cluster.common.outcome import Outcome
from cluster.record.run import Backend
from cluster.scenario import Scenario
from cluster.scenario.overrides import Change, change_words
from consensus.types import fault_bound

PREFIX: Final = "drill_"
"""Of the names of a drill's own checks."""

Judgement = tuple[Outcome, str]
"""What came of an expectation, with the numbers behind it."""

CONSENSUS: Final[dict[str, Any]] = {
    "block_interval_ms": 200,
    "leader_timeout_ms": 1_500,
    "advance_timeout_ms": 2_500,
    "rebroadcast_ms": 1_000,
}
"""Timeouts that a busy laptop keeps, with processes for all validators on it."""
LOAD: Final[dict[str, Any]] = {
    "users": [
        {"workload": "heartbeat", "count": 4},
        {"workload": "flood", "count": 2, "options": {"timers": 12, "burn": 2_000}},
        {"workload": "transfer", "count": 2},
    ]
}
TIMEOUT_S: Final = 300
"""After which a run is given up, its start included; a drill whose length follows from its options takes more."""
STARTING_S: Final = 120
"""That live processes take to start again at most, on a machine that has other things to do: no merit of the chain. How
fast it goes on once they are there is another bound."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that a drill expects."""

    name: str
    """Of its check, without :data:`PREFIX`."""
    text: str
    """One sentence, for people, before the run."""
    judge: Callable[[Books], Judgement]

    def check(self, books: Books) -> Check:
        """Whether it is met."""
        return Check(PREFIX + self.name, *self.judge(books))


def option(default: Any, text: str, least: int = 1, most: int = 10_000, choices: Sequence[str] = ()) -> Any:
    """A drill's option: a number between two bounds, or a word out of several."""
    return field(default=default, metadata={"text": text, "least": least, "most": most, "choices": tuple(choices)})


@dataclass(frozen=True)
class Drill(ABC):
    """One drill with its options."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """What it does, in one line."""

    @abstractmethod
    def scenario(self) -> Scenario:
        """What runs."""

    @abstractmethod
    def expectations(self, scenario: Scenario) -> list[Expectation]:
        """What must come of it, besides what must of every run. ``scenario`` is what runs, changes included."""

    def problem(self, backend: Backend) -> str | None:
        """Why it cannot run on a backend, in one line; ``None`` where it can."""
        return self.scenario().live_problem if backend == "live" else None

    def judge(self, books: Books, checks: tuple[Check, ...]) -> tuple[Check, ...]:
        """The verdict's checks: those of every run, ``checks``, then the drill's own."""
        expected = self.expectations(books.record.scenario)
        return (*checks, *(expectation.check(books) for expectation in expected))

    @property
    def options(self) -> dict[str, Any]:
        """Its options by name, as the command line has them."""
        return {option_name(each): getattr(self, each.name) for each in fields(self)}

    def command(self, changes: Sequence[Change] = ()) -> str:
        """The command that runs it with these options and changes, without backend and seed."""
        given = [each for each in fields(self) if getattr(self, each.name) != default_of(each)]
        words = [f"--{option_name(each)} {shlex.quote(str(getattr(self, each.name)))}" for each in given]
        return " ".join(("stampede drill", self.name, *words, *change_words(changes)))

    def page(self, scenario: Scenario, changes: Sequence[Change] = ()) -> dict[str, Any]:
        """The drill as ``result.json`` has it."""
        expected = [{"check": PREFIX + each.name, "text": each.text} for each in self.expectations(scenario)]
        return {
            "name": self.name,
            "options": self.options,
            "changes": change_words(changes),
            "expectations": expected,
        }

    def build(self, **sections: Any) -> Scenario:
        """A scenario of these sections, and of what drills have in common where they do not say otherwise."""
        validators = sections.get("validators", {})
        common: dict[str, Any] = {
            "name": f"drill-{self.name}",
            "description": self.summary,
            "consensus": CONSENSUS,
            "load": LOAD,
            "stop": {"height": 40, "drain_blocks": 5, "timeout_s": TIMEOUT_S},
            "success": {"heights_compared": 30, "transactions": 30, "fires": 50},
        }
        common["consensus"] = CONSENSUS | sections.pop("consensus", {})
        return Scenario.model_validate(common | sections | {"validators": validators})


def option_name(each: Field[Any]) -> str:
    """A field's name as an option."""
    return each.name.replace("_", "-")


def default_of(each: Field[Any]) -> Any:
    """A field's default."""
    assert each.default is not MISSING, "every option has a default"
    return each.default


def names_of(count: int) -> list[str]:
    """The validators' names in a drill."""
    return [f"validator-{index}" for index in range(count)]


def kills(names: Sequence[str], height: int, down_ms: int) -> list[dict[str, Any]]:
    """A kill of each of them at the same height; both backends know kills of one."""
    return [{"kind": "kill", "target": name, "at_height": height, "down_ms": down_ms} for name in names]


def one_too_many(count: int) -> int:
    """How many validators must be gone for the others to be no quorum."""
    return fault_bound(count) + 1
