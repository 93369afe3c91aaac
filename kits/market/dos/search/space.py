"""The space of attacks: its genes, and how they are drawn, changed and mixed.

An attack (:class:`Attack`) is up to :data:`MAX_PARTS` groups of users of the workload ``composed`` that share a budget.
Each group has separate genes: its size (``count``) and ``share`` of the budget, its times (``interval_ms``,
``from_height``, ``until_height``), and the options of the workload, with the ranges of their model. A gene that an
attack does not state has its default, so attacks stay simple.

Everything is drawn from the given random source, and nothing depends on the order of a set or a hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from math import exp, log
from random import Random
from typing import Any, Final, get_args

from pydantic.fields import FieldInfo

from cluster.scenario import Scenario
from loadgen.workloads.attacks.composed import Composed, ComposedOptions

Value = int | str
Part = dict[str, Value]
Attack = list[Part]
"""An attack: a list of parts. A part is a group of users, with the genes in which it differs from the defaults."""

MAX_PARTS: Final = 3
STATED: Final = 0.12
"""The probability with which a random part states a gene."""
OFTEN_STATED: Final = {
    **dict.fromkeys(("count", "interval_ms", "timers", "burn"), 0.7),
    **dict.fromkeys(("due_blocks", "spread_blocks", "wait_blocks", "bid", "tip_milli"), 0.35),
    **dict.fromkeys(("above_backlog", "below_price_percent"), 0.05),
}
"""Exceptions to :data:`STATED`, keyed by gene. They are higher for genes that most attacks need, and lower for genes
that keep most attacks from acting at all."""
LOGARITHMIC_FROM: Final = 50
"""Genes are drawn on a logarithmic scale if their maximum is at least this many times their minimum."""
STEP: Final = 0.2
"""Standard deviation of a small change of a gene's value, as a share of the gene's range."""
MAX_COUNT: Final = 64
TIMEOUT_S: Final = 3_600
"""Time limit of a run in the simulator, in simulated seconds."""


@dataclass(frozen=True, slots=True)
class Gene:
    """A gene: an integer in a range, or one of some words."""

    name: str
    default: Value
    least: int = 0
    most: int = 0
    words: tuple[str, ...] = ()

    def draw(self, random: Random) -> Value:
        """A random value."""
        if self.words:
            return random.choice(self.words)
        return self._at(random.random())

    def near(self, value: Value, random: Random) -> Value:
        """A random integer near ``value`` or, if the gene's values are words, any of them."""
        if self.words:
            return random.choice(self.words)
        assert isinstance(value, int)
        return self._at(min(1.0, max(0.0, self._place(value) + random.gauss(0.0, STEP))))

    @property
    def _is_logarithmic(self) -> bool:
        return self.most >= LOGARITHMIC_FROM * max(1, self.least)

    def _scaled(self, value: int) -> float:
        return log(value + 1) if self._is_logarithmic else value

    def _at(self, place: float) -> int:
        """The integer at a position of the gene's range; positions are from 0 to 1."""
        first = self._scaled(self.least)
        found = first + place * (self._scaled(self.most) - first)
        value = round(exp(found)) - 1 if self._is_logarithmic else round(found)
        return min(self.most, max(self.least, value))

    def _place(self, value: int) -> float:
        first, width = self._scaled(self.least), self._scaled(self.most) - self._scaled(self.least)
        return (self._scaled(value) - first) / width if width else 0.0


OF_GROUPS: Final = ("count", "share", "interval_ms", "from_height", "until_height")
"""Genes that are fields of a group of users, not options of its workload."""


