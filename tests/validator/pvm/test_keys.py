"""No dict holds a key that is dear to compare, whichever way it came in, and none a table that is far too large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.validator.pvm.running import error_of, nothing, program, run, value_of
from validator.primitives.errors import HandlerFailure
from validator.primitives.limits import MAX_KEY_TEXT
from validator.pvm.compiler.compiler import compile_program
from validator.pvm.compiler.programs import methods_of
from validator.pvm.compiler.weights import TASK_LEVEL
from validator.pvm.language.subset import parse
from validator.pvm.runtime import methods, operators, values
from validator.pvm.runtime.machine import LoadedProgram, Runtime
from validator.pvm.runtime.operations import Work, shown_key, shrink
from validator.pvm.runtime.operators import Arithmetic, Comparisons, Elements
from validator.pvm.runtime.values import unpack

WAYS_IN = {
    "store": "d = {}\nd[k] = 1",
    "store of an element": "d = [{}]\nd[0][k] = 1\nd = d[0]",
    "count": "d = {}\nif k not in d:\n    d[k] = 0\nd[k] += 1",
    "display": "d = {k: 1}",
    "display with others": "d = {'a': 1, k: 2, 3: 4}",
    "comprehension": "d = {x: 1 for x in [k]}",
    "pairs": "d = dict([(k, 1)])",
    "default": "d = {}\nd.setdefault(k, 1)",
    "literal": "d = {}\nd[LITERAL] = 1",
    "literal in a display": "d = {LITERAL: 1}",
    "literal in a comprehension": "d = {LITERAL: 1 for x in [k]}",
}
"""Every way in which a program gives a dict a key that no dict had."""
OF_DICTS = ("e = {}\ne.update(d)\nd = e", "d = d.copy()", "d = dict(d)")
"""Ways in which a dict gets the keys of another one."""


def body(way: str, key: str) -> str:
    return f"k = {key}\n{WAYS_IN[way]}\nreturn d".replace("LITERAL", key)


def text(length: int) -> str:
    return repr("k" * length)


def data(length: int) -> str:
    return repr(b"k" * length)


@pytest.mark.parametrize("written", [text, data])
@pytest.mark.parametrize("way", WAYS_IN)
def test_a_key_is_bounded_where_it_comes_in(way: str, written: Callable[[int], str]) -> None:
    held = value_of(body(way, written(MAX_KEY_TEXT)))
    assert max(len(shown_key(key)) for key in held if not isinstance(shown_key(key), int)) == MAX_KEY_TEXT
    assert value_of(body(way, written(MAX_KEY_TEXT + 1))) == "KeyTooLarge"


@pytest.mark.parametrize("way", WAYS_IN)
def test_without_guards_it_is_bounded_too(way: str) -> None:
    """Where operations stand in place of Python's own stores."""
    checked = parse(program(body(way, text(MAX_KEY_TEXT + 1))))
    loaded = LoadedProgram(methods_of(checked), compile_program(checked, guards=0), Runtime())
    loaded.runtime._enter(10**6)
    with pytest.raises(HandlerFailure, match="KeyTooLarge"):
        loaded.functions["handle"](0, None)


@pytest.mark.parametrize("further", OF_DICTS)
def test_keys_of_other_dicts_are_bounded_already(further: str) -> None:
    held = value_of(f"d = {{'k' * {MAX_KEY_TEXT}: 1}}\n{further}\nreturn d")
    assert [len(key) for key in held] == [MAX_KEY_TEXT]


def is_bounded_everywhere(ways: dict[str, str]) -> bool:
    return all(value_of(body(way, text(MAX_KEY_TEXT + 1))) == "KeyTooLarge" for way in ways)


def test_a_bound_that_is_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_bounded_everywhere(WAYS_IN)
    monkeypatch.setattr(operators, "MAX_KEY_TEXT", MAX_KEY_TEXT + 1)
    assert not is_bounded_everywhere(WAYS_IN)


