"""Calls and readings on ``self``: what they take, what they cost, and what they leave behind."""

# ruff: noqa: E501, SIM905  # tables, one case a line
from __future__ import annotations

import ast
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validator.chains import ACTOR, ALICE, OTHER
from tests.validator.pvm.running import load, new_context, observe, program, run, value_of
from validator.execution.handler_context import ReadOnlyContext
from validator.primitives import costs
from validator.primitives.errors import HandlerFailure
from validator.primitives.limits import MAX_STORAGE_KEY
from validator.primitives.params import DEFAULTS
from validator.pvm.compiler.weights import BYTES_PER_CYCLE, HOST_CALL, HOST_READ, NODES, OPERATION, OWN_CALL, VALUE_NODE
from validator.pvm.language.api import HOST_CALLS, HOST_READS, YIELDING
from validator.pvm.language.subset import ProgramError, parse
from validator.pvm.runtime.hostcalls import HostCalls
from validator.pvm.runtime.operations import shown_key

CALLED = NODES[ast.Expr] + NODES[ast.Call] + HOST_CALL


def cycles_of(body: str) -> int:
    return run(program(body)).cycles - OWN_CALL


@pytest.mark.parametrize(
    ("call", "cycles"),
    [
        ("self.get('k')", costs.KV_GET_CYCLES),
        ("self.set('k', 1)", costs.KV_SET_CYCLES + VALUE_NODE),
        (
            "self.set('k', 'a' * 64)",
            costs.KV_SET_CYCLES + VALUE_NODE + 2 + NODES[ast.BinOp] + OPERATION + 64 // BYTES_PER_CYCLE,
        ),
        ("self.delete('k')", costs.KV_DELETE_CYCLES),
        ("self.publish('k', 1)", 200 + VALUE_NODE),
        ("self.published(b'" + "x" * 20 + "', 'k')", 10),
        ("self.set_bidding_agent(None)", 200),
        ("self.schedule_timer(9, 5, gas_limit=None, bid=None)", costs.SCHEDULE_TIMER_CYCLES + VALUE_NODE),
        ("self.schedule_timer_ex(9)", costs.SCHEDULE_TIMER_CYCLES),
        ("self.emit('e')", costs.EMIT_CYCLES),
        ("self.emit('e', 2 ** 255)", costs.EMIT_CYCLES + 4 + 20 + 60 + 77 // 32),
        ("self.burn(7)", 7),
        ("self.transfer(b'" + "x" * 20 + "', 1)", costs.TRANSFER_CYCLES),
        ("self.schedule(9)", costs.SCHEDULE_TIMER_CYCLES),
        ("self.schedule(9, 5)", costs.SCHEDULE_TIMER_CYCLES + VALUE_NODE),
        ("self.cancel(b'')", costs.CANCEL_TIMER_CYCLES),
        ("self.extend(b'', 5)", costs.EXTEND_TIMER_CYCLES),
        ("self.pending(b'')", costs.KV_GET_CYCLES),
        ("self.send(b'" + "x" * 20 + "', 'h', cycles=1)", costs.SEND_CYCLES),
    ],
)
def test_a_call_costs_its_price_and_its_way(call: str, cycles: int) -> None:
    assert cycles_of(call) == CALLED + cycles


PRICES = {
    "get": costs.KV_GET_CYCLES,
    "set": costs.KV_SET_CYCLES,
    "delete": costs.KV_DELETE_CYCLES,
    "schedule": costs.SCHEDULE_TIMER_CYCLES,
    "schedule_timer": costs.SCHEDULE_TIMER_CYCLES,
    "schedule_timer_ex": costs.SCHEDULE_TIMER_CYCLES,
    "allow_watching": 200,
    "publish": 200,
    "published": 10,
    "set_bidding_agent": 200,
    "cancel": costs.CANCEL_TIMER_CYCLES,
    "extend": costs.EXTEND_TIMER_CYCLES,
    "pending": costs.KV_GET_CYCLES,
    "send": costs.SEND_CYCLES,
    "transfer": costs.TRANSFER_CYCLES,
    "emit": costs.EMIT_CYCLES,
    "burn": 0,
    "request_job": costs.REQUEST_JOB_CYCLES + DEFAULTS.message_cycles,
    "consume_result": costs.CONSUME_RESULT_CYCLES,
}
"""What each call costs whatever its arguments are."""


@pytest.mark.parametrize("name", HOST_CALLS)
def test_a_call_is_paid_for_before_its_arguments_are_looked_at(name: str) -> None:
    """With nothing but wrong arguments it fails for them once its price is taken, and for want of it a cycle before."""
    wrong = ", ".join("5" if name == "set_bidding_agent" else "None" for _ in HOST_CALLS[name].required)
    packed = VALUE_NODE if name == "request_job" else 0
    price = OWN_CALL + CALLED + PRICES[name]
    failed = run(program(f"self.{name}({wrong})"))
    assert (failed.error, failed.cycles) == ("TypeError", price + packed)
    if PRICES[name]:
        assert run(program(f"self.{name}({wrong})"), cycles=price - 1).error == "OutOfCycles"


@pytest.mark.parametrize(
    "call",
    [
        "set('k', None)", "delete('k')", "allow_watching('k')", "publish('k', None)", "set_bidding_agent(None)", "schedule(9)", "cancel(b'')", "extend(b'', 5)", "send(self.address, 'h')",
        "transfer(self.address, 1)", "emit('e')", "request_job(None, 1, 'h')", "consume_result(b'')",
    ],
)  # fmt: skip
def test_a_query_pays_once_for_a_call_that_would_change_something(call: str) -> None:
    context, name = new_context(), call.partition("(")[0]
    query = ReadOnlyContext(context.world, context.meter, context.actor, context.sender, context.terms)
    failed = observe(query, lambda given: load(program(f"self.{call}")).run_handler("handle", b"", given))
    packed = "None" in call and name != "set_bidding_agent"
    around = CALLED + VALUE_NODE * packed + (costs.READ_CONTEXT_CYCLES + HOST_READ) * ("self." in call)
    assert (failed.error, failed.cycles) == ("ReadOnly", OWN_CALL + around + PRICES[name])


@pytest.mark.parametrize(
    ("data", "looked_at"),
    [
        ("bytes(3232)", 8 * 3_232 // BYTES_PER_CYCLE + 2 * 3_232 // BYTES_PER_CYCLE),
        ("'ab' * 1616", 3_232 // BYTES_PER_CYCLE),
        ("2 ** 255", 77 // BYTES_PER_CYCLE),
    ],
)
def test_an_event_is_paid_by_the_length_of_what_it_shows(data: str, looked_at: int) -> None:
    """Bytes are shown in hex, which takes longer than copying: each counts for ten characters."""
    before, price = f"x = {data}\n", CALLED + costs.EMIT_CYCLES
    assert cycles_of(before + "self.emit('e', x)") - cycles_of(before) == price + looked_at
    whole = run(program(before + "self.emit('e', x)"))
    assert whole.error == ""
    assert run(program(before + "self.emit('e', x)"), cycles=whole.cycles - 1).error == "OutOfCycles"


NAMED = (
    "self.emit({})",
    "self.send(self.address, {}, cycles=2000, cells=0)",
    "self.schedule(9, handler={})",
    "self.request_job(1, 1, {})",
)


@pytest.mark.parametrize("call", NAMED)
def test_a_long_name_is_paid_for_by_its_bytes(call: str) -> None:
    """A call's price covers 32 of them; a name made of fewer, wider characters costs the same."""
    price = {name: cycles_of(call.format(ascii(name))) for name in ("n" * 32, "n" * 33, "n" * 256, "\u00e9" * 128, "h")}
    short, included, more, most, wide = (price[name] for name in ("h", "n" * 32, "n" * 33, "n" * 256, "\u00e9" * 128))
    assert (short, more, most, wide) == (included, included + 1, included + 224, included + 224)


def test_wide_data_of_an_event_costs_what_coding_it_does() -> None:
    texts = [f"x = {character!a} * 3200" for character in ("e", "\u00e9")]
    narrow, wide = (cycles_of(f"{text}\nself.emit('e', x)") - cycles_of(text) for text in texts)
    assert (narrow, wide) == (CALLED + costs.EMIT_CYCLES + 3200 // 32, CALLED + costs.EMIT_CYCLES + 3200 * 16 // 32)


def test_a_timer_is_pending_until_it_is_gone() -> None:
    body = "x = self.schedule(self.height + 3)\ny = self.pending(x)\nself.cancel(x)\nreturn [y, self.pending(x), self.pending(b'no'), self.pending(bytes(32))]"
    assert value_of(body) == [True, False, False, False]


def test_a_query_may_ask_whether_a_timer_is_pending() -> None:
    context = new_context()
    query = ReadOnlyContext(context.world, context.meter, context.actor, context.sender, context.terms)
    asked = observe(query, lambda given: load(program("self.pending(b'')")).run_handler("handle", b"", given))
    assert asked.error == ""


def test_reading_a_value_costs_what_writing_it_did() -> None:
    body = "self.set('k', {'a': [1, 2]})\n"
    assert cycles_of(body + "self.get('k')") - cycles_of(body) == CALLED + costs.KV_GET_CYCLES + 5 * VALUE_NODE


def test_a_wide_text_costs_more_than_a_narrow_one() -> None:
    assert cycles_of("self.set('k', '" + "\\u00e9" * 64 + "')") > cycles_of("self.set('k', '" + "e" * 64 + "')") + 30


@pytest.mark.parametrize("name", HOST_READS)
def test_a_reading_costs_the_same_for_all(name: str) -> None:
    assert cycles_of(f"x = self.{name}") == costs.READ_CONTEXT_CYCLES + HOST_READ + 2


def test_readings_say_what_they_should() -> None:
    context = new_context()
    assert value_of("return [self.height, self.sender, self.address, self.deployer, self.value, self.lane_price]") == [
        1, bytes(ALICE), bytes(ACTOR), bytes(ALICE), 5, 10**6,
    ]  # fmt: skip
    assert value_of("return self.balance") == context.world.balance(ACTOR)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("self.get(1)", "TypeError"),
        ("self.get(b'k')", "TypeError"),
        (f"self.get('k' * {MAX_STORAGE_KEY + 1})", "ValueTooLarge"),
        ("self.set(None, 1)", "TypeError"),
        ("self.set('k', self.spawn)", ""),
        ("self.emit(1)", "TypeError"),
        ("self.emit('e', None)", "TypeError"),
        ("self.emit('e', [1])", "TypeError"),
        ("self.burn('1')", "TypeError"),
        ("self.burn(-1)", "ValueError"),
        ("self.transfer('x', 1)", "TypeError"),
        ("self.transfer(b'x', 1)", "ValueError"),
        ("self.transfer(self.sender, -1)", "ValueError"),
        ("self.transfer(self.sender, None)", "TypeError"),
        ("self.schedule('1')", "TypeError"),
        ("self.schedule(0)", "TimerHeightNotInFuture"),
        ("self.schedule(2 ** 200)", "TimerHeightOutOfRange"),
        ("self.schedule(9, handler=1)", "TypeError"),
        ("self.schedule(9, handler='')", "TimerHandlerInvalid"),
        ("self.schedule(9, fee_payer=b'x')", "ValueError"),
        ("self.schedule(9, gas_limit='1')", "TypeError"),
        ("self.schedule(9, gas_limit=2 ** 255)", "TimerGasLimitTooHigh"),
        ("self.schedule(9, expires_at=[])", "TypeError"),
        ("self.schedule(9, payer_cap=-(2 ** 255))", "TimerFeeOutOfRange"),
        ("self.schedule(9, max_fee_per_cycle=2 ** 255)", "TimerFeeOutOfRange"),
        ("self.schedule(9, tier='slow')", "ValueError"),
        ("self.schedule(9, tier=1)", "TypeError"),
        ("self.cancel('x')", "TypeError"),
        ("self.cancel(5)", "TypeError"),
        ("self.extend(b'x', None)", "TypeError"),
        ("self.pending('x')", "TypeError"),
        ("self.pending(None)", "TypeError"),
        ("self.emit('e' * 257)", "EventNameTooLong"),
        ("self.emit(chr(70000) * 65)", "EventNameTooLong"),
        ("self.send(self.address, 'h' * 257, cycles=2000)", "MessageHandlerInvalid"),
        ("self.schedule(9, handler=chr(233) * 129)", "TimerHandlerInvalid"),
        ("self.request_job(1, 1, 'h' * 257)", "JobHandlerInvalid"),
        ("self.send(b'x', 'h')", "ValueError"),
        ("self.send(self.address, 5)", "TypeError"),
        ("self.send(self.address, 'h', cycles=2 ** 255)", "MessageLimitInvalid"),
        ("self.send(self.address, 'h', cycles=-1)", "MessageLimitInvalid"),
        ("self.send(self.sender, 'h', cycles=2000, cells=0)", "UnknownActor"),
        ("self.request_job(1, '2', 'h')", "TypeError"),
        ("self.request_job(1, 2, b'h')", "TypeError"),
        ("self.consume_result('x')", "TypeError"),
    ],
)
def test_arguments_are_checked(call: str, error: str) -> None:
    if not error:
        return
    assert run(program(call)).error == error


def test_all_may_be_given_by_name() -> None:
    found = run(
        program("x = self.schedule(payload=[1], height=9, handler='later', tier=FAST)\nself.cancel(timer_id=x)")
    )
    assert not found.error
    assert [made.trigger_height for made in found.effects.scheduled] == [9]


def test_a_message_is_queued_with_its_payload() -> None:
    body = f"self.send(bytes.fromhex('{OTHER.hex()}'), 'h', {{'a': 1}}, cycles=2000, cells=9)"
    found = run(program(body))
    assert not found.error and found.storage


def test_every_call_of_the_table_is_there() -> None:
    calls = HostCalls()
    for name, signature in HOST_CALLS.items():
        code = getattr(calls, name).__func__.__code__
        assert code.co_varnames[1 : code.co_argcount] == signature.parameters
    for name in HOST_READS:
        assert callable(getattr(calls, f"read_{name}"))


EXTREMES = (
    "None True False 0 1 -1 5 2000 (2**31) (2**63-1) 2**63 2**64 -(2**63) -(2**64) 2**127 2**128 2**200 -(2**255) '' 'k' 'fast' b'' b'x' "
    "self.sender self.address bytes(20) bytes(32) [] [1] {} {'a':1} (1,2) 'x'*1024 '\\x00' chr(0x10ffff) [2**200] {5:5}"
).split()


def drawn_call(random: Random) -> str:
    name = random.choice(sorted(HOST_CALLS))
    signature = HOST_CALLS[name]
    given = [random.choice(EXTREMES) for _ in signature.required]
    named = [f"{each}={random.choice(EXTREMES)}" for each in signature.optional if random.random() < 0.4]
    return f"self.{name}({', '.join([*given, *named])})"


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**40))
def test_no_argument_stops_the_validator(seed: int) -> None:
    """Whatever is passed, the handler returns or fails."""
    random = Random(seed)
    body = "\n".join(drawn_call(random) for _ in range(2))
    found = run(program(body))
    assert run(program(body)) == found


def test_stored_values_come_back_as_lists_and_in_the_order_of_keys() -> None:
    found = value_of("self.set('k', {'b': (1, 2), 3: None, 'a': True})\nreturn self.get('k')")
    assert [(shown_key(key), each) for key, each in found.items()] == [(3, None), ("a", True), ("b", [1, 2])]


def test_a_default_is_the_programs_own_value() -> None:
    assert value_of("x = []\ny = self.get('none', x)\ny.append(1)\nreturn x") == [1]
    assert value_of("return self.get('none')") is None


def test_what_is_stored_is_a_copy() -> None:
    body = "x = [1]\nself.set('k', x)\nx.append(2)\ny = self.get('k')\ny.append(3)\nreturn [x, y, self.get('k')]"
    assert value_of(body) == [[1, 2], [1, 3], [1]]


def test_the_nodes_table_has_a_price_for_every_node_of_the_language() -> None:
    assert all(cycles >= 0 for cycles in NODES.values())


def test_readings_do_not_reach_the_host_outside_a_handler() -> None:
    calls: Any = HostCalls()
    with pytest.raises((AssertionError, HandlerFailure)):
        calls.read_height()


# --- names that came later --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(YIELDING))
def test_a_method_of_a_later_name_is_the_programs_own_and_costs_what_any_does(name: str) -> None:
    """Programs that were there before have such methods: what they do and cost must not change."""
    own, other = (
        run(program(f"self.emit('own', self.{each}(2))", f"def {each}(self, x):\n    return x + 1"))
        for each in (name, "z")
    )
    assert (own.error, own.cycles) == ("", other.cycles)
    assert own.effects.events[0].fields == (("data", "3"),)


@pytest.mark.parametrize("name", sorted(YIELDING))
def test_a_constant_of_a_later_name_is_the_programs_own(name: str) -> None:
    source = "class Case(Actor):\n    {0} = 5\n\n    def handle(self, payload):\n        self.emit('own', self.{0})\n"
    own, other = (run(source.format(each)) for each in (name, "z"))
    assert (own.error, own.cycles) == ("", other.cycles)
    assert own.effects.events[0].fields == (("data", "5"),)


def test_a_later_name_of_ones_own_is_called_if_it_is_a_method_and_read_if_it_is_a_constant() -> None:
    with pytest.raises(ProgramError, match="read it without brackets"):
        parse("class A(Actor):\n    publish = 5\n\n    def handle(self, payload):\n        self.publish('k', 1)\n")
    with pytest.raises(ProgramError, match="as a value"):
        parse("class A(Actor):\n    def origin_hash(self):\n        return self.origin_hash\n")
    with pytest.raises(ProgramError, match="the host's"):
        parse("class A(Actor):\n    def get(self):\n        return 1\n")
