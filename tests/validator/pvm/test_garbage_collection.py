"""While a program runs, the collector looks at the youngest objects alone; no trace of that stays, nothing piles up."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from cluster import COLLECTOR_THRESHOLDS
from tests.validator.pvm.running import load, new_context, observe, program
from validator.execution.handler_context import HandlerContext
from validator.pvm.compiler.programs import compiled
from validator.pvm.garbage_collection import YOUNG_ALONE, YoungAlone

OUTSIDE = (1_000, 10, 10)
HOLD_THEMSELVES = program("x = []\nfor i in range(15000):\n    y = []\n    y.append(y)\n    x.append(y)")
"""What it makes lives through a collection of the youngest, and is then held by nothing but itself."""


@pytest.fixture(autouse=True)
def outside() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*OUTSIDE)
    yield
    gc.set_threshold(*before)


def run(source: str, cycles: int = 10**7) -> str:
    loaded = load(source)
    return observe(new_context(cycles), lambda context: loaded.run_handler("handle", b"", context)).error


@pytest.mark.parametrize("body", ["self.emit('e', 1)", "x = 1 // 0", "raise ActorError('x')", "while True:\n    pass"])
def test_a_handler_has_the_young_alone_collected_and_leaves_no_trace(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    charge = HandlerContext.emit
    monkeypatch.setattr(HandlerContext, "emit", lambda *given: (seen.append(gc.get_threshold()), charge(*given)))
    run(program("self.emit('first', 1)\n" + body))
    assert set(seen) == {YOUNG_ALONE}
    assert gc.get_threshold() == OUTSIDE


def test_compiling_does_so_too_even_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        "validator.pvm.compiler.programs.parse", lambda _source: seen.append(gc.get_threshold()) or 1 // 0
    )
    with pytest.raises(ZeroDivisionError):
        compiled("no program that anybody has")
    assert seen == [YOUNG_ALONE]
    assert gc.get_threshold() == OUTSIDE


@pytest.mark.parametrize("leaves_first", [0, 1])
def test_two_threads_may_come_and_go_in_any_order(leaves_first: int) -> None:
    both = [YoungAlone(), YoungAlone()]
    for each in both:
        each.__enter__()
    both[leaves_first].__exit__(None, None, None)
    both[1 - leaves_first].__exit__(None, None, None)
    assert gc.get_threshold() == OUTSIDE


def test_what_somebody_else_sets_meanwhile_stays() -> None:
    with YoungAlone():
        gc.set_threshold(50_000, 20, 100)
    assert gc.get_threshold() == (50_000, 20, 100)


KEEPS_TEXTS = program(
    """
x = []
x.append(x)
y = [[] for i in range(10100)]
y = None
while True:
    x.append('a' * 100000)
"""
)
"""Few lists that hold themselves, and much text: they outlive their youth, and end without cycles."""


@pytest.mark.parametrize("thresholds", [COLLECTOR_THRESHOLDS, (700, 10, 10)])
@pytest.mark.parametrize("source", [HOLD_THEMSELVES, KEEPS_TEXTS])
def test_what_holds_itself_does_not_pile_up_over_many_runs(source: str, thresholds: tuple[int, int, int]) -> None:
    """Nobody asks for a collection here, and nothing is made outside of programs."""
    gc.set_threshold(*thresholds)
    tracemalloc.start()
    try:
        sizes = []
        for _ in range(10):
            run(source, 300_000)
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(sizes) < 2.5 * sizes[0], "that of two runs at most"
