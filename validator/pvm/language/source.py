"""Checks of a program's text before Python's own parser may see it.

Parsers recurse, so this module bounds brackets, indentation and long chains of operators. Its scan only recognises
strings, comments and brackets. A text that passes is small and flat enough for the parser of every Python version.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from validator.primitives.limits import MAX_BRACKETS, MAX_ELIFS, MAX_INDENT, MAX_LOGICAL_LINE, MAX_SOURCE_BYTES

_PRINTABLE: Final = frozenset(map(chr, range(32, 127)))
_OPENING: Final = ("(", "[", "{")
_CLOSING: Final = (")", "]", "}")
_FORMATTED: Final = frozenset({"f", "fr", "rf", "t", "tr", "rt"})
"""Prefixes of strings that contain code; those with a t are for Python 3.14."""
_WITHOUT_NAMES: Final = frozenset({"r", "b", "br", "rb"})
"""Prefixes of strings in which ``\\N`` has no meaning."""

_ORDINARY: Final = re.compile(r"""[^#'"\\()\[\]{}\n]+""")
_TOKEN: Final = re.compile(
    r"""#[^\n]*|"{3}(?:\\.?|[^\\])*?(?:"{3}|\Z)|'{3}(?:\\.?|[^\\])*?(?:'{3}|\Z)"""
    r"""|"(?:\\.?|[^"\\\n])*"?|'(?:\\.?|[^'\\\n])*'?|\w+|[^\s\w]""",
    re.ASCII | re.DOTALL,
)
"""Matches one token: a comment, a string, a word, a number, or a sign. It also matches an unterminated string, so that
no part of a text is scanned twice."""


class Problem(NamedTuple):
    """Reason why a program is refused, its line and column (from 1), and the remedy."""

    line: int
    column: int
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.what}; {self.remedy}"


def check_text(source: str) -> Problem | None:
    """The first problem of a program's text, or ``None``."""
    if len(source) > MAX_SOURCE_BYTES:
        return Problem(1, 1, f"{len(source):,} characters", f"expected at most {MAX_SOURCE_BYTES:,}")
    for number, line in enumerate(source.split("\n"), start=1):
        for column, character in enumerate(line, start=1):
            if character not in _PRINTABLE:
                return Problem(number, column, *_odd_character(character))
    return _Scan(source).problem()


def _odd_character(character: str) -> tuple[str, str]:
    if character == "\t":
        return "a tab", "indent with spaces"
    if character == "\r":
        return "a carriage return", "end lines with a line feed alone"
    return f"character U+{ord(character):04X}", "programs are ASCII text; write it as an escape inside a string"


def count_tokens(source: str) -> int:
    """Number of tokens of a text, without comments. It measures how much there is to compile."""
    return sum(not found[0].startswith("#") for found in _TOKEN.finditer(source))


class _Scan:
    """One pass over a program's text that finds its first part that is too deep, too long or not allowed."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._position = 0
        self._line, self._line_start = 1, 0
        self._logical_start = (1, 1)
        self._logical_length = 0
        self._brackets = 0
        self._indents = [0]
        self._elifs = [0]
        """For each open block, the number of ``elif`` so far of the last ``if`` in it."""

    def problem(self) -> Problem | None:
        """Scan the text. Returns its first problem, or ``None``."""
        begins_line = True
        while self._position < len(self._source):
            if begins_line and not self._brackets and (deep := self._indentation()) is not None:
                return deep
            begins_line = self._source.startswith("\n", self._position)
            if begins_line:
                self._end_line()
                continue
            wrong = self._token(self._source[self._position : self._position + 1])
            if wrong is not None:
                return wrong
            if self._logical_length > MAX_LOGICAL_LINE:
                what = f"a statement of more than {MAX_LOGICAL_LINE} characters"
                return Problem(*self._logical_start, what, "split it into several")
        return None

    def _token(self, character: str) -> Problem | None:
        """Skip a comment, a string, a bracket, or the text up to the next of these. Returns a problem if it has one."""
        if character == "#":
            self._skip_to_line_end()
        elif character in ("'", '"'):
            if self._prefix() in _FORMATTED:
                return self._here("a formatted string", "join texts with + and str()")
            return self._skip_string(character)
        elif character == "\\":
            return self._here("a backslash outside a string", "put what goes on in the next line into brackets")
        elif character in _OPENING or character in _CLOSING:
            self._brackets = max(0, self._brackets + (1 if character in _OPENING else -1))
            if self._brackets > MAX_BRACKETS:
                return self._here(f"more than {MAX_BRACKETS} brackets open at once", "name a part of the expression")
            self._advance(1)
        elif ordinary := _ORDINARY.match(self._source, self._position):  # none if the text ends in blanks
            self._advance(ordinary.end() - self._position)
        return None

    def _here(self, what: str, remedy: str) -> Problem:
        return Problem(self._line, self._position - self._line_start + 1, what, remedy)

    def _advance(self, count: int) -> None:
        self._position += count
        self._logical_length += count

    def _end_line(self) -> None:
        self._position += 1
        self._line += 1
        self._line_start = self._position
        if not self._brackets:
            self._logical_start, self._logical_length = (self._line, 1), 0

    def _skip_to_line_end(self) -> None:
        end = self._source.find("\n", self._position)
        self._position = len(self._source) if end < 0 else end

    def _prefix(self) -> str:
        """The letters right before a quote."""
        start = self._position
        while start > self._line_start and self._source[start - 1].isalpha():
            start -= 1
        return self._source[start : self._position].lower()

    def _skip_string(self, quote: str) -> Problem | None:
        """Skip a string literal, up to the quote that ends it. An unterminated one is left to the parser to refuse.

        Returns a problem for a character given by its name, because the names depend on Python's version.
        """
        source, start = self._source, self._position
        knows_names = self._prefix() not in _WITHOUT_NAMES
        closing = quote * 3 if source.startswith(quote * 3, start) else quote
        position = start + len(closing)
        while position < len(source) and not source.startswith(closing, position):
            if source[position] == "\\":
                position += 1
                if knows_names and source.startswith("N", position):
                    self._position = position - 1
                    return self._here("a character by its name", "write its number, as \\u0000")
            elif source[position] == "\n" and len(closing) == 1:
                break
            if source[position : position + 1] == "\n":
                self._line += 1
                self._line_start = position + 1
            position += 1
        else:
            position += len(closing)
        self._advance(min(position, len(source)) - start)
        return None

    def _indentation(self) -> Problem | None:
        """Update the open blocks at the beginning of a logical line. Returns a problem if they are nested too deeply,
        or have too many ``elif`` in a row. Blank lines and comments are ignored."""
        start = self._position
        while self._position < len(self._source) and self._source[self._position] == " ":
            self._position += 1
        width = self._position - start
        if self._position >= len(self._source) or self._source[self._position] in "\n#":
            return None
        while self._indents[-1] > width:
            self._indents.pop()
            self._elifs.pop()
        if width > self._indents[-1]:
            self._indents.append(width)
            self._elifs.append(0)
            if len(self._indents) - 1 > MAX_INDENT:
                return self._here(f"more than {MAX_INDENT} blocks inside each other", "move a part into a method")
        is_elif = self._source.startswith("elif", self._position)
        self._elifs[-1] = self._elifs[-1] + 1 if is_elif else 0
        if self._elifs[-1] > MAX_ELIFS:
            return self._here(f"more than {MAX_ELIFS} elif in a row", "look the case up in a dict, or split the chain")
        return None
