"""The local chain against the real one's books, and values on their way in and out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.local_chain.bare_chain import FUNDS, LocalChain
from kits.actors.session import actors_of, plan_calls
from kits.actors.values import show, value_from_json, value_to_json
from tests.kits.actors.programs import BUSY, COUNTER, file_of, played
from validator.chain.records import ACCOUNT, Account, decode_record
from validator.primitives.types import Address
from validator.pvm.runtime.machine import PythonVm
from validator.pvm.runtime.values import decode_value, encode_value

KNOWN = {"Counter": Address(b"\x07" * 20)}


def holdings(chain: LocalChain) -> int:
    found: list[Account] = [decode_record(key, value) for key, value in chain.view.scan(ACCOUNT)]
    return sum(account.balance for account in found)


def test_everything_is_paid_for_and_nothing_appears() -> None:
    calls = ('tell={"address_of": "Busy"}', "start=1", "Busy.start")
    session = played(COUNTER, BUSY, calls=calls, vm=PythonVm())
    assert {execution.kind for execution in session.executions} == {"deploy", "call", "bid", "fire", "message"}
    assert holdings(session.chain) + session.chain.globals.burned == FUNDS
    fees = sum(execution.fee for execution in session.executions)
    assert fees == session.chain.globals.burned + session.chain.world.balance(b"\xcc" * 20)


def test_each_run_is_seen_with_the_receipt_that_tells_of_it() -> None:
    calls = ("start=1", 'tell={"address_of": "Counter"}', "forever")
    session = played(COUNTER, BUSY, calls=calls, vm=PythonVm())
    for execution in session.executions:
        run = execution.program
        if run is not None:
            assert (run.actor, run.handler, run.error) == (execution.actor, execution.handler, execution.error)
            assert run.cycles <= execution.cycles
        else:
            assert execution.kind == "deploy"


def test_a_handler_that_keeps_rescheduling_apart_from_its_work_goes_on() -> None:
    """What the page advises."""
    source = """
class Steady(Actor):
    def start(self, payload):
        self.schedule(self.height + 1, None, "start")
        self.send(self.address, "work", None, 20_000, 100)

    def work(self, payload):
        raise ActorError("as ever")
"""
    session = played(source, blocks=4, vm=PythonVm())
    kinds = [execution.kind for execution in session.executions if execution.handler == "work"]
    assert kinds == ["message"] * 5
    assert sum(execution.kind == "fire" and not execution.error for execution in session.executions) == 4


def test_without_calls_the_first_of_the_usual_handlers_is_called() -> None:
    source = "class A(Actor):\n def other(self, payload):\n  pass\n def setup(self, payload):\n  pass\n"
    assert [call.handler for call in plan_calls([], actors_of([file_of(source)]))] == ["setup"]
    assert plan_calls([], actors_of([file_of(source.replace("setup", "begin"))])) == []


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**255), 2**255) | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=3), parts, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_json_values_arrive_as_they_are(value: Any) -> None:
    read = value_from_json(json.dumps(value), KNOWN)
    if "hex" not in json.dumps(value) and "address_of" not in json.dumps(value):
        assert read == value
    assert value_to_json(decode_value(encode_value(read))) == json.loads(json.dumps(value_to_json(read)))


def test_bytes_and_addresses() -> None:
    read = value_from_json('[{"hex": "0x00FF"}, {"address_of": "Counter"}, {"hex": "00", "b": 1}, {"hex": 1}]', KNOWN)
    assert read == [b"\x00\xff", b"\x07" * 20, {"hex": "00", "b": 1}, {"hex": 1}]
    assert value_to_json({1: b"\x01", "a": (1, 2)}) == {"pairs": [[1, {"hex": "01"}], ["a", [1, 2]]]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\x07" * 20, "0x" + "07" * 20 + " (Counter)"),
        ({"a": [True, None, -1], b"\x01": "é\x1b"}, '{"a": [True, None, -1], 0x01: "é\\u001b"}'),
        ("x" * 500, '"' + "x" * 159 + "… (502 characters)"),
    ],
)
def test_values_on_the_terminal(value: Any, text: str) -> None:
    assert show(value, {address: name for name, address in KNOWN.items()}) == text
