"""The conformance tool on jobs: runners in the genesis, calls of the runner contract, callbacks where there are any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kits.conform.t8n import run_t8n
from tests.validator import job_chain
from tests.validator.job_chain import request_call, submission
from validator.chain.transactions import Call
from validator.execution.jobs import job_id_of
from validator.primitives.types import Address, address_text

USER, RUNNER, ACTOR = (Address(bytes([n]) * 20) for n in (0x11, 0x12, 0x13))
JOB_ID = job_id_of(ACTOR, 0, b"task")
CONTRACT = "0x000000000000000000000000000000000000000a"


def transaction(sender: Address, nonce: int, call: Call) -> dict[str, Any]:
    return {
        "kind": "call",
        "sender": address_text(sender),
        "nonce": nonce,
        "to": address_text(call.to),
        "handler": call.handler,
        "payload": {"hex": call.payload.hex()},
        "gas_limit": 300_000,
        "cells_limit": 30_000,
        "max_fee_per_cycle": 10**9,
        "max_priority_fee_per_cycle": 0,
        "max_fee_per_cell": 10**9,
    }


def run(folder: Path, *blocks: list[dict[str, Any]], **genesis: Any) -> Any:
    given = {
        "accounts": {address_text(at): {"balance": 10**18} for at in (USER, RUNNER)},
        "actors": {address_text(ACTOR): {"code": "builtin:script", "deployer": address_text(USER)}},
        **genesis,
    }
    listed = [{"proposer": address_text(USER), "txs": transactions} for transactions in blocks]
    for name, value in (("genesis", given), ("blocks", listed)):
        (folder / name).write_text(json.dumps(value))
    run_t8n(folder / "genesis", folder / "blocks", folder / "out")
    return json.loads((folder / "out").read_text())


def test_callbacks_are_shown_where_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job_chain.install(monkeypatch)
    requests = request_call((b"task", 1, "consume"), (b"task", 1, "fail"), actor=ACTOR)
    second = job_id_of(ACTOR, 1, b"task")
    results = [transaction(RUNNER, nonce, submission(job_id)) for nonce, job_id in enumerate((JOB_ID, second))]
    output = run(tmp_path, [transaction(USER, 0, requests)], results, [], runners=[address_text(RUNNER)])
    assert ["callbacks" in block for block in output["blocks"]] == [False, False, True]
    assert results[0]["to"] == CONTRACT
    named, actor = {"job_id": JOB_ID.hex()}, address_text(ACTOR)
    assert output["blocks"][2]["callbacks"] == [
        {
            **named,
            "actor": actor,
            "handler": "consume",
            "status": "ok",
            "error": None,
            "cycles": 1_250,
            "cells": 4,
            "consumed": True,
        },
        {
            "job_id": second.hex(),
            "actor": actor,
            "handler": "fail",
            "status": "reverted",
            "error": "Stop",
            "cycles": 1_200,
            "cells": 0,
            "consumed": False,
        },
    ]
    events = [event for block in output["blocks"] for event in block["events"]]
    assert events[0] == {"name": "JobRequested", "actor": actor, **named, "handler": "consume", "results_needed": 1}
    assert [event["name"] for event in events[2:]] == [
        *["JobResultSubmitted", "JobCompleted"] * 2,
        "JobConsumed",
        "Results",
        "JobNotConsumed",
    ]
    assert events[2] == {"name": "JobResultSubmitted", "actor": actor, **named, "runner": address_text(RUNNER)}


def test_the_runners_are_those_of_the_genesis(tmp_path: Path) -> None:
    call = [transaction(RUNNER, 0, submission(JOB_ID))]
    geneses: list[dict[str, Any]] = [{}, {"runners": []}, {"runners": [address_text(RUNNER)]}]
    errors = [run(tmp_path, call, **genesis)["blocks"][0]["txs"][0]["error"] for genesis in geneses]
    assert errors == ["NotRunner", "NotRunner", "UnknownJob"]
