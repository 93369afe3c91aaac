"""Stampede's public Python API: run scenarios from a test suite or a notebook.

    from stampede import Scenario, run, simulate, up

    outcome = simulate("scenarios/smoke.yaml", seed=7)
    assert outcome.passed, outcome.explain()

A scenario is a path or a :class:`Scenario`. :func:`simulate` runs it in this process in virtual time, :func:`run` on
the live testnet, writing the run's folder; both return an :class:`Outcome`. :func:`up` keeps a live testnet up for
as long as a ``with`` block lasts. ``docs/python.md`` has more of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cluster.books import Books, keep_books
from cluster.checks import Check, Verdict, check_run
from cluster.control_client import ControlClient, ControlError
from cluster.errors import BadInput, HarnessError
from cluster.interrupts import Interrupts
from cluster.measures import metrics
from cluster.record import RunRecord, Sample
from cluster.results import ENDPOINTS_FILE, checkout_commit, claim_run_folder, finish_run, new_run_folder
from cluster.running import finish
from cluster.scenario import Scenario, change_scenario, load_scenario
from cluster.settings import SettingError, parse_setting
from cluster.simulation.driver import simulate as _simulate

__all__ = [
    "BadInput",
    "Check",
    "HarnessError",
    "LiveTestnet",
    "Outcome",
    "RunRecord",
    "Scenario",
    "load_scenario",
    "run",
    "simulate",
    "up",
]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run's record and what the checks say of it."""

    record: RunRecord
    books: Books
    """What the checks kept of the run's blocks: the ledger, every timer, figures block by block."""
    verdict: Verdict
    folder: Path | None = None
    """Where the run was written, if it was."""

    @property
    def passed(self) -> bool:
        """Whether every check passed; an inconclusive run did not."""
        return self.verdict.exit_code == 0

    @property
    def metrics(self) -> dict[str, float]:
        """The run's figures by name, the unit last in each; as in ``result.json``."""
        return metrics(self.books)

    def check(self, name: str) -> Check:
        """The check of that name. Raises :class:`KeyError`."""
        return self.verdict.check(name)

    def explain(self) -> str:
        """The checks that did not pass, a line each; empty where all did."""
        return "\n".join(f"{c.name}: {c.verdict}: {c.detail}" for c in self.verdict.checks if c.verdict.value != "pass")


def simulate(
    scenario: Scenario | Path | str,
    seed: int | None = None,
    out: Path | str | None = None,
    settings: Sequence[str] = (),
) -> Outcome:
    """Run a scenario on the simulator; equal seeds give equal digests.

    The run's folder is written where ``out`` names one. ``settings`` are changes as ``--set`` takes them, such as
    ``"links.loss=0.1"``. Raises :class:`BadInput`.
    """
    chosen, seed = _scenario(scenario, seed, settings)
    folder = None if out is None else claim_run_folder(Path(out))
    record = _simulate(chosen, seed, checkout_commit())
    books = keep_books(record)
    verdict = check_run(record, books) if folder is None else finish_run(record, folder, books=books)
    return Outcome(record, books, verdict, folder)


def run(
    scenario: Scenario | Path | str,
    seed: int | None = None,
    out: Path | str | None = None,
    settings: Sequence[str] = (),
) -> Outcome:
    """Run a scenario on the live testnet and write its folder, ``runs/<time>-<scenario>`` where ``out`` names no other.

    Ctrl-C ends it early, with an outcome that is at best inconclusive. Raises :class:`BadInput` and
    :class:`HarnessError`.
    """
    from cluster.live.driver import run_live

    chosen, seed = _scenario(scenario, seed, settings)
    folder = _folder(chosen, out)
    with Interrupts() as interrupts:
        record = run_live(chosen, seed, checkout_commit(), folder, interrupts=interrupts)
        books = keep_books(record)
        return Outcome(record, books, finish(record, folder, interrupts, books=books), folder)


@dataclass(slots=True)
class LiveTestnet:
    """A live testnet that is up."""

    folder: Path
    """The run's: logs, the validators' disks, and at the end its result and report."""
    url: str
    """Of the testnet's own endpoint (``docs/http.md``)."""
    validators: dict[str, str]
    """The validators' HTTP endpoints by their names."""
    outcome: Outcome | None = None
    """Once the ``with`` block is over."""


@contextmanager
def up(
    scenario: Scenario | Path | str,
    seed: int | None = None,
    out: Path | str | None = None,
    settings: Sequence[str] = (),
) -> Iterator[LiveTestnet]:
    """A live testnet for as long as the block lasts: it has made a block when that begins; then its load stops, it
    drains and is judged.

    The scenario's load and faults are performed, its stop height and time are not used. Raises :class:`BadInput`, and
    :class:`HarnessError` where the testnet does not come up or broke down.
    """
    chosen, seed = _scenario(scenario, seed, settings)
    folder = _folder(chosen, out)
    with ThreadPoolExecutor(1, thread_name_prefix="testnet") as thread:
        has_block = threading.Event()
        ending = thread.submit(_run_until_told, chosen, seed, folder, has_block)
        ending.add_done_callback(lambda _: has_block.set())
        has_block.wait()
        if ending.done():
            ending.result()
            raise HarnessError(f"{folder}: the testnet ended before it was up")
        endpoints = json.loads((folder / ENDPOINTS_FILE).read_text(encoding="utf-8"))
        testnet = endpoints["testnet"]
        urls = {validator["name"]: validator["url"] for validator in endpoints["validators"]}
        running = LiveTestnet(folder, testnet["url"], urls)
        try:
            yield running
        finally:
            with suppress(ControlError):  # it broke down by itself, which its record says
                ControlClient(running.url, folder / testnet["token_file"]).stop()
            running.outcome = ending.result()


def _run_until_told(scenario: Scenario, seed: int, folder: Path, has_block: threading.Event) -> Outcome:
    from cluster.live.driver import live_testnet

    def look(sample: Sample) -> None:
        if any(sample.heights):
            has_block.set()

    with live_testnet(scenario, seed, checkout_commit(), folder, look, until_told=True) as record:
        books = keep_books(record)
        return Outcome(record, books, finish_run(record, folder, books=books), folder)


def _folder(scenario: Scenario, out: Path | str | None) -> Path:
    return new_run_folder(scenario.name, datetime.now(UTC)) if out is None else claim_run_folder(Path(out))


def _scenario(given: Scenario | Path | str, seed: int | None, settings: Sequence[str]) -> tuple[Scenario, int]:
    """The scenario that runs, and the run's seed."""
    scenario = given if isinstance(given, Scenario) else load_scenario(Path(given))
    try:
        changes = [parse_setting(text) for text in settings]
    except SettingError as error:
        raise BadInput(f"settings: {error}") from None
    changed = change_scenario(scenario, changes, f"{scenario.name} with settings")
    return changed, changed.seed if seed is None else seed
