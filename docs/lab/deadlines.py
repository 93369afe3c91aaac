"""An experiment with agents and a measure that do not ship: jobs keep their value until a deadline."""

from __future__ import annotations

from random import Random

from kits.market.estimates import Cell, Results
from kits.market.lab.experiment import Decision, Effort, Experiment, Plot, Setup
from kits.market.lab.market import Market
from kits.market.lab.population import Group
from kits.market.lab.strategies import Seen, Share, Strategy
from kits.market.metric import SHARE, Metric
from validator.chain.genesis import Policy

LIFE = 12


class LateBidder(Strategy):
    """Schedules its timer when the fire is nearly wanted, and offers a share that no one else offers."""

    def __init__(self, random: Random) -> None:
        self.share = random.uniform(0.2, 0.4)

    def bids_now(self, job: int, room: int, seen: Seen, due: int) -> bool:
        return seen.height >= due - 1

    def premium(self, job: int, room: int, seen: Seen) -> int:
        return int(room * self.share)


def until_deadline(value: int, late: int, life: int) -> int:
    return value


def worth_by_size(normal: float, cycles: int) -> int:
    return int(cycles * 400_000 * 2**normal) + 1


def missed(market: Market) -> float:
    jobs = market.of_group("late")
    return sum(trade.fired_at is None for trade in jobs) / len(jobs) if jobs else 0.0


class Deadlines(Experiment):
    title = "Deadlines"
    question = "Under which policy do agents that bid late miss their deadlines least?"
    hypothesis = "Under fifo, since no bid decides there."
    rule = "fifo if under no other policy clearly fewer jobs are missed; else the one with the fewest."
    factors = {"policy": ("cip1", "fifo", "gba_auction")}
    metrics = {
        "missed_share": Metric(
            "jobs of late bidders that missed their deadline", "share of jobs", "less", SHARE, missed
        )
    }
    plots = (Plot("missed_share", "Missed deadlines", "policy"), Plot("welfare", "Welfare", "policy"))
    shown = ("missed_share", "late.utility", "others.utility", "welfare")
    full = Effort(400, 8)
    quick = Effort(60, 3)

    def setup(self, cell: Cell, blocks: int) -> Setup:
        shared = {"life": LIFE, "value": worth_by_size, "left": until_deadline}
        groups = (
            Group(name="late", agents=10, load=0.3, strategy=LateBidder, **shared),
            Group(name="others", agents=40, load=1.0, strategy=lambda _: Share(0.3), **shared),
        )
        policy = str(cell[0])
        return Setup(self.policies.get(policy) or Policy(policy), groups)

    def decide(self, results: Results) -> Decision:
        cells = {str(name): (name,) for name in self.factors["policy"]}
        changes = {name: results.change(cell, ("fifo",), "missed_share") for name, cell in cells.items()}
        fewer = [name for name, change in changes.items() if change.falls_below(0)]
        best = min(fewer, key=lambda name: changes[name].mean, default="fifo")
        return Decision(
            "Against fifo the share of missed deadlines changes by "
            + ", ".join(f"{change.text} ({name})" for name, change in changes.items() if name != "fifo")
            + ".",
            f"Choose {best}.",
            "One load, one deadline.",
        )
