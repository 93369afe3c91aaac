"""The scorecard on a terminal: a table for each variant, the worst attacks first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.commands.console.output import columns_that_fit, plain_table, print_line
from cluster.common.outcome import Outcome
from cluster.common.wording import counted, first_few
from cluster.report.svg import number
from cluster.scenario.sections.dos import GRADES, Grade
from kits.market.dos.scorecard import SPEND_RATIOS, Score, Scorecard
from kits.market.estimates import Estimate

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

COLUMNS: Final = {
    "lateness_p99": "late p99",
    "honest_fires_ratio": "fires ×",
    "user_transactions_ratio": "txs ×",
    "destroyed_added": "lost +",
    "recovery_blocks": "recovery",
    "spend": "spend",
    "spend_ratio": "spend ×",
    "lateness_p50": "late p50",
    "lateness_max": "late max",
    "waiting": "waiting",
    "honest_fires_per_block": "fires",
    "cpu_full_ratio": "cpu, full ×",
    "state_bytes_per_coin": "state / coin",
    "block_cycles_ratio": "cycles ×",
    "cpu_ratio": "cpu ×",
    "block_rate_ratio": "rate ×",
    "state_bytes_added": "state +",
    "memory_bytes_added": "memory +",
    "memory_bytes_per_coin": "memory / coin",
    "pool_transactions_added": "pool +",
    "spend_per_block_of_delay": "spend / delay",
    "spend_per_fire_displaced": "spend / fire",
}
"""Column headings of the metrics that are shown, keyed by metric. A terminal shows the first ones that fit."""
STYLES: Final = {"A": "green", "B": "green", "C": "yellow", "D": "red", "F": "bold red", None: "dim"}
NAMED: Final = 3
"""Maximum number of attacks that the outcome names."""
NOTHING: Final = "–"
FREE: Final = "free"


def print_scorecard(console: Console, card: Scorecard) -> None:
    """Print the tables, the problems of runs, and the outcome."""
    for variant, scores in card.scores.items():
        print_line(console, f"{card.plan.name} as {variant}, {counted(len(card.plan.seeds), 'seed')}")
        rows = _rows(card, variant, scores)
        fitting = columns_that_fit(rows, console.width)
        console.print(_table(rows, [score.grade for score in ordered(scores)], fitting))
        if fitting < len(rows[0]):
            what = counted(len(rows[0]) - fitting, "more column")
            print_line(console, f"{what} on the scorecard's page, and in a wider terminal")
    for problem in card.problems:
        print_line(console, f"problem  {problem}")
    print_line(console, f"outcome  {summary(card)}")


def summary(card: Scorecard) -> str:
    """The outcome of a scorecard and its reason, in one line."""
    all_scores = [(variant, score) for variant, scores in card.scores.items() for score in scores]
    low = [f"{score.attack} on {variant} {score.grade}" for variant, score in all_scores if score.is_too_low]
    idle = [f"{score.attack} on {variant}" for variant, score in all_scores if not score.acted]
    parts = [f"{len(low)} of {len(all_scores)} below {card.dos.at_least}: {first_few(low, NAMED)}"] if low else []
    parts += [f"did nothing: {first_few(idle, NAMED)}"] if idle else []
    parts += ["interrupted"] if card.interrupted else []
    return ": ".join(filter(None, [card.outcome.value, "; ".join(parts)]))


def ordered(scores: tuple[Score, ...]) -> list[Score]:
    """Sort scores by grade, the worst first. Scores of equal grade are sorted by lateness, the greatest first."""

    def place(score: Score) -> tuple[int, float]:
        rank = -1 if score.grade is None else GRADES.index(score.grade)
        return -rank, -(score.metrics["lateness_p99"].mean if "lateness_p99" in score.metrics else 0.0)

    return sorted(scores, key=place)


def cell(score: Score, name: str) -> str:
    """A metric of an attack as text, with its confidence interval unless the interval is a single point."""
    estimate = score.metrics.get(name)
    if estimate is None:
        return NOTHING
    if name in SPEND_RATIOS and score.is_free:
        return FREE
    text = with_interval(estimate)
    return f">{text}" if name == "recovery_blocks" and not score.recovered else text


def with_interval(estimate: Estimate) -> str:
    """An estimate as text: ``mean (low–high)``, or only the mean if all seeds agree or there is one seed."""
    if estimate.interval is None:
        return number(estimate.mean)
    mean, low, high = (number(value) for value in (estimate.mean, *estimate.interval))
    return mean if low == high else f"{mean} ({low}–{high})"


def against(card: Scorecard, variant: str, score: Score) -> str:
    """How an attack on a variant compares with the same attack on the reference, as text such as ``2 better, 1 worse``;
    empty for the reference."""
    found = card.against.get((variant, score.attack))
    if found is None:
        return "" if variant == card.reference else NOTHING
    parts = [f"{len(names)} {word}" for word, names in (("better", found.better), ("worse", found.worse)) if names]
    return ", ".join(parts) or "same"


def _rows(card: Scorecard, variant: str, scores: tuple[Score, ...]) -> list[list[str]]:
    """The table of a variant as text: the headings, then a row for each attack."""
    is_held = any((variant, score.attack) in card.against for score in scores)
    rows = [["attack", "", *([f"to {card.reference.split()[0]}"] if is_held else []), *COLUMNS.values()]]
    for score in ordered(scores):
        sign = "?" if score.outcome is Outcome.INCONCLUSIVE or score.grade is None else score.grade
        held = [against(card, variant, score)] if is_held else []
        rows.append([score.attack, sign, *held, *(cell(score, name) for name in COLUMNS)])
    return rows


def _table(rows: list[list[str]], grades: list[Grade | None], fitting: int) -> Table:
    headings = rows[0][:fitting]
    table = plain_table(headings, right=set(COLUMNS.values()), folded=())
    for row, letter in zip(rows[1:], grades, strict=True):
        table.add_row(*row[:fitting], style=STYLES[letter])
    return table
