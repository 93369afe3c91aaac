"""Live tests that failed run once more, after everything else: a pytest plugin that notes failures, and the retry.

    python -m pytest -p tests.tiers.retry --failures=FOLDER/test.json
    python -m tests.tiers.retry FOLDER test

The first writes a page of the tests that failed. The second takes the names of the targets that failed, and exits with
1 unless each of them failed by live tests alone, and every one of these passes now. A live test runs real processes in
real time, and a machine that is busy for a moment can fail it. No other test has this excuse.

The failed tests of a file run in one process, for what they share; otherwise nothing else runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest

LIVE: Final = "live"


@dataclass
class Failure:
    """A test that failed: in itself, or in what is done before or after it."""

    test: str
    """Its id."""
    is_live: bool
    output: str


class Failures:
    """Collects failures where reports arrive: the only process, or the one that starts workers."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: dict[str, Failure] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            output = "\n".join([report.longreprtext, *(f"--- {name}\n{text}" for name, text in report.sections)])
            failure = self._found.setdefault(report.nodeid, Failure(report.nodeid, LIVE in report.keywords, ""))
            failure.output += output + "\n"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        page = {"exit_code": int(exitstatus), "failures": [asdict(failure) for failure in self._found.values()]}
        self._file.write_text(json.dumps(page, indent=1), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tiers").addoption("--failures", metavar="FILE", help="write the tests that failed")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("failures")
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(Path(file)), "failures")


def read_failures(file: Path) -> list[Failure] | None:
    """The failures of a session; ``None`` if it ended by anything else than failed tests."""
    try:
        page = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return (
        [Failure(**failure) for failure in page["failures"]]
        if page["exit_code"] == pytest.ExitCode.TESTS_FAILED
        else None
    )


def retry(file: str, tests: Iterable[str], page: Path) -> list[Failure] | None:
    """Run tests of a file, each by itself; those that failed again, or ``None`` as :func:`read_failures`."""
    options = ["-n", "0", "-m", "", "-p", "tests.tiers.retry", f"--failures={page}"]
    print(f"+ once more, alone: {file}", flush=True)
    done = subprocess.run([sys.executable, "-m", "pytest", *options, *tests], check=False)
    return [] if done.returncode == 0 else read_failures(page)


def main(folder: Path, targets: list[str]) -> int:
    """Judge the targets that failed. Returns the exit code."""
    lines: list[str] = []
    live: dict[str, Failure] = {}
    for target in targets:
        failures = read_failures(folder / f"{target}.json")
        if not failures:
            lines.append(f"make {target}: failed, and not by tests")
        for failure in failures or ():
            if failure.is_live:
                live[failure.test] = failure
            else:
                lines.append(f"{failure.test}: failed, is not live")
    is_lost = bool(lines)
    for file, tests in groupby(sorted(live), lambda test: test.partition("::")[0]):
        names = list(tests)
        again = retry(file, names, folder / "again.json")
        second = None if again is None else {failure.test: failure for failure in again}
        for name in names:
            print(f"=== {name}: how it failed first\n{live[name].output}")
            if second is not None and name not in second:
                lines.append(f"{name}: failed, then passed")
                continue
            is_lost = True
            lines.append(f"{name}: failed twice")
            if second is not None:
                print(f"=== {name}: how it failed again\n{second[name].output}")
    print("\n".join(["=== Tests that failed", *lines]))
    return int(is_lost)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
