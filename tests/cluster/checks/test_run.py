"""Checks as a whole: a right run passes all, and the worst outcome is the run's."""

from __future__ import annotations

import pytest

from cluster.checks.run import check_run
from cluster.checks.verdict import Verdict
from cluster.common.errors import ExitCode
from cluster.common.outcome import worst
from tests.cluster.checks.cases import FAIL, INCONCLUSIVE, PASS
from tests.cluster.records import make_record, with_kill


def test_a_right_run_passes_every_check() -> None:
    verdict = check_run(with_kill(make_record()))
    assert [(check.name, check.verdict) for check in verdict.checks if check.verdict is not PASS] == []
    assert verdict.outcome is PASS
    assert verdict.exit_code is ExitCode.PASS
    assert all(any(character.isdigit() for character in check.detail) for check in verdict.checks[:8])


def test_what_was_told_while_it_ran_fails_its_check() -> None:
    record = with_kill(make_record())
    record.seen_violations["state_roots"] = ["validator-0 executed a final block to another result, and stopped"]
    verdict = check_run(record)
    assert verdict.outcome is FAIL
    (failed,) = [check for check in verdict.checks if check.verdict is not PASS]
    assert failed.name == "state_roots" and failed.detail.startswith("told while it ran: validator-0 executed")


def test_fail_outweighs_inconclusive_and_inconclusive_outweighs_pass() -> None:
    assert worst([PASS, INCONCLUSIVE, FAIL]) is FAIL
    assert worst([PASS, INCONCLUSIVE]) is INCONCLUSIVE
    assert worst([]) is PASS
    assert Verdict(FAIL, ()).exit_code is ExitCode.FAIL
    assert Verdict(INCONCLUSIVE, ()).exit_code is ExitCode.INCONCLUSIVE
    with pytest.raises(KeyError):
        Verdict(PASS, ()).check("nothing")
