"""What ``docs/actors.md`` shows that the code decides: tables of names and costs, and what the commands print.

Between ``<!-- table: NAME -->`` and ``<!-- end -->`` stands a table, after ``<!-- file: NAME -->`` a program; a
``console`` block has commands behind ``$``, and what they print. This writes all of it anew, and the stub besides:

    python -m tests.kits.actors.reference
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from cluster.commands.cli.main import main
from kits.actors.stub import stub_text
from validator.primitives import costs, limits
from validator.primitives.costs import MIN_QUERY_CYCLES
from validator.primitives.params import DEFAULTS
from validator.pvm.compiler import weights
from validator.pvm.language.api import BUILTINS, HOST_CALLS, HOST_READS, METHODS, STATIC_METHODS, Signature
from validator.pvm.language.names import REFUSED

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "actors.md"
STUB = ROOT / "actors" / "__builtins__.pyi"
TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
FILE = re.compile(r"<!-- file: (\S+) -->\n```python\n(.*?)```", re.DOTALL)
CONSOLE = re.compile(r"(```console\n)(.*?)(```)", re.DOTALL)

HOST_COSTS = {
    "get": (f"{costs.KV_GET_CYCLES}", ""),
    "set": (f"{costs.KV_SET_CYCLES}", "bytes of key and value"),
    "delete": (f"{costs.KV_DELETE_CYCLES}", ""),
    "allow_watching": (f"{costs.ALLOW_WATCHING_CYCLES}", "bytes of the key"),
    "publish": (f"{costs.PUBLISH_CYCLES}", "bytes of key and value"),
    "published": (f"{costs.PUBLISHED_CYCLES}", ""),
    **dict.fromkeys(
        ("schedule", "schedule_timer", "schedule_timer_ex"),
        (f"{costs.SCHEDULE_TIMER_CYCLES:,}", "bytes of the payload"),
    ),
    "set_bidding_agent": (f"{costs.SET_BIDDING_AGENT_CYCLES}", ""),
    "cancel": (f"{costs.CANCEL_TIMER_CYCLES}", ""),
    "extend": (f"{costs.EXTEND_TIMER_CYCLES}", ""),
    "pending": (f"{costs.PENDING_CYCLES}", ""),
    "send": (f"{costs.SEND_CYCLES} + `cycles`", "bytes of the payload + `cells`"),
    "transfer": (f"{costs.TRANSFER_CYCLES}", ""),
    "emit": (f"{costs.EMIT_CYCLES}", "bytes of the data"),
    "burn": ("`cycles`", ""),
    "request_job": ("500 + 100,000", "bytes of the payload + 10,000"),
    "consume_result": ("200", ""),
}
NODES: dict[type[ast.AST], str] = {
    ast.Name: "a variable",
    ast.Constant: "a constant",
    ast.BinOp: "`a + b` and the like",
    ast.UnaryOp: "`-a`, `not a`, `~a`",
    ast.BoolOp: "`a and b and …`, for each value",
    ast.Compare: "`a < b`, for each sign",
    ast.IfExp: "`a if b else c` (both sides are charged)",
    ast.Subscript: "`a[b]`",
    ast.Slice: "`a[b:c]`, on top",
    ast.List: "`[…]`",
    ast.Tuple: "`(…,)`",
    ast.Dict: "`{…}`",
    ast.ListComp: "`[… for …]`",
    ast.DictComp: "`{… for …}`",
    ast.Call: "a call",
    ast.Attribute: "`self.NAME`",
    ast.Await: "`await`",
    ast.Assign: "`a = b`",
    ast.AnnAssign: "`a: int = b`",
    ast.AugAssign: "`a += b`",
    ast.Expr: "a call or a text as a statement, on top",
    ast.Return: "`return`",
    ast.Pass: "`pass`",
    ast.Break: "`break`",
    ast.Continue: "`continue`",
    ast.If: "`if`, each test",
    ast.While: "`while`",
    ast.For: "`for`",
    ast.Raise: "`raise`",
    ast.Assert: "`assert`",
    ast.Delete: "`del`",
}
OPERATORS: dict[type[ast.AST], str] = {
    ast.LShift: "`<<`",
    ast.RShift: "`>>`",
    ast.Pow: "`**`",
    ast.Invert: "`~`",
    ast.UAdd: "`+a`",
    ast.USub: "`-a`",
    ast.In: "`in`",
    ast.NotIn: "`not in`",
}
WEIGHTS = {
    "DISPLAY_ELEMENT": "each element of a `[…]`, `(…)` or unpacking; twice of a `{…}`",
    "ITERATION": "each turn of a loop or comprehension",
    "MADE_KEY": "each key of a `{…}` or comprehension that is not a text or bytes written out",
    "OWN_CALL": "entering a method",
    "HOST_CALL": "a host call, besides its own price",
    "HOST_READ": "a reading on `self`, besides its own price",
    "TASK": "`self.spawn`",
    "TASK_TURN": "`self.pause()`, and waiting for a task",
    "TASK_LEVEL": "each method that is awaited above one that pauses or waits, on top",
    "OPERATION": "an operation on texts, lists, tuples, dicts, arithmetic and indices with True and False, a "
    "comparison of anything but two integers or a literal, besides its size; of `zip` each argument",
    "WIDE_TEXT": "a character of a text that is not ASCII counts for this many where it is copied or taken out of it",
    "WIDE_CODING": "a character or byte counts for this many where such a text becomes bytes, or bytes become one",
    "SEARCHED_PLACES": "looking for a part in a text: 4 × the text's size, and the places where it may begin × the "
    "part's size, up to this many places",
    "SEARCHED_PART": "where there are more places: no more than this of the part's size counts",
    "SPLIT": "`split` looks so often for its part",
    "REPLACED": "`replace` looks so often for its part",
    "STRIPPED_CHARACTER": "each character of what is stripped",
    "ELEMENT": "each element copied or looked at",
    "MADE_ELEMENT": "each element of `range` as a list, `join`, `split`, `replace`, `bytes(list)`; each key that "
    "`copy`, `dict()` or `update` takes over",
    "PAIR": "each pair that `dict()` takes",
    "MADE_PAIR": "each pair that `enumerate` or `items` makes",
    "SUMMED_ELEMENT": "each element of a `sum`",
    "NUMBER_KEY": "each use of a number as a dict's key",
    "NODE_COMPARED": "each pair compared inside lists, tuples, dicts; each candidate of `in`, `index`, `count`, `max`",
    "CONTAINER_COMPARED": "each two lists, tuples or dicts that are compared, each tuple that is sorted",
    "SORT": "sorting, besides its size",
    "SORTED_PART": "each part of a tuple that is sorted, on top",
    "SORTED_ELEMENT": "sorting `n` elements: this × n × the bits of n, × 1 for numbers, more for long texts and tuples",
    "POWER": "`a ** b`",
    "NUMBER_TEXT": "`str(number)`, `int(text)`",
    "KECCAK": "`keccak256`",
    "VALUE_NODE": "each value inside what is packed or unpacked",
    "WIDE_INTEGER": "each integer of more than 64 bits among them, on top",
    "METHOD_PARTS_INCLUDED": "names, numbers and operations in a method that entering it includes (no cycles)",
    "BUILTIN": "a builtin or a value's method, besides the call",
    "DEPLOY_CYCLES_PER_BYTE": "each byte of a program that is deployed",
    "DEPLOY_CYCLES_PER_TOKEN": "each word, number, sign or string of it, comments apart, beyond those that its bytes "
    "pay for",
    "LOAD": "a program's first run in a block, besides its size",
}
PER_CYCLE = {
    "METHOD_PARTS_PER_CYCLE": "names, numbers and operations in a method beyond those included, for entering it",
    "KEY_BYTES_PER_CYCLE": f"bytes of a storage key beyond {costs.NAME_BYTES_INCLUDED}",
    "BYTES_PER_CYCLE": "bytes or characters copied, compared, searched, packed for one cycle",
    "DEPLOY_BYTES_PER_TOKEN": "words, numbers, signs and strings that a program's bytes pay for",
    "DEPLOY_CYCLES_PER_LOAD": "cycles of a program's deployment, for its first run in a block",
    "KECCAK_BYTES_PER_CYCLE": "bytes hashed for one cycle, on top; so a timer's payload beyond 32 bytes",
}
LIMITS = {
    "MAX_SOURCE_BYTES": "bytes of a program",
    "MAX_LOGICAL_LINE": "characters of a statement over all its lines",
    "MAX_BRACKETS": "brackets open at once",
    "MAX_INDENT": "blocks inside each other",
    "MAX_ELIFS": "`elif` in a row",
    "MAX_TREE_DEPTH": "levels of an expression",
    "MAX_COMPREHENSIONS": "comprehensions inside each other",
    "MAX_NAME": "characters of a name",
    "MAX_METHODS": "methods",
    "MAX_PARAMETERS": "parameters of a method, besides `self`",
    "MAX_INTEGER_DIGITS": "digits of a number that `int(text)` reads",
    "INTEGER_BITS": "bits of an integer, sign apart",
    "MAX_KEY_TEXT": "characters or bytes of a dict's key",
    "MAX_TEXT": "characters or bytes of a value",
    "MAX_ELEMENTS": "elements of a list, tuple or dict",
    "MAX_COMPARED_DEPTH": "levels of values inside values that a comparison follows",
    "MAX_CALL_DEPTH": "calls inside each other",
    "MAX_TASKS": "tasks that have not ended",
    "MAX_VALUE_DEPTH": "levels of a value that crosses the border",
    "MAX_VALUE_BYTES": "bytes of a value that crosses the border",
    "MAX_STORAGE_KEY": "characters of a storage key",
    "MAX_ERROR_TEXT": "characters of an error's text in a receipt",
}
TABULATED = {"INTEGER_LIMIT", "DICT_KEY_LIMIT", "MAX_LOADED_CYCLES"}
"""Limits that the page has in words."""


AROUND = {
    f"each byte of a handler's or an event's name beyond {costs.NAME_BYTES_INCLUDED}, in a call that gives one": (
        1,
        "",
    ),
    "reading height, sender, balance, …": (costs.READ_CONTEXT_CYCLES, ""),
    "a transaction": (DEFAULTS.tx_base_cycles, "bytes of the payload, or of the program"),
    "a fire": (DEFAULTS.fire_base_cycles, ""),
    "a message's run, out of what its sender reserved": (DEFAULTS.message_base_cycles, ""),
    "a message's reservation, where it names none": (DEFAULTS.message_cycles, f"{DEFAULTS.message_cells:,}"),
    "a query for a bid, at least": (MIN_QUERY_CYCLES, ""),
    "a query for a bid, at most": (DEFAULTS.gba_max_cycles, ""),
}

# --- tables -----------------------------------------------------------------------------------------------------------


def table(heads: list[str], rows: Iterator[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def shown(name: str, signature: Signature) -> str:
    """A call as it may be written: what may be left out, by name where that is allowed."""
    if not signature.positional_only:
        optional = [f"{parameter}=…" for parameter in signature.optional]
        return f"`{name}({', '.join((*signature.required, *optional))})`"
    left_out = ""
    for parameter in reversed(signature.optional):
        left_out = f"[, {parameter}{left_out}]"
    if not signature.required:
        left_out = left_out.replace("[, ", "[", 1)
    return f"`{name}({', '.join(signature.required)}{left_out})`"


def host_calls() -> str:
    rows = (
        [shown(f"self.{name}", each), f"`{each.result}`", *HOST_COSTS[name], each.purpose.replace("``", "`")]
        for name, each in HOST_CALLS.items()
    )
    return table(["call", "gives", "cycles", "cells", "what it does"], rows)


def host_reads() -> str:
    return table(["reading", "is", "meaning"], ([f"`self.{n}`", f"`{k}`", m] for n, (k, m) in HOST_READS.items()))


def functions() -> str:
    static = {f"{kind}.{name}": each for (kind, name), each in STATIC_METHODS.items()}
    rows: list[tuple[str, dict[str, Signature]]] = [("functions", BUILTINS | static), ("methods of values", METHODS)]
    return table(["", "by position"], ([k, ", ".join(shown(n, each) for n, each in t.items())] for k, t in rows))


def refused() -> str:
    remedies: dict[tuple[str, str], None] = dict.fromkeys(REFUSED.values())
    return table(["refused", "instead"], ([what, remedy] for what, remedy in remedies))


def node_costs() -> str:
    assert set(NODES) == set(weights.NODES), "NODES above says what each node is"
    assert set(OPERATORS) == set(weights.OPERATORS), "OPERATORS above says what each operator is"
    rows = [[NODES[node], str(cycles)] for node, cycles in weights.NODES.items()]
    rows += [[f"{OPERATORS[node]}, on top", str(cycles)] for node, cycles in weights.OPERATORS.items()]
    return table(["of the text", "cycles"], iter(rows))


def size_costs() -> str:
    known = {name for name, value in vars(weights).items() if name.isupper() and isinstance(value, int)}
    assert known == set(WEIGHTS) | set(PER_CYCLE), "WEIGHTS and PER_CYCLE above say what each weight is"
    rows = [[what, f"{getattr(weights, name)}"] for name, what in WEIGHTS.items()]
    rows += [[what, f"1 for {getattr(weights, name)}"] for name, what in PER_CYCLE.items()]
    return table(["of the run", "cycles"], iter(rows))


def around() -> str:
    return table(["besides", "cycles", "cells"], ([what, f"{n:,}", cells] for what, (n, cells) in AROUND.items()))


def bounds() -> str:
    known = {name for name, value in vars(limits).items() if name.isupper() and isinstance(value, int)}
    assert known == set(LIMITS) | TABULATED, "LIMITS above says what each limit is of"
    return table(["at most", ""], ([f"{getattr(limits, name):,}", what] for name, what in LIMITS.items()))


TABLES: dict[str, Callable[[], str]] = {
    each.__name__: each for each in (host_calls, host_reads, functions, refused, node_costs, size_costs, around, bounds)
}


# --- commands ---------------------------------------------------------------------------------------------------------


def output(command: str) -> str:
    """What a command prints, here and now."""
    program, *arguments = shlex.split(command.replace("\\\n", ""))
    assert program == "stampede", command
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        main(arguments)
    return printed.getvalue()


def commands(block: str) -> list[str]:
    """The commands of a console block, those that go over several lines included."""
    found: list[str] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        elif found and found[-1].endswith("\\"):
            found[-1] += f"\n{line}"
    return found


def perform(block: str) -> str:
    return "\n".join(f"$ {command}\n{output(command)}" for command in commands(block))


def render(page: str) -> str:
    """The page as it should be. Files are written into, and commands run in, a folder of their own."""
    page = TABLE.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], page)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, text in FILE.findall(page):
                Path(name).write_text(text, encoding="utf-8")
            return CONSOLE.sub(lambda found: found[1] + perform(found[2]) + found[3], page)
        finally:
            os.chdir(before)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    STUB.write_text(stub_text(), encoding="utf-8")
    sys.exit(0)
