"""The band that the benchmark checks is of everything: no attack, kernel or dense program is left out of it."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.validator.pvm import measure
from tests.validator.pvm.attacks import RUNNING, running_program
from tests.validator.pvm.measure import (
    CYCLES,
    DENSE,
    DENSE_SIZES,
    KERNELS,
    LOADED_SIZES,
    cases,
    dense,
    figures,
    kernel,
    repeated,
)
from validator.pvm.compiler.weights import NODES, OPERATORS
from validator.pvm.deployment import deploy_cycles
from validator.pvm.language.api import BUILTINS, HOST_CALLS, HOST_READS, METHODS, STATIC_METHODS, TASK_CALLS
from validator.pvm.language.subset import parse


def names(kind: str) -> list[str]:
    return [name for each, name, _ in cases() if each == kind]


def test_every_kernel_and_attack_is_measured() -> None:
    assert names("kernel") == list(KERNELS)
    assert names("attack") == list(RUNNING)
    assert {name.split(",")[0] for name in names("deployment")} == set(DENSE)
    assert {name.split(",")[0] for name in names("loading")} == {"nothing", "many methods", *DENSE}
    assert max(Counter((kind, name) for kind, name, _ in cases()).values()) == 1


def called(node: ast.AST) -> str | None:
    """What a node calls, as programs write it."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self" | "bytes" | "int" as holder), attr=name)):
            return f"{holder}.{name}"
        case ast.Call(func=ast.Attribute(attr=name)):
            return f".{name}"
        case ast.Call(func=ast.Name(id=name)):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return f"self.{name}"
    return None


@pytest.mark.slow
def test_everything_that_programs_can_do_is_measured() -> None:
    """In a loop that lasts: a weight that nothing measures is a guess."""
    lasting = [name for name, (_, error) in RUNNING.items() if error == "OutOfCycles"]
    sources = [*map(kernel, KERNELS), *map(running_program, lasting)]
    nodes = [node for source in sources for node in repeated(source)]
    assert set(NODES) - {type(node) for node in nodes} == {ast.Raise}  # ends the handler
    assert set(OPERATORS) <= {type(node) for node in nodes}
    offered = {f"self.{name}" for name in (*HOST_CALLS, *HOST_READS, *TASK_CALLS)}
    offered |= {*BUILTINS, *(f".{name}" for name in METHODS), *(f"{kind}.{name}" for kind, name in STATIC_METHODS)}
    once = {"self.consume_result"}  # a second time ends the handler
    assert offered - {called(node) for node in nodes} == once


def test_a_case_that_is_added_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNNING, "one more", ("while True:\n    pass", "OutOfCycles"))
    monkeypatch.setitem(KERNELS, "one more", ("", "x = 1"))
    found = figures(["one more"], attack_cycles=CYCLES, runs=1)
    assert sorted((each.kind, each.name) for each in found) == [("attack", "one more"), ("kernel", "one more")]
    assert all(each.cycles >= CYCLES and each.nanoseconds > 0 for each in found)


def test_what_costs_less_than_a_kernel_is_left_out() -> None:
    assert RUNNING["giant power"][1] != "OutOfCycles"
    assert figures(["giant power"], runs=1) == []


@pytest.mark.parametrize("name", DENSE)
def test_dense_programs_are_programs_and_no_longer_than_they_say(name: str) -> None:
    for size in {*DENSE_SIZES, *LOADED_SIZES}:
        source = dense(name, size)
        assert len(source) <= size
        assert len(parse(source).methods) > 1
    assert deploy_cycles(dense(name, max(DENSE_SIZES))) >= CYCLES


def test_loading_is_measured_where_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LOADINGS", 30)
    nanoseconds, cycles = measure.loading_nanoseconds(measure.many_methods(200), runs=1)
    assert nanoseconds > 0 and cycles > 30 * 200
