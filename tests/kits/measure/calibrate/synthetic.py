"""Synthetic measurements with known parameters, to which a profile is fitted."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from cluster.record.run import HAND_OVER, MESSAGE, SYNC, WARM_UP, Work
from cluster.scenario.sections.measurements.profile import JobCost, ProfileSection, draw
from kits.measure.calibrate.observed import LinkDelay, Observed

LATENCY_US: Final = 20_000
JITTER_US: Final = 5_000
BLOCK_MS: Final = 300.0
TRUTH: Final = ProfileSection.model_validate(
    {
        "processors": 2,
        "link_us": [100, 200, 400, 800, 3_000],
        "sync_us": [300, 700, 1_100, 1_700, 6_000],
        "message_us": [10, 40, 60, 200, 900],
        "hand_over_us": [50, 300, 400, 700, 5_000],
        "build": {"base_us": 2_000, "transaction_us": 500, "fire_us": 60, "scatter_milli": [800, 1_000, 1_200]},
        "execute": {"base_us": 2_400, "transaction_us": 550, "fire_us": 70, "scatter_milli": [800, 1_000, 1_200]},
        "finalize": {"base_us": 800, "transaction_us": 30, "fire_us": 7, "scatter_milli": [800, 1_000, 1_200]},
        "warm_up_us": [300_000, 340_000],
        "start_us": [1_000_000, 2_000_000],
    }
)


def measured(blocks: int = 1_000, seed: int = 1, truth: ProfileSection = TRUTH) -> Observed:
    """The measurements of a chain of four validators on two processors: three execute what the fourth has built."""
    random, found = Random(seed), Observed()
    for number in range(blocks):
        transactions, fires = random.randrange(12), 1 + random.randrange(110)
        sizes, at_ms = (transactions, fires), number * BLOCK_MS
        if number == 0:
            found.work += _warm_up(truth, random)
        build_us = truth.build.draw_us(*sizes, random)
        found.work.append(_job("build", sizes, build_us, build_us, at_ms))
        needs = sorted(truth.execute.draw_us(*sizes, random) for _ in range(3))
        found.work += [
            _job("execute", sizes, wall_us, need_us, at_ms + 50.0)
            for wall_us, need_us in zip(_shared(needs), needs, strict=True)
        ]
        commit_us = truth.finalize.draw_us(*sizes, random)
        found.work.append(_job("finalize", sizes, commit_us + draw(truth.sync_us, random), commit_us, at_ms + 150.0))
        for kind, quantiles in ((SYNC, truth.sync_us), (MESSAGE, truth.message_us), (HAND_OVER, truth.hand_over_us)):
            found.work += [Work(kind, 0, 0, draw(quantiles, random)) for _ in range(8)]
        found.delays += [_delay(truth, random) for _ in range(12)]
    found.starts_us = [draw(truth.start_us, random) for _ in range(200)]
    return found


def _warm_up(truth: ProfileSection, random: Random) -> list[Work]:
    """The first blocks of four processes: an empty one, which is slow, and the first one with fires."""
    first = [_job(WARM_UP, (0, 0), 36_000, 36_000, -9_000.0 + 100 * place) for place in range(4)]
    spent = [truth.execute.typical_us(3, 9) + draw(truth.warm_up_us, random) for _ in range(4)]
    return first + [_job(WARM_UP, (3, 9), us, us, -5_000.0 + 1_000 * place) for place, us in enumerate(spent)]


def _shared(needs: list[int]) -> list[int]:
    """When three jobs that begin together on two processors end, in microseconds; ``needs`` are ascending."""
    first, second, third = needs
    ends = [first * 3 // 2, first * 3 // 2 + second - first]
    return [*ends, ends[1] + third - second]


def _job(kind: str, sizes: tuple[int, int], wall_us: int, core_us: int, begun_ms: float) -> Work:
    return Work(kind, *sizes, wall_us, core_us, begun_ms + wall_us / 1_000)


def _delay(truth: ProfileSection, random: Random) -> LinkDelay:
    jitter = random.randint(-JITTER_US, JITTER_US)
    return LinkDelay(LATENCY_US + jitter + draw(truth.link_us, random), LATENCY_US, JITTER_US)


def deviations(found: ProfileSection, truth: ProfileSection = TRUTH) -> dict[str, Any]:
    """The parameters that differ from the truth by more than a fit of a thousand blocks explains."""
    wrong: dict[str, Any] = {}
    for kind in ("build", "execute", "finalize"):
        one, other = getattr(found, kind), getattr(truth, kind)
        for transactions, fires in ((0, 0), (12, 0), (0, 110), (12, 110)):
            got, right = one.typical_us(transactions, fires), other.typical_us(transactions, fires)
            if abs(got / right - 1) > 0.06:
                wrong[f"{kind} of {transactions} transactions and {fires} fires"] = got, right
        wrong |= _apart(f"{kind}.scatter", one.scatter_milli, other.scatter_milli, 60)
    for name, slack_us in (("link_us", 250), ("sync_us", 250), ("message_us", 60), ("hand_over_us", 250)):
        wrong |= _apart(name, getattr(found, name), getattr(truth, name), slack_us)
    wrong |= _apart("warm_up_us", found.warm_up_us, truth.warm_up_us, 25_000)
    return wrong | _apart("start_us", found.start_us, truth.start_us, 80_000)


def _apart(name: str, found: list[int], truth: list[int], slack: int) -> dict[str, Any]:
    """The quantiles up to 90 % that differ by more than ``slack``, or by a tenth if that is more."""
    pairs = {share: (at(found, share), at(truth, share)) for share in (0.1, 0.25, 0.5, 0.75, 0.9)}
    return {
        f"{name} at {share}": pair for share, pair in pairs.items() if abs(pair[0] - pair[1]) > max(slack, pair[1] / 10)
    }


def at(quantiles: list[int], share: float) -> float:
    """The value of a distribution at a share."""
    place = share * (len(quantiles) - 1)
    lower = min(int(place), len(quantiles) - 2)
    return quantiles[lower] + (quantiles[lower + 1] - quantiles[lower]) * (place - lower)


def cost_without(cost: JobCost, **changes: Any) -> JobCost:
    """A cost with other values."""
    return cost.model_copy(update=changes)
