"""What somebody would try who means harm ends within its cycles, each time with the same."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.validator.pvm.attacks import FITTING, RUNNING, running_program
from tests.validator.pvm.running import Run, error_of, load, new_context, observe, program
from validator.pvm.runtime.operations import hidden_key, shown_key

CYCLES = 1_000_000
BYTES_PER_CYCLE = 45
"""That a handler may hold for each cycle that it used, as ``docs/actors.md`` says in MB. Texts and bytes take 32; what
is packed has a buffer half as large again."""
LONG = {"giant text", "joined", "doubled text"}


def attacked(name: str, cycles: int = CYCLES) -> Run:
    loaded = load(running_program(name))
    return observe(new_context(cycles), lambda context: loaded.run_handler("handle", b"", context))


@pytest.mark.parametrize("name", RUNNING)
def test_an_attack_ends_as_it_must(name: str) -> None:
    found = attacked(name)
    if found.error == "OutOfCycles" != RUNNING[name][1]:
        found = attacked(name, 20 * CYCLES)
    assert found.error == RUNNING[name][1]
    assert attacked(name, found.cycles).cycles == found.cycles


@pytest.mark.parametrize("name", [name for name, (_, error) in RUNNING.items() if error not in ("OutOfCycles", "")])
def test_an_attack_that_is_a_cycle_short_is_out_of_cycles_or_fails_before_its_last_charge(name: str) -> None:
    found = attacked(name, 20 * CYCLES)
    shorter = attacked(name, found.cycles - 1)
    assert (shorter.error, shorter.cycles) == ("OutOfCycles", found.cycles - 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUNNING if name.startswith("memory in ")])
def test_what_a_handler_can_hold_is_bounded_by_its_cycles(name: str) -> None:
    loaded, context = load(running_program(name)), new_context(CYCLES)
    tracemalloc.start()
    try:
        found = observe(context, lambda context: loaded.run_handler("handle", b"", context))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.cycles == CYCLES
    assert most < BYTES_PER_CYCLE * CYCLES


@pytest.mark.slow
@pytest.mark.parametrize("body", FITTING)
def test_what_is_no_larger_than_values_may_be_is_made(body: str) -> None:
    """A price of several cycles an element is no size."""
    assert error_of(program(body)) == ""


def test_an_integer_key_hashes_with_a_secret() -> None:
    """Integers of equal hashes, or of equal low bits, are as far apart as any others."""
    keys = [hidden_key(number << 40) for number in range(2_000)]
    assert len({hash(key) & 0xFFFF for key in keys}) > 1_800
    assert [shown_key(key) for key in keys] == [number << 40 for number in range(2_000)]
    assert hidden_key(True) == hidden_key(1) and shown_key(hidden_key(True)) is True
    assert shown_key("text") == "text" and shown_key(b"bytes") == b"bytes"
