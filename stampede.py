"""Stampede's public Python API: run scenarios from a test suite or a notebook.

    from stampede import Scenario, run, simulate, up

    outcome = simulate("scenarios/smoke.yaml", seed=7)
    assert outcome.passed, outcome.explain()

A scenario is a path, a mapping of its fields or a :class:`Scenario`. :func:`simulate` runs it in this process in
virtual time, :func:`run` on the live testnet, with a run folder; both return a :class:`RunOutcome`. :func:`up` keeps a
live testnet up during a ``with`` block. :func:`read_run` reads the folder of a run. :class:`Chain` is a chain in this
process, for tests of actors. See
``docs/python.md``.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cluster.audit.books import Books
from cluster.audit.reexecution.again import execute_again
from cluster.checks.kind import Judged
from cluster.checks.run import judge_run
from cluster.checks.verdict import Check, Verdict
from cluster.commands.run.control_client import ControlClient
from cluster.commands.run.ending import finish
from cluster.common.checkout import checkout_commit
from cluster.common.errors import BadInput, HarnessError
from cluster.common.interrupts import Interrupts
from cluster.common.limits import is_seed
from cluster.common.suggestions import instead
from cluster.live.web.addresses import LOOPBACK, Served, listening_address
from cluster.local_chain.chain import Chain
from cluster.record.folder import ENDPOINTS_FILE, run_folder
from cluster.record.run import RunObserver, RunRecord, RunRequest, Sample
from cluster.report.results import finish_run
from cluster.scenario import Scenario
from cluster.scenario.code.gate import Gate, opened
from cluster.scenario.files import change_scenario, execute_own_code, scenario_from
from cluster.scenario.files import load_scenario as _load_scenario
from cluster.scenario.overrides import Change, SettingError, parse_setting
from cluster.tables.runs import Run
from cluster.watches.watched_simulation import simulate as _simulate

FIRST_BLOCK_TIMEOUT_S: Final = 120.0
"""Limit for the first block of a testnet."""
AnyScenario = Scenario | Mapping[str, Any] | os.PathLike[str] | str
"""A scenario, its fields as plain data, or the path of its file."""

__all__ = [
    "BadInput",
    "Chain",
    "Check",
    "HarnessError",
    "LiveTestnet",
    "Run",
    "RunOutcome",
    "RunRecord",
    "Scenario",
    "load_scenario",
    "read_run",
    "run",
    "scenario_from",
    "simulate",
    "up",
]


@dataclass(frozen=True, slots=True)
class RunOutcome(Run):
    """A run's record and its verdict."""

    books: Books
    """The auditor's books of the run's blocks: the ledger, every timer, metrics by block."""
    verdict: Verdict
    metrics: dict[str, float]
    """The values of the metrics in ``result.json``, keyed by name. The unit is last in each name."""
    folder: Path | None = None
    """The run's folder, if it has one."""

    @property
    def passed(self) -> bool:
        """Whether every check passed; an inconclusive run is not passed."""
        return self.verdict.exit_code == 0

    def check(self, name: str) -> Check:
        """The check of that name. Raises :class:`KeyError`, with a suggestion."""
        return self.verdict.check(name)

    def explain(self) -> str:
        """The checks that did not pass, a line each; empty if all did."""
        return "\n".join(f"{c.name}: {c.verdict}: {c.detail}" for c in self.verdict.checks if c.verdict.value != "pass")

    def write(self, folder: Path | str) -> Path:
        """Write the run's folder, with its report, and return its path.

        Raises :class:`BadInput` if the folder is not empty or cannot be created, and :class:`OSError` if it cannot be
        written.
        """
        with run_folder(Path(folder), self.record.scenario.name) as claimed:
            finish_run(self.record, claimed)
        return claimed

    def __repr__(self) -> str:
        """One line, since the record has every block."""
        return f"<{type(self).__name__} of {self.record.scenario.name}, seed {self.record.seed}: {self.verdict}>"


def simulate(
    scenario: AnyScenario,
    seed: int | None = None,
    out: Path | str | None = None,
    settings: Sequence[str] = (),
    allow_code: bool = False,
) -> RunOutcome:
    """Run a scenario on the simulator; equal seeds give equal digests.

    The run's folder is written if ``out`` is given. ``settings`` are changes as for ``--set``, such as
    ``"links.loss=0.1"``. Code whose text is inside of a scenario's file runs if ``allow_code`` says so; that of a
    mapping or a :class:`Scenario` is the caller's. Raises :class:`BadInput`.
    """
    chosen, seed = _scenario(scenario, seed, settings, allow_code)
    with nullcontext() if out is None else run_folder(Path(out), chosen.name) as folder:
        return _judged(_simulate(chosen, seed, checkout_commit()), folder)


