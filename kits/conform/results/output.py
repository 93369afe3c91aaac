"""Output of a sweep: the table of families, the rules that were reached, and JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cluster.commands.console.output import plain_table, print_line
from cluster.common.checkout import checkout_commit
from cluster.common.outcome import Outcome
from cluster.common.wording import counted, first_few
from cluster.report.junit import Case as TestCase
from cluster.report.junit import Suite, junit_xml
from kits.conform.rules import OF_THE_TREE, RULES
from kits.conform.sweep import SweepResult

if TYPE_CHECKING:
    from rich.console import Console

MAX_LINES: Final = 20
"""Maximum number of failing cases that are printed."""
MAX_UNREACHED: Final = 12
MAX_RULES: Final = 6


def print_sweep(output: Console, result: SweepResult) -> None:
    """Print the failing families, the first failing cases, and the summary."""
    if result.failures:
        table = plain_table(("family", "cases", "failed"), right=("cases", "failed"))
        for name, count in result.cases.items():
            if result.failed[name]:
                table.add_row(name, f"{count:,}", f"{result.failed[name]:,}")
        output.print(table)
        for each in result.failures[:MAX_LINES]:
            print_line(output, f"{each.reference.name}  {each.detail}{rules_text(each.rules_of_family)}")
        if len(result.failures) > MAX_LINES:
            print_line(output, f"and {len(result.failures) - MAX_LINES:,} more")
    if result.unsupported:
        table = plain_table(("family", "cases", "unsupported", "because"), right=("cases", "unsupported"))
        for name, count in result.unsupported.items():
            table.add_row(name, f"{result.cases[name]:,}", f"{count:,}", result.reasons[name])
        output.print(table)
    failed, families_count = result.failed.total(), len(result.cases)
    families = "1 family" if families_count == 1 else f"{families_count:,} families"
    verdict = f"{failed:,} failed" if failed else "all the same"
    if unsupported := result.unsupported.total():
        is_any = unsupported < result.cases.total()
        verdict = f"{verdict if is_any else 'none answered'}, {unsupported:,} unsupported"
    speed = f"{result.seconds:.1f} s, {result.cases_per_minute:,.0f} a minute"
    print_line(output, f"{counted(result.cases.total(), 'case')} of {families} in {speed}: {verdict}")
    counted_rules = [name for name in RULES if name not in OF_THE_TREE]
    missed = [name for name in counted_rules if not result.rules[name]]
    reached = f"{len(counted_rules) - len(missed)} of {len(counted_rules)} rules reached"
    print_line(output, f"{reached}; not: {first_few(missed, MAX_UNREACHED)}" if missed else reached)
    if result.was_interrupted:
        print_line(output, "interrupted: not all cases ran")


def rules_text(rules: Sequence[str]) -> str:
    """The rules that a failing case is about, as the end of its line."""
    return f"  [{first_few(rules, MAX_RULES)}]" if rules else ""


def print_rules(output: Console, result: SweepResult) -> None:
    """Print a table of all rules with the number of cases that reached each."""
    table = plain_table(("rule", "", "cases"), right=("cases",))
    for name, about in RULES.items():
        table.add_row(name, about, f"{result.rules[name]:,}")
    output.print(table)


def sweep_xml(result: SweepResult, command: str) -> str:
    """A JUnit document with a test case for each family."""
    first = {each.reference.family: each for each in reversed(result.failures)}
    cases: list[TestCase] = []
    for name, count in result.cases.items():
        outcome, detail, more = Outcome.PASS, counted(count, "case"), ""
        if unsupported := result.unsupported[name]:
            detail = f"{unsupported} of {detail} unsupported: {result.reasons[name]}"
        if (failure := first.get(name)) is not None:
            where = f"case {failure.reference.number}: {failure.detail}"
            detail = f"{result.failed[name]} of {counted(count, 'case')} failed: {where}"
            outcome, more = Outcome.FAIL, f"again: {command} --family {name}"
        cases.append(TestCase(name, outcome, detail, more, result.tool_seconds[name], unsupported < count))
    return junit_xml([Suite("conform", cases, {"tool": result.tool, "commit": checkout_commit()}, result.seconds)])
