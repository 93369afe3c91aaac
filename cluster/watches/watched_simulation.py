"""A simulation whose validators are watched."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cluster.common.errors import BadInput
from cluster.record.run import RunRecord, Sample, Step, ignore
from cluster.scenario import Scenario
from cluster.simulation.driver import Simulation
from cluster.simulation.observer import Observer
from cluster.simulation.steps import Steps
from cluster.watches.watches import Watches
from validator.policies.own import PolicyError


class WatchedSimulation(Simulation):
    """A simulation whose record has what the watches found."""

    watches: Watches

    def _watches(self) -> Iterable[Observer]:
        self.watches = Watches(
            self.record, self.keys, lambda: self.clock.now_ms, self.network.reader.read, self.machines
        )
        return self.watches.observers


def simulate(
    scenario: Scenario,
    seed: int,
    commit: str = "unknown",
    on_sample: Callable[[Sample], None] | None = None,
    on_notice: Callable[[str], None] = ignore,
    checkpoint: Callable[[], None] | None = None,
    stop_on_fail: bool = False,
    shortcuts: bool = False,
    on_step: Callable[[Step], None] | None = None,
    on_begin: Callable[[RunRecord], None] = ignore,
    on_event: Callable[[str], None] | None = None,
) -> RunRecord:
    """Run a scenario on the simulator. Equal scenarios and seeds give equal records and digests.

    ``shortcuts`` changes neither. ``on_begin`` is called with the record before the run begins, ``on_step`` with each
    validator's steps, ``on_event`` with every event's trace line. ``checkpoint`` is called between events and may raise
    :class:`KeyboardInterrupt` to end the run early. With ``stop_on_fail`` the first violation of a rule seen during the
    run ends it.

    Raises :class:`BadInput` if a policy or workload of the user's raises an exception.
    """
    run = WatchedSimulation(
        scenario,
        seed,
        commit,
        on_sample,
        on_notice,
        checkpoint=checkpoint,
        shortcuts=shortcuts,
        stop_on_fail=stop_on_fail,
        on_event=on_event,
    )
    if on_step is not None:
        run.observe(Steps(run.clock, on_step))
    on_begin(run.record)
    try:
        return run.run()
    except PolicyError as error:
        raise BadInput(str(error)) from None
    finally:
        run.close()