def run(
    scenario: AnyScenario,
    seed: int | None = None,
    out: Path | str | None = None,
    settings: Sequence[str] = (),
    bind: str = LOOPBACK,
    allow_code: bool = False,
) -> RunOutcome:
    """Run a scenario on the live testnet and write its folder, by default ``runs/<time>-<scenario>``.

    ``bind`` is the address of this machine to listen on; several Ray nodes listen on their own addresses. Ctrl-C ends
    the run early; it is at best inconclusive then. ``allow_code`` is as for :func:`simulate`. Raises
    :class:`BadInput` and :class:`HarnessError`.
    """
    from cluster.watches.live.audited_testnet import run_live

    chosen, seed, served = *_scenario(scenario, seed, settings, allow_code), _served(bind)
    with Interrupts() as interrupts, _folder(chosen, out) as folder:
        record = run_live(RunRequest(chosen, seed, checkout_commit(), folder), interrupts=interrupts, served=served)
        return _outcome(record, finish(record, folder, interrupts), folder)


def read_run(folder: Path | str, allow_code: bool = False) -> Run:
    """Read the folder of a run that ended, or of a live run whose driver died, for its tables.

    They execute the run's policy, if it is a user's: ``allow_code`` is as for :func:`simulate`. Raises
    :class:`BadInput`.
    """
    from cluster.commands.inspect.judge import read_run_of

    with opened(Gate(allow_code)):
        return Run(read_run_of(Path(folder)))


class _LastSample:
    """The last sample of a running testnet, for callers that wait for a height."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._news = threading.Condition()
        self._heights: dict[str, int | None] = dict.fromkeys(names)
        self._is_over = False

    def take(self, sample: Sample) -> None:
        """Store a sample."""
        with self._news:
            self._heights = dict(zip(self.names, sample.heights, strict=True))
            self._news.notify_all()

    def end(self) -> None:
        """Wake the callers: there are no more samples."""
        with self._news:
            self._is_over = True
            self._news.notify_all()

    def wait_for(self, height: int, names: Sequence[str], timeout_s: float) -> None:
        """Wait for a height. Raises :class:`HarnessError` if it is not reached in time."""

        def is_reached() -> bool:
            return all((self._heights[name] or 0) >= height for name in names)

        with self._news:
            self._news.wait_for(lambda: self._is_over or is_reached(), timeout_s)
            if is_reached():
                return
            behind = [name for name in names if (self._heights[name] or 0) < height]
            standings = ", ".join(
                f"{name} does not answer"
                if self._heights[name] is None
                else f"{name} is at height {self._heights[name]}"
                for name in behind
            )
            why = "the testnet ended" if self._is_over else f"{timeout_s:g} s are over"
            raise HarnessError(f"height {height} was not reached: {why}: {standings}")


@dataclass(slots=True)
class LiveTestnet:
    """A running live testnet."""

    folder: Path
    """The run's folder: logs, the validators' disks, and at the end result and report."""
    url: str
    """URL of the testnet's own endpoint (``docs/http.md``)."""
    validators: dict[str, str]
    """The validators' HTTP endpoints by their names."""
    outcome: RunOutcome | None = None
    """Set after the ``with`` block."""
    _last_sample: _LastSample = field(default_factory=lambda: _LastSample(()), repr=False)

    def wait_for_height(self, height: int, timeout_s: float = 60.0, validators: Sequence[str] = ()) -> None:
        """Wait until a height is final at these validators, by default all that started with the testnet.

        Raises :class:`BadInput` for an unknown validator, and :class:`HarnessError` if the time is up or the testnet
        ends before.
        """
        for name in validators:
            if name not in self._last_sample.names:
                raise BadInput(
                    f"validators: no validator is named {name!r}; {instead(name, list(self._last_sample.names))}"
                )
        self._last_sample.wait_for(height, validators or list(self.validators), timeout_s)

    def inject(self, **fault: Any) -> dict[str, Any]:
        """Add a fault, by its fields as in a scenario's ``faults``; without height and time it begins at once.

        Returns it as it will be performed. Raises :class:`BadInput`, and :class:`HarnessError` if the testnet has
        failed or is ending.
        """
        return ControlClient.of_run(self.folder).add_fault(fault)

    def pay(self, to: str, amount: int) -> dict[str, Any]:
        """Have the faucet pay an address (``0x…``), in the smallest CBY unit; the scenario has a ``chain.faucet``.

        Returns the transfer that it sent. Raises :class:`BadInput`, and :class:`HarnessError` if it does not pay.
        """
        return ControlClient.of_run(self.folder).pay(to, amount)


