"""``upgrade``: validators get other code, host by host, each after the earlier ones run well."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from cluster.faults.downtime import Deaths
from cluster.faults.events import Observed, ObserveProcesses, Prepare, Replace, UpgradeNext, UpgradeStart
from cluster.faults.kind import Course, Cue, OfValidators, Target
from cluster.scenario.sections.base import Height, Milliseconds
from cluster.scenario.sections.faults import VERSION_PATTERN, Facts, Problem, Release, Stop, checkout_problem
from cluster.scenario.sections.validators import MutantName, ValidatorsSection

Version = Annotated[str, Field(pattern=VERSION_PATTERN)]


class Rolling(Course):
    """A rolling upgrade."""

    plan: UpgradeFault
    watches_heights = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._deaths = Deaths(self.stage)
        self._left: list[list[int]] = []
        """The validators that still run the old code, host by host."""
        self._settles_from: int | None = None
        """The height at which the validators upgraded last were started; ``None`` while none are awaited."""

    def begin(self) -> None:
        """Prepare the new code, then upgrade the first host."""
        chosen, self._left = self.validators.pick_by_host(self.plan.target, self.lot)
        self.record.one_at_a_time = tuple(self.names_of(group) for group in self._left)
        self.come_into_force()
        self.stage.order(Prepare(chosen, self.plan.release, UpgradeNext(self.key)))

    def look(self) -> None:
        """The next host may be due."""
        if self._settles_from is not None and not self.is_over and self._has_settled(self._settles_from):
            self._settles_from = None
            self.stage.later(0, f"upgrade {self.number} goes on", UpgradeNext(self.key))

    def go_on(self, cue: Cue) -> None:
        match cue:
            case UpgradeNext():
                self._upgrade_next()
            case UpgradeStart(_, group):
                self.validators.let_up(group)
                self._settles_from = self.stage.height

    def _upgrade_next(self) -> None:
        """Upgrade the next host. If none is left, or a validator diverged with the new code, end the upgrade."""
        plan, stage = self.plan, self.stage
        if self.is_over:
            return
        diverged = self.names_of([index for index in self.targets if stage.seat(index).has_diverged])
        if diverged:
            self.record.problem = (
                f"{diverged[0]} diverged with version {plan.version}: no other validator was upgraded then"
            )
        if diverged or not self._left:
            self.end()
            return
        group = self._left.pop(0)
        self.targets += group
        self.record.targets = self.names_of(self.targets)
        self._deaths.expect(group)
        self.validators.hold_down(group)
        stage.order(Replace(group, plan.release))
        stage.notice(f"version {plan.version} goes to {', '.join(self.names_of(group))}")
        stage.later(plan.down_ms, f"upgrade {self.number}", UpgradeStart(self.key, group))

    def _has_settled(self, since: int) -> bool:
        """Whether all upgraded validators have advanced far enough since a height, or one has diverged. Byzantine ones
        need only be up: their own misbehaviour says nothing about the code.
        """
        seats = {index: self.stage.seat(index) for index in self.targets}
        if any(seat.has_diverged for seat in seats.values()):
            return True
        goal = since + self.plan.heights_between
        honest = filter(self.validators.is_honest, self.targets)
        return all(seat.is_up for seat in seats.values()) and all(seats[index].height >= goal for index in honest)

    def observe(self) -> None:
        self.stage.order(ObserveProcesses(self.key, self.targets, self.plan.release))

    def conclude(self, seen: Observed) -> str:
        count = len(self.targets)
        self.record.took_effect = self._deaths.have_happened() and seen.running == count
        runs = f"{seen.running} of {count} validators run version {self.plan.version} now"
        return ", ".join(filter(None, (runs, seen.evidence)))


class UpgradeFault(OfValidators):
    """Validators get other code, one host after the other: each stops gracefully and starts again from its disk.

    The next host follows when the validators of the last one have finalised ``heights_between`` heights with the new
    code. The upgrade ends if one of them diverges.
    """

    FACTS = Facts(restarts_from="disk")
    SHOWN = ("version", "code", "mutant")
    COURSE = Rolling
    DRAWN = {
        "down_ms": lambda drawing: drawing.random.randint(0, 4 * drawing.interval_ms),
        "heights_between": lambda drawing: drawing.random.choice([1, 2]),
    }

    kind: Literal["upgrade"]
    target: Target | None = None
    """The order, by hosts; ``None`` means all validators."""
    version: Version = "2"
    """Name of the new code."""
    code: str | None = None
    """Folder of another checkout, on the live testnet; ``None`` is the same code under a new name."""
    mutant: MutantName | None = None
    """A planted bug of the new code, by its name (``docs/mutants.md``)."""
    down_ms: Milliseconds = 500
    """Minimum time that each host stays down."""
    heights_between: Height = 3
    """Heights that a host's validators finalise with the new code before the next host follows."""

    @property
    def release(self) -> Release:
        return Release(self.version, self.code, self.mutant)

    def check_fits(self, validators: ValidatorsSection, stop: Stop) -> None:
        """No planted bug of new code may be in a transition that another program does."""
        super().check_fits(validators, stop)
        if self.mutant is not None:
            targets = validators.names if self.target is None or self.keyword else self.target
            if found := [name for name in targets if name in validators.executors]:
                raise ValueError(
                    f".mutant: {found[0]} has an executor, so it may have no planted bug; the executor may have one"
                )

    @property
    def live_problem(self) -> Problem | None:
        return None if self.code is None else checkout_problem(self.code)

    @property
    def simulator_problem(self) -> Problem | None:
        if self.code is None:
            return None
        return (
            ".code",
            "only the live testnet can do this (--backend live): all machines of the simulator run in one process; see"
            " mutant",
        )

    @property
    def length_field(self) -> str:
        return ""

    def end_ms(self, begins_ms: float, each_ms: float, validators: ValidatorsSection, height_ms: float) -> float:
        hosts = validators.host_count if self.target is None else len(self.target)
        return begins_ms + hosts * (self.down_ms + self.heights_between * each_ms)
