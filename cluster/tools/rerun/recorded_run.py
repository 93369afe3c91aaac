"""A simulated run as its folder remembers it, for whoever runs it again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput
from cluster.common.outcome import Outcome
from cluster.record.folder import RESULT_FILE, SCENARIO_FILE, seed_of
from cluster.scenario import Scenario, load_scenario


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What ran, and how it went."""

    folder: Path
    scenario: Scenario
    seed: int
    commit: str
    digest: str
    """Over all events."""
    events: int
    """So many; an interrupted run has fewer than one that went to its end."""
    checkpoints: dict[int, str]
    """Digests of the moments at which heights were first final, by height; none in runs of old code."""
    failed: tuple[str, ...]
    """Names of the checks that failed, in their order."""

    def difference(self, told: str) -> str:
        """One line about a run that does not repeat itself; ``told`` says where."""
        here = checkout_commit()
        where = f"this code ({here}) is not that of the run ({self.commit})"
        return f"{self.folder}: does not repeat: {told}; {'the code is the same' if here == self.commit else where}"


def read_recorded(folder: Path) -> RecordedRun:
    """Read a run's folder. Raises :class:`BadInput` where it holds no finished run of the simulator."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder: expected that of a run, such as runs/latest")
    result = _read_result(folder / RESULT_FILE)
    if result.get("backend") == "live":
        raise BadInput(f"{folder}: was a live run: only runs of the simulator repeat themselves")
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


def _read_result(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path.parent}: holds no finished run: it has no {RESULT_FILE}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except ValueError as error:
        raise BadInput(f"{path}: no JSON: {error}") from None
    if not isinstance(result, dict):
        raise BadInput(f"{path}: expected an object")
    return result
