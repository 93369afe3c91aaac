"""What programs cost, to the cycle: the same on every Python, and wherever its hashes begin.

A change of a figure here is a change of the protocol: every validator must make it at the same height.
"""

# ruff: noqa: E501  # tables, one case a line
from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.validator.pvm.attacks import REFUSED, RUNNING, refused_program, running_program
from tests.validator.pvm.programs import draw
from tests.validator.pvm.pythons import VERSIONS, answers, here, is_here, python
from tests.validator.pvm.running import program, run

GOLDEN: dict[str, tuple[str, int]] = {
    "nothing": ("pass", 21),
    "a sum": ("x = 1\ny = x + 2\nreturn y", 30),
    "a loop": ("x = 0\nfor i in range(100):\n    x += i * i\nreturn x", 1_452),
    "fibonacci": ("a, b = 0, 1\nwhile b < 2 ** 200:\n    a, b = b, a + b\nreturn b", 31_336),
    "primes": (
        "found = []\nfor n in range(2, 100):\n    if all([n % p for p in found]):\n        found.append(n)\nreturn found", 19_688,
    ),
    "words": (
        "counts = {}\nfor word in 'to be or not to be'.split(' '):\n    counts[word] = counts.get(word, 0) + 1\n"
        "return sorted(counts.items())", 997,
    ),
    "numbers as keys": ("d = {i * i: i for i in range(50)}\nreturn sum([d[i * i] for i in range(50)]) + len(d)", 4_156),
    "texts": ("x = 'ab' * 50\nreturn x.upper().replace('AB', 'c').join(['1', '2']).encode().hex()[3:40]", 670),
    "wide texts": ("x = chr(233) * 100\nreturn (x + x[:50]).encode().decode() == x", 541),
    "comparisons": ("x = [[i, str(i)] for i in range(30)]\nreturn x == x.copy() and x < [[99]] and [7, '7'] in x", 6_693),
    "sorting": ("return sorted([(i * 37 % 101, str(i)) for i in range(60)], True)[:3]", 13_189),
    "truth values": ("x = True\nfor y in [True, False, 1]:\n    x = (x + y) * (1 - y) | y\nreturn x", 257),
    "bits": ("x = (1 << 200) | 255\nreturn (x >> 3, ~x, -x, x ^ 7, 3 ** 99 % 1009, x.bit_length())", 218),
    "a failure": ("x = [1, 2, 3]\nx.sort()\nreturn x[3]", 171),
    "and, or": ("x = 1\nreturn x and x and x and (0 or 0 or x)", 31),
    "wide characters": (
        "x = chr(20000) * 50\ny = []\ny += x\ny.extend(x)\nreturn (zip(x, y), zip(x, x, 'abc'), enumerate(x), all(x), '-'.join(x))", 2_407,
    ),
    "copies": ("x = {i: i for i in range(20)}\nreturn (x.copy(), dict(x), x.items(), range(20), enumerate([1, 2]))", 1_417),
    "one wide tuple": ("return sorted([('a',) * 50])", 1_006),
    "a large method": ("return 1\n" + "\n".join(["payload = payload + 1"] * 100), 697),
    "an integer beside nothing": ("x = 5\nreturn [x == payload, payload != x, x == 7]", 95),
    "reading": ("return self.height + self.lane_price", 60),
}  # fmt: skip
"""Handlers' bodies, and the cycles of a run."""

HOSTED: dict[str, tuple[str, int]] = {
    "store": ("self.set('k', [1, {'a': b'b'}])\nreturn self.get('k')", 977),
    "events": ("self.emit('e', 5)\nself.emit('f', b'abc')\nself.burn(100)", 559),
    "timer": ("self.cancel(self.schedule(self.height + 3, {'n': 2 ** 100}))", 2_040),
    "payment": ("self.transfer(self.deployer, self.balance // 2)", 371),
    "wide integers": ("self.set('k', [2 ** 255, -(2 ** 200), 2 ** 64 - 1])\nreturn self.get('k')", 1_252),
    "long keys": (
        "x = 'k' * 1_000\nself.set(x, 1)\nself.get(x)\nself.get(chr(300) * 100)\nself.delete('k' * 33)\nself.get('k' * 40)",
        1_579,
    ),
    "long payload": ("self.schedule(self.height + 3, bytes(1_000))", 1_548),
    "hash": ("self.set('h', keccak256(bytes(200)))", 896),
}
"""What needs a real host."""


@pytest.mark.parametrize("name", [*GOLDEN, *HOSTED])
def test_a_program_costs_what_it_did(name: str) -> None:
    body, cycles = {**GOLDEN, **HOSTED}[name]
    assert run(program(body)).cycles == cycles


@cache
def mine() -> Any:
    return answers(here(), "elsewhere.py", table())


def table() -> list[list[Any]]:
    bodies = [[program(body), 10**6] for body, _ in GOLDEN.values()]
    attacks = [[running_program(name), 10_000] for name in RUNNING]
    refusals = [[refused_program(name), 0] for name in REFUSED]
    return [*bodies, *attacks, *refusals, *([draw(seed), 20_000] for seed in range(60))]


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["0", "4294967295"])
def test_hashes_change_nothing(hash_seed: str) -> None:
    assert answers(here(), "elsewhere.py", table(), hash_seed) == mine()


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_python_does_the_same_for_the_same_cycles(version: str) -> None:
    other = python(version)
    if other is None:
        pytest.skip(f"there is no Python {version} here")
    its = mine() if is_here(other) else answers(other, "elsewhere.py", table())
    different = [found for found in zip(table(), mine(), its, strict=True) if found[1] != found[2]]
    assert not different, f"{len(different)} differ, the first: {different[0]}"
    golden = [cycles for _, cycles in GOLDEN.values()]
    assert [cycles for _, cycles, _ in its[: len(GOLDEN)]] == golden
