"""Compares a simulated run with a second one, event by event.

The second run is another process with another hash seed, so that an order that depends on hashes, addresses or other
properties of the process shows. Both report each event's time, label and the rolling digest after it. The lines are
compared as they come; none is kept. The digest also covers the event's effects: the bytes of each message that it sent.
So the first line that differs names the event at which the runs diverge.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from cluster.common.checkout import HASH_SEED_VARIABLE, other_hash_seed, own_environment
from cluster.common.errors import Crash, ExitCode, HarnessError
from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.record.run import RunRecord, Sample, ignore
from cluster.scenario import Scenario
from cluster.simulation.driver import Simulation
from cluster.watches.watched_simulation import simulate

FIELDS: Final = 4


class NotDeterministic(HarnessError):
    """The error that two runs of one scenario and seed differ."""

    exit_code = ExitCode.FAIL


def compare(line: str, others: Iterator[str]) -> None:
    """Compare one run's trace line with the next one of the other run; an empty line means that the run is over.

    Raises :class:`NotDeterministic` if they differ.
    """
    other = next(others, "")
    if other != line:
        raise NotDeterministic(_difference(line, other))


def simulate_twice(
    scenario: Scenario,
    seed: int,
    commit: str,
    on_sample: Callable[[Sample], None] | None,
    on_notice: Callable[[str], None],
    checkpoint: Callable[[], None],
    on_begin: Callable[[RunRecord], None] = ignore,
) -> RunRecord:
    """Simulate a scenario twice and compare the two runs event by event. Returns the first run's record.

    ``on_begin`` is called with that record before the run begins. Raises :class:`NotDeterministic` if the runs differ,
    and :class:`Crash` if the second run's process ended before its end.
    """
    arguments = json.dumps({"scenario": scenario.model_dump(mode="json", exclude_unset=True), "seed": seed})
    process = subprocess.Popen(
        [sys.executable, "-m", "cluster.watches.determinism"],
        env=own_environment() | {HASH_SEED_VARIABLE: str(other_hash_seed())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C is for this process, which ends the other one
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):  # it has ended: the comparison sees that
                process.stdin.write(arguments)
                process.stdin.close()
            others = (line.rstrip("\n") for line in process.stdout)
            record = simulate(
                scenario,
                seed,
                commit,
                on_sample,
                on_notice,
                checkpoint,
                on_begin=on_begin,
                on_event=lambda line: compare(line, others),
            )
            if not record.interrupted:
                compare("", others)
        except NotDeterministic as error:
            if next(others, "") == "" and process.wait():
                raise Crash(f"the second run crashed, with exit code {process.returncode}: see above") from error
            raise
        finally:
            process.kill()
    if not record.interrupted:
        on_notice(f"two runs agree on all {record.metrics['events']:,} events, digest {record.digest}")
    return record


def _difference(line: str, other: str) -> str:
    here, there = (_words(each) for each in (line, other))
    if not line or not other:
        who, what = ("second", there) if other else ("first", here)
        return f"two runs of one seed differ: only the {who} run has {what}"
    if here == there:
        return f"two runs of one seed differ in {here}: it carried or sent other bytes"
    return f"two runs of one seed differ: {here} in one, {there} in the other"


def _words(line: str) -> str:
    if not line:
        return "no event"
    number, at_us, _, label = line.split("\t", FIELDS - 1)
    return f"event {number} at {int(at_us) / MICROSECONDS_PER_MILLISECOND:,.3f} ms ({label})"


def main() -> int:
    """Perform the second run: read scenario and seed from standard input, and print a trace line per event."""
    given = json.load(sys.stdin)
    simulation = Simulation(Scenario.model_validate(given["scenario"]), given["seed"], "", on_event=print)
    simulation.run()
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
