"""Drills: a scenario built from a few options, with expectations that are printed before the run and judged after it.

A drill is a frozen dataclass whose fields are its options (:func:`option`). Each expectation becomes a check in the
verdict, after those of every run (:mod:`cluster.checks.run`). It has a name, a sentence, and a judge that reads the
run's books.

A judge uses the scenario that ran, which may have been changed. It uses the options only for bounds that no scenario
has. If the subject of a drill did not occur, or an interrupted run did not reach it, the expectation is *inconclusive*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Final

from cluster.audit.books import Books
from cluster.checks.verdict import Check
from cluster.common.outcome import Outcome
from cluster.common.wording import quoted
from cluster.record.run import Backend
from cluster.scenario import Scenario
from cluster.scenario.overrides import Change, options_text
from consensus.types import fault_bound

PREFIX: Final = "drill_"
"""Prefix of the names of a drill's checks."""

Judgement = tuple[Outcome, str]
"""The outcome of an expectation, and a text with its numbers."""

CONSENSUS: Final[dict[str, Any]] = {
    "block_interval_ms": 200,
    "leader_timeout_ms": 1_500,
    "advance_timeout_ms": 2_500,
    "rebroadcast_ms": 1_000,
}
"""Timing that a busy laptop with all validators can keep up with."""
LOAD: Final[dict[str, Any]] = {
    "users": [
        {"workload": "heartbeat", "count": 4},
        {"workload": "flood", "count": 2, "options": {"timers": 12, "burn": 2_000}},
        {"workload": "transfer", "count": 2},
    ]
}
TIMEOUT_S: Final = 300
"""Time limit of a run in seconds, including its start. A drill whose length depends on its options adds to it."""
STARTING_S: Final = 120
"""Time limit in seconds for the start of live processes on a busy machine. This time does not count against the chain.
Another bound covers the time from the start until the chain continues."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation of a drill, with the function that judges it by a run's books."""

    name: str
    """Name of its check, without :data:`PREFIX`."""
    text: str
    """The sentence that is printed before the run."""
    judge: Callable[[Books], Judgement]

    def check(self, books: Books) -> Check:
        """Judge this expectation by a run's books. Returns the outcome as a check of the verdict."""
        return Check(PREFIX + self.name, *self.judge(books))


def option(default: Any, text: str, least: int = 1, most: int = 10_000, choices: Sequence[str] = ()) -> Any:
    """Declare a field of a drill as an option: a number between two bounds, or one of several words."""
    return field(default=default, metadata={"text": text, "least": least, "most": most, "choices": tuple(choices)})


@dataclass(frozen=True)
class Drill(ABC):
    """A drill with the values of its options: a scenario with expectations."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for the help text."""

    @abstractmethod
    def scenario(self) -> Scenario:
        """The scenario, built from the options."""

    @abstractmethod
    def expectations(self, scenario: Scenario) -> list[Expectation]:
        """The expectations, in addition to the checks of every run. ``scenario`` is the one that runs, with changes."""

    def alongside(self, scenario: Scenario, folder: Path) -> AbstractContextManager[None]:
        """What runs alongside the testnet, from before its start until after its end; by default nothing.

        ``scenario`` is the one that runs, ``folder`` the run's. May raise :class:`~cluster.common.errors.HarnessError`.
        """
        return nullcontext()

    def problem(self, backend: Backend) -> str | None:
        """Why the drill cannot run on a backend, in one line; ``None`` if it can."""
        return self.scenario().live_problem if backend == "live" else None

    def judge(self, books: Books, checks: tuple[Check, ...]) -> tuple[Check, ...]:
        """The verdict's checks: ``checks``, which are those of every run, then the drill's."""
        expected = self.expectations(books.record.scenario)
        return (*checks, *(expectation.check(books) for expectation in expected))

    def command(self, changes: Sequence[Change] = ()) -> str:
        """The command that runs the drill with these options and changes, without backend and seed."""
        given = [each for each in fields(self) if getattr(self, each.name) != each.default]
        options = [f"--{option_name(each)} {quoted(str(getattr(self, each.name)))}" for each in given]
        return " ".join(("stampede drill", self.name, *options, *options_text(changes)))

    def page(self, scenario: Scenario, changes: Sequence[Change] = ()) -> dict[str, Any]:
        """The field ``drill`` of ``result.json``."""
        expected = [{"check": PREFIX + each.name, "text": each.text} for each in self.expectations(scenario)]
        return {
            "name": self.name,
            "options": {option_name(each): getattr(self, each.name) for each in fields(self)},
            "changes": options_text(changes),
            "expectations": expected,
        }

    def build(self, **sections: Any) -> Scenario:
        """Build a scenario from these sections, with the common sections of drills as defaults."""
        common: dict[str, Any] = {
            "name": f"drill-{self.name}",
            "description": self.summary,
            "validators": {},
            "load": LOAD,
            "stop": {"height": 40, "drain_blocks": 5, "timeout_s": TIMEOUT_S},
            "success": {"heights_compared": 30, "transactions": 30, "fires": 50},
        }
        consensus = CONSENSUS | sections.get("consensus", {})
        return Scenario.model_validate(common | sections | {"consensus": consensus})


def option_name(each: Field[Any]) -> str:
    """The name of a drill's field on the command line, without ``--``."""
    return each.name.replace("_", "-")


def names_of(count: int) -> list[str]:
    """The names of a drill's ``count`` validators."""
    return [f"validator-{index}" for index in range(count)]


def kills(names: Sequence[str], height: int, down_ms: int, how: str = "actor") -> list[dict[str, Any]]:
    """The faults, as in a scenario, that kill these validators at the same height: one fault per validator."""
    return [{"kind": "kill", "target": name, "at_height": height, "down_ms": down_ms, "how": how} for name in names]


def one_too_many(count: int) -> int:
    """The smallest number of validators whose loss leaves no quorum."""
    return fault_bound(count) + 1
