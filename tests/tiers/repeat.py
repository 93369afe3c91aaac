"""Repeats the tests that run in real time, alone and beside busy processes, and writes how often each passed.

    python -m tests.tiers.repeat FOLDER --alone 5 --busy 2 [-- PYTEST ARGUMENTS]

A round is one session of pytest in one process: live tests, unless other arguments are given. Nothing else runs, or
:data:`BUSY_PROCESSES` processes that compute all the time. The page of a round (``alone-1.json``) has, by test,
``outcome`` and ``seconds``. A round that has a page is not run again, so an interrupted command goes on where it was.

``FOLDER/table.md`` has a row for each file of tests (rounds, the longest one's seconds), and one for each test that did
not pass in all rounds. Exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

BUSY_PROCESSES: Final = 4
LIVE_TESTS: Final = ("-m", "live and not soak")
KINDS: Final = ("alone", "busy")

Page = Mapping[str, Mapping[str, Any]]


class Round:
    """Collects the outcome of each test: the worst of its set-up, call and end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tests: defaultdict[str, dict[str, Any]] = defaultdict(lambda: {"outcome": "passed", "seconds": 0.0})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._tests[report.nodeid]
        test["seconds"] = round(test["seconds"] + report.duration, 2)
        if report.outcome != "passed":
            test["outcome"] = report.outcome

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self._file.write_text(json.dumps(self._tests, indent=1), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tiers").addoption("--round", metavar="FILE", help="write the outcome and the seconds of each test")


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("round"):
        config.pluginmanager.register(Round(Path(file)), "round")


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that compute, until the block ends."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def run_round(file: Path, is_busy: bool, arguments: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "tests.tiers.repeat", f"--round={file}", *arguments]
    with busy_processes(BUSY_PROCESSES if is_busy else 0), file.with_suffix(".log").open("wb") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    if not file.exists():
        sys.exit(f"{file.with_suffix('.log')}: the round ended early; expected a session that runs all tests")


def table(pages: Mapping[str, Sequence[Page]]) -> tuple[str, bool]:
    """The rounds in Markdown, and whether every test passed in all of them (or was skipped)."""
    lines = [
        "| file | tests | " + " | ".join(f"{kind}: rounds, longest (s)" for kind in KINDS) + " |",
        "|---|---|---|---|",
    ]
    tests = sorted({test for of_kind in pages.values() for page in of_kind for test in page})
    for file in sorted({test.partition("::")[0] for test in tests}):
        of_file = [test for test in tests if test.startswith(f"{file}::")]
        cells = []
        for kind in KINDS:
            sums = [sum(page[test]["seconds"] for test in of_file if test in page) for page in pages[kind]]
            cells.append(f"{len(sums)}, {max(sums, default=0.0):.0f}")
        lines.append(f"| `{file}` | {len(of_file)} | {' | '.join(cells)} |")
    failed = []
    for test in tests:
        counts = {kind: [page[test]["outcome"] == "failed" for page in pages[kind] if test in page] for kind in KINDS}
        if any(map(any, counts.values())):
            failed.append(
                f"| `{test}` | " + " | ".join(f"{sum(counts[kind])} of {len(counts[kind])}" for kind in KINDS) + " |"
            )
    if failed:
        lines += ["", "| test | failed alone | failed busy |", "|---|---|---|", *failed]
    return "\n".join(lines) + "\n", not failed


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tiers.repeat", description="repeat tests of real time")
    parser.add_argument("folder", type=Path)
    for kind, rounds in zip(KINDS, (5, 2), strict=True):
        parser.add_argument(f"--{kind}", type=int, default=rounds, metavar="ROUNDS")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, for_pytest = parser.parse_args(arguments[:end]), arguments[end + 1 :]
    options.folder.mkdir(parents=True, exist_ok=True)
    pages: dict[str, list[Page]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        for number in range(1, getattr(options, kind) + 1):
            file = options.folder / f"{kind}-{number}.json"
            if not file.exists():
                run_round(file.resolve(), kind == "busy", for_pytest or LIVE_TESTS)
            pages[kind].append(json.loads(file.read_text(encoding="utf-8")))
    text, all_passed = table(pages)
    (options.folder / "table.md").write_text(text, encoding="utf-8")
    print(text, end="")
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
