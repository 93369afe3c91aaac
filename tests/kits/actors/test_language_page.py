"""The first actor of ``docs/actors.md``, and its clock, in the hands of strangers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.actors.bench import Bench
from tests.kits.actors.reference import FILE, PAGE
from tests.validator.chains import BOB
from validator.primitives.types import Address

CAROL = Address(b"\x33" * 20)
PLAN: dict[str, Any] = {"amount": 5_000, "every": 2, "times": 3, "to": CAROL}
PROGRAMS = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))


def bench_of(name: str, **fields: Any) -> Bench:
    return Bench((name,), sources={name: PROGRAMS[f"{name}.py"]}, **fields)


def test_nobody_draws_an_allowance() -> None:
    bench = bench_of("allowance")
    assert bench.call("allowance", "start", PLAN) == ""
    for who in (BOB, None):
        refused = bench.call("allowance", "pay", None, **({"sender": who} if who else {}))
        assert refused == "ActorError: only the timer pays"
    assert bench.call("allowance", "start", PLAN, BOB) == "ActorError: only the deployer starts it"
    assert bench.call("allowance", "stop", None, BOB) == "ActorError: only the deployer stops it"
    bench.wait(8)
    assert bench.balance(CAROL) == 15_000
    assert not bench.chain.timers()


@pytest.mark.parametrize("loses", [False, True])
def test_an_allowance_stops_and_starts_anew_whatever_became_of_its_timer(loses: bool) -> None:
    bench = bench_of("allowance")
    assert bench.call("allowance", "start", PLAN) == ""
    assert bench.call("allowance", "start", PLAN) == "ActorError: it has started already"
    if loses:
        bench.lose_timers()
    assert bench.call("allowance", "stop") == ""
    assert not bench.chain.timers()
    assert bench.call("allowance", "stop") == "", "there is nothing to stop"
    assert bench.call("allowance", "start", PLAN) == ""
    bench.wait(7)
    assert bench.balance(CAROL) == 15_000
    assert bench.call("allowance", "start", PLAN) == "", "it came to its end"


def test_an_allowance_without_funds_is_stopped_all_the_same() -> None:
    bench = bench_of("allowance", funds=0)
    assert bench.call("allowance", "start", PLAN) == ""
    bench.chain.empty(4)
    assert not bench.chain.timers()
    assert bench.call("allowance", "stop") == ""
    assert bench.call("allowance", "start", PLAN) == ""


def test_what_cannot_be_paid_is_no_plan() -> None:
    bench = bench_of("allowance")
    for wrong in ({"to": b"x"}, {"amount": 0}, {"amount": -1}, {"times": 0}, {"times": 101}, {"every": 0}):
        assert bench.call("allowance", "start", PLAN | wrong) != ""


def test_nobody_else_winds_the_clock() -> None:
    bench = bench_of("clock")
    assert bench.call("clock", "start", None, BOB) == "ActorError: only the deployer starts it"
    assert bench.call("clock", "strike", 1, BOB) == "ActorError: only the timer strikes"
    assert bench.call("clock", "start") == ""
    bench.wait(5)
    assert len(bench.chain.timers()) == 1
