"""How many nanoseconds a cycle stands for: ``python -m tests.validator.pvm.measure [part of a name …]``.

Process time, the best of several runs. Of each attack that lasts, and of what ordinary programs do, twenty times in an
endless loop. Nothing here is a test: what a machine does in how much time is no property of the VM. What takes three
times as long for a cycle as most is too cheap, and its weight belongs raised.
"""

from __future__ import annotations

import gc
import sys
import time

from tests.validator.pvm.attacks import RUNNING, running_program
from tests.validator.pvm.running import load, new_context, observe, packed, program

CYCLES = 300_000
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
}
"""What is done once, and what is done again and again; the payload is 5."""


def kernel(name: str) -> str:
    first, again = KERNELS[name]
    body = "".join(f"    {line}\n" for line in (again + "\n").splitlines() * TIMES)
    return program(f"{first or 'pass'}\nwhile True:\n{body}", "def one(self, x):\n    return x")


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


def table(wanted: list[str]) -> None:
    rows = []
    for kind, names in (("kernel", list(KERNELS)), ("attack", list(RUNNING))):
        for name in names:
            if not wanted or any(part in name for part in wanted):
                measured = (
                    nanoseconds(kernel(name)) if kind == "kernel" else nanoseconds(running_program(name), 4_000_000)
                )
                rows.append((*measured, kind, name))
    for each, cycles, kind, name in sorted(rows, reverse=True):
        if cycles >= CYCLES:  # else it is a handler's beginning and end that was measured
            print(f"{each:8.1f} ns  {kind}  {name}")


if __name__ == "__main__":
    table(sys.argv[1:])
