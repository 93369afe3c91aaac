"""Runs the seeds of a sweep: progress, interruption, continuation, a summary.

A failing seed leaves a run folder, with its report and the command that runs it again. A seed whose run crashed leaves
its traceback: it is no failure, but the sweep ends as one that crashed, unless another seed fails.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress

from cluster.audit.reexecution.again import execute_again
from cluster.commands.console.output import print_line
from cluster.commands.console.outputs import Ending, Part
from cluster.commands.console.terminal import can_redraw, is_tenth, progress_bar
from cluster.commands.sweeps.fanout import FanOut, default_workers
from cluster.commands.sweeps.log import SweepLog
from cluster.commands.sweeps.outcome import SeedOutcome, SeedTally, broken_off, crashed, judge
from cluster.commands.sweeps.seeds_server import SeedsServer
from cluster.commands.sweeps.tasks import AnyTask, FuzzTask, takes_shortcuts
from cluster.commands.sweeps.worker import WORKER_MEMORY_MIB
from cluster.common.checkout import checkout_commit, version
from cluster.common.errors import BadInput, ExitCode
from cluster.common.files import write_atomically, write_for_user, write_json_for_user
from cluster.common.interrupts import Interrupts
from cluster.common.outcome import Outcome
from cluster.live.driver.ray_session import ADDRESS_VARIABLE, is_joining
from cluster.live.web.addresses import Served
from cluster.record.folder import SCENARIO_FILE, SWEEP_SUMMARY_FILE, TRACEBACK_FILE, seed_folder
from cluster.record.rules import Mechanism
from cluster.report.junit import Case, Suite, junit_xml
from cluster.report.results import finish_run
from cluster.scenario.files import scenario_text

SEEDS_TO_REACH_ALL: Final = 200
"""A fuzz of at least this many seeds is inconclusive if a mechanism was never reached."""
SHOWN: Final = 10
"""Maximum number of failed seeds that a summary lists, and of the mechanisms that were reached least often."""
EXIT_OUTCOMES: Final = {
    ExitCode.PASS: Outcome.PASS,
    ExitCode.FAIL: Outcome.FAIL,
    ExitCode.INCONCLUSIVE: Outcome.INCONCLUSIVE,
    ExitCode.CRASH: Outcome.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcomes of all seeds of a sweep, and what the sweep must reach to pass."""

    outcomes: tuple[SeedOutcome, ...]
    wanted: int
    interrupted: bool
    min_passed: int | None = None
    """Number of seeds that must pass for the sweep to pass, if no seed fails; ``None`` means all."""
    commit: str = ""
    """Commit of the code."""
    must_reach: tuple[Mechanism, ...] = ()
    """Mechanisms that at least one seed must reach."""

    @property
    def failed(self) -> list[SeedOutcome]:
        return [outcome for outcome in self.outcomes if outcome.failed]

    @property
    def passed(self) -> list[SeedOutcome]:
        return [outcome for outcome in self.outcomes if outcome.passed]

    @property
    def undecided(self) -> list[SeedOutcome]:
        """Seeds that neither failed nor passed: inconclusive, crashed, or too little happened."""
        return [outcome for outcome in self.outcomes if not outcome.failed and not outcome.passed]

    @property
    def crashed(self) -> list[SeedOutcome]:
        return [outcome for outcome in self.outcomes if outcome.crashed]

    @property
    def by_word(self) -> dict[str, list[SeedOutcome]]:
        """The seeds by what became of them, as a word."""
        return {"passed": self.passed, "failed": self.failed, "undecided": self.undecided}

    @property
    def faults(self) -> Counter[str]:
        """Number of faults that took effect, summed over all seeds, keyed by kind."""
        total: Counter[str] = Counter()
        for outcome in self.outcomes:
            total.update(outcome.faults)
        return total

    @property
    def seen(self) -> dict[Mechanism, int]:
        """The number of seeds that reached each mechanism."""
        counts = Counter(name for outcome in self.outcomes for name in outcome.reached)
        return {mechanism: counts[mechanism] for mechanism in Mechanism}

    @property
    def never_reached(self) -> list[Mechanism]:
        """The mechanisms in :attr:`must_reach` that no seed reached."""
        seen = self.seen if self.must_reach else {}
        return [mechanism for mechanism in self.must_reach if not seen[mechanism]]

    @property
    def exit_code(self) -> ExitCode:
        if self.failed:
            return ExitCode.FAIL
        if self.crashed:
            return ExitCode.CRASH
        enough = self.wanted if self.min_passed is None else self.min_passed
        if self.interrupted or len(self.outcomes) < self.wanted or len(self.passed) < enough or self.never_reached:
            return ExitCode.INCONCLUSIVE
        return ExitCode.PASS

    def page(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        return {
            "seeds": len(self.outcomes),
            "passed": len(self.passed),
            "failed": [outcome.seed for outcome in self.failed],
            "undecided": [outcome.seed for outcome in self.undecided],
            "crashed": [outcome.seed for outcome in self.crashed],
            "faults": dict(sorted(self.faults.items())),
            "seen": self.seen,
            "heights": sum(outcome.heights for outcome in self.outcomes),
            "fires": sum(outcome.fires for outcome in self.outcomes),
        }


def must_reach(task: AnyTask, seeds: int) -> tuple[Mechanism, ...]:
    """The mechanisms that a sweep with this number of seeds must reach: all if it is a large fuzz, else none.

    A single scenario may lack some of them.
    """
    return tuple(Mechanism) if isinstance(task, FuzzTask) and seeds >= SEEDS_TO_REACH_ALL else ()


def check_task(task: AnyTask, seed: int) -> None:
    """Check that a seed can run. Raises :class:`BadInput`."""
    scenario = task.scenario(seed)
    if scenario.simulator_problem:
        raise BadInput(f"{scenario.name}: {scenario.simulator_problem}")


def run_seed(task: AnyTask, folder: str, commit: str, first: int, seed: int, leaves: Path) -> SeedOutcome:
    """Run one seed in a worker process, and judge the run. A user's policy is executed again for the ``first`` seed.

    A failing or crashing seed leaves files in the folder ``leaves``, which is moved to ``<folder>/seed-<seed>``
    afterwards.
    """
    from cluster.watches.watched_simulation import simulate

    started = time.monotonic()
    try:
        record = simulate(task.scenario(seed), seed, commit, shortcuts=takes_shortcuts(task, seed))
        if seed == first:
            execute_again(record)
        outcome, judged = judge(record, time.monotonic() - started)
        if outcome.failed:
            finish_run(record, leaves, judged=judged, known_as=Path(folder) / seed_folder(seed))
    except Exception as error:  # noqa: BLE001 (a crash of the run is a finding)
        _leave_traceback(leaves, traceback.format_exc())
        return crashed(seed, error, time.monotonic() - started)
    return outcome


def _leave_traceback(leaves: Path, text: str) -> None:
    leaves.mkdir(parents=True, exist_ok=True)
    write_atomically(leaves / TRACEBACK_FILE, text)


def _outcome_of_dead_workers(folder: Path, seed: int, reason: str) -> SeedOutcome:
    """The outcome of a seed whose workers died too often. Its traceback file contains the reason, not a traceback."""
    _leave_traceback(folder / seed_folder(seed), f"{reason}\n")
    return broken_off(seed, reason)


def sweep(
    task: AnyTask,
    seeds: Sequence[int],
    folder: Path,
    workers: int | None,
    stop_on_fail: bool,
    console: Console,
    min_passed: int | None = None,
    memory_mib: int = WORKER_MEMORY_MIB,
    served: Served | None = None,
) -> Summary:
    """Run all seeds that the log in ``folder`` does not contain yet.

    ``workers`` is the number of seeds that run at a time (``None``: one for each processor of this machine or of the
    cluster); each worker has ``memory_mib`` of memory. With ``served`` a dashboard is served there
    meanwhile. Raises :class:`~cluster.common.errors.HarnessError`.
    """
    commit = checkout_commit()
    interrupted = False
    with closing(SweepLog(folder, task.title, commit)) as log:
        if task.shared is not None:
            write_for_user(folder / SCENARIO_FILE, scenario_text(task.shared, None))
        before = [log.outcomes[seed] for seed in seeds if seed in log.outcomes]
        left = [seed for seed in seeds if seed not in log.outcomes]
        with Interrupts() as interrupts, progress_bar(console) as progress:
            bar = progress.add_task(task.title, total=len(seeds), completed=len(before))
            fan_out = FanOut(
                partial(run_seed, task, str(folder), commit, seeds[0]),
                left,
                interrupts,
                folder,
                workers,
                memory_mib,
                notice=lambda line: print_line(progress.console, line),
                on_death=partial(_outcome_of_dead_workers, folder),
            )
            lines = PlainProgress(console, task.title, before, len(seeds), fan_out.progress)
            lines.begin(workers)
            tally = SeedTally(task.title, commit, len(seeds), task.command, before)

            def show(outcome: SeedOutcome) -> None:
                _show(progress, bar, task, outcome, commit)
                lines.add(outcome)
                tally.add(outcome)

            try:
                with _dashboard(tally, folder, served, progress.console):
                    _run_all(fan_out, left, stop_on_fail, log, show)
            except KeyboardInterrupt:
                interrupted = True
            for line in fan_out.progress():
                print_line(progress.console, line)
    wanted = set(seeds)
    outcomes = tuple(log.outcomes[seed] for seed in sorted(log.outcomes) if seed in wanted)
    summary = Summary(outcomes, len(seeds), interrupted, min_passed, commit, must_reach(task, len(seeds)))
    print_summary(console, task, summary)
    return summary


def write_summary(folder: Path, page: object) -> None:
    """Write the ``summary.json`` of a sweep or a grid. Raises :class:`~cluster.common.errors.BadInput`."""
    write_json_for_user(folder / SWEEP_SUMMARY_FILE, page)


@contextmanager
def _dashboard(tally: SeedTally, folder: Path, served: Served | None, console: Console) -> Iterator[None]:
    """Serve the sweep's dashboard inside the block, if it is wanted. Raises :class:`BadInput`."""
    if served is None:
        yield
        return
    try:
        server = SeedsServer(tally, folder, served)
    except OSError as error:
        raise BadInput(f"the dashboard cannot be served on {served}: {error.strerror}") from None
    print_line(console, f"dashboard  {server.url}/")
    try:
        yield
    finally:
        server.close()


def _run_all(
    fan_out: FanOut, seeds: Sequence[int], stop_on_fail: bool, log: SweepLog, show: Callable[[SeedOutcome], None]
) -> None:
    if not seeds:
        return
    with closing(fan_out.results()) as ended:
        for _, outcome, _, node in ended:
            log.add(outcome, node)
            show(outcome)
            if (outcome.failed or outcome.crashed) and stop_on_fail:
                return


def sweep_suite(task: AnyTask, summary: Summary) -> Suite:
    """The sweep as a suite of JUnit XML: a test case per seed."""
    cases = [
        Case(
            name=f"seed {outcome.seed}",
            outcome=_outcome_of(outcome),
            detail=outcome.why or f"{outcome.heights:,} heights, {outcome.fires:,} fires",
            more="" if outcome.passed else f"again: {task.command(outcome.seed)}",
            seconds=outcome.seconds,
        )
        for outcome in summary.outcomes
    ]
    return Suite(task.title, cases, {"seeds": str(summary.wanted), "commit": summary.commit})


def parts_of(task: AnyTask, summary: Summary) -> list[Part]:
    """The seeds that did not pass."""
    return [
        Part(str(outcome.seed), _outcome_of(outcome), outcome.why, _again(task, outcome, summary.commit))
        for outcome in summary.outcomes
        if not outcome.passed
    ]


def ending_of(task: AnyTask, summary: Summary) -> Ending:
    """Describe the end of a sweep. Seeds that need not pass by ``--min-passed`` are left out of a sweep that passes."""
    totals, outcome = summary.page(), EXIT_OUTCOMES[summary.exit_code]
    return Ending(
        title=task.title,
        outcome=outcome,
        parts=[] if outcome is Outcome.PASS else parts_of(task, summary),
        kind="seed",
        figures={
            "seeds": f"{len(summary.outcomes):,} of {summary.wanted:,}",
            **{word: f"{len(found):,}" for word, found in summary.by_word.items()},
            "heights": f"{totals['heights']:,}",
            "fires": f"{totals['fires']:,}",
            "mechanisms never reached": ", ".join(summary.never_reached) or "none",
        },
        facts={"commit": summary.commit, "version": version()},
        again="",
        page=lambda: totals,
        junit=lambda: junit_xml([sweep_suite(task, summary)]),
    )


def _outcome_of(outcome: SeedOutcome) -> Outcome:
    return Outcome.FAIL if outcome.failed else Outcome.PASS if outcome.passed else Outcome.INCONCLUSIVE


class PlainProgress:
    """Prints the progress of a sweep without a terminal.

    It prints a line at the beginning, and a line after each tenth of the seeds except the last. After such a line comes
    one for each node of a cluster. The lines name the sweep: ``make fuzz`` runs two at a time.
    """

    def __init__(
        self,
        console: Console,
        title: str,
        ended: Sequence[SeedOutcome],
        total: int,
        nodes: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._console = console
        self._title = title
        self._nodes = nodes
        self._total = total
        self._counts = Counter(outcome.word for outcome in ended)
        self._started = time.monotonic()

    def begin(self, workers: int | None) -> None:
        done = self._counts.total()
        before = f", {done:,} of them done before" if done else ""
        if workers is None and is_joining():
            at_a_time = f"on all nodes of the Ray cluster at {os.environ[ADDRESS_VARIABLE]}"
        else:
            at_a_time = f"up to {workers or default_workers():,} at a time"
        self._print(f"{self._title}: {self._total:,} seeds{before}; {at_a_time}")

    def add(self, outcome: SeedOutcome) -> None:
        self._counts[outcome.word] += 1
        ended = self._counts.total()
        if is_tenth(ended, self._total) and ended < self._total:
            counts = ", ".join(f"{self._counts[word]:,} {word}" for word in ("passed", "failed", "undecided"))
            seconds = time.monotonic() - self._started
            so_far = f"{ended:,} of {self._total:,} seeds after {seconds:,.0f} s"
            self._print(f"{self._title}: {so_far}: {counts}")
            for line in self._nodes():
                self._print(f"  {line}")

    def _print(self, line: str) -> None:
        if not can_redraw(self._console):
            print_line(self._console, line)


def _show(progress: Progress, bar: Any, task: AnyTask, outcome: SeedOutcome, commit: str) -> None:
    progress.advance(bar)
    if not outcome.passed:
        print_line(progress.console, f"seed {outcome.seed} {outcome.word}: {outcome.why}")
        print_line(progress.console, f"  again  {_again(task, outcome, commit)}")


def _again(task: AnyTask, outcome: SeedOutcome, commit: str) -> str:
    return f"{task.command(outcome.seed)}  # at commit {commit}"


def print_quiet_summary(console: Console, task: AnyTask, summary: Summary) -> None:
    """Print only the seeds that did not pass, and a line with the verdict."""
    for outcome in [*summary.failed, *summary.undecided][:SHOWN]:
        print_line(console, f"seed {outcome.seed} {outcome.word}: {outcome.why}")
        print_line(console, f"  again  {_again(task, outcome, summary.commit)}")
    counts = ", ".join(f"{len(found):,} {word}" for word, found in summary.by_word.items())
    print_line(console, f"{task.title}: {EXIT_OUTCOMES[summary.exit_code]}: {counts} of {summary.wanted:,} seeds")


def print_summary(console: Console, task: AnyTask, summary: Summary) -> None:
    """Print the summary of a sweep."""
    seconds = sum(outcome.seconds for outcome in summary.outcomes)
    totals = summary.page()
    ran = f"{len(summary.outcomes)} of {summary.wanted}" if summary.interrupted else f"{len(summary.outcomes)}"
    print_line(
        console,
        f"{task.title}: {ran} seeds, {len(summary.passed)} passed, {len(summary.failed)} failed,"
        f" {len(summary.undecided)} undecided; {totals['heights']:,} heights, {totals['fires']:,} fires,"
        f" {seconds:,.0f} s of work",
    )
    faults = ", ".join(f"{kind} {count:,}" for kind, count in totals["faults"].items())
    print_line(console, f"faults that took effect  {faults or 'none'}")
    reached = sorted((count, mechanism) for mechanism, count in summary.seen.items() if count)
    fewest = ", ".join(f"{mechanism} {count:,}" for count, mechanism in reached[:SHOWN])
    print_line(console, f"mechanisms reached       {len(reached)} of {len(Mechanism)}")
    if reached:
        print_line(console, f"by the fewest seeds      {fewest}")
    if summary.never_reached:
        print_line(console, f"inconclusive: no seed reached {', '.join(summary.never_reached)}")
    for outcome in [*summary.failed, *summary.crashed][:SHOWN]:
        print_line(console, f"again  {_again(task, outcome, summary.commit)}")
