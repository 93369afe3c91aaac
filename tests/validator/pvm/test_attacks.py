"""What somebody would try who means harm ends within its cycles, each time with the same."""

from __future__ import annotations

import pytest

from tests.validator.pvm.attacks import RUNNING, running_program
from tests.validator.pvm.running import Run, load, new_context, observe
from validator.pvm.operations import hidden_key, shown_key

CYCLES = 1_000_000
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


def test_an_integer_key_hashes_with_a_secret() -> None:
    """Integers of equal hashes, or of equal low bits, are as far apart as any others."""
    keys = [hidden_key(number << 40) for number in range(2_000)]
    assert len({hash(key) & 0xFFFF for key in keys}) > 1_800
    assert [shown_key(key) for key in keys] == [number << 40 for number in range(2_000)]
    assert hidden_key(True) == hidden_key(1) and shown_key(hidden_key(True)) is True
    assert shown_key("text") == "text" and shown_key(b"bytes") == b"bytes"
