"""The conformance tool on Python actors: programs in the genesis, their payloads as bytes, their storage as hex."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.common.errors import BadInput
from loadgen.workloads.actor_program import source_of
from tests.kits.conform.test_t8n_jobs import ACTOR, USER, run, transaction
from tests.validator.chains import script
from tests.validator.policies.own_policies import DEADLINES
from validator.chain.transactions import Call
from validator.primitives.types import address_text
from validator.pvm.runtime.values import decode_value, encode_value

HEART = {"code": source_of("heartbeat"), "deployer": address_text(USER), "balance": 10**18}


def test_a_program_runs_and_its_storage_is_shown(tmp_path: Path) -> None:
    start = Call(ACTOR, "start", encode_value({"every": 2, "times": 3}))
    output = run(tmp_path, [transaction(USER, 0, start)], *[[]] * 8, actors={address_text(ACTOR): HEART})
    assert [block["txs"][0]["status"] for block in output["blocks"][:1]] == ["ok"]
    assert [len(block["fires"]) for block in output["blocks"]] == [0, 0, 1, 0, 1, 0, 1, 0, 0]
    stored = output["final"]["storage"][address_text(ACTOR)]
    assert {key: decode_value(bytes.fromhex(value["hex"])) for key, value in stored.items()} == {
        "count": 3,
        "every": 2,
        "last": 7,
        "left": 0,
    }


def test_a_policy_of_ones_own_orders_the_fires(tmp_path: Path) -> None:
    timers = [
        ["schedule", {"in": 1, "payload": [["set", "last", str(end)]], "expires_at": end}] for end in (90, 50, 70)
    ]
    call = transaction(USER, 0, Call(ACTOR, "run", script(*timers)))
    actors = {address_text(ACTOR): {"code": "builtin:script", "deployer": address_text(USER), "balance": 10**18}}
    output = run(tmp_path, [call], [], policy={"name": "deadlines", "source": DEADLINES}, actors=actors)
    assert len(output["blocks"][1]["fires"]) == 3
    assert output["final"]["storage"][address_text(ACTOR)] == {"last": "90"}, "the last one expires last"


def test_a_program_that_is_refused_is_bad_input(tmp_path: Path) -> None:
    actors = {address_text(ACTOR): {**HEART, "code": "class A(Actor):\n    def f(self, payload):\n        import os\n"}}
    with pytest.raises(BadInput, match=r"actors\..*\.code: line 3, column 9: an import"):
        run(tmp_path, [], actors=actors)
    assert not (tmp_path / "out").exists()
