"""The Python actor VM: what metering costs, calls a second through a whole transition, compiling.

Each kernel is one method's body, run as it stands by CPython and metered by the VM with every check in place, in turns;
a ratio is of the best of each. ``calls_per_second`` is of whole blocks: transactions that call a handler which reads,
adds and stores, state commit with fsync and index included; ``script_calls_per_second`` is the same work said to
``builtin:script``.

- ``metering_slowdown_median``, ``metering_slowdown_worst``: metered time over plain time, over the kernels.
- ``ns_per_cycle_least``, ``ns_per_cycle_most``: what a cycle takes, over the kernels.
- ``band_median_ns``, ``band_nine_tenths_ns``, ``band_most_ns``: what a cycle takes, over every attack that lasts, every
  operation in a loop, and deploying and loading the densest programs (``tests/validator/pvm/measure.py`` says which);
  ``band_nine_tenths``, ``band_most``: the same by the median, which is the band that ``docs/actors.md`` states. The
  dearest are named on standard error.
- ``compile_us_per_byte``: checking and compiling the longest example, by its source's bytes; ``load_us``: getting
  it ready to run from the bytes that are kept of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from chains import RICH, BenchmarkChain, actor_address, actors, call
from reporting import Lane, Metric, Size, run_benchmark

from loadgen.workloads.actor_program import NAMES, source_of
from validator.execution.handler_context import HandlerContext
from validator.execution.timer_calls import SchedulingTerms
from validator.policies.fifo import FifoPhase
from validator.primitives.meter import Meter
from validator.primitives.params import Parameters
from validator.primitives.types import Address
from validator.pvm.compiler.programs import _kept, compiled
from validator.pvm.runtime.machine import LoadedProgram, Runtime
from validator.pvm.runtime.values import encode_value
from validator.state.working_set import World
from validator.transition.transition import PreparedTransaction

KERNELS = {
    "arithmetic": """
        total = 0
        for i in range(20000):
            total = (total + i * 7) % 1000003
        return total
""",
    "sieve": """
        n = 6000
        flags = [True] * n
        i = 2
        while i * i < n:
            if flags[i]:
                j = i * i
                while j < n:
                    flags[j] = False
                    j += i
            i += 1
        return len([i for i in range(2, n) if flags[i]])
""",
    "matrix": """
        n = 20
        a = [[i * j % 7 for j in range(n)] for i in range(n)]
        product = []
        for i in range(n):
            row = []
            for j in range(n):
                total = 0
                for k in range(n):
                    total += a[i][k] * a[k][j]
                row.append(total)
            product.append(row)
        return product[3][4]
""",
    "counting": """
        counts = {}
        words = ["alpha", "beta", "gamma", "delta", "epsilon"]
        for i in range(6000):
            word = words[i % 5]
            counts[word] = counts.get(word, 0) + 1
        return counts["gamma"]
""",
    "text": """
        parts = []
        for i in range(2500):
            parts.append(str(i) + ":" + str(i * i))
        joined = ",".join(parts)
        total = 0
        for part in joined.split(","):
            total += len(part)
        return total
""",
    "calls": """
        total = 0
        for i in range(6000):
            total = self.step(total, i)
        return total

    def step(self, total, i):
        if i % 2 == 0:
            return total + i
        return total - 1
""",
}
COUNTER = """
class Counter(Actor):
    def run(self, payload):
        self.set("count", self.get("count", 0) + 1)
