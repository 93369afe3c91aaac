"""Metering: charge before work, cycles before cells, and what a refused or failed call leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.validator.chains import ACTOR, ALICE, OTHER, Chain, schedule, script
from validator.execution.handler_context import HandlerContext, run_handler
from validator.execution.timer_calls import Allowance, SchedulingTerms
from validator.policies.cip1 import Cip1Phase
from validator.primitives.errors import HandlerFailure, OutOfCells, OutOfCycles, Rejection
from validator.primitives.meter import Meter
from validator.primitives.types import Address
from validator.pvm import script as programs
from validator.pvm.runtime.host import ScheduleRequest
from validator.state.working_set import World

TX = 1_000
"""Base cycles of a transaction."""


def context(cycles: int = 10**6, cells: int = 10**6, actor: Address = ACTOR) -> HandlerContext:
    chain = Chain()
    terms = SchedulingTerms(1, 10**6, 0, chain.parameters, Cip1Phase.rules)
    return HandlerContext(World(chain.view), Meter(cycles, cells), actor, ALICE, terms, Allowance(ALICE, 0))


def test_out_of_cycles_uses_the_whole_limit() -> None:
    meter = Meter(100, 5)
    meter.charge(60, 3)
    with pytest.raises(OutOfCycles):
        meter.charge(41, 99)
    assert (meter.cycles_used, meter.cells_used) == (100, 3)


def test_out_of_cells_leaves_the_calls_cycles_charged() -> None:
    meter = Meter(100, 5)
    meter.charge(60, 3)
    with pytest.raises(OutOfCells):
        meter.charge(40, 3)
    assert (meter.cycles_used, meter.cells_used) == (100, 3)


def test_a_limit_can_be_used_up() -> None:
    meter = Meter(100, 5)
    meter.charge(100, 5)
    meter.charge(0, 0)
    with pytest.raises(OutOfCycles):
        meter.charge(1)


Call = Callable[[HandlerContext], object]

CALLS: list[tuple[str, Call, int, int]] = [
    ("burn", lambda host: host.burn(7), 7, 0),
    ("kv_get", lambda host: host.kv_get("k"), 10, 0),
    ("kv_set", lambda host: host.kv_set("kéy", b"value"), 200, 9),
    ("kv_delete", lambda host: host.kv_delete("kéy"), 200, 0),
    ("emit", lambda host: host.emit("a long name", "dät"), 50, 4),
    ("transfer", lambda host: host.transfer(OTHER, 1), 200, 0),
    ("schedule", lambda host: host.schedule_timer(ScheduleRequest(2, b"12345")), 1_000, 5),
    ("refused schedule", lambda host: host.schedule_timer(ScheduleRequest(0, b"12345", bid=1)), 1_000, 5),
    ("refused cancel", lambda host: host.cancel_timer(b""), 500, 0),
    ("refused extend", lambda host: host.extend_timer(b"", 5), 500, 0),
    ("refused request", lambda host: host.request_job(b"12345", 0, ""), 100_500, 10_005),
    ("refused consume", lambda host: host.consume_result(b""), 200, 0),
    ("refused transfer", lambda host: host.transfer(OTHER, 2**127), 200, 0),
]


@pytest.mark.parametrize(("call", "cycles", "cells"), [item[1:] for item in CALLS], ids=[item[0] for item in CALLS])
def test_a_call_costs_the_same_whether_it_is_refused_or_not(call: Call, cycles: int, cells: int) -> None:
    host = context()
    with suppress(Rejection):
        call(host)
    assert (host.meter.cycles_used, host.meter.cells_used) == (cycles, cells)


@pytest.mark.parametrize(("call", "cycles", "cells"), [item[1:] for item in CALLS], ids=[item[0] for item in CALLS])
def test_a_call_is_charged_before_its_arguments_are_looked_at(call: Call, cycles: int, cells: int) -> None:
    """One cycle or cell too few: the call ends the handler, and changes nothing, however it would have fared."""
    host = context(cycles=cycles - 1)
    with pytest.raises(OutOfCycles):
        call(host)
    assert not host.world.changes()
    if cells:
        host = context(cells=cells - 1)
        with pytest.raises(OutOfCells):
            call(host)
        assert (host.meter.cycles_used, host.meter.cells_used) == (cycles, 0)
        assert not host.world.changes()


def test_a_saved_id_is_read_at_the_cost_of_a_get_before_the_call_itself() -> None:
    for name, rest in (("cancel", {}), ("extend", {"expires_at": 9})):
        host = context()
        (operation,) = programs.parse(script([name, {"saved": "nothing", **rest}]))
        with pytest.raises(Rejection, match="NotFound"):
            operation(host)
        assert host.meter.cycles_used == 10 + 500
        poor = context(cycles=509)
        with pytest.raises(OutOfCycles):
            operation(poor)
        assert poor.meter.cycles_used == 509


@pytest.mark.parametrize("stored", ["", "00", "zz" * 32, "é" * 32, " " * 64, "0x" + "00" * 31])
def test_what_is_no_saved_id_is_not_found(stored: str) -> None:
    receipt = Chain().run(["set", "k", stored], ["cancel", {"saved": "k"}])
    assert receipt.error == "NotFound"


def test_a_transaction_is_charged_base_then_payload_then_value_then_the_actor_is_looked_for() -> None:
    chain, nobody = Chain(), Address(b"\x99" * 20)
    receipt = chain.run(["get", "k"], actor=nobody, value=5)
    payload = len(script(["get", "k"]))
    assert (receipt.error, receipt.cycles, receipt.cells) == ("UnknownActor", TX, payload)
    assert chain.balance(nobody) == 0
    receipt = chain.run(["get", "k"], actor=nobody, cells_limit=payload - 1)
    assert (receipt.error, receipt.cycles, receipt.cells) == ("OutOfCells", TX, 0)


def test_a_failed_handler_leaves_nothing_but_its_fee_and_the_nonce() -> None:
    chain = Chain()
    before = dict(chain.view.scan(b"")), chain.balance(ALICE)
    receipt = chain.run(
        ["set", "k", "v"],
        ["transfer", {"to": "0x" + OTHER.hex(), "amount": 5}],
        schedule(1, fee_payer="sender"),
        ["emit", "n", ""],
        ["fail", "!"],
        value=77,
        timer_allowance=5,
    )
    assert (receipt.ok, receipt.error) == (False, "ScriptFailed")
    assert receipt.effects == type(receipt.effects)()
    after = dict(chain.view.scan(b""))
    touched = {key[:1] for key in before[0].keys() | after.keys() if before[0].get(key) != after.get(key)}
    assert touched == {b"a", b"g"}, "two accounts (fee, tips) and the chain's counters"
    assert chain.accounts()[ALICE].nonce == 1
    burned = int.from_bytes(receipt.burned, "big")
    assert chain.balance(ALICE) == before[1] - burned
    assert chain.globals.next_sequence == 0


def test_a_reverted_run_gives_its_allowance_back() -> None:
    host = context()
    host.allowance = Allowance(ALICE, 10)

    def body(run: HandlerContext) -> None:
        run.schedule_timer(ScheduleRequest(2, b"", fee_payer=ALICE, payer_cap=4))
        assert run.allowance is not None
        assert run.allowance.left == 6
        raise HandlerFailure("Stop")

    result = run_handler(host, body)
    assert (result.ok, result.error) == (False, "Stop")
    assert host.allowance.left == 10
    assert not host.world.changes()


def test_an_error_that_is_no_failure_of_the_handler_is_a_bug_and_passes_through() -> None:
    def body(_run: HandlerContext) -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        run_handler(context(), body)


def test_transfers_count_as_movements_and_nothing_does_not() -> None:
    host = context()
    host.transfer(OTHER, 5)
    host.transfer(OTHER, 0)
    host.transfer(Address(b"\x42" * 20), 0)
    (movement,) = host.effects().movements
    assert (movement.source, movement.target, movement.amount) == (ACTOR, OTHER, b"\5")
    assert b"a" + b"\x42" * 20 not in [change.key for change in host.world.changes()]
