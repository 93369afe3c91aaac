"""Reads a simulated run from its folder, so that it can be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput
from cluster.common.outcome import Outcome
from cluster.record.folder import RESULT_FILE, SCENARIO_FILE, expect_run_folder, read_result, seed_of
from cluster.scenario import Scenario
from cluster.scenario.files import load_scenario


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A recorded run of the simulator: its scenario, seed, digests and failed checks."""

    folder: Path
    scenario: Scenario
    seed: int
    commit: str
    digest: str
    """Digest over all events."""
    events: int
    """Number of events; an interrupted run has fewer than a complete one."""
    checkpoints: dict[int, str]
    """Digest over the events up to the moment when a height was first final, keyed by height; empty in runs of old
    versions."""
    failed: tuple[str, ...]
    """Names of the failed checks, in order."""

    def difference(self, place: str) -> str:
        """An error message in one line: the run does not repeat. ``place`` describes the first difference."""
        here = checkout_commit()
        where = f"this code ({here}) is not that of the run ({self.commit})"
        return f"{self.folder}: does not repeat: {place}; {'the code is the same' if here == self.commit else where}"


def was_live(folder: Path) -> bool:
    """Whether a folder has a live run. Raises :class:`BadInput` if it has no finished run."""
    return _result_in(folder).get("backend") == "live"


def _result_in(folder: Path) -> dict[str, Any]:
    expect_run_folder(folder)
    return read_result(folder)


def read_recorded(folder: Path) -> RecordedRun:
    """Read a run's folder. Raises :class:`BadInput` if it holds no finished run of the simulator."""
    result = _result_in(folder)
    if result.get("backend") == "live":
        raise BadInput(f"{folder}: was a live run: only simulated runs repeat")
    try:
        return RecordedRun(
            folder=folder,
            scenario=load_scenario(folder / SCENARIO_FILE),
            seed=seed_of(result),
            commit=_typed(result["commit"], str),
            digest=_typed(result["digest"], str),
            events=_typed(result["metrics"]["events"], int),
            checkpoints={int(height): _typed(digest, str) for height, digest in result.get("checkpoints", {}).items()},
            failed=tuple(check["name"] for check in result["checks"] if check["verdict"] == Outcome.FAIL),
        )
    except KeyError as error:
        raise BadInput(f"{folder / RESULT_FILE}: no result of a run: {error.args[0]} is missing") from None
    except (TypeError, ValueError, AttributeError):
        raise BadInput(f"{folder / RESULT_FILE}: no result of a run: a field is of another type") from None


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value
