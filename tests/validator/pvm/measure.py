"""How many nanoseconds a cycle stands for: ``python -m tests.validator.pvm.measure [part of a name …]``.

Process time, the best of several runs. Of each attack that lasts, of what ordinary programs do, twenty times in an
endless loop, of deploying the densest programs, and of calling programs of which none is loaded any more. Nothing here
is a test: what a machine does in how much time is no property of the VM. What takes three times as long for a cycle as
most is too cheap, and its weight belongs raised; ``benchmarks/pvm.py`` holds all of it against the band that
``docs/actors.md`` states.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from tests.validator.pvm.attacks import RUNNING, running_program
from tests.validator.pvm.running import load, new_context, observe, packed, program, stored
from validator.primitives.limits import MAX_METHODS
from validator.pvm.compiler.programs import _kept, compiled
from validator.pvm.deployment import deploy_cycles
from validator.pvm.runtime.machine import PythonVm

CYCLES = 300_000
ATTACK_CYCLES = 4_000_000
RUNS = 3
TIMES = 20

KERNELS: dict[str, tuple[str, str]] = {
    "numbers": ("x=0", "x += 1"),
    "numbers of unknown kind": ("x=payload", "x += payload"),
    "large product": ("x=2**127+1\ny=payload", "y = x * x"),
    "large remainder": ("x=2**255-19\ny=2**128-3", "z = x % y"),
    "shift": ("x=payload", "y = x << x"),
    "negation": ("x=payload", "y = -x"),
    "pow": ("x=payload", "y = x ** 100"),
    "comparison": ("x=payload", "y = x < x"),
    "equal texts": ("x='abc'*10\ny='abc'*10", "z = x == y"),
    "truth values": ("x=True", "z = x == x"),
    "chain": ("x=payload", "z = x < x + 1 < x + 2"),
    "in a list": ("x=[9]*20", "z = 5 in x"),
    "in a dict": ("x={'a':1}\ny='a'", "z = y in x"),
    "in a text": ("x='abcdef'", "z = 'f' in x"),
    "element": ("x=[1,2,3]", "z = x[1]"),
    "element by anything": ("x=[1]*9\ny=payload", "z = x[y]"),
    "entry": ("x={'a':1}\ny='a'", "z = x[y]"),
    "entry by a number": ("x={1:1}\ny=1", "z = x[y]"),
    "set an element": ("x=[1]*9\ny=payload", "x[y] = 5"),
    "set an entry": ("x={'a':1}\ny='a'", "x[y] = 5"),
    "set an entry by a number": ("x={1:1}\ny=1", "x[y] = 5"),
    "count in a dict": ("x={'a':1}\ny='a'", "x[y] += 1"),
    "slice": ("x=[1,2,3]", "z = x[1:2]"),
    "slice of a text": ("x='abcdef'", "z = x[1:]"),
    "tuple": ("x=1", "z = (x, x, x)"),
    "swap": ("a=1\nb=2", "a, b = b, a"),
    "dict": ("x='a'", "z = {x: x}"),
    "list comprehension": ("x=[1]*20", "z = [y for y in x]"),
    "dict comprehension": ("x=[1]*20", "z = {y: 1 for y in x}"),
    "for range": ("", "for i in range(20):\n    pass"),
    "for list pairs": ("x=[(1,2)]*20", "for i, j in x:\n    pass"),
    "while": ("", "i = 0\nwhile i < 20:\n    i += 1"),
    "own method": ("", "self.one(1)"),
    "append": ("x=[]", "x.append(1)"),
    "insert and pop in front": ("x=[]", "x.insert(0, 1)\nx.pop(0)"),
    "get of a dict": ("x={'a':1}\ny='a'", "x.get(y)"),
    "get by a number": ("x={1:1}\ny=1", "x.get(y)"),
    "len": ("x=[1]", "z = len(x)"),
    "min of two": ("x=payload", "z = min(x, 2)"),
    "min list": ("x=[1]*50", "z = min(x)"),
    "sum": ("x=[1]*50", "z = sum(x)"),
    "sorted5": ("x=[i * 7919 % 101 for i in range(5)]", "z = sorted(x)"),
    "sorted50": ("x=[i * 7919 % 101 for i in range(50)]", "z = sorted(x)"),
    "sorted pairs": ("x=[(i * 7919 % 101, i) for i in range(50)]", "z = sorted(x)"),
    "range list": ("", "z = range(50)"),
    "enumerate": ("x=[1]*50", "z = enumerate(x)"),
    "zip": ("x=[1]*50", "z = zip(x, x)"),
    "items": ("x={str(i): 1 for i in range(50)}", "z = x.items()"),
    "items by numbers": ("x={i: 1 for i in range(50)}", "z = x.items()"),
    "keys": ("x={str(i): 1 for i in range(50)}", "z = x.keys()"),
    "copy": ("x={str(i): 1 for i in range(50)}", "z = x.copy()"),
    "dict(pairs)": ("x=[(str(i), 1) for i in range(50)]", "z = dict(x)"),
    "update": ("x={str(i): 1 for i in range(50)}\ny={}", "y.update(x)"),
    "list(str)": ("x='a'*50", "z = list(x)"),
    "bytes(list)": ("x=[1]*50", "z = bytes(x)"),
    "str(int)": ("x=5", "z = str(x)"),
    "int(str)": ("x='5'", "z = int(x)"),
    "large number of a text": ("x=str(2**255)", "z = int(x)"),
    "keccak256": ("x=b''", "z = keccak256(x)"),
    "keccak256 of 13,600 bytes": ("x=bytes(13600)", "z = keccak256(x)"),
    "to_bytes": ("x=2**255", "z = x.to_bytes(32)"),
    "concatenation": ("x='a'", "z = x + x"),
    "repeated text": ("x='a'", "z = x * 3"),
    "repeated list": ("x=[1]", "z = x * 3"),
    "long lists added": ("x=[1]*1000", "z = x + x"),
    "long texts added": ("x='a'*1000", "z = x + x"),
    "equal lists": ("x=[1]*50\ny=[1]*50", "z = x == y"),
    "equal dicts": ("x={str(i): 1 for i in range(50)}\ny=x.copy()", "z = x == y"),
    "equal nests": ("x=[[[1]]]\ny=[[[1]]]", "z = x == y"),
    "join": ("x=['a']*50", "z = ''.join(x)"),
    "split": ("x='ab,'*50", "z = x.split(',')"),
    "find": ("x='a'*50", "z = x.find('b')"),
    "strip": ("x='  a  '", "z = x.strip()"),
    "lower": ("x='A'", "z = x.lower()"),
    "encode": ("x='A'", "z = x.encode()"),
    "startswith": ("x='abc'", "z = x.startswith('a')"),
    "if": ("x=payload", "if x:\n    pass"),
    "height": ("", "z = self.height"),
    "balance": ("", "z = self.balance"),
    "get": ("self.set('k', 1)", "self.get('k')"),
    "get a list": ("self.set('k', [1]*50)", "self.get('k')"),
    "get a dict": ("self.set('k', {str(i): 1 for i in range(50)})", "self.get('k')"),
    "set": ("", "self.set('k', 1)"),
    "set a dict": ("x={str(i): 1 for i in range(50)}", "self.set('k', x)"),
    "emit": ("", "self.emit('k', 1)"),
    "transfer": ("x=self.deployer", "self.transfer(x, 1)"),
    "and": ("x=payload", "z = x and x and x"),
    "or": ("x=0", "z = x or x or x"),
    "choice": ("x=payload", "z = x if x else 1"),
    "assert": ("x=payload", "assert x"),
    "annotation": ("x=payload", "z: int = x"),
    "break": ("x=[1]", "for y in x:\n    break"),
    "continue": ("x=[1]", "for y in x:\n    continue"),
    "and of many": ("x=payload", "z = " + " and ".join(["x"] * 80)),
    "and of many lists": ("x=[1]", "z = " + " and ".join(["x"] * 80)),
    "or of many": ("x=0", "z = " + " or ".join(["x"] * 90)),
    "or of many texts": ("x=''", "if " + " or ".join(["x"] * 90) + ":\n    pass"),
    "chain of many": ("x=payload", "z = " + " <= ".join(["x"] * 70)),
    "sum of many": ("x=payload\nx=0", "z = " + " + ".join(["x"] * 70)),
    "list of many": ("x=payload", "z = [" + "x, " * 180 + "]"),
    "tuple of many": ("x=payload", "z = (" + "x, " * 180 + ")"),
    "dict of many": ("", "z = {" + ", ".join(f"'{i}': 1" for i in range(60)) + "}"),
    "dict of many by numbers": ("x=payload", "z = {" + ", ".join(f"{i}: x" for i in range(70)) + "}"),
    "unpacking of many": ("x=[1]*90", ", ".join(f"a{i}" for i in range(90)) + " = x"),
    "call with many": ("", "self.many(" + ", ".join("1" * 16) + ")"),
    "delete in front": ("x=[1]", "x.append(1)\ndel x[0]"),
    "delete an entry": ("x={}", "x['a'] = 1\ndel x['a']"),
    "delete many": ("x={}", "x['a'] = 1\nx['b'] = 1\nx['c'] = 1\ndel x['a'], x['b'], x['c']"),
    "not in": ("x=[9]*20", "z = 5 not in x"),
    "shift back": ("x=2**255", "y = x >> 9"),
    "inversion": ("x=payload", "y = ~x"),
    "plus": ("x=payload", "y = +x"),
    "abs": ("x=payload", "z = abs(x)"),
    "bool": ("x=payload", "z = bool(x)"),
    "ord": ("x='a'", "z = ord(x)"),
    "chr": ("x=20000", "z = chr(x)"),
    "all": ("x=[1]*50", "z = all(x)"),
    "any": ("x=[0]*50", "z = any(x)"),
    "reversed": ("x=[1]*50", "z = reversed(x)"),
    "tuple()": ("x=[1]*50", "z = tuple(x)"),
    "bytes(number)": ("x=payload", "z = bytes(x)"),
    "from_bytes": ("x=bytes(32)", "z = int.from_bytes(x)"),
    "bit_length": ("x=2**255", "z = x.bit_length()"),
    "endswith": ("x='abc'", "z = x.endswith('c')"),
    "upper": ("x='a'", "z = x.upper()"),
    "extend": ("y=[1]*3", "x = []\nx.extend(y)"),
    "reverse": ("x=[1]*3", "x.reverse()"),
    "index": ("x=[1, 2, 3]", "z = x.index(3)"),
    "remove": ("x=[1]", "x.append(2)\nx.remove(2)"),
    "clear": ("x=[1]*3", "x.clear()"),
    "clear a dict": ("x={}", "x['a'] = 1\nx.clear()"),
    "setdefault": ("x={}", "x.setdefault('a', 1)"),
    "sorted one pair": ("x=[(1, 2)]", "z = sorted(x)"),
    "replace": ("x='abc'", "z = x.replace('b', 'c')"),
    "decode": ("x=b'abc'", "z = x.decode()"),
    "sender": ("", "z = self.sender"),
    "address": ("", "z = self.address"),
    "value": ("", "z = self.value"),
    "lane price": ("", "z = self.lane_price"),
    "burn": ("", "self.burn(0)"),
    "delete": ("", "self.set('k', 1)\nself.delete('k')"),
    "delete nothing": ("", "self.delete('k')"),
    "get nothing": ("", "self.get('n')"),
    "emit a text": ("", "self.emit('k', 'abc')"),
    "schedule and cancel": ("", "self.cancel(self.schedule(self.height + 3, 1))"),
    "schedule timer and cancel": ("", "self.cancel(self.schedule_timer(self.height + 3, 1))"),
    "schedule timer ex and cancel": ("", "self.cancel(self.schedule_timer_ex(self.height + 3, 1))"),
    "allow watching": ("", "self.allow_watching('k')"),
    "publish": ("", "self.publish('k', 1)"),
    "published": ("x=self.address\nself.publish('k', 1)", "self.published(x, 'k')"),
    "set bidding agent": ("", "self.set_bidding_agent(None)"),
    "origin hash": ("", "z = self.origin_hash"),
    "pending": ("x=self.schedule(self.height + 3)", "self.pending(x)"),
    "not pending": ("x=bytes(32)", "self.pending(x)"),
    "extend a timer": (
        "x=self.schedule(self.height + 3)\ny=self.height + 10_000", "y += 1\nself.extend(x, y)",
    ),
    "send": ("x=self.address", "self.send(x, 'run', None, 2_000, 0)"),
    "request_job": ("", "self.request_job(1, 1, 'run')"),
}  # fmt: skip
"""What is done once, and what is done again and again; the payload is 5."""


DENSE: dict[str, str] = {
    "sums": "a=b+a+b+a+b+a+b+a",
    "remainders": "a=b%a%b%a%b%a%b%a",
    "chains": "a=a<b<a<b<a<b<a<b",
    "elements": "a=b[a][a][a][a]",
    "elements changed": "a[a[b]]+=a[a[b]]",
    "counters": "a+=b",
    "comprehensions": "a=[x+a for x,y in a if x]",
    "nested comprehensions": "a=[[[[w for w in z] for z in y] for y in x] for x in a]",
    "branches": "if a:a=b",
    "calls": "a=self.m(a,b)",
    "displays": "a=[a,b,a,b,a]",
    "nothing": "pass;pass;pass;pass",
    "element of an element": "x=a" + "[a]" * 70,
    "names": "a{0}='b{0}'",
}
"""Statements of programs that hold as much as a text can; ``{0}`` is a number of its own."""
DENSE_SIZES = (500, 2_000, 5_600, 16_000)
"""Characters; more than 5,600 fit into no block with the default parameters."""
LOADED_SIZES = (500, 2_000)
LINES = 60
"""Of a method."""
PROGRAMS_LOADED = 10
LOADINGS = 2_000


class Figure(NamedTuple):
    """What a cycle takes."""

    nanoseconds: float
    cycles: int
    kind: str
    """``kernel``, ``attack``, ``deployment`` or ``loading``."""
    name: str


MANY = "def many(self, " + ", ".join(f"a{i}" for i in range(16)) + "):\n    return a0"


def kernel(name: str) -> str:
    first, again = KERNELS[name]
    body = "".join(f"    {line}\n" for line in (again + "\n").splitlines() * TIMES)
    return program(f"{first or 'pass'}\nwhile True:\n{body}", "def one(self, x):\n    return x", MANY)


def nanoseconds(source: str, cycles: int = CYCLES, runs: int = RUNS) -> tuple[float, int]:
    """Of a cycle, and how many cycles a run used."""
    loaded, payload, best, used = load(source), packed(5), float("inf"), 0
    for _ in range(runs):
        context = new_context(cycles)
        gc.collect()
        start = time.process_time_ns()
        used = observe(context, lambda given: loaded.run_handler("handle", payload, given)).cycles
        best = min(best, time.process_time_ns() - start)
    return best / max(used, 1), used


def dense(name: str, size: int) -> str:
    """A program of methods that hold one statement over and over."""
    text, statement, number = "class A(Actor):\n def m(self,a,b):\n  pass\n", DENSE[name], 0
    while len(text) + 20 + len(f"  {statement}\n") <= size:
        text += f" def m{number}(self,a,b):\n"
        for _ in range(LINES):
            line = "  " + statement.replace("{0}", str(number)) + "\n"
            number += 1
            if len(text) + len(line) > size:
                break
            text += line
    return text


def many_methods(size: int) -> str:
    """A program of methods that hold next to nothing."""
    text, number = "class A(Actor):\n", 0
    while len(text) + 20 <= size and number < MAX_METHODS - 1:
        text += f" def m{number}(self):pass\n"
        number += 1
    return text


def deployment_nanoseconds(source: str, runs: int = RUNS) -> tuple[float, int]:
    """Of a cycle of checking and compiling, and how many cycles that costs."""
    best, cycles = float("inf"), deploy_cycles(source)
    for _ in range(runs):
        _kept.clear()
        gc.collect()
        start = time.process_time_ns()
        compiled(source)
        best = min(best, time.process_time_ns() - start)
    return best / cycles, cycles


def loading_nanoseconds(source: str, runs: int = RUNS) -> tuple[float, int]:
    """Of a cycle of first calls in a block, of programs that were all pushed out of the loaded ones.

    Also how many cycles :data:`LOADINGS` of these cost.
    """
    vm, context, best = PythonVm(), new_context(), float("inf")
    vm._loaded.most = 0
    codes = [
        stored(context, f"{source} def handle(self,payload):return {number}\n") for number in range(PROGRAMS_LOADED)
    ]
    for turn in range(1 + runs):  # the first one compiles
        gc.collect()
        context.meter.cycles_used = 0
        start = time.process_time_ns()
        for place in range(LOADINGS):
            context.world.loaded_programs.clear()
            vm.run(codes[place % PROGRAMS_LOADED], "handle", b"", context)
        if turn:
            best = min(best, time.process_time_ns() - start)
    return best / context.meter.cycles_used, context.meter.cycles_used


def repeated(source: str) -> Iterator[ast.AST]:
    """What a program does again and again: what stands in its handler's endless loops, and the methods called there."""
    (shell,) = ast.parse(source).body
    assert isinstance(shell, ast.ClassDef)
    methods = {node.name: node for node in shell.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    waiting: list[ast.AST] = [
        node for node in ast.walk(methods["handle"]) if isinstance(node, ast.While) and ast.unparse(node.test) == "True"
    ]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if name in methods:
                waiting.append(methods.pop(name))
        waiting += ast.iter_child_nodes(node)


Case = tuple[str, str, Callable[[], tuple[float, int]]]


def cases(attack_cycles: int = ATTACK_CYCLES, runs: int = RUNS) -> list[Case]:
    """Kind, name and measurement of all that there is."""
    loaded = {"nothing": "class A(Actor):\n"}
    loaded |= {f"{name}, {size}": dense(name, size) for name in DENSE for size in LOADED_SIZES}
    loaded |= {f"many methods, {size}": many_methods(size) for size in LOADED_SIZES}
    return [
        *(("kernel", name, partial(nanoseconds, kernel(name), runs=runs)) for name in KERNELS),
        *(("attack", name, partial(nanoseconds, running_program(name), attack_cycles, runs)) for name in RUNNING),
        *(
            ("deployment", f"{name}, {size}", partial(deployment_nanoseconds, dense(name, size), runs))
            for name in DENSE
            for size in DENSE_SIZES
        ),
        *(("loading", name, partial(loading_nanoseconds, source, runs)) for name, source in loaded.items()),
    ]


def figures(wanted: Sequence[str] = (), attack_cycles: int = ATTACK_CYCLES, runs: int = RUNS) -> list[Figure]:
    """All that is named so, the dearest first. What lasts for less than a kernel is left out: there it is a handler's
    beginning and end that was measured."""
    found = [
        Figure(*measure(), kind, name)
        for kind, name, measure in cases(attack_cycles, runs)
        if not wanted or any(part in name for part in wanted)
    ]
    return sorted((each for each in found if each.cycles >= CYCLES), reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Nanoseconds that a cycle takes.")
    parser.add_argument("wanted", nargs="*", metavar="PART", help="parts of names; everything where none is given")
    parser.add_argument("--json", action="store_true", help="print a list of [nanoseconds, cycles, kind, name]")
    parser.add_argument("--attack-cycles", type=int, default=ATTACK_CYCLES)
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    found = figures(options.wanted, options.attack_cycles, options.runs)
    if options.json:
        print(json.dumps(found))
        return
    for each in found:
        print(f"{each.nanoseconds:8.1f} ns  {each.kind}  {each.name}")


if __name__ == "__main__":
    main()