@contextmanager
def up(
    scenario: AnyScenario,
    seed: int | None = None,
    out: Path | str | None = None,
    settings: Sequence[str] = (),
    bind: str = LOOPBACK,
    allow_code: bool = False,
) -> Iterator[LiveTestnet]:
    """A live testnet during a ``with`` block, which begins after the first block of the chain.

    At the end of the ``with`` block the load stops, and the run drains and is judged. The scenario's stop height and
    time are not used; the minimum numbers of ``success`` are reduced in proportion to the reached height. ``bind`` and
    ``allow_code`` are as for :func:`run`. Raises :class:`BadInput`, and :class:`HarnessError` if the testnet does not
    start or fails.
    """
    chosen, chosen_seed, served = *_scenario(scenario, seed, settings, allow_code), _served(bind)
    has_block, stop_requested = threading.Event(), threading.Event()
    last_sample = _LastSample(chosen.validators.names)

    def look(sample: Sample) -> None:
        last_sample.take(sample)
        if any(sample.heights):
            has_block.set()

    def run_until_stopped(folder: Path) -> RunOutcome:
        from cluster.watches.live.audited_testnet import live_testnet

        request, observer = RunRequest(chosen, chosen_seed, checkout_commit(), folder), RunObserver(look)
        with live_testnet(request, observer, run_until_stopped=stop_requested, served=served) as record:
            return _judged(record, folder)

    with _folder(chosen, out) as folder, ThreadPoolExecutor(1, thread_name_prefix="testnet") as thread:
        ending = thread.submit(run_until_stopped, folder)
        ending.add_done_callback(lambda _: has_block.set())
        ending.add_done_callback(lambda _: last_sample.end())
        try:
            is_up = has_block.wait(FIRST_BLOCK_TIMEOUT_S)
            if ending.done():
                ending.result()
                raise HarnessError(f"{folder}: the testnet ended before it was up")
            if not is_up:
                raise HarnessError(f"{folder}: no block became final within {FIRST_BLOCK_TIMEOUT_S:g} s")
            endpoints = json.loads((folder / ENDPOINTS_FILE).read_text(encoding="utf-8"))
            urls = {validator["name"]: validator["url"] for validator in endpoints["validators"]}
            running = LiveTestnet(folder, endpoints["testnet"]["url"], urls, _last_sample=last_sample)
            try:
                yield running
            finally:
                stop_requested.set()
                running.outcome = ending.result()
        finally:
            stop_requested.set()


def _judged(record: RunRecord, folder: Path | None) -> RunOutcome:
    """Judge a run, and write its folder if it has one. A user's policy is executed again before."""
    execute_again(record, folder)
    judged = judge_run(record)
    if folder is not None:
        finish_run(record, folder, judged=judged)
    return _outcome(record, judged, folder)


def _outcome(record: RunRecord, judged: Judged, folder: Path | None) -> RunOutcome:
    return RunOutcome(record, judged.books, judged.verdict, judged.metrics, folder)


def _folder(chosen: Scenario, out: Path | str | None) -> AbstractContextManager[Path]:
    """The folder of a live run. Raises :class:`BadInput`, without a folder, if the scenario cannot run."""
    if problem := chosen.live_problem:
        raise BadInput(f"{chosen.name}: {problem}")
    return run_folder(None if out is None else Path(out), chosen.name)


def _served(bind: str) -> Served:
    try:
        return Served(listening_address(bind))
    except ValueError as error:
        raise BadInput(f"bind: {error}") from None


def load_scenario(path: os.PathLike[str] | str, changes: Sequence[Change] = (), allow_code: bool = False) -> Scenario:
    """Read and check a scenario file, with those that it extends, or one that ships by its name; then change it.

    Its code can run with the result, so ``allow_code`` is as for :func:`simulate`. Raises :class:`BadInput`.
    """
    with opened(Gate(allow_code)):
        return _load_scenario(Path(path), changes)


def _scenario(given: AnyScenario, seed: int | None, settings: Sequence[str], allow_code: bool) -> tuple[Scenario, int]:
    """The scenario that runs, and the run's seed."""
    if seed is not None and not is_seed(seed):
        raise BadInput(f"seed: {seed!r} is not a seed: expected an integer from 0 to 2**64 - 1")
    if isinstance(settings, str):
        raise BadInput(f"settings: expected a list of settings, got {settings!r}")
    scenario = _read(given, allow_code)
    try:
        changes = [parse_setting(text) for text in settings]
    except SettingError as error:
        raise BadInput(f"settings: {error}") from None
    changed = change_scenario(scenario, changes, f"{scenario.name} with settings")
    execute_own_code(changed, changed.name)
    return changed, changed.seed if seed is None else seed


def _read(given: AnyScenario, allow_code: bool) -> Scenario:
    match given:
        case Scenario():
            return given
        case Mapping():
            return scenario_from(given)
        case str() | os.PathLike():
            return load_scenario(given, allow_code=allow_code)
    raise BadInput(f"scenario: expected a path, a mapping of fields or a Scenario, got {type(given).__name__}")
