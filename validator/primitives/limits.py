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
"""All integers are strictly between this and its negative."""
DICT_KEY_LIMIT: Final = 2**60
"""Integers that may be keys are strictly between this and its negative: each of them hashes to itself."""
MAX_KEY_TEXT: Final = 256
"""Characters or bytes of a dict's key. A lookup compares the whole key with an equal one, without a charge, so no dict
holds a longer key, and a longer one equals none."""
MAX_TEXT: Final = 1 << 20
"""Characters or bytes of one value."""
MAX_ELEMENTS: Final = 1 << 20
"""Elements of one list, tuple or dict."""
MAX_COMPARED_DEPTH: Final = 64
"""Levels of nested values that a comparison follows."""
MAX_CALL_DEPTH: Final = 64
MAX_LOADED_CYCLES: Final = 500_000
"""Total loading price of the most recently used programs, which a block need not pay for again."""
MAX_TASKS: Final = 1_000
"""Unfinished tasks of one handler."""

# --- values that cross the border -------------------------------------------------------------------------------------

MAX_VALUE_DEPTH: Final = 32
MAX_VALUE_BYTES: Final = 1 << 20
MAX_STORAGE_KEY: Final = 1_024
"""Characters of a storage key. Longer texts are not checked as names either, which have the host's bound."""
MAX_ERROR_TEXT: Final = 100
"""Characters of an error's text that a receipt shows."""
