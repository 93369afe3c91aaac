"""Verdicts as JUnit XML for continuous integration.

A test case is a check (of a run), a seed (of a sweep) or a planted bug (of ``stampede mutants``). A fail is a
``failure``. Inconclusive is an ``error`` of the type ``inconclusive`` and not ``skipped``, which systems show as
harmless. A check that does not apply to a run is ``skipped``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from cluster.checks.verdict import Verdict
from cluster.common.outcome import Outcome
from cluster.record.run import NO_PRESET, RunRecord

NOT_IN_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Matches a character that XML 1.0 cannot hold, escaped or not."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test case of a JUnit document."""

    name: str
    outcome: Outcome
    detail: str
    """The reason for the outcome, in one line."""
    more: str = ""
    """Further help, such as the command that runs the test again."""
    seconds: float = 0.0
    applies: bool = True


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite of test cases with properties, such as the commit."""

    name: str
    cases: Sequence[Case]
    properties: Mapping[str, str]
    seconds: float | None = None
    """Total time; ``None`` for the sum of the cases."""

    @property
    def took(self) -> float:
        """Total time in seconds."""
        return sum(case.seconds for case in self.cases) if self.seconds is None else self.seconds


def junit_xml(suites: Sequence[Suite]) -> str:
    """Suites of test cases as a JUnit document."""
    everything = [case for suite in suites for case in suite.cases]
    root = Element("testsuites", {"name": "stampede", **_counts(everything, sum(suite.took for suite in suites))})
    for suite in suites:
        group = SubElement(root, "testsuite", {"name": _clean(suite.name), **_counts(suite.cases, suite.took)})
        listed = SubElement(group, "properties")
        for name, value in suite.properties.items():
            SubElement(listed, "property", {"name": _clean(name), "value": _clean(value)})
        for case in suite.cases:
            _add(group, f"stampede.{_clean(suite.name)}", case)
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def run_xml(record: RunRecord, verdict: Verdict, command: str) -> str:
    """A run's ``junit.xml``: a test case per check."""
    cases = [
        Case(
            check.name,
            check.verdict,
            check.detail,
            "" if check.verdict is Outcome.PASS else f"again: {command}",
            applies=check.applies,
        )
        for check in verdict.checks
    ]
    properties = {
        "backend": record.backend,
        "seed": str(record.seed),
        "commit": record.commit,
        "policy": record.genesis.policy_name,
        "preset": record.genesis.preset or NO_PRESET,
        "verdict": verdict.outcome.value,
        "command": command,
    }
    properties |= {f"warning {number}": warning for number, warning in enumerate(verdict.warnings, start=1)}
    return junit_xml([Suite(record.scenario.name, cases, properties, record.duration_ms / 1_000)])


def _counts(cases: Sequence[Case], seconds: float) -> dict[str, str]:
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.outcome is Outcome.FAIL for case in cases)),
        "errors": str(sum(case.outcome is Outcome.INCONCLUSIVE for case in cases)),
        "skipped": str(sum(not case.applies for case in cases)),
        "time": f"{seconds:.3f}",
    }


def _add(group: Element, class_name: str, case: Case) -> None:
    attributes = {"classname": class_name, "name": _clean(case.name), "time": f"{case.seconds:.3f}"}
    element = SubElement(group, "testcase", attributes)
    text = _clean("\n".join(filter(None, (case.detail, case.more))))
    if not case.applies:
        SubElement(element, "skipped", {"message": text})
        return
    if case.outcome is Outcome.PASS:
        SubElement(element, "system-out").text = text
        return
    tag, kind = ("failure", "check") if case.outcome is Outcome.FAIL else ("error", "inconclusive")
    SubElement(element, tag, {"message": _clean(case.detail), "type": kind}).text = text


def _clean(text: str) -> str:
    return NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
