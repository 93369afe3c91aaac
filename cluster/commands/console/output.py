"""Standard output: consoles for tables, and a file wrapper for output that may end before the command does."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Container, Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLAIN_WIDTH: Final = 180
"""Width, in columns, of a table that is written to a file or a pipe."""
COLUMN_GAP: Final = 2
"""Blanks between two columns of a plain table."""
_TRAILING: Final = re.compile(r"[ \t]+(?=\n)")


def console(plain_width: int = PLAIN_WIDTH, quiet: bool = False) -> Console:
    """Standard output for tables: as wide as the terminal, or ``plain_width`` columns without one.

    With ``quiet`` nothing is printed.
    """
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, quiet=quiet, width=None if sys.stdout.isatty() else plain_width)


def print_line(console: Console, text: str) -> None:
    """Print a text unchanged, without markup and line wrapping."""
    console.print(text, soft_wrap=True, markup=False)


def plain_table(headings: Iterable[str], right: Container[str] = (), folded: Container[str] | None = None) -> Table:
    """An empty table without border lines.

    ``right`` holds the headings of right-aligned columns, ``folded`` those of columns whose texts may take several
    lines (default: all).
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in right else "left"
        if folded is None or heading in folded:
            table.add_column(heading, justify=justify, overflow="fold")
        else:
            table.add_column(heading, justify=justify, no_wrap=True)
    return table


def columns_that_fit(rows: Sequence[Sequence[str]], width: int) -> int:
    """The number of columns of a :func:`plain_table` with these rows that a line of ``width`` columns has room for,
    from the left; at least one."""
    from rich.cells import cell_len

    ends = accumulate(COLUMN_GAP + max(map(cell_len, column)) for column in zip(*rows, strict=True))
    return max(1, sum(end - COLUMN_GAP <= width for end in ends))


class LastingOutput:
    """Wrapper of a text file that may take no more text before the command ends.

    From then on output is discarded, and the command continues. If the reader has disappeared, as a closed terminal or
    a pipe to ``head``, that is no error. Anything else is one, such as a full disk: see :attr:`problem`. If the file is
    not a terminal, the spaces that pad tables at the ends of lines are omitted.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._is_plain = not file.isatty()
        self.is_gone = False
        """Whether output is discarded."""
        self.problem: OSError | None = None
        """Why the text could not be written; ``None`` if all was written, or its reader disappeared."""

    def write(self, text: str) -> int:
        try:
            self._file.write(_TRAILING.sub("", text) if self._is_plain else text)
        except OSError as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def _give_up(self, error: OSError) -> None:
        """Discard what is in buffers and all later output."""
        self.is_gone = True
        is_closed = isinstance(error, ConnectionError) or (error.errno == errno.EIO and not self._is_plain)
        self.problem = self.problem or (None if is_closed else error)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._file.fileno())
        os.close(nowhere)
