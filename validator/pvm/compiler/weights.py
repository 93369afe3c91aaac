"""Prices of Python actors (SPEC §2): one table, in cycles, of nodes, operations and builtins.

A cycle stands for a few nanoseconds of one core (``benchmarks/pvm.py`` says how many). A block of straight-line code is
charged in one sum before it runs; what depends on sizes is charged by the operation itself before it works. The weights
say nothing about how an operation is compiled, and nothing here may depend on the version of Python: the same program
costs the same cycles everywhere.

Host calls cost what SPEC §2 says (:mod:`validator.primitives.costs`), and :data:`HOST_CALL` for the way there and back.
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
"""Of each node, without what hangs below it; of comparisons for each sign, of ``and`` and ``or`` for each value."""

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
"""Of operators that are no single step, besides their node."""
DISPLAY_ELEMENT: Final = 1
"""Of each element of a list, tuple or dict display, and of each target of an unpacking."""
ITERATION: Final = 4
"""Of each turn of a loop or comprehension."""
MADE_KEY: Final = 16
"""Of each key of a dict display or comprehension that is not a text or bytes written out."""
OWN_CALL: Final = 20
"""Of entering a method of the actor's own."""
METHOD_PARTS_INCLUDED: Final = 250
METHOD_PARTS_PER_CYCLE: Final = 2
"""Names, numbers and operations of a method beyond those included, for one cycle of entering it: each may have a place
of its own in the frame."""
HOST_CALL: Final = 100
"""Of a host call, besides its own cost: values cross the border."""
HOST_READ: Final = 12
"""Of a reading on ``self``, besides its own cost."""
TASK: Final = 80
"""Of starting a task."""
TASK_TURN: Final = 40
"""Of a task's giving its turn away, and of waiting for another task."""
TASK_LEVEL: Final = 6
"""Of each async method that is awaited above the one that gives its task's turn away or waits: all of them continue
when the task does."""

OPERATION: Final = 24
"""Of an operation on texts, lists, tuples or dicts, of arithmetic with a truth value, of a truth value as an index, and
of a comparison of anything but two integers or a literal, besides what sizes cost."""
BYTES_PER_CYCLE: Final = 32
"""Bytes and characters that are copied or compared for one cycle."""
KEY_BYTES_PER_CYCLE: Final = 8
"""Bytes of a storage key beyond :data:`~validator.primitives.costs.NAME_BYTES_INCLUDED`, for one cycle: it is coded,
and hashed if it is long."""
WIDE_TEXT: Final = 4
"""Weight of a character in a text that is not ASCII, when it is copied."""
WIDE_CODING: Final = 16
"""Weight of a character or byte when a text that is not ASCII becomes bytes, or bytes become one."""
SEARCHED_PLACES: Final = 2_500
"""Looking for a part costs the places where it may begin times its length: Python compares it again at each."""
SEARCHED_PART: Final = 100
"""If there are more places than that, no more than so much of a longer part counts: Python then looks at the part
first, and at each character of the text a few times."""
REPLACED: Final = 3
"""Number of searches that replacing makes: it counts twice before it begins."""
SPLIT: Final = 2
"""Number of searches that splitting makes."""
STRIPPED_CHARACTER: Final = 2
"""Of each character of what is stripped."""
ELEMENT: Final = 1
"""Of each element that is copied or looked at."""
MADE_ELEMENT: Final = 4
"""Of each element that a method or function makes anew, of each key that a dict takes over from another one."""
PAIR: Final = 16
"""Of each pair that a dict is made of by ``dict()``."""
MADE_PAIR: Final = 8
"""Of each pair that ``enumerate`` or ``items`` makes."""
SUMMED_ELEMENT: Final = 12
"""Of each element of a sum."""
NUMBER_KEY: Final = 16
"""Of each use of an integer or truth value as a dict's key."""
NODE_COMPARED: Final = 24
"""Of each pair of values that a comparison of lists, tuples or dicts looks at."""
CONTAINER_COMPARED: Final = 32
"""Of each two lists, tuples or dicts that a comparison meets, and of each tuple that is sorted."""
SORT: Final = 64
"""Of sorting, besides what its size costs."""
SORTED_PART: Final = 10
"""Of each part of a tuple that is sorted, before it is looked at."""
SORTED_ELEMENT: Final = 4
"""Of each comparison that sorting is bounded by: ``n`` times the binary logarithm of ``n``."""
POWER: Final = 60
"""Of a power whose result fits, however it is found."""
NUMBER_TEXT: Final = 30
"""Of a number's text, or of the number that a text says."""
KECCAK: Final = 400
KECCAK_BYTES_PER_CYCLE: Final = 4
VALUE_NODE: Final = 50
"""Of each value that is packed or unpacked on its way over the border."""
WIDE_INTEGER: Final = 30
"""Of each integer that MessagePack has no form for, besides."""
BUILTIN: Final = 4
"""Of a builtin or method of a value, besides the call and what its size costs."""

DEPLOY_CYCLES_PER_BYTE: Final = 300
"""Of checking and compiling a program that is deployed, by its source's bytes."""
DEPLOY_BYTES_PER_TOKEN: Final = 4
"""A token of the source for so many bytes is paid for with them; usual programs have no more."""
DEPLOY_CYCLES_PER_TOKEN: Final = 1_500
"""Of each token beyond these: a dense program takes several times as long to compile."""
LOAD: Final = 200
"""Of the first use of a program in a block, besides what its size costs; whether it is still loaded is nobody's to
notice."""
DEPLOY_CYCLES_PER_LOAD: Final = 500
"""Cycles of its deployment for each cycle that loading a program costs, once in each block that uses it."""
