"""The report of machine-made bugs: a table, JSON data and JUnit XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from rich.console import Console

from cluster.commands.console.output import print_line
from cluster.common.checkout import ROOT
from cluster.common.outcome import Outcome
from cluster.report.junit import Case, Suite, junit_xml
from kits.mutation.generated.hunting import SEEN, Bug
from kits.mutation.generated.operators import Candidate


@dataclass(frozen=True, slots=True)
class Search:
    """The results of a search for machine-made bugs."""

    title: str
    candidates: int
    """Number of possible changes of the modules."""
    executed: int
    """Number of changes on lines that ran."""
    planted: Sequence[Candidate]
    """The changes that were drawn."""
    bugs: Mapping[Candidate, Bug]
    """Outcome of each change that was tried so far."""
    unsound: Sequence[str] = ()
    """Names of runs that were left out, since they fail without a change."""
    interrupted: bool = False

    @property
    def ended(self) -> list[Bug]:
        """The bugs with an outcome, in the order of the code."""
        return [self.bugs[one] for one in sorted(self.planted) if one in self.bugs]

    @property
    def survivors(self) -> list[Bug]:
        return [bug for bug in self.ended if not bug.seen]

    @property
    def is_complete(self) -> bool:
        return not self.interrupted and len(self.ended) == len(self.planted)

    @property
    def percent_seen(self) -> float:
        """Percentage of the tried bugs that were detected; 0 if none was tried."""
        return _percent(len(self.ended) - len(self.survivors), len(self.ended))

    def shares(self, key: Callable[[Bug], str]) -> dict[str, tuple[int, int]]:
        """Number of detected bugs and number of tried bugs, for each group of bugs with the same ``key``."""
        counts, seen = Counter(map(key, self.ended)), Counter(key(bug) for bug in self.ended if bug.seen)
        return {name: (seen[name], count) for name, count in sorted(counts.items())}


def area_of(bug: Bug) -> str:
    """The package of a bug: ``consensus``, ``validator/storage`` …"""
    return "/".join(PurePosixPath(bug.candidate.path).parent.parts[:2])


def operator_of(bug: Bug) -> str:
    return bug.candidate.operator.value


def print_search(console: Console, search: Search) -> None:
    """Print the survivors with their diffs, the shares, then the totals."""
    for bug in search.survivors:
        print_line(console, f"survived  {bug.candidate.place}  {bug.candidate.operator}  ({bug.runs} runs)")
        for line in _diff(bug.candidate).splitlines():
            print_line(console, f"  {line}")
    for heading, key in (("area", area_of), ("operator", operator_of)):
        for name, (seen, count) in search.shares(key).items():
            print_line(console, f"{heading:<9} {name:<28} {seen:>4} of {count:>4} seen  {_percent(seen, count):5.1f} %")
    if search.unsound:
        print_line(console, f"left out, since they fail without a change: {', '.join(search.unsound)}")
    words = Counter(bug.outcome for bug in search.ended)
    how = ", ".join(f"{word} {words[word]}" for word in SEEN if words[word]) or "none"
    ended, seconds = len(search.ended), sum(bug.seconds for bug in search.ended)
    print_line(
        console,
        f"{ended} of {len(search.planted)} bugs tried ({search.executed:,} of {search.candidates:,} changes are on"
        f" lines that ran), {ended - len(search.survivors)} seen ({how}), {len(search.survivors)} survived:"
        f" {search.percent_seen:.1f} % seen; {seconds:,.0f} s of work",
    )


def page(search: Search) -> dict[str, Any]:
    """The search as JSON data."""
    return {
        "search": search.title,
        "complete": search.is_complete,
        "candidates": search.candidates,
        "executed": search.executed,
        "planted": len(search.planted),
        "tried": len(search.ended),
        "seen": len(search.ended) - len(search.survivors),
        "percent_seen": round(search.percent_seen, 2),
        "unsound": list(search.unsound),
        "areas": {name: {"seen": seen, "tried": count} for name, (seen, count) in search.shares(area_of).items()},
        "operators": {name: {"seen": seen, "tried": n} for name, (seen, n) in search.shares(operator_of).items()},
        "mutants": [
            {
                "place": bug.candidate.place,
                "operator": bug.candidate.operator.value,
                "diff": _diff(bug.candidate),
                "outcome": bug.outcome,
                "run": bug.run,
                "reason": bug.reason,
                "runs": bug.runs,
                "seconds": round(bug.seconds, 2),
            }
            for bug in search.ended
        ],
    }


def search_xml(search: Search) -> str:
    """The search as JUnit XML: a test case per bug, which fails for a survivor."""
    cases = [
        Case(
            f"{bug.candidate.place} {bug.candidate.operator}",
            Outcome.PASS if bug.seen else Outcome.FAIL,
            f"{bug.outcome} {bug.run} {bug.reason}".strip(),
            _diff(bug.candidate),
            bug.seconds,
        )
        for bug in search.ended
    ]
    return junit_xml([Suite("machine mutants", cases, {"search": search.title})])


def _diff(candidate: Candidate) -> str:
    return candidate.diff((ROOT / candidate.path).read_text(encoding="utf-8"))


def _percent(seen: int, count: int) -> float:
    return 100 * seen / count if count else 0.0
