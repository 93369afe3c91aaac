"""The VM as the rest of the validator sees it: errors of programs and of the host, meters, caches, handlers, bids."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.validator.pvm.attacks import running_program
from tests.validator.pvm.measure import DENSE, dense
from tests.validator.pvm.running import Run, error_of, load, new_context, observe, packed, program, run, stored
from validator.chain.records import python_code
from validator.primitives.cache import SizedCache
from validator.primitives.errors import HandlerFailure, OutOfCells, OutOfCycles, Rejection
from validator.primitives.limits import MAX_LOADED_CYCLES
from validator.primitives.types import PRICE_LIMIT
from validator.pvm.compiler import programs
from validator.pvm.compiler.compiler import compile_program
from validator.pvm.compiler.programs import CompiledProgram, load_cycles
from validator.pvm.compiler.weights import DEPLOY_CYCLES_PER_LOAD, LOAD
from validator.pvm.language.subset import ProgramError, parse
from validator.pvm.runtime import machine
from validator.pvm.runtime.builtins import Builtins
from validator.pvm.runtime.machine import MAX_LOADED_BYTES, LoadedProgram, PythonVm, Runtime

COUNTER = program(
    "self.set('n', self.get('n', 0) + 1)\nself.emit('n', self.get('n'))", "def helper(self, x, y):\n    return x"
)


# --- handlers ---------------------------------------------------------------------------------------------------------


def test_a_handler_runs_and_leaves_its_effects() -> None:
    found = run(COUNTER)
    assert not found.error
    assert [event.name for event in found.effects.events] == ["n"]
    assert len(found.storage) == 1


@pytest.mark.parametrize("handler", ["nothing", "helper", "", "__init__", "get_gas_bid", "set", "_f_handle"])
def test_only_handlers_are_called_from_outside(handler: str) -> None:
    source = COUNTER + "\n    def get_gas_bid(self, context):\n        return 1\n"
    assert run(source, handler=handler).error == "UnknownHandler"
    assert run(source, handler=handler).cycles == 0


def test_a_handler_may_be_called_by_the_program_itself() -> None:
    assert (
        error_of(program("return self.other(payload)", "def other(self, payload):\n    return payload[0]"), [1]) == ""
    )


def test_a_bad_payload_is_the_callers() -> None:
    loaded = load(COUNTER)
    found = observe(new_context(), lambda context: loaded.run_handler("handle", b"\xc1", context))
    assert found.error == "BadPayload"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("x = 1 + 'a'", "TypeError"),
        ("x = [1][5]", "IndexError"),
        ("x = {'a': 1}['b']", "KeyError"),
        ("x = {'a': 1}[None]", "TypeError"),
        ("x = 1 // 0", "ZeroDivisionError"),
        ("x = int('x')", "ValueError"),
        ("if payload:\n    x = 1\nreturn x", "NameError"),
        ("if payload:\n    x = 1\nreturn [x for y in [1]]", "NameError"),
        ("a, b = [1]", "ValueError"),
        ("a, b = 5", "TypeError"),
        ("for x in 5:\n    pass", "TypeError"),
        ("x = 2 ** 256", "IntegerTooLarge"),
        ("x = -(2 ** 255) * 2", "IntegerTooLarge"),
        ("x = [][2 ** 200]", "IndexError"),
        ("x = len(5)", "TypeError"),
        ("x = range(1, 5, 0)", "ValueError"),
        ("for x in range(1, 5, 0):\n    pass", "ValueError"),
        ("for x in range('a'):\n    pass", "TypeError"),
        ("assert payload, 'why'", "ActorError: why"),
        ("assert payload, 5", "ActorError"),
        ("raise ActorError('x' * 200)", "ActorError: " + "x" * 100),
        ("raise ActorError()", "ActorError"),
        ("self.transfer(self.sender, 2 ** 200)", "InsufficientBalance"),
        ("self.cancel(b'')", "NotFound"),
    ],
)
def test_a_programs_error_has_a_name(body: str, error: str) -> None:
    found = run(program("self.set('k', 1)\n" + body))
    assert found.error == error
    assert not found.storage, "a handler that fails leaves nothing"


# --- the host's own errors --------------------------------------------------------------------------------------------


class Broken(Builtins):
    """Builtins with a bug."""

    def b_keccak256(self, data: Any) -> bytes:
        raise TypeError("a bug of ours")

    def b_chr(self, code: Any) -> str:
        raise MemoryError

    def b_ord(self, character: Any) -> int:
        return self.nothing  # type: ignore[attr-defined]


class BrokenRuntime(Runtime):
    builtins_class = Broken


@pytest.mark.parametrize(
    ("body", "kind"), [("keccak256(b'')", TypeError), ("chr(1)", MemoryError), ("ord('a')", AttributeError)]
)
def test_a_bug_of_ours_is_no_error_of_the_program(body: str, kind: type[Exception]) -> None:
    checked = parse(program(f"x = {body}"))
    broken = LoadedProgram(programs.methods_of(checked), compile_program(checked), BrokenRuntime())
    with pytest.raises(kind):
        observe(new_context(), lambda context: broken.run_handler("handle", b"", context))


def test_an_error_of_the_hosts_call_goes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, context = load(program("self.set('k', 1)")), new_context()

    def fail(_actor: bytes, _key: str, _value: bytes) -> None:
        raise ValueError("a full disk")

    monkeypatch.setattr(context.world, "storage_set", fail)
    with pytest.raises(ValueError, match="a full disk"):
        observe(context, lambda given: loaded.run_handler("handle", b"", given))


def again(loaded: LoadedProgram, payload: Any) -> Run:
    return observe(new_context(1_000), lambda context: loaded.run_handler("handle", packed(payload), context))


def test_a_program_runs_again_after_any_failure() -> None:
    loaded = load(
        program("if payload == 1:\n    raise ActorError('x')\nwhile payload == 2:\n    pass\nself.set('k', 1)")
    )
    for payload, error in [(1, "ActorError: x"), (2, "OutOfCycles"), (0, ""), (2, "OutOfCycles"), (0, "")]:
        assert again(loaded, payload).error == error


@pytest.mark.parametrize(
    "name", ["unequal lengths", "deep tuples", "deep extreme", "recursion", "async recursion", "stored deep"]
)
def test_depth_is_the_programs_fault_wherever_the_validator_stands(name: str) -> None:
    """With half of Python's stack in use."""

    def deep(levels: int) -> str:
        return deep(levels - 1) if levels else run(running_program(name)).error

    error = deep((sys.getrecursionlimit() - 400) // 2)
    assert error == run(running_program(name)).error
    assert error in ("RecursionError", "ValueInvalid")


# --- the meter --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 3_000))
def test_out_of_cycles_uses_all_of_them_wherever_it_is(cycles: int) -> None:
    source = program("x = 'ab' * 40\nself.set('k', [x, {'a': 5}])\nself.burn(100)\nreturn self.get('k')[0] == x")
    whole = run(source)
    found = run(source, cycles=cycles)
    if cycles < whole.cycles:
        assert (found.error, found.cycles, found.storage) == ("OutOfCycles", cycles, {})
    else:
        assert found == whole


def test_out_of_cells_leaves_the_calls_cycles_charged() -> None:
    source = program("self.emit('e', 'abc')")
    assert run(source, cells=3).error == ""
    assert (run(source, cells=2).error, run(source, cells=2).cycles) == ("OutOfCells", run(source, cells=3).cycles)


def test_a_refused_call_is_paid_for() -> None:
    failed = run(program("self.cancel(b'')"))
    assert failed.error == "NotFound" and failed.cycles >= 500


def test_what_the_host_charges_and_the_program_charges_is_one_meter() -> None:
    plain, burnt = run(program("self.burn(0)")), run(program("self.burn(12345)"))
    assert burnt.cycles - plain.cycles == 12_345


def test_a_meter_that_was_used_before_goes_on() -> None:
    loaded, context = load(program("pass")), new_context(1_000)
    context.meter.charge(700)
    observe(context, lambda given: loaded.run_handler("handle", b"", given))
    assert context.meter.cycles_used == 721
    context.meter.charge(270)
    assert observe(context, lambda given: loaded.run_handler("handle", b"", given)).error == "OutOfCycles"
    assert context.meter.cycles_used == 1_000


@pytest.mark.parametrize("failure", [OutOfCycles(), OutOfCells(), Rejection("MailboxFull")])
def test_a_failure_inside_a_host_call_ends_the_handler(
    failure: HandlerFailure, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, context = load(program("self.set('a', 1)\nself.set('k', 1)")), new_context(10_000)

    def fail(_actor: bytes, _key: str, _value: bytes) -> None:
        context.meter.charge(300)
        raise failure

    monkeypatch.setattr(context.world, "storage_set", fail)
    found = observe(context, lambda given: loaded.run_handler("handle", b"", given))
    assert found.error == failure.name
    assert 500 < found.cycles < 1_000


# --- caches -----------------------------------------------------------------------------------------------------------


def emitting(count: int) -> list[str]:
    return [program(f"self.emit('e', {i})") for i in range(count)]


def called(vm: PythonVm, source: str, cycles: int = 10**9) -> Run:
    """A program's run in a block of its own."""
    context = new_context(cycles)
    code = stored(context, source)
    return observe(context, lambda given: vm.run(code, "handle", b"", given))


def test_programs_are_kept_by_their_text_and_are_each_others_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    vm, sources = PythonVm(), emitting(4)
    called(vm, sources[0])
    vm._loaded.most = vm._loaded.used * 5 // 2
    for turn in [0, 1, 0, 2, 3, 0, 1]:
        found = called(vm, sources[turn])
        assert found.effects.events[0].fields == (("data", str(turn)),)
        assert len(vm._loaded) <= 2
    assert vm._loaded.names() == [python_code(sources[0])[0], python_code(sources[1])[0]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is compiled from now on, none being kept."""
    texts: list[str] = []
    monkeypatch.setattr(programs, "parse", lambda source: texts.append(source) or parse(source))
    monkeypatch.setattr(programs, "_kept", SizedCache(programs.MAX_KEPT_BYTES))
    return texts


def test_programs_are_compiled_once_by_their_hash(made: list[str]) -> None:
    sources = emitting(3)
    for source in [*sources, *sources]:
        assert not programs.compiled(source).bids
        called(PythonVm(), source)
    assert made == sources


def test_a_program_that_was_pushed_out_is_loaded_again_and_not_compiled(made: list[str]) -> None:
    vm, sources = PythonVm(), emitting(5)
    vm._loaded.most = 1
    for source in sources * 3:
        called(vm, source)
        assert len(vm._loaded) == 1
    assert made == sources


def test_what_is_kept_is_bounded_by_bytes(made: list[str]) -> None:
    cache, sources = programs._kept, emitting(6)
    programs.compiled(sources[0])
    cache.most = cache.used * 7 // 2
    for source in sources:
        programs.compiled(source)
        assert cache.used == sum(size for size, _ in cache._entries.values()) <= cache.most
    assert len(cache) == 3
    programs.compiled(sources[-1])
    assert made == sources
    programs.compiled(sources[0])
    assert made == [*sources, sources[0]]
    cache.clear()
    assert (len(cache), cache.used) == (0, 0)


def test_what_was_loaded_from_bytes_runs_like_what_was_compiled() -> None:
    checked = parse(COUNTER)
    fresh = LoadedProgram(programs.methods_of(checked), compile_program(checked))
    assert observe(new_context(), lambda context: fresh.run_handler("handle", b"", context)) == run(COUNTER)


# --- loading ----------------------------------------------------------------------------------------------------------


def test_being_in_the_cache_costs_nothing_and_saves_nothing() -> None:
    vm = PythonVm()
    costs = {called(vm, COUNTER).cycles for _ in range(3)}
    vm._loaded.clear()
    costs.add(called(vm, COUNTER).cycles)
    programs._kept.clear()
    assert costs == {called(PythonVm(), COUNTER).cycles}
    assert costs == {run(COUNTER).cycles + load_cycles(COUNTER)}


def test_a_block_pays_for_loading_a_program_once() -> None:
    vm, context, source = PythonVm(), new_context(), program("self.set('n', 1)")
    code, other = stored(context, source), stored(context, program("pass"))
    used = []
    for each in [code, other, code, other, code]:
        before = context.meter.cycles_used
        observe(context, partial(vm.run, each, "handle", b""))
        used.append(context.meter.cycles_used - before)
    assert used[0] - used[2] == load_cycles(source) and used[2] == used[4]
    assert (
        used[1] - used[3] == load_cycles(program("pass")) == LOAD + 300 * len(program("pass")) // DEPLOY_CYCLES_PER_LOAD
    )


def test_a_block_pays_again_for_what_so_many_others_have_pushed_out() -> None:
    """By prices, which are the same for everybody; a VM has room for all that need not be paid for again."""
    vm, context, sources = PythonVm(), new_context(), emitting(4)
    codes = [stored(context, source) for source in sources]
    price = load_cycles(sources[0])
    context.world.loaded_programs.most = 3 * price
    paid = []
    for turn in [0, 1, 2, 0, 3, 0, 2, 1]:
        before = context.meter.cycles_used
        observe(context, partial(vm.run, codes[turn], "handle", b""))
        paid.append(context.meter.cycles_used - before > price)
    assert paid == [True, True, True, False, True, False, False, True]


@pytest.mark.parametrize("name", DENSE)
def test_what_is_paid_for_fits_into_what_is_loaded(name: str) -> None:
    for size in (200, 1_000, 4_000):
        found = programs.compiled(dense(name, size))
        assert found.size * MAX_LOADED_CYCLES < found.load_cycles * MAX_LOADED_BYTES


def test_a_dense_program_costs_more_to_load() -> None:
    dense = "class A(Actor):\n def handle(self,payload):\n  a=1\n" + "  a=a+a+a+a+a+a\n" * 20
    assert load_cycles(dense) > LOAD + 300 * len(dense) // DEPLOY_CYCLES_PER_LOAD + 100


def test_a_program_that_is_not_paid_for_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(CompiledProgram, "load", lambda _program: loaded.append("") or 1 // 0)
    vm, context = PythonVm(), new_context(load_cycles(COUNTER) - 1)
    code = stored(context, COUNTER)
    found = observe(context, lambda given: vm.run(code, "handle", b"", given))
    assert (found.error, found.cycles, loaded) == ("OutOfCycles", load_cycles(COUNTER) - 1, [])
    assert not context.world.loaded_programs.names(), "who comes next pays"


def test_who_fails_has_paid_for_the_whole_block() -> None:
    vm, context = PythonVm(), new_context()
    code = stored(context, COUNTER)
    first = observe(context, lambda given: vm.run(code, "no such handler", b"", given))
    assert (first.error, first.cycles) == ("UnknownHandler", load_cycles(COUNTER))
    second = observe(context, lambda given: vm.run(code, "handle", b"", given))
    assert second.cycles - first.cycles == run(COUNTER).cycles


def test_a_bid_pays_for_loading_too() -> None:
    context = new_context()
    source = "class A(Actor):\n    def get_gas_bid(self, context):\n        return {}\n"
    code = stored(context, source)
    assert PythonVm().bid(code, {}, context) == (None, None)
    assert context.meter.cycles_used > load_cycles(source)
    context = new_context(load_cycles(source) - 1)
    code = stored(context, source)
    with pytest.raises(OutOfCycles):
        PythonVm().bid(code, {}, context)


def test_a_text_that_is_no_program_is_refused_before_it_runs() -> None:
    context = new_context()
    with pytest.raises(ProgramError):
        PythonVm().run(stored(context, "import os"), "handle", b"", context)


# --- bids -------------------------------------------------------------------------------------------------------------


def bid(returned: str) -> Any:
    source = f"class A(Actor):\n    def get_gas_bid(self, context):\n        return {returned}\n"
    context = new_context()
    return PythonVm().bid(stored(context, source), {"basefee_lane_timer": 7}, context)


def test_a_bid_is_two_figures() -> None:
    made = "{'max_fee_per_cycle': context['basefee_lane_timer'] * 2, 'max_priority_fee_per_cycle': 1}"
    assert bid(made) == (14, 1)


@pytest.mark.parametrize(
    ("returned", "figures"),
    [
        ("{}", (None, None)),
        ("{'max_fee_per_cycle': 1}", (1, None)),
        ("{'max_priority_fee_per_cycle': 0}", (None, 0)),
        ("{'max_fee_per_cell': 3, 'max_priority_fee_per_cell': 0}", (None, None)),
        (f"{{'max_fee_per_cycle': {PRICE_LIMIT - 1}, 'max_fee_per_cell': {PRICE_LIMIT - 1}}}", (PRICE_LIMIT - 1, None)),
    ],
)
def test_a_bid_may_leave_figures_open_and_name_those_of_cells(returned: str, figures: tuple[int | None, ...]) -> None:
    assert bid(returned) == figures


@pytest.mark.parametrize(
    "returned",
    [
        "None", "5", "[1, 2]", "{'max_fee_per_cycle': None}", "{'max_fee_per_cycle': 1, 'max_fee_per_cell': -1}",
        f"{{'max_priority_fee_per_cell': {PRICE_LIMIT}}}", "{'max_fee_per_cell': True}", "{'max_fee_per_cell': None}",
        "{'max_fee_per_cycle': 1, 'max_priority_fee_per_cycle': True}",
        "{'max_fee_per_cycle': 1, 'max_priority_fee_per_cycle': -1}",
        "{'max_fee_per_cycle': 1, 'max_priority_fee_per_cycle': '1'}",
        f"{{'max_fee_per_cycle': {PRICE_LIMIT}, 'max_priority_fee_per_cycle': 1}}",
        "{'max_fee_per_cycle': 1, 'max_priority_fee_per_cycle': 1, 'more': 1}", "{1: 1, 2: 2}",
    ],
)  # fmt: skip
def test_what_is_no_bid_fails(returned: str) -> None:
    with pytest.raises(HandlerFailure, match="BidInvalid"):
        bid(returned)


def test_the_context_of_a_bid_is_the_programs_own_copy() -> None:
    offered: dict[str, int | bytes] = {"a": 1}
    source = "class A(Actor):\n    def get_gas_bid(self, context):\n        context['a'] = 5\n        return {}\n"
    context = new_context()
    PythonVm().bid(stored(context, source), offered, context)
    assert offered == {"a": 1}


BARE = re.compile(r'\b(?:fault|ActorFault)\("\w+"\)')


def test_each_fault_has_words_for_the_author_of_the_program() -> None:
    assert BARE.search('fault("TypeError")')
    runtime = Path(machine.__file__).parent
    assert {path.name for path in runtime.glob("*.py") if BARE.search(path.read_text(encoding="utf-8"))} == set()
