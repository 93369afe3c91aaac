"""Bounds of Python actors: of their source, and of their values while they run."""

from __future__ import annotations

from typing import Final

# --- source -----------------------------------------------------------------------------------------------------------

MAX_SOURCE_BYTES: Final = 16_000
MAX_LOGICAL_LINE: Final = 600
"""Characters of a statement on all its lines, with strings and indentation but without comments."""
MAX_BRACKETS: Final = 20
"""Brackets that may be open at once."""
MAX_INDENT: Final = 12
"""Nested blocks."""
MAX_ELIFS: Final = 20
MAX_TREE_DEPTH: Final = 80
"""Levels of the syntax tree."""
MAX_COMPREHENSIONS: Final = 4
"""Nested comprehensions: Python 3.12 crashes at twenty."""
MAX_NAME: Final = 64
MAX_METHODS: Final = 128
MAX_PARAMETERS: Final = 16
MAX_INTEGER_DIGITS: Final = 78
"""Digits of a decimal literal: ``2**256 - 1`` has this many."""

# --- running ----------------------------------------------------------------------------------------------------------

INTEGER_BITS: Final = 256
INTEGER_LIMIT: Final = 2**INTEGER_BITS
"""Bound of all integers: every integer is strictly between this number and its negative."""
DICT_KEY_LIMIT: Final = 2**60
"""Bound of integers as dict keys: they are strictly between this number and its negative. Each of them is its hash."""
MAX_KEY_TEXT: Final = 256
"""Maximum number of characters or bytes of a dict's key. A dict lookup compares keys in full without a charge, so their
length is bounded. No dict holds a longer key, and a lookup of one finds nothing."""
MAX_TEXT: Final = 1 << 20
"""Characters or bytes of one value."""
MAX_ELEMENTS: Final = 1 << 20
"""Elements of one list, tuple or dict."""
MAX_COMPARED_DEPTH: Final = 64
"""Levels of nested values that a comparison follows."""
MAX_CALL_DEPTH: Final = 64
MAX_LOADED_CYCLES: Final = 500_000
"""Maximum total loading price of the most recently used programs of a block. The block need not pay for loading them
again."""
MAX_TASKS: Final = 1_000
"""Unfinished tasks of one handler."""

# --- values that cross the border -------------------------------------------------------------------------------------

MAX_VALUE_DEPTH: Final = 32
MAX_VALUE_BYTES: Final = 1 << 20
MAX_STORAGE_KEY: Final = 1_024
"""Maximum number of characters of a storage key, and of a name passed to a host call. The host then checks the name
against its smaller limit."""
MAX_ERROR_TEXT: Final = 100
"""Characters of an error's text that a receipt shows."""
