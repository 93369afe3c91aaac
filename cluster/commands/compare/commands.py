"""``stampede compare``: two runs, or two groups of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.commands.console.command import FILE, SEVERAL, Command, Topic, argument, flag, option
from cluster.commands.console.options import parse_seed
from cluster.commands.console.output import console
from cluster.common.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Compare(Command):
    TOPIC = Topic.LOOK
    HELP = "compare two runs, or two groups of runs, and show which differences are significant"
    RUNS_CODE = False
    DESCRIPTION = (
        "stampede compare A B, or stampede compare --group A1 A2 … -- B1 B2 …; each is the folder of a run, a sweep or"
        " a scorecard of stampede dos, or a folder of such folders."
    )

    runs: Sequence[Path] = argument("RUN", "A and B; with --group the runs of B", Path, nargs=SEVERAL)
    group: Sequence[Path] | None = option("the runs of A, up to --", "RUN", Path, nargs=SEVERAL)
    all: bool = flag("also show the metrics that did not change")
    seed: int = option("seed of the resampling (default 1)", "N", parse_seed, default=1)
    fail_on: str | None = option(
        "worse: exit code 1 if a metric is significantly worse than its budget, 3 if that cannot be said",
        choices=("worse",),
    )
    budget: Path | None = option("with --fail-on: YAML file with metrics and the changes allowed", "FILE", Path)
    json: Path | None = option("also write the comparison to FILE", writes=FILE)
    html: Path | None = option("also write it to FILE as a page", writes=FILE)

    def run(self) -> int:
        from cluster.commands.compare.budget import exit_code, findings_page, judge_budget, read_budget
        from cluster.commands.compare.comparison import compare
        from cluster.commands.compare.comparison_output import print_comparison, print_findings, render_comparison
        from cluster.commands.compare.groups import read_group
        from cluster.common.files import all_tried, write_for_user, write_json_for_user

        if self.group is None and len(self.runs) != 2:
            raise BadInput(f"expected two runs, got {len(self.runs)}; for groups: stampede compare --group A… -- B…")
        if self.budget is not None and self.fail_on is None:
            raise BadInput("--budget needs --fail-on worse")
        budget = None if self.budget is None else read_budget(self.budget)
        first, second = (self.group, self.runs) if self.group else (self.runs[:1], self.runs[1:])
        found = compare(read_group(first), read_group(second), self.seed)
        print_comparison(console(), found, self.all)
        findings = judge_budget(found, budget) if self.fail_on else []
        print_findings(console(), findings)
        page = found.page() | ({"budget": findings_page(findings)} if self.fail_on else {})
        with all_tried() as trying:
            with trying():
                write_json_for_user(self.json, page)
            if self.html is not None:
                with trying():
                    write_for_user(self.html, render_comparison(found))
        return exit_code(findings)


COMMANDS: Final = {"compare": Compare}