@dataclass(frozen=True, slots=True)
class Space:
    """The space of attacks on a scenario. It draws, changes and mixes attacks, and turns them into groups of users."""

    genes: tuple[Gene, ...]
    budget: int
    """Budget of all attackers together, in the smallest CBY unit."""

    @staticmethod
    def of(scenario: Scenario, budget: int, blocks: int) -> Space:
        """The space of attacks on a scenario's honest users in runs of ``blocks`` blocks."""
        interval = max(1, scenario.consensus.block_interval_ms)
        honest = max(1, scenario.load.user_count)
        groups = (
            Gene("count", 1, 1, MAX_COUNT),
            Gene("share", 1, 1, 9),
            Gene("interval_ms", 4 * interval, interval, 64 * interval),
            Gene("from_height", blocks // 10, 1, blocks // 2),
            Gene("until_height", blocks, blocks // 2, blocks),
        )
        return Space((*groups, *(_bounded(gene, honest) for gene in option_genes())), budget)

    # --- drawing ------------------------------------------------------------------------------------------------------

    def draw(self, random: Random) -> Attack:
        """A random attack. Small numbers of parts are more likely."""
        parts = min(MAX_PARTS, 1 + int(random.expovariate(1.2)))
        return [self._draw_part(random) for _ in range(parts)]

    def change(self, attack: Attack, random: Random) -> Attack:
        """A copy of an attack with one to three random changes."""
        changed = [dict(part) for part in attack]
        for _ in range(random.choice((1, 1, 2, 3))):
            kind = random.random()
            if kind < 0.06 and len(changed) < MAX_PARTS:
                changed.append(self._draw_part(random))
            elif kind < 0.14 and len(changed) > 1:
                changed.pop(random.randrange(len(changed)))
            else:
                self._change_gene(random.choice(changed), random)
        return changed

    def mix(self, one: Attack, other: Attack, random: Random) -> Attack:
        """A mix of two attacks: one part has genes of a part of each attack, or the parts come from both attacks."""
        if random.random() < 0.25:
            parts = [*one, *other]
            return [dict(part) for part in random.sample(parts, min(MAX_PARTS, max(2, len(one))))]
        mixed = [dict(part) for part in one]
        mine, theirs = random.choice(mixed), random.choice(other)
        for gene in self.genes:
            if random.random() < 0.5:
                mine.pop(gene.name, None)
                if gene.name in theirs:
                    mine[gene.name] = theirs[gene.name]
        return mixed

    def _draw_part(self, random: Random) -> Part:
        part: Part = {}
        for gene in self.genes:
            if random.random() < OFTEN_STATED.get(gene.name, STATED):
                self._state(part, gene, gene.draw(random))
        return part

    def _change_gene(self, part: Part, random: Random) -> None:
        gene = random.choice(self.genes)
        kind = random.random()
        if gene.name in part and kind < 0.2:
            del part[gene.name]
        elif kind < 0.6:
            self._state(part, gene, gene.near(part.get(gene.name, gene.default), random))
        else:
            self._state(part, gene, gene.draw(random))

    @staticmethod
    def _state(part: Part, gene: Gene, value: Value) -> None:
        if value == gene.default:
            part.pop(gene.name, None)
        else:
            part[gene.name] = value

    # --- scenarios ----------------------------------------------------------------------------------------------------

    def groups(self, attack: Attack) -> list[dict[str, Any]]:
        """The attack as groups of ``load.users``. Each gets a share of the budget, in whole units and at least one."""
        shares = [int(part.get("share", 1)) for part in attack]
        return [
            self._group(part, self.budget * share // sum(shares)) for part, share in zip(attack, shares, strict=True)
        ]

    def _group(self, part: Part, budget: int) -> dict[str, Any]:
        values = {gene.name: part.get(gene.name, gene.default) for gene in self.genes}
        options = {name: value for name, value in part.items() if name not in OF_GROUPS}
        return {
            "workload": Composed.name,
            "count": values["count"],
            "interval_ms": values["interval_ms"],
            "from_height": values["from_height"],
            "until_height": values["until_height"],
            "budget": max(1, budget),
            "options": {name: options[name] for name in sorted(options)},
        }

    def attacked(self, scenario: Scenario, attack: Attack, blocks: int) -> Scenario:
        """The scenario with its users followed by the attackers, stopped after ``blocks`` blocks."""
        return with_load(scenario, [*_group_fields(scenario), *self.groups(attack)], blocks)


def with_load(scenario: Scenario, groups: Sequence[Mapping[str, Any]], blocks: int | None) -> Scenario:
    """The scenario with these groups of users, stopped after ``blocks`` blocks; ``None`` keeps its stop condition."""
    fields = scenario.model_dump(mode="json", exclude_unset=True)
    fields["load"] = fields.get("load", {}) | {"users": list(groups)}
    if blocks is not None:
        fields["stop"] = {"height": blocks + 1, "timeout_s": TIMEOUT_S}
    return Scenario.model_validate(fields)


def _group_fields(scenario: Scenario) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scenario.load.model_dump(mode="json", exclude_unset=True).get("users", [])
    return found


@cache
def option_genes() -> tuple[Gene, ...]:
    """A gene for each option of the workload, with its range."""
    return tuple(_gene_of(name, field) for name, field in ComposedOptions.model_fields.items())


def _gene_of(name: str, field: FieldInfo) -> Gene:
    kind, default = field.annotation, field.default
    if isinstance(kind, type) and issubclass(kind, Enum):
        return Gene(name, str(default), words=tuple(str(word) for word in kind))
    if words := get_args(kind):
        return Gene(name, default, words=words)
    least = next(rule.ge for rule in field.metadata if hasattr(rule, "ge"))
    most = next(rule.le for rule in field.metadata if hasattr(rule, "le"))
    return Gene(name, default, least, most)


def _bounded(gene: Gene, honest: int) -> Gene:
    """A gene with its final range. The gene ``target`` is limited to the honest users; all others are unchanged."""
    return Gene(gene.name, gene.default, 0, honest - 1) if gene.name == "target" else gene
