"""Which tests catch which planted bugs: for each bug the cheapest test that fails with it, or else every dear one.

    python -m tests.tiers.measure costs.json --out catches.json

``costs.json`` is a page of :mod:`tests.tiers.costs` with reach. Tests that hunt mutants are left out: they plant bugs
themselves. The answer has, by planted bug, ``tests`` (ids of those that failed), ``tier`` (``test``, ``slow`` or
``none``) and ``tried`` (numbers of tests). A bug that a test of ``make test`` catches is not tried on slow tests. Tests
that fail with the control, too, do not count.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.tiers.plants import CONTROL, all_names

HUNTS: Final = "tests/cluster/tools/mutation/"
SESSION_TIMEOUT_S: Final = 1_200


@dataclass(frozen=True)
class Suite:
    """The tests that were measured."""

    page: dict[str, Any]
    dear_s: float
    """A test that costs more counts as slow, marked or not."""

    def price(self, test: str) -> float:
        """Seconds of a test by itself, with the fixtures that its file shares."""
        seconds: float = self.page["tests"][test]["seconds"] + self.page["shared"].get(test.partition("::")[0], 0.0)
        return seconds

    def is_slow(self, test: str) -> bool:
        return self.page["tests"][test].get("slow", False) or self.price(test) > self.dear_s

    def candidates(self, name: str, *, slow: bool) -> list[str]:
        """The passing tests of a tier that reach a bug; first those that cost little and reach few bugs."""
        tests = self.page["tests"]
        chosen = [
            test
            for test, found in tests.items()
            if name in found["reach"]
            and found["outcome"] == "passed"
            and self.is_slow(test) == slow
            and not test.startswith(HUNTS)
        ]
        return sorted(chosen, key=lambda test: (self.price(test) + 0.001) * len(tests[test]["reach"]))


def failed_with(name: str, tests: list[str], *, stops: bool) -> list[str]:
    """The ids of those among some tests that fail with a bug planted; the first alone, if it stops there."""
    if not tests:
        return []
    with tempfile.TemporaryDirectory() as folder:
        pick, costs = Path(folder, "pick.json"), Path(folder, "costs.json")
        pick.write_text(json.dumps(tests), encoding="utf-8")
        files = sorted({test.partition("::")[0] for test in tests})
        options = ["-n", "0", "-p", "tests.tiers.costs", "--plant", name, "--pick", pick, "--costs", costs]
        command = [sys.executable, "-m", "pytest", "-m", "", *map(str, options), *(["-x"] if stops else []), *files]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SESSION_TIMEOUT_S, check=False)
        if not costs.exists():
            return [f"the session: {done.stdout[-500:]}{done.stderr[-500:]}"]
        ran = json.loads(costs.read_text(encoding="utf-8"))["tests"]
    return [test for test, found in ran.items() if found["outcome"] == "failed"]


def catch(suite: Suite, name: str, artefacts: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Who catches a bug, but for tests that fail with any replacement."""
    tried = {"test": 0, "slow": 0}
    for tier, slow in (("test", False), ("slow", True)):
        tests = [test for test in suite.candidates(name, slow=slow) if test not in artefacts]
        tried[tier] = len(tests)
        failed = failed_with(name, tests, stops=not slow)
        if real := sorted(set(failed) - set(failed_with(CONTROL, failed, stops=False))):
            return {"tier": tier, "tests": real, "tried": tried}
        if failed and not slow:
            return catch(suite, name, artefacts | set(failed))
    return {"tier": "none", "tests": [], "tried": tried}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("costs", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=all_names())
    parser.add_argument(
        "--dear", type=float, default=math.inf, metavar="SECONDS", help="what costs more counts as slow"
    )
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    suite = Suite(json.loads(options.costs.read_text(encoding="utf-8")), options.dear)
    found: dict[str, Any] = {}

    def look(name: str) -> None:
        found[name] = catch(suite, name)
        print(f"{name}: {found[name]['tier']} {' '.join(found[name]['tests'][:3])}", flush=True)
        options.out.write_text(json.dumps(dict(sorted(found.items())), indent=1), encoding="utf-8")

    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(look, options.only))


if __name__ == "__main__":
    main()
