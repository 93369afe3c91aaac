"""Prices of Python actors (SPEC §2): one table, in cycles, of nodes, operations and builtins.

A cycle is a few nanoseconds of one core (``benchmarks/pvm.py`` measures how many). A block of straight-line code is
charged in one sum before it runs; costs that depend on sizes are charged by the operation before it works. The weights
are independent of how an operation is compiled, and must not depend on the version of Python: the same program costs
the same cycles everywhere.

Host calls cost the cycles of SPEC §2 (:mod:`validator.primitives.costs`) and :data:`HOST_CALL` for crossing the border
twice.
"""

from __future__ import annotations

import ast
from typing import Final

NODES: Final[dict[type[ast.AST], int]] = {
    # expressions
    ast.Name: 0,
    ast.Constant: 0,
    ast.BinOp: 4,
    ast.UnaryOp: 2,
    ast.BoolOp: 1,
    ast.Compare: 4,
    ast.IfExp: 2,
    ast.Subscript: 4,
    ast.Slice: 12,
    ast.List: 8,
    ast.Tuple: 6,
    ast.Dict: 8,
    ast.ListComp: 20,
    ast.DictComp: 20,
    ast.Call: 12,
    ast.Attribute: 0,
    ast.Await: 4,
    # statements
    ast.Assign: 2,
    ast.AnnAssign: 2,
    ast.AugAssign: 6,
    ast.Expr: 1,
    ast.Return: 2,
    ast.Pass: 1,
    ast.Break: 1,
    ast.Continue: 1,
    ast.If: 2,
    ast.While: 2,
    ast.For: 12,
    ast.Raise: 10,
    ast.Assert: 3,
    ast.Delete: 8,
}
"""Cycles of each node, without its children; of comparisons per operator, of ``and`` and ``or`` per value."""

OPERATORS: Final[dict[type[ast.AST], int]] = {
    ast.LShift: 20,
    ast.RShift: 20,
    ast.Pow: 20,
    ast.Invert: 12,
    ast.UAdd: 6,
    ast.USub: 6,
    ast.In: 16,
    ast.NotIn: 16,
}
"""Additional cycles of operators that take several steps."""
DISPLAY_ELEMENT: Final = 1
"""Cycles per element of a list, tuple or dict display, and per target of an unpacking."""
ITERATION: Final = 4
"""Cycles per iteration of a loop or comprehension."""
MADE_KEY: Final = 16
"""Cycles per key of a dict display or comprehension that is not a text or bytes literal."""
OWN_CALL: Final = 20
"""Cycles for entering one of the actor's own methods."""
METHOD_PARTS_INCLUDED: Final = 250
METHOD_PARTS_PER_CYCLE: Final = 2
"""Names, numbers and operations of a method, beyond those included, per cycle of entering it: each may have a slot in
the frame."""
HOST_CALL: Final = 100
"""Cycles of a host call in addition to its own cost: values cross the border."""
HOST_READ: Final = 12
"""Cycles of reading a host value on ``self`` in addition to its own cost."""
TASK: Final = 80
"""Cycles for starting a task."""
TASK_TURN: Final = 40
"""Cycles when a task gives up its turn or waits for another task."""
TASK_LEVEL: Final = 6
"""Cycles per async method above the one in which a task gives up its turn or waits: all of them resume with the
task."""

OPERATION: Final = 24
"""Cycles, without the size-dependent cost, of an operation on texts, lists, tuples or dicts, of arithmetic or an index
with a truth value, and of a comparison other than of two integers or with a literal."""
BYTES_PER_CYCLE: Final = 32
"""Bytes and characters copied or compared per cycle."""
KEY_BYTES_PER_CYCLE: Final = 8
"""Bytes of a storage key, beyond :data:`~validator.primitives.costs.NAME_BYTES_INCLUDED`, per cycle: the key is
encoded, and hashed if it is long."""
WIDE_TEXT: Final = 4
"""Weight of a character when a text that is not ASCII is copied."""
WIDE_CODING: Final = 16
"""Weight of a character or byte when a text that is not ASCII is encoded or decoded."""
SEARCHED_PLACES: Final = 2_500
"""Places up to which a search costs the number of places times the length of the part: Python compares it at each."""
SEARCHED_PART: Final = 100
"""Characters of a longer part that count if there are more places: Python then preprocesses the part, and looks at each
character of the text a few times."""
REPLACED: Final = 3
"""Number of searches that a replacement is charged for: it counts twice before it begins."""
SPLIT: Final = 2
"""Number of searches that a split is charged for."""
STRIPPED_CHARACTER: Final = 2
"""Cycles per character of a text that ``strip`` is called on."""
ELEMENT: Final = 1
"""Cycles per element that is copied or visited."""
MADE_ELEMENT: Final = 4
"""Cycles per element that a method or function creates, and per key that a dict copies from another one."""
PAIR: Final = 16
"""Cycles per pair from which ``dict()`` makes a dict."""
MADE_PAIR: Final = 8
"""Cycles per pair that ``enumerate`` or ``items`` makes."""
SUMMED_ELEMENT: Final = 12
"""Cycles per element of a sum."""
NUMBER_KEY: Final = 16
"""Cycles per use of an integer or truth value as a dict's key."""
NODE_COMPARED: Final = 24
"""Cycles per pair of values that a comparison of lists, tuples or dicts visits."""
CONTAINER_COMPARED: Final = 32
"""Cycles per pair of lists, tuples or dicts in a comparison, and per tuple that is sorted."""
SORT: Final = 64
"""Cycles of sorting, without its size-dependent cost."""
SORTED_PART: Final = 10
"""Cycles per part of a tuple that is sorted, before it is visited."""
SORTED_ELEMENT: Final = 4
"""Cycles per comparison of the bound for sorting: ``n`` times the binary logarithm of ``n``."""
POWER: Final = 60
"""Cycles of a power whose result fits, however it is computed."""
NUMBER_TEXT: Final = 30
"""Cycles of converting a number to text or a text to a number."""
KECCAK: Final = 400
KECCAK_BYTES_PER_CYCLE: Final = 4
VALUE_NODE: Final = 50
"""Cycles per value that is packed or unpacked at the border."""
WIDE_INTEGER: Final = 30
"""Additional cycles per integer that MessagePack cannot represent."""
BUILTIN: Final = 4
"""Cycles of a builtin or method of a value, in addition to the call and its size-dependent cost."""

DEPLOY_CYCLES_PER_BYTE: Final = 300
"""Cycles per source byte for checking and compiling a deployed program."""
DEPLOY_BYTES_PER_TOKEN: Final = 4
"""Source bytes whose price includes one token; usual programs have no more tokens."""
DEPLOY_CYCLES_PER_TOKEN: Final = 1_500
"""Cycles per further token: a dense program takes several times as long to compile."""
LOAD: Final = 200
"""Cycles of a program's first use in a block, without its size-dependent cost. Programs cannot observe whether it was
still loaded."""
DEPLOY_CYCLES_PER_LOAD: Final = 500
"""Cycles of a program's deployment per cycle of loading it, once in each block that uses it."""
