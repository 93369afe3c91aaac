"""A test on a cluster that is skipped says why, each reason once: pytest alone prints a letter."""

from __future__ import annotations

from collections import Counter

import pytest

MODULE = "tests/k8s/test_cluster.py"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [each for each in terminalreporter.stats.get("skipped", []) if each.nodeid.startswith(MODULE)]
    reasons = Counter(each.longrepr[2].removeprefix("Skipped: ") for each in skipped)
    for reason, count in reasons.items():
        terminalreporter.write_line(f"{MODULE}: {count} skipped: {reason}")
