"""JUnit XML: what CI systems count, and any text in it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from cluster.common.outcome import Outcome
from cluster.report.junit import Case, Suite, junit_xml
from cluster.report.results import finish_run
from tests.cluster.records import make_record, with_kill


def test_a_run_has_a_test_case_for_each_check(tmp_path: Path) -> None:
    verdict = finish_run(with_kill(make_record()), tmp_path)
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    (suite,) = root
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == (
        "synthetic",
        str(len(verdict.checks)),
        "0",
    )
    assert [case.get("name") for case in suite.iter("testcase")] == [check.name for check in verdict.checks]
    assert not list(suite.iter("failure")) + list(suite.iter("error"))
    idle = [check for check in verdict.checks if not check.applies]
    assert idle
    skipped = {case.get("name"): case.find("skipped") for case in suite.iter("testcase")}
    assert {name for name, found in skipped.items() if found is not None} == {check.name for check in idle}
    assert suite.get("skipped") == str(len(idle))
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["verdict"] == "pass"
    assert (properties["policy"], properties["preset"]) == ("cip1", "none")
    assert str(properties["command"]).startswith("stampede run")


def test_what_failed_is_a_failure_and_what_is_inconclusive_an_error(tmp_path: Path) -> None:
    record = make_record()
    blocks = record.validators[2].blocks
    record.validators[2].blocks = blocks[:8]
    record.problems = ["host 1 was lost"]
    verdict = finish_run(record, tmp_path)
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()[0]
    for check in verdict.checks:
        (case,) = (case for case in suite.iter("testcase") if case.get("name") == check.name)
        failure, error = case.find("failure"), case.find("error")
        assert (failure is not None) is (check.verdict is Outcome.FAIL)
        assert (error is not None) is (check.verdict is Outcome.INCONCLUSIVE)
        told = failure if failure is not None else error
        if told is not None:
            assert told.get("message") == check.detail
            assert "again: stampede run" in str(told.text)
    assert suite.get("failures") == str(sum(check.verdict is Outcome.FAIL for check in verdict.checks))
    assert suite.get("errors") == str(sum(check.verdict is Outcome.INCONCLUSIVE for check in verdict.checks))
    assert int(suite.get("errors") or 0) > 0


def test_any_text_can_be_in_it() -> None:
    odd = 'a < b & "c" \x00\x1b[31m ]]> \ud800 é 🙂'
    root = ElementTree.fromstring(
        junit_xml([Suite(odd, [Case(odd, Outcome.FAIL, odd, odd, 1.5)], {odd: odd})]).encode()
    )
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.get("message") == 'a < b & "c" \ufffd\ufffd[31m ]]> \ufffd é 🙂'
    assert root.get("time") == "1.500"