@pytest.mark.parametrize("make", [lambda length: "k" * length, lambda length: b"k" * length])
def test_a_key_from_outside_is_bounded(make: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for wrap in (lambda found: found, lambda found: [1, {"a": found}]):
        fits, does_not = (msgspec.msgpack.encode(wrap({make(MAX_KEY_TEXT + more): 1})) for more in (0, 1))
        assert unpack(fits, nothing) == wrap({make(MAX_KEY_TEXT): 1})
        with pytest.raises(HandlerFailure, match="BadPayload"):
            unpack(does_not, nothing)
    monkeypatch.setattr(values, "MAX_KEY_TEXT", MAX_KEY_TEXT + 1)
    assert unpack(does_not, nothing), "the bound that is looked at is this one"


def test_a_longer_text_is_no_key_of_any_dict() -> None:
    looked_up = "k = 'k' * 100000\nd = {'k' * 256: 1}\n"
    assert value_of(looked_up + "return [k in d, d.get(k), d.get(k, 7), d.pop(k, 8), len(d)]") == [False, None, 7, 8, 1]
    assert error_of(program(looked_up + "x = d[k]")) == "KeyError"
    assert error_of(program(looked_up + "del d[k]")) == "KeyError"


def test_what_fails_by_its_key_costs_as_before_it() -> None:
    short, long = (run(program(f"k = 'k' * {n}\nd = {{}}\nd[k] = 1")) for n in (250, 257))
    assert long.cycles - short.cycles == 257 // 32 - 250 // 32


# --- tables -----------------------------------------------------------------------------------------------------------

EMPTYING = {
    "pop": "for i in range(3000):\n    d.pop(i)",
    "pop from behind": "for i in range(3000):\n    d.pop(2999 - i)",
    "del": "for i in range(3000):\n    del d[i]",
    "clear": "d.clear()",
}


def emptied(way: str) -> int:
    """Bytes of a dict's table after 3,000 keys were removed."""
    held = value_of(f"d = {{i: i for i in range(3000)}}\n{EMPTYING[way]}\nreturn d")
    assert held == {}
    return held.__sizeof__()


@pytest.mark.parametrize("way", EMPTYING)
def test_an_emptied_dict_is_a_small_one(way: str) -> None:
    assert emptied(way) <= 1_024


@pytest.mark.parametrize("way", [way for way in EMPTYING if way != "clear"])
def test_a_table_that_is_left_large_is_seen(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (methods, operators):
        monkeypatch.setattr(module, "shrink", lambda _values: None)
    assert emptied(way) > 50_000


def test_what_is_left_keeps_its_order_and_its_dict() -> None:
    made = "d = {i: str(i) for i in range(2000)}\ne = [d]\nfor i in range(2000):\n    if i % 100:\n        d.pop(i)\n"
    assert value_of(made + "d['new'] = 1\nreturn e[0].keys()") == [*range(0, 2000, 100), "new"]
    assert value_of(made + "return d").__sizeof__() < 6_000


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400)), max_size=300), st.integers(0, 400))
def test_a_dict_is_what_it_would_be_and_never_much_larger(steps: list[tuple[bool, int]], first: int) -> None:
    held, plain = {f"k{i}": i for i in range(first)}, {f"k{i}": i for i in range(first)}
    work = Work(nothing)
    elements = Elements(work)
    comparisons, arithmetic = Comparisons(work, elements), Arithmetic(work, elements)
    of_dicts = methods.SequenceMethods(work, elements, comparisons, arithmetic)
    for is_removal, number in steps:
        key = f"k{number}"
        if is_removal:
            assert of_dicts.m_pop(held, key, None) == plain.pop(key, None)
        else:
            held[key] = plain[key] = number
    assert list(held.items()) == list(plain.items())
    of_dicts.m_pop(held, "k", None)
    if held:
        of_dicts.m_pop(held, next(iter(held)))
        assert held.__sizeof__() <= 1_024 + 192 * (len(held) + 1)


def test_making_tables_anew_is_rare() -> None:
    """However removals and stores alternate, few keys are moved for each that is removed."""
    for low in (0, 1, 50, 300, 425, 600):
        held: dict[Any, int] = {(0, i, 0): i for i in range(683)}
        moved = removed = 0
        for _ in range(5):
            for i in range(low, 683):
                before = held.__sizeof__()
                held.pop((0, i, 0))
                shrink(held)
                removed += 1
                moved += len(held) if held.__sizeof__() < before else 0
            for i in range(low, 683):
                held[(0, i, 0)] = i
        assert moved <= 2 * removed


# --- depth ------------------------------------------------------------------------------------------------------------

DEEP = """
async def deep(self, n, turns):
    if n:
        return await self.deep(n - 1, turns)
    for i in range(turns):
        TURN

async def idle(self):
    pass
"""


def deep_cycles(depth: int, turns: int, turn: str) -> int:
    made = program(f"await self.deep({depth}, {turns})", DEEP.replace("TURN", turn))
    found = run(made.replace("    def handle(", "    async def handle("))
    assert found.error == ""
    return found.cycles


@pytest.mark.parametrize("turn", ["await self.pause()", "await self.spawn(self.idle())"])
@pytest.mark.parametrize("depth", [0, 1, 30, 60])
def test_a_turn_costs_by_the_methods_that_go_on_with_it(depth: int, turn: str) -> None:
    at_the_top = deep_cycles(0, 9, turn) - deep_cycles(0, 4, turn)
    assert deep_cycles(depth, 9, turn) - deep_cycles(depth, 4, turn) == at_the_top + 5 * TASK_LEVEL * depth
