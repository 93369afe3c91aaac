"""``stampede dos --live``: a small attack against live testnets, scored like one in the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kits.market.dos.measures import METRICS
from tests.cluster.live.scenarios import PAIR
from tests.cluster.live.test_attach import result_of, stampede

pytestmark = [pytest.mark.live, pytest.mark.slow]

STOP = {"height": 40, "drain_blocks": 3, "timeout_s": 300}
DOS = {"from_height": 12, "until_height": 28, "count": 2, "interval_ms": 300, "at_least": "D"}


def test_an_attack_is_scored_on_live_testnets(tmp_path: Path) -> None:
    scenario, folder = tmp_path / "pair.yaml", tmp_path / "dos"
    scenario.write_text(json.dumps({**PAIR, "stop": STOP, "dos": DOS}))
    done = stampede("dos", str(scenario), "--live", "--attack", "chain-reaction", "--out", str(folder))
    card = json.loads((folder / "scorecard.json").read_text(encoding="utf-8"))
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert (card["backend"], card["problems"], card["interrupted"]) == ("live", [], False)
    score = card["attacks"]["chain-reaction"]
    assert (score["acted"], score["problems"]) == (True, [])
    assert score["spend"] > 0 and score["state_bytes_added"] > 0 and score["block_cycles_ratio"] > 2
    missing = {metric for metric in METRICS if score[metric] is None}
    assert missing <= {"spend_per_block_of_delay", "spend_per_fire_displaced", "spend_ratio"}, "it may delay nobody"
    verdicts = [result_of(folder / name)["verdict"] for name in ("0-no-attack", "1-chain-reaction")]
    assert verdicts == ["pass", "pass"]