"""
SCRIPT = b'[["get","count"],["set","count","1"]]'
DEAREST_SHOWN = 5
CASES = "tests.validator.pvm.measure"
ROOT = Path(__file__).resolve().parents[1]
CALLS_PER_BLOCK = 1_000
USERS = 100


def main() -> None:
    run_benchmark(__doc__, lanes, minutes=3, full="longer attacks, each three times; about 10 min")


def lanes(size: Size) -> list[Lane]:
    rounds, blocks = size.of(2, 25), size.of(3, 15)
    kernels = [
        *(Metric(f"slowdown_{name}", "×") for name in KERNELS),
        Metric("metering_slowdown_median", "× plain Python", 4, at_least=False),
        Metric("metering_slowdown_worst", "× plain Python", 8, at_least=False),
        Metric("ns_per_cycle_least", "ns"),
        Metric("ns_per_cycle_most", "ns"),
    ]
    band = [
        Metric("band_median_ns", "ns"),
        Metric("band_nine_tenths_ns", "ns"),
        Metric("band_most_ns", "ns"),
        Metric("band_nine_tenths", "× median", 2.5, at_least=False),
        Metric("band_most", "× median", 4, at_least=False),
    ]
    return [
        Lane(partial(_kernels, rounds), kernels),
        Lane(partial(_band, size), band),
        Lane(
            partial(_calls_a_second, COUNTER, encode_value(None), blocks),
            [Metric("calls_per_second", "calls/s", 10_000)],
        ),
        Lane(
            partial(_calls_a_second, "builtin:script", SCRIPT, blocks), [Metric("script_calls_per_second", "calls/s")]
        ),
        Lane(partial(_compiling, rounds), [Metric("compile_us_per_byte", "µs/byte"), Metric("load_us", "µs")]),
    ]


def _kernels(rounds: int) -> Iterator[float]:
    figures = []
    for body in KERNELS.values():
        figures.append(_kernel(body, rounds))
        yield figures[-1][0]
    slowdowns, a_cycle = zip(*figures, strict=True)
    yield from (median(slowdowns), max(slowdowns), min(a_cycle), max(a_cycle))


def _kernel(body: str, rounds: int) -> tuple[float, float]:
    """How much slower a kernel is when it is metered, and the nanoseconds that a cycle of it takes."""
    source = f"class Kernel(Actor):\n    def run(self, payload):{body}"
    namespace: dict[str, Any] = {"Actor": object}
    exec(source, namespace)
    plain = namespace["Kernel"]()
    program = LoadedProgram(*compiled(source).load())
    context = _context()

    def metered() -> None:
        context.meter.cycles_used = 0
        program.run_handler("run", b"", context)

    fast = slow = float("inf")
    for _ in range(rounds):
        fast = min(fast, _seconds(lambda: plain.run(None)))
        slow = min(slow, _seconds(metered))
    return slow / fast, slow * 1e9 / context.meter.cycles_used


def _band(size: Size) -> list[float]:
    """What a cycle takes, and where it takes longest; measured in a process whose heap holds nothing else."""
    options = size.of(
        ["zip", "--attack-cycles", "50000", "--runs", "1"], ["--attack-cycles", "300000", "--runs", "2"], []
    )
    done = subprocess.run(
        [sys.executable, "-m", CASES, "--json", *options], check=True, stdout=subprocess.PIPE, cwd=ROOT
    )
    found = json.loads(done.stdout)
    for nanoseconds, _, kind, name in found[:DEAREST_SHOWN]:
        print(f"{nanoseconds:6.1f} ns  {kind}  {name}", file=sys.stderr)
    a_cycle = [nanoseconds for nanoseconds, *_ in reversed(found)]
    usual, nine_tenths = median(a_cycle), a_cycle[len(a_cycle) * 9 // 10]
    return [usual, nine_tenths, a_cycle[-1], nine_tenths / usual, a_cycle[-1] / usual]


def _context() -> HandlerContext:
    """A run that calls no host, and has no end of cycles."""
    terms = SchedulingTerms(1, 0, 0, Parameters(), FifoPhase.rules)
    world: World = None  # type: ignore[assignment]
    return HandlerContext(world, Meter(10**15, 0), Address(bytes(20)), Address(bytes(20)), terms)


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _calls_a_second(code: str, payload: bytes, blocks: int) -> float:
    parameters = Parameters(lane_user_cycles=10**9, lane_user_cells=10**9, block_cycles_target=10**9)
    accounts = {actor_address(number, 9): RICH for number in range(USERS)}
    with BenchmarkChain(parameters, actors(USERS, code=code), accounts) as chain:
        speeds = []
        for block in range(blocks):
            seconds, outcome = chain.timed_block(_calls(block, payload))
            assert all(receipt.ok for receipt in outcome.receipts.transactions)
            speeds.append(CALLS_PER_BLOCK / seconds)
        return median(speeds[1:])


def _calls(block: int, payload: bytes) -> list[PreparedTransaction]:
    each = CALLS_PER_BLOCK // USERS
    return [
        call(actor_address(number % USERS, 9), block * each + number // USERS, actor_address(number % USERS), payload)
        for number in range(CALLS_PER_BLOCK)
    ]


def _compiling(rounds: int) -> tuple[float, float]:
    """Microseconds a byte to check and compile, and to load what is compiled."""
    source = max(map(source_of, NAMES), key=len)
    compiling = loading = float("inf")
    runtime = Runtime()
    for _ in range(rounds):
        _kept.clear()
        compiling = min(compiling, _seconds(lambda: compiled(source)))
    kept = compiled(source)
    for _ in range(rounds):
        loading = min(loading, _seconds(lambda: LoadedProgram(*kept.load(), runtime)))
    return compiling * 1e6 / len(source), loading * 1e6


if __name__ == "__main__":
    main()
