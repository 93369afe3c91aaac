"""Groups actors into classes, by workload and program or by name, and measures how the timers of each class fared.

Lateness and fairness are given per class: an average over all actors would hide that one class waits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cluster.audit.books import Books
from cluster.common.quantiles import counted_quantile
from cluster.record.run import RunRecord
from spec.policies.cip1 import ONE
from validator.primitives.params import Parameters, WeightParty
from validator.primitives.types import address_text

OTHERS: Final = "others"
"""Actors that are neither the load's nor named in the scenario: deployed during the run."""
SHARES: Final = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
"""The quantiles that are reported, and their names."""
WEIGHT_LOOKS: Final = 50
"""The number of heights, evenly over the run, at which an actor's fairness weight is sampled."""


@dataclass(slots=True)
class ActorUse:
    """How one actor's timers fared: how many came due and fired, how late, and the actor's fairness weight."""

    actor: bytes
    group: str
    due: int = 0
    """Timers that came due while they were pending."""
    fires: int = 0
    lateness: Counter[int] = field(default_factory=Counter)
    """Due timers, counted by lateness in blocks. One that waits at the end has the least possible lateness: it fires in
    the next block at best. One that was destroyed has the lateness that it had reached. Cancelled ones do not count."""
    weight: float = 2.0
    """Mean of ``W`` (SPEC §8) over the samples, between the chain's clip bounds."""

    @property
    def served_share(self) -> float:
        """The share of the due timers that fired; 1 if none came due."""
        return self.fires / self.due if self.due else 1.0


@dataclass(slots=True)
class ClassUse:
    """How the timers of one class of actors fared: how many came due and fired, and how late."""

    name: str
    actors: list[ActorUse]
    fires: int
    due: int
    lateness: Counter[int]

    def lateness_blocks(self, share: float) -> int | None:
        """The lateness that a share of the due timers does not exceed; ``None`` if none came due."""
        return counted_quantile(self.lateness, share) if self.lateness else None

    @property
    def weight(self) -> float:
        """The mean fairness weight of the class's actors."""
        return sum(actor.weight for actor in self.actors) / len(self.actors)


def class_of_actors(record: RunRecord) -> dict[bytes, str]:
    """The class of each actor in the genesis, keyed by address.

    An actor of the load is classed by its workload and program, any other by its name in the scenario.
    """
    scenario = record.given or record.scenario
    plan = scenario.load
    named: dict[bytes, str] = {address: f"actor {name}" for name, address in scenario.chain.actor_addresses().items()}
    return named | dict(zip(plan.genesis_actors(record.seed), plan.titles, strict=True))


def name_of(actor: bytes, classes: Mapping[bytes, str]) -> str:
    """An actor's class, if it has one, and its address."""
    return f"{classes.get(actor, 'actor')} {address_text(actor)}"


def use_by_actor(books: Books, classes: Mapping[bytes, str] | None = None) -> list[ActorUse]:
    """The :class:`ActorUse` of each actor that had a timer due, in the order of addresses. ``classes`` are the run's
    :func:`class_of_actors`, if they are known."""
    ledger = books.ledger
    if classes is None:
        classes = class_of_actors(books.record)
    waiting: dict[bytes, Counter[int]] = {}
    for timer in ledger.world.timers.values():
        if timer.trigger_height <= ledger.height:
            waiting.setdefault(timer.actor, Counter())[ledger.height + 1 - timer.trigger_height] += 1
    uses = [
        ActorUse(
            actor=actor,
            group=classes.get(actor, OTHERS),
            due=due,
            fires=len(timers.fired_at),
            lateness=timers.lateness + still,
        )
        for actor, timers in sorted(ledger.timers.by_actor.items())
        if (due := timers.due + (still := waiting.get(actor, Counter())).total())
    ]
    _note_weights(books, uses)
    return uses


def use_by_class(uses: Iterable[ActorUse]) -> list[ClassUse]:
    """Sum up actors by class. The class with the most fires comes first."""
    groups: dict[str, list[ActorUse]] = {}
    for use in uses:
        groups.setdefault(use.group, []).append(use)
    classes = [
        ClassUse(
            name=name,
            actors=members,
            fires=sum(use.fires for use in members),
            due=sum(use.due for use in members),
            lateness=sum((use.lateness for use in members), Counter()),
        )
        for name, members in groups.items()
    ]
    return sorted(classes, key=lambda group: (-group.fires, group.name))


def class_metrics(classes: Iterable[ClassUse]) -> dict[str, dict[str, float]]:
    """The metrics of each class, as ``result.json`` has them."""
    found: dict[str, dict[str, float]] = {}
    for group in classes:
        metrics: dict[str, float] = {"actors": len(group.actors), "due": group.due, "fires": group.fires}
        metrics["weight_mean"] = round(group.weight, 3)
        for share, name in SHARES:
            late = group.lateness_blocks(share)
            if late is not None:
                metrics[f"lateness_{name}_blocks"] = late
        found[group.name] = metrics
    return found


def jain_index(values: Sequence[float]) -> float | None:
    """Jain's fairness index: 1 if all values are equal, 1/n if one value is the whole sum; ``None`` if the sum is 0.

    (Jain, Chiu, Hawe: A quantitative measure of fairness, 1984.)
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def gini_index(values: Sequence[float]) -> float:
    """The Gini coefficient: 0 if all values are equal, towards 1 if a few are nearly the whole sum."""
    total, count = sum(values), len(values)
    if not total:
        return 0.0
    ranked = sum(rank * value for rank, value in enumerate(sorted(values), start=1))
    return 2 * ranked / (count * total) - (count + 1) / count


def _note_weights(books: Books, uses: Sequence[ActorUse]) -> None:
    """Note each actor's weight, sampled over the run, from the fires of the window before each sample."""
    ledger, p = books.ledger, Parameters.from_names(books.ledger.world.parameters)
    window = p.fairness_window_blocks
    least, most = p.weight_clip_min_milli / 1_000, p.weight_clip_max_milli / 1_000
    by_deployer, actors = p.weight_party is WeightParty.DEPLOYER, ledger.world.actors
    accounts = {use.actor: actors[use.actor].deployer if by_deployer else use.actor for use in uses}
    looks = range(1, ledger.height + 1, max(1, ledger.height // WEIGHT_LOOKS))
    if not looks or not uses:
        return
    fired = {use.actor: ledger.timers.by_actor[use.actor].fired_at for use in uses}
    totals = dict.fromkeys(fired, 0.0)
    for height in looks:
        recent: Counter[bytes] = Counter()
        for actor, heights in fired.items():
            recent[accounts[actor]] += bisect_left(heights, height) - bisect_left(heights, height - window)
        counts = sorted(count for count in recent.values() if count)
        middle = counts[(len(counts) - 1) // 2] + counts[len(counts) // 2] if counts else 0
        smoothed = ledger.smoothed_medians.get(height)
        median = max(2, middle) / 2 if smoothed is None else smoothed / ONE
        for actor in totals:
            totals[actor] += min(max(2 - min(2, recent[accounts[actor]] / median), least), most)
    for use in uses:
        use.weight = totals[use.actor] / len(looks)
