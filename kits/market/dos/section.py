"""The ``dos`` section of a scenario: the attacks of ``stampede dos``, and the grades of their results.

A run does not read it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from cluster.common.suggestions import unknown
from cluster.scenario.sections.base import Height, Section
from cluster.scenario.sections.packaged import PackagedSection
from kits.market.dos.measures import METRICS
from loadgen.workloads.attacks.registry import ATTACKS
from loadgen.workloads.plan import MAX_BUDGET, MAX_USERS
from loadgen.workloads.registry import WORKLOADS
from validator.primitives.params import DEFAULTS

Grade = Literal["A", "B", "C", "D", "F"]
GRADES: Final[tuple[Grade, ...]] = ("A", "B", "C", "D", "F")
"""The grades, best first."""
ATTACK_NAMES: Final = tuple(ATTACKS)
DEFAULT_BOUNDS: Final[dict[str, tuple[float, float, float, float]]] = {
    "lateness_p99_added": (1, 3, 8, 20),
    "honest_fires_ratio": (0.98, 0.9, 0.75, 0.5),
    "user_transactions_ratio": (0.98, 0.9, 0.75, 0.5),
    "destroyed_added": (0, 1, 3, 10),
    "recovery_blocks": (2, 5, 15, 30),
    "cpu_full_ratio": (1, 1.25, 1.5, 2),
    "state_bytes_per_coin": (1e-6, 2e-6, 5e-6, 1e-5),
}
"""Default bounds of the graded metrics: the last values that get A, B, C and D.

A lost timer is worse than a late one, so one lost timer gives a B. A block may take at most 1.5 times as long as a full
one of honest users, as in the check ``bounds``: that is the C. A byte of state that is paid as a cell at the initial
basefee costs a million units: an attack that pays this much per byte gets an A, one that pays a tenth a D."""
PURSE_BLOCKS: Final = 30
PURSE: Final = PURSE_BLOCKS * DEFAULTS.lane_timer_cycles * DEFAULTS.initial_basefee
"""The attackers' default budget: the price of all cycles of the timer lane for this many blocks at the initial basefee.
So every attack has the same money, and one that outbids the lane's price runs out of it."""
NEEDED_COUNTS: Final = {"greedy-agents": 8, "sybil-fragmentation": 64}
"""Default minimum numbers of attackers, by attack. Fewer than eight greedy agents do not use up the default
``GBA_BUDGET_CYCLES``. A budget is fragmented only once its actors fill the lane while each of them fires seldom."""

Count = Annotated[int, Field(ge=1, le=MAX_USERS)]
Interval = Annotated[int, Field(ge=1, le=3_600_000)]
Budget = Annotated[int, Field(ge=1, le=MAX_BUDGET)]
Bound = Annotated[float, Field(allow_inf_nan=False)]
Bounds = Annotated[list[Bound], Field(min_length=4, max_length=4)]


class AttackSection(Section):
    """Settings of one attack that override those of ``dos``."""

    count: Count | None = None
    """Number of attackers."""
    interval_ms: Interval | None = None
    """Milliseconds between two turns of an attacker."""
    budget: Budget | None = None
    """Balance that the attackers have together at genesis, in the smallest CBY unit."""
    options: dict[str, Any] = {}
    """The attack's own options."""


class DosSection(PackagedSection):
    """The attacks of ``stampede dos``, and the grades of their results. A run does not read this section."""

    from_height: Height | None = None
    """The attack begins once this height is final; by default at a fifth of ``stop.height``."""
    until_height: Height | None = None
    """The attack ends once this height is final; by default at three fifths of ``stop.height``."""
    count: Count = 4
    """Number of attackers."""
    interval_ms: Interval = 500
    """Milliseconds between two turns of an attacker."""
    budget: Budget | None = PURSE
    """Balance of all attackers at genesis, in the smallest CBY unit; ``None``: each has an honest user's."""
    attacks: dict[str, AttackSection] = {}
    """Settings of single attacks, by name."""
    grades: dict[str, Bounds] = {}
    """For each metric the last values that get A, B, C and D; values beyond get F. They replace the default."""
    at_least: Grade = "C"
    """The grade that each attack must reach for a pass."""

    @field_validator("attacks")
    @classmethod
    def _attacks_are_right(cls, given: dict[str, AttackSection]) -> dict[str, AttackSection]:
        for name, section in given.items():
            if name not in ATTACK_NAMES:
                raise ValueError(f"{name}: {unknown('attack', name, ATTACK_NAMES)}")
            WORKLOADS[name].options_type.model_validate(section.options)
        return given

    @field_validator("grades")
    @classmethod
    def _grades_are_right(cls, given: dict[str, list[float]]) -> dict[str, list[float]]:
        for name, bounds in given.items():
            if name not in METRICS:
                raise ValueError(f"{name}: {unknown('metric', name, METRICS)}")
            rises = [later > earlier for earlier, later in pairwise(bounds)]
            if any(rises) is not all(rises) or len(set(bounds)) < len(bounds):
                raise ValueError(f"{name}: expected four bounds that rise or that fall, got {bounds}")
        return given

    @model_validator(mode="after")
    def _ends_later(self) -> DosSection:
        if self.from_height is not None and self.until_height is not None and self.until_height <= self.from_height:
            raise ValueError(f"until_height: {self.until_height} is not above from_height ({self.from_height})")
        return self

    def window(self, stop_height: int) -> tuple[int, int]:
        """The heights whose finality begins and ends the attack. Raises :class:`ValueError`."""
        first = max(1, stop_height // 5) if self.from_height is None else self.from_height
        last = max(first + 1, stop_height * 3 // 5) if self.until_height is None else self.until_height
        if not first < last < stop_height:
            raise ValueError(
                f"dos.until_height: the attack lasts from height {first} to {last};"
                f" expected from_height below until_height below stop.height ({stop_height})"
            )
        return first, last

    def group(self, attack: str, stop_height: int) -> dict[str, Any]:
        """The group of users that attacks, as plain data of ``load.users``. Raises :class:`ValueError`."""
        own = self.attacks.get(attack, AttackSection())
        first, last = self.window(stop_height)
        count = own.count or max(self.count, NEEDED_COUNTS.get(attack, 0))
        group = {"workload": attack, "count": count, "from_height": first, "until_height": last}
        group["interval_ms"] = own.interval_ms or self.interval_ms
        budget = own.budget or self.budget
        return (
            group | ({} if budget is None else {"budget": budget}) | ({"options": own.options} if own.options else {})
        )

    @property
    def bounds(self) -> dict[str, tuple[float, ...]]:
        """The bounds of each graded metric, including the defaults."""
        return {**DEFAULT_BOUNDS, **{name: tuple(bounds) for name, bounds in self.grades.items()}}


def grade(value: float, bounds: tuple[float, ...]) -> Grade:
    """The grade of a value. Ascending bounds are upper limits, descending bounds are lower limits."""
    is_rising = bounds[0] < bounds[-1]
    for letter, bound in zip(GRADES, bounds, strict=False):
        if value <= bound if is_rising else value >= bound:
            return letter
    return GRADES[-1]
