"""Links that come and go."""

from __future__ import annotations

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from tests.cluster.faults.test_engine import FakeStage, make, reach
from tests.cluster.faults.test_faults import run

FLAP = {"kind": "flap", "from": ["validator-1"], "to": ["validator-2"], "off_ms": 200, "on_ms": 150}


def test_links_are_cut_and_mended_in_turn_until_it_is_over() -> None:
    engine, stage = make(FLAP | {"at_height": 5, "for_ms": 800})
    reach(engine, stage, 5)
    cut = []
    for _ in range(10):
        cut += [bool(stage.links)]
        stage.advance(100)
    assert cut == [True, True, False, False, True, True, False, True, False, False]
    assert engine.are_over and engine.records[0].took_effect
    assert engine.records[0].impaired == ("validator-1",)


def test_the_time_counts_from_when_the_links_are_cut_everywhere() -> None:
    stage = FakeStage()
    stage.confirms_at_once = False
    engine, _ = make(FLAP | {"at_height": 5, "for_ms": 900}, stage=stage)
    reach(engine, stage, 5)
    stage.advance(500)
    assert stage.links and engine.records[0].begun_ms == 0.0, "it is only planned"
    stage.confirm()
    stage.advance(199)
    assert stage.links
    stage.advance(1)
    assert not stage.links
    stage.advance(500)
    assert not stage.links, "not all hosts have said that they are mended"
    stage.confirm()
    stage.advance(150)
    assert stage.links


def test_a_run_loses_messages_of_these_links_alone_and_passes() -> None:
    record = run(FLAP | {"at_height": 5, "for_ms": 2_000})
    whole = run({"kind": "cut", "from": ["validator-1"], "to": ["validator-2"], "at_height": 5, "for_ms": 2_000})
    lost, all_lost = (int(each.faults[0].evidence.split()[0].replace(",", "")) for each in (record, whole))
    assert 0 < lost < all_lost
    verdict = check_run(record)
    assert verdict.outcome is Outcome.PASS, [each for each in verdict.checks if each.verdict is not Outcome.PASS]
