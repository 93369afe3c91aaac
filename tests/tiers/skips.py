"""Nothing is skipped in silence: in continuous integration (``CI=true``) a skipped test fails.

:data:`MAY_BE_SKIPPED` has the exceptions. Elsewhere a skipped test is skipped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from typing import Final

import pytest

MAY_BE_SKIPPED: Final = {
    r"there is no Python 3\.\d+ here": "Debian has one Python, and no registry of packages has the others",
    r"KubeRay's resource definition is not at hand \(.*\)": "it is KubeRay's, and no package has it",
    r"needs \S+, the definition of the resource": "it is Chaos Mesh's, and no package has it",
}
"""Why a test may be skipped, by patterns of the whole reason that it gives."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        assert isinstance(report.longrepr, tuple)
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not any(re.fullmatch(pattern, reason) for pattern in MAY_BE_SKIPPED):
            report.outcome = "failed"
            report.longrepr = (
                f"skipped ({reason}): continuous integration skips nothing but tests/tiers/skips.py's list"
            )
    return report
