"""Bounds of Python actors: of their source, and of what they may hold while they run."""

from __future__ import annotations

from typing import Final

# --- source -----------------------------------------------------------------------------------------------------------

MAX_SOURCE_BYTES: Final = 16_000
MAX_LOGICAL_LINE: Final = 600
"""Characters of a statement, over all its lines, strings and indentation included, comments not."""
MAX_BRACKETS: Final = 20
"""Brackets that may be open at once."""
MAX_INDENT: Final = 12
"""Blocks that may stand inside each other."""
MAX_ELIFS: Final = 20
MAX_TREE_DEPTH: Final = 80
"""Levels of the syntax tree."""
MAX_COMPREHENSIONS: Final = 4
"""Comprehensions that may stand inside each other: Python 3.12 crashes at twenty."""
MAX_NAME: Final = 64
MAX_METHODS: Final = 128
MAX_PARAMETERS: Final = 16
MAX_INTEGER_DIGITS: Final = 78
"""Of a decimal literal: ``2**256 - 1`` has as many."""

# --- running ----------------------------------------------------------------------------------------------------------

INTEGER_BITS: Final = 256
INTEGER_LIMIT: Final = 2**INTEGER_BITS
"""Every integer lies strictly between this and its negative."""
DICT_KEY_LIMIT: Final = 2**60
"""Integers that may be keys lie strictly between this and its negative: each of them hashes to itself."""
MAX_KEY_TEXT: Final = 256
"""Characters or bytes of a dict's key. A key that is looked up is compared with an equal one whole, for which nobody
pays: so no dict holds a longer one, and a longer one that is looked up is equal to none."""
MAX_TEXT: Final = 1 << 20
"""Characters or bytes of one value."""
MAX_ELEMENTS: Final = 1 << 20
"""Of one list, tuple or dict."""
MAX_COMPARED_DEPTH: Final = 64
"""Levels of values inside values that a comparison follows."""
MAX_CALL_DEPTH: Final = 64
MAX_LOADED_CYCLES: Final = 500_000
"""Prices of loading, added up, of the programs that a block used last and need not pay for again."""
MAX_TASKS: Final = 1_000
"""Tasks of one handler that have not ended."""

# --- values that cross the border -------------------------------------------------------------------------------------

MAX_VALUE_DEPTH: Final = 32
MAX_VALUE_BYTES: Final = 1 << 20
MAX_STORAGE_KEY: Final = 1_024
"""Characters of a storage key. Longer texts are not looked at for names either, whose own bound is the host's."""
MAX_ERROR_TEXT: Final = 100
"""Characters of an error's text that a receipt shows."""
