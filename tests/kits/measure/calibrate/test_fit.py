"""A fit to synthetic measurements recovers their parameters, and a wrong fit is seen."""

from __future__ import annotations

import pytest

from cluster.common.errors import BadInput
from cluster.record.run import MESSAGE, SYNC, WARM_UP
from cluster.scenario.sections.measurements.profile import MILLI, ProfileSection
from kits.measure.calibrate import fit as fitting
from kits.measure.calibrate.fit import MIN_WORK, fit, fit_jobs, fit_links, quantiles_of
from kits.measure.calibrate.observed import LinkDelay, Observed
from tests.kits.measure.calibrate.synthetic import JITTER_US, LATENCY_US, TRUTH, deviations, measured

PROCESSORS = 2


@pytest.mark.parametrize("seed", range(3))
def test_known_parameters_are_recovered(seed: int) -> None:
    assert deviations(fit(measured(seed=seed), PROCESSORS)) == {}


def test_a_fit_is_a_function_of_its_measurements() -> None:
    assert fit(measured(), PROCESSORS) == fit(measured(), PROCESSORS)


def test_some_slow_jobs_do_not_pull_the_fit() -> None:
    observed = measured()
    observed.work = [
        work._replace(core_us=20 * work.core_us) if place % 40 == 0 else work
        for place, work in enumerate(observed.work)
    ]
    found = {name for name in deviations(fit(observed, PROCESSORS)) if "scatter" not in name}
    assert found == set()


def test_another_processs_time_is_in_the_scatter() -> None:
    """Jobs that take twice their processor time, without any other job under way."""
    observed = measured()
    builds = [work for work in observed.work if work.kind == "build"]
    slow = [work._replace(wall_us=2 * work.wall_us) for work in builds]
    others = [work for work in observed.work if work.kind not in ("build", WARM_UP)]
    found = fit_jobs([*slow, *others], PROCESSORS)["build"]
    assert abs(found.typical_us(5, 50) / TRUTH.build.typical_us(5, 50) - 1) < 0.05
    assert 1_900 < found.scatter_milli[len(found.scatter_milli) // 2] < 2_100


def wrong_fits(observed: Observed) -> dict[str, ProfileSection]:
    """Fits with one planted mistake each."""
    right = fit(observed, PROCESSORS)
    execute = right.execute
    swapped = execute.model_copy(
        update={"transaction_us": execute.fire_us, "fire_us": execute.transaction_us}  # the sizes' columns swapped
    )
    alone = fit_jobs(observed.work, 64)["execute"]  # as if no job waited for another one
    with_jitter = [max(0, delay.delay_us - delay.latency_us) for delay in observed.delays]
    cold = [work._replace(kind="execute") if work.kind == WARM_UP else work for work in observed.work] * 1
    return {
        "sizes swapped": right.model_copy(update={"execute": swapped}),
        "sharing forgotten": right.model_copy(update={"execute": alone}),
        "jitter counted twice": right.model_copy(update={"link_us": quantiles_of(with_jitter)}),
        "warm-up as a job": fit(Observed(cold, observed.delays, observed.starts_us), PROCESSORS),
        "messages as syncs": right.model_copy(
            update={"sync_us": quantiles_of([work.wall_us for work in observed.work if work.kind == MESSAGE])}
        ),
    }


def test_planted_wrong_fits_are_seen() -> None:
    observed = measured()
    unseen = [name for name, wrong in wrong_fits(observed).items() if not deviations(wrong)]
    assert unseen == []


def test_a_fit_that_does_not_converge_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "LINK_ROUNDS", 0)
    assert any(name.startswith("link_us") for name in deviations(fit(measured(), PROCESSORS)))


def test_constant_delays_are_found_on_links_without_jitter() -> None:
    found = fit_links([LinkDelay(1_540, 0, 0)] * 100)
    assert all(1_250 <= value <= 1_750 for value in found)
    early = fit_links([LinkDelay(LATENCY_US - 3 * JITTER_US, LATENCY_US, JITTER_US)] * 100)  # the clocks differ
    assert max(early) <= 100


def test_costs_are_never_negative() -> None:
    """A kind of job that gets faster with more fires has no negative cost of a fire."""
    observed = measured()
    work = [
        each._replace(core_us=max(1, 9_000 - 50 * each.fires)) if each.kind == "execute" else each
        for each in observed.work
    ]
    found = fit_jobs(work, PROCESSORS)["execute"]
    assert found.fire_us == 0
    assert min(found.base_us, found.transaction_us) >= 0


@pytest.mark.parametrize("kind", [SYNC, "build", "execute", "finalize"])
def test_too_few_measurements_are_refused_in_one_line(kind: str) -> None:
    observed = measured(MIN_WORK)
    observed.work = [work for work in observed.work if work.kind != kind]
    with pytest.raises(BadInput, match=f"0 .*{kind}.*expected at least {MIN_WORK}: raise stop.height or --runs"):
        fit(observed, PROCESSORS)
    with pytest.raises(BadInput, match="0 messages"):
        fit(Observed(measured(MIN_WORK).work, [], []), PROCESSORS)


def test_without_kills_a_restart_takes_no_time() -> None:
    observed = measured(MIN_WORK)
    observed.starts_us = []
    assert fit(observed, PROCESSORS).start_us == [0, 0]
    assert quantiles_of([MILLI]) == [MILLI] * fitting.QUANTILES
