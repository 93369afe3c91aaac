"""Prices of Python actors (SPEC §2): one table, in cycles, of nodes, operations and builtins.

A cycle is a few nanoseconds of one core (``benchmarks/pvm.py`` measures how many). A block of straight-line code is
charged in one sum before it runs; costs that depend on sizes are charged by the operation before it works. The weights
are independent of how an operation is compiled, and must not depend on the version of Python: the same program costs
the same cycles everywhere.

Host calls cost the cycles of SPEC §2 (:mod:`validator.primitives.costs`), and :data:`HOST_CALL` for passing values to
the host and back.
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
"""Cycles of each kind of syntax node, without its children. They are per operator for comparisons, and per value for
``and`` and ``or``."""

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
"""Number of expressions of a method, beyond ``METHOD_PARTS_INCLUDED``, for each additional cycle of entering it. Each
may need a slot in the frame."""
HOST_CALL: Final = 100
"""Cycles of a host call in addition to the host's price, for passing values between the program and the host."""
HOST_READ: Final = 12
"""Cycles of reading a host value on ``self`` in addition to the host's price."""
TASK: Final = 80
"""Cycles for starting a task."""
TASK_TURN: Final = 40
"""Cycles when a task gives up its turn or waits for another task."""
TASK_LEVEL: Final = 6
"""Cycles when a task gives up its turn or waits, per async method that has called the one in which it does so. All of
them resume with the task."""

OPERATION: Final = 24
"""Cycles, without the size-dependent cost, of an operation on texts, lists, tuples or dicts, of arithmetic or an index
with a truth value, and of a comparison other than of two integers or with a literal."""
BYTES_PER_CYCLE: Final = 32
"""Bytes and characters copied or compared per cycle."""
KEY_BYTES_PER_CYCLE: Final = 8
"""Number of bytes of a storage key, beyond :data:`~validator.primitives.costs.NAME_BYTES_INCLUDED`, for one cycle. The
key is encoded, and hashed if it is long."""
WIDE_TEXT: Final = 4
"""Number of bytes that a character counts for when a text that is not ASCII is copied."""
WIDE_CODING: Final = 16
"""Number of bytes that a character or byte counts for when a text that is not ASCII is encoded or decoded."""
SEARCHED_PLACES: Final = 2_500
"""Maximum number of places in a text for which a search is charged for comparing the whole part at each. With more
places, Python preprocesses a long part, and only :data:`SEARCHED_PART` of its characters count."""
SEARCHED_PART: Final = 100
"""Number of characters that count of a longer searched part if there are more than :data:`SEARCHED_PLACES` places.
Python then preprocesses the part, and looks at each character of the text a few times."""
REPLACED: Final = 3
"""Number of searches that a replacement is charged for. The occurrences are counted twice before it begins."""
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
"""Cycles per part of each tuple in a list that is sorted, in addition to the comparisons."""
SORTED_ELEMENT: Final = 4
"""Cycles per comparison of a sort. The number of comparisons is taken as ``n`` times the binary logarithm of ``n``."""
POWER: Final = 60
"""Cycles of a power, whatever its operands."""
NUMBER_TEXT: Final = 30
"""Cycles of converting a number to text or a text to a number."""
KECCAK: Final = 400
KECCAK_BYTES_PER_CYCLE: Final = 4
VALUE_NODE: Final = 50
"""Cycles per value that is encoded or decoded when values enter or leave a program."""
WIDE_INTEGER: Final = 30
"""Additional cycles per integer that MessagePack cannot represent."""
BUILTIN: Final = 4
"""Cycles of a call of a builtin or a value's method, in addition to the call's node and the size-dependent cost."""

DEPLOY_CYCLES_PER_BYTE: Final = 300
"""Cycles per source byte for checking and compiling a deployed program."""
DEPLOY_BYTES_PER_TOKEN: Final = 4
"""Number of source bytes whose deployment price includes one token. Usual programs have no more tokens than that."""
DEPLOY_CYCLES_PER_TOKEN: Final = 1_500
"""Cycles of a deployment per token that is not included in the price of the source bytes. A dense program takes several
times as long to compile."""
LOAD: Final = 200
"""Cycles for loading a program at its first use in a block, without the size-dependent cost. They are charged even if
the program is still loaded, so programs cannot observe that."""
DEPLOY_CYCLES_PER_LOAD: Final = 500
"""Number of cycles of a program's deployment price for which loading it costs one cycle, in each block that uses it."""
