"""The pytest plugin: simulated runs and live testnets in a test suite, and scenario files that are tests themselves.

    @pytest.mark.stampede(seeds=range(50))
    def test_it_survives(stampede):
        outcome = stampede.simulate("mine.yaml")
        assert outcome.passed, outcome.explain()

pytest loads it in every session of an environment that has Stampede. So it imports nothing of Stampede until a test
asks for it. ``docs/python.md`` describes the fixtures, the mark, the settings and the option.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from stampede import AnyScenario, LiveTestnet, RunOutcome

FIXTURE: Final = "stampede"
MARK: Final = "stampede"
MARK_HELP: Final = (
    "stampede(seeds=[…], settings=[…]): run the test with each seed, and its runs with these settings (as for --set)"
)
SCENARIOS_SETTING: Final = "stampede_scenarios"
SEEDS_SETTING: Final = "stampede_seeds"
OUT_OPTION: Final = "--stampede-out"
YAML_SUFFIXES: Final = (".yaml", ".yml")
NO_FILE_NAME: Final = re.compile(r"[^\w.-]+")
MAX_NAME: Final = 100
"""Characters of a run's folder that name its test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        SCENARIOS_SETTING, "scenario files that are tests: patterns of paths below the root folder", "args", []
    )
    parser.addini(SEEDS_SETTING, "seeds of the scenario files that are tests, as A:B (default: each file's own)")
    parser.getgroup("stampede").addoption(
        OUT_OPTION,
        metavar="DIR",
        type=Path,
        help="folder for the runs of failed tests and for live runs (default: pytest's temporary folder)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK_HELP)


# --- the mark ---------------------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each seed of its mark."""
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is None:
        return
    where = f"{metafunc.definition.nodeid}: @pytest.mark.{MARK}"
    if mark.args or (unknown := sorted(mark.kwargs.keys() - {"seeds", "settings"})):
        given = "a positional argument" if mark.args else f"the argument {unknown[0]!r}"
        pytest.fail(f"{where}: {given} is unknown; expected seeds=… or settings=…", pytrace=False)
    if FIXTURE not in metafunc.fixturenames:
        pytest.fail(f"{where}: the test has no fixture named {FIXTURE!r}", pytrace=False)
    settings, seeds = mark.kwargs.get("settings", ()), mark.kwargs.get("seeds")
    if isinstance(settings, str):
        pytest.fail(f"{where}: settings: expected a list of settings, got {settings!r}", pytrace=False)
    if seeds is None:
        return
    if not isinstance(seeds, Iterable):
        pytest.fail(f"{where}: seeds: {seeds!r}: expected several seeds, such as range(5)", pytrace=False)
    chosen = list(seeds)
    if not chosen:  # pytest would skip the test
        pytest.fail(f"{where}: seeds: none; expected at least one, such as range(5)", pytrace=False)
    if (problem := next(filter(None, map(_seed_problem, chosen)), None)) is not None:
        pytest.fail(f"{where}: seeds: {problem}", pytrace=False)
    metafunc.parametrize(FIXTURE, chosen, indirect=True, ids=[f"seed {seed}" for seed in chosen])


def _seed_problem(seed: object) -> str | None:
    from cluster.common.limits import is_seed

    return None if is_seed(seed) else f"{seed!r} is not a seed: expected an integer from 0 to 2**64 - 1"


# --- fixtures ---------------------------------------------------------------------------------------------------------


@dataclass
class Runs:
    """The fixture ``stampede``: runs scenarios, and remembers them in case that the test fails.

    The path of a scenario is relative to the test's folder, if it names a file there, or to the working directory; a
    bare name is that of a scenario that ships.
    """

    base: Path
    """The folder of the test."""
    out: Callable[[], Path] = field(repr=False)
    """Creates the parent of a run's folder."""
    seed: int | None = None
    """The seed of runs that name none: that of the mark. Without one it is each scenario's own."""
    settings: Sequence[str] = ()
    """The settings of the mark; those of a run come after them."""
    _runs: list[_Run] = field(default_factory=list, repr=False)

    def simulate(
        self,
        scenario: AnyScenario,
        seed: int | None = None,
        settings: Sequence[str] = (),
        allow_code: bool = False,
    ) -> RunOutcome:
        """Run a scenario on the simulator (:func:`stampede.simulate`)."""
        import stampede

        found, all_settings = _found(self.base, scenario), self._settings(settings)
        seed = self.seed if seed is None else seed
        outcome = stampede.simulate(found, seed, settings=all_settings, allow_code=allow_code)
        return self._noted(outcome, found, all_settings)

    def run(
        self,
        scenario: AnyScenario,
        seed: int | None = None,
        settings: Sequence[str] = (),
        allow_code: bool = False,
    ) -> RunOutcome:
        """Run a scenario on the live testnet (:func:`stampede.run`)."""
        import stampede

        found, all_settings = _found(self.base, scenario), self._settings(settings)
        seed = self.seed if seed is None else seed
        outcome = stampede.run(found, seed, _run_folder(self.out(), "live"), all_settings, allow_code=allow_code)
        return self._noted(outcome, found, all_settings)

    def describe_runs(self) -> list[str]:
        """Each run in a paragraph: verdict, checks that did not pass, report, and the command that repeats it."""
        return [run.describe(self.out) for run in self._runs]

    def _settings(self, settings: Sequence[str]) -> Sequence[str]:
        return settings if isinstance(settings, str) else [*self.settings, *settings]

    def _noted(self, outcome: RunOutcome, scenario: AnyScenario, settings: Sequence[str]) -> RunOutcome:
        path = Path(scenario) if isinstance(scenario, str | Path) and not settings else None
        self._runs.append(_Run(outcome, path))
        return outcome


@dataclass
class _Run:
    outcome: RunOutcome
    path: Path | None
    """The scenario's file, if it was run without settings."""

    def describe(self, out: Callable[[], Path]) -> str:
        from cluster.common.errors import HarnessError
        from cluster.record.folder import REPORT_FILE
        from cluster.report.results import reproduce_command

        outcome, record = self.outcome, self.outcome.record
        try:
            folder = outcome.folder or outcome.write(_run_folder(out(), f"{record.scenario.name}-{record.seed}"))
        except (OSError, HarnessError) as error:
            report, again = f"none: {error}", ""
        else:
            report, again = str(folder / REPORT_FILE), reproduce_command(record, folder, self.path)
        lines = [f"{record.scenario.name}, seed {record.seed}, {record.backend}: {outcome.verdict}"]
        lines += outcome.explain().splitlines()
        lines += [f"report   {report}", *([f"again    {again}"] if again else [])]
        return "\n".join(lines)


@pytest.fixture
def stampede(request: pytest.FixtureRequest) -> Runs:
    """Runs scenarios: ``stampede.simulate("mine.yaml", seed=7)``, ``stampede.run("mine.yaml")``."""
    mark = request.node.get_closest_marker(MARK)
    settings = () if mark is None else mark.kwargs.get("settings", ())
    seed = getattr(request, "param", None)
    return Runs(request.path.parent, _out(request.config, request.node.nodeid), seed, settings)


@dataclass
class _Testnets:
    """The live testnet of a session: one at a time, since a process has one Ray."""

    base: Path
    """The root folder: a session has no test's folder."""
    out: Callable[[], Path]
    failures: list[str] = field(default_factory=list)
    _key: str | None = None
    _running: LiveTestnet | None = None
    _context: AbstractContextManager[LiveTestnet] | None = None

    def up(
        self,
        scenario: AnyScenario,
        seed: int | None = None,
        settings: Sequence[str] = (),
        allow_code: bool = False,
    ) -> LiveTestnet:
        key = repr((scenario, seed, settings, allow_code))
        if self._running is None or key != self._key:
            self.end()
            from stampede import up

            folder = _run_folder(self.out(), "live")
            context = up(_found(self.base, scenario), seed, folder, settings, allow_code=allow_code)
            self._running, self._context, self._key = context.__enter__(), context, key
        return self._running

    def end(self) -> None:
        running, context, self._running, self._context = self._running, self._context, None, None
        if running is None or context is None:
            return
        context.__exit__(None, None, None)
        if running.outcome is not None and not running.outcome.passed:
            self.failures.append(_Run(running.outcome, None).describe(self.out))


@pytest.fixture(scope="session")
def stampede_up(request: pytest.FixtureRequest) -> Iterator[Callable[..., LiveTestnet]]:
    """Starts a live testnet that outlives tests: ``stampede_up("mine.yaml", settings=["faults=[]"])``.

    The same arguments give the testnet that is up already. Others end it and start another. When a testnet ends it is
    judged, and the session fails if a verdict is not a pass.
    """
    testnets = _Testnets(request.config.rootpath, _out(request.config, "testnets"))
    try:
        yield testnets.up
    finally:
        testnets.end()
    if testnets.failures:
        pytest.fail("\n\n".join(["a live testnet did not pass:", *testnets.failures]), pytrace=False)


def _found(base: Path, scenario: AnyScenario) -> AnyScenario:
    return base / scenario if isinstance(scenario, str | Path) and (base / scenario).is_file() else scenario


def _out(config: pytest.Config, name: str) -> Callable[[], Path]:
    """Creates the folder for the runs of a test."""

    def create() -> Path:
        chosen: Path | None = config.getoption(OUT_OPTION)
        if chosen is None:
            # Collected files have no fixtures, through which others get pytest's temporary folder.
            factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
            root = factory.getbasetemp() / "stampede"
        else:
            root = config.invocation_params.dir / chosen
        folder = root / _file_name(name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    return create


def _run_folder(parent: Path, name: str) -> Path:
    """A new folder for a run: what an earlier session left below ``--stampede-out`` stays."""
    from cluster.record.folder import new_run_folder

    return new_run_folder(name, datetime.now(UTC), parent)


def _file_name(name: str) -> str:
    return NO_FILE_NAME.sub("-", name).strip("-.")[:MAX_NAME] or "test"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the runs of a failed test to its report."""
    report = yield
    if report.when == "call" and report.failed:
        runs = getattr(item, "funcargs", {}).get(FIXTURE)
        if isinstance(runs, Runs) and (described := runs.describe_runs()):
            report.sections.append(("stampede", "\n\n".join(described)))
    return report


# --- scenario files ---------------------------------------------------------------------------------------------------


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse a pattern of the setting ``stampede_scenarios`` that matches no file."""
    root = session.config.rootpath
    for pattern in session.config.getini(SCENARIOS_SETTING):
        if not any(path.suffix in YAML_SUFFIXES for path in _matched(root, pattern)):
            raise pytest.UsageError(f"{SCENARIOS_SETTING}: {pattern}: matches no YAML file below {root}")


def _matched(root: Path, pattern: str) -> Iterator[Path]:
    """The files below a folder that a pattern matches; those that are found at once come first."""
    if pattern and not Path(pattern).is_absolute():
        yield from root.glob(pattern)
        yield from root.rglob(pattern)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ScenarioFile | None:
    """A scenario file is a test if a pattern of the setting ``stampede_scenarios`` matches it."""
    patterns = parent.config.getini(SCENARIOS_SETTING)
    if not patterns or file_path.suffix not in YAML_SUFFIXES or not file_path.is_relative_to(parent.config.rootpath):
        return None
    relative = file_path.relative_to(parent.config.rootpath)
    if not any(relative.match(pattern) for pattern in patterns):
        return None
    return ScenarioFile.from_parent(parent, path=file_path)


class ScenarioFile(pytest.File):
    """A scenario file: a test for each seed."""

    def collect(self) -> Iterator[ScenarioItem]:
        seeds = _seeds_of(self.config.getini(SEEDS_SETTING))
        for seed in [None] if seeds is None else seeds:
            name = "simulate" if seed is None else f"simulate[seed {seed}]"
            yield ScenarioItem.from_parent(self, name=name, seed=seed)


class ScenarioItem(pytest.Item):
    """A scenario and a seed: the simulated run passes, or the test fails. A scenario for the live
    testnet alone is skipped."""

    def __init__(self, *, seed: int | None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.seed = seed
        self.add_marker(MARK)

    def runtest(self) -> None:
        import stampede

        scenario = stampede.load_scenario(self.path)
        if problem := scenario.simulator_problem:
            pytest.skip(problem)
        outcome = stampede.simulate(self.path, self.seed)
        if not outcome.passed:
            raise _DidNotPass(outcome)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *arguments: Any) -> Any:
        """The run of a failed test, or the one line that says what is wrong with the file."""
        from stampede import HarnessError

        if isinstance(excinfo.value, _DidNotPass):
            return _Run(excinfo.value.outcome, self.path).describe(_out(self.config, self.nodeid))
        if isinstance(excinfo.value, HarnessError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, *arguments)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}: {self.name}"


class _DidNotPass(Exception):
    def __init__(self, outcome: RunOutcome) -> None:
        super().__init__(str(outcome.verdict))
        self.outcome = outcome


def _seeds_of(text: str) -> Sequence[int] | None:
    """The seeds of a setting ``A:B``, A to B - 1; ``None`` if it is empty. Raises :class:`pytest.UsageError`."""
    if not text:
        return None
    from cluster.commands.sweeps.commands import seed_range

    try:
        return seed_range(text.strip())
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"{SEEDS_SETTING}: {error}") from None
