"""What a table is: its columns, each with type, unit and words. Files, schema and documentation are made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from cluster.common.wording import printable
from validator.primitives.types import address_text

FORMAT: Final = "stampede-tables/1"
ADDRESS_BYTES: Final = 20


class Type(StrEnum):
    """The type of a column. The text is that of the schema."""

    TEXT = "text"
    INTEGER = "integer"
    """64 bits, signed, so that differences may be negative."""
    AMOUNT = "amount"
    """A whole number of up to 38 digits."""
    NUMBER = "number"
    """A float of 64 bits."""
    TRUTH = "boolean"


MOST: Final = {Type.INTEGER: 2**63 - 1, Type.AMOUNT: 10**38 - 1}
"""The greatest value of a type. A greater one, such as an allowance that means *without a limit*, is written as it."""


class Column(NamedTuple):
    """A column of a table. Any column may have nulls."""

    name: str
    type: Type
    unit: str
    """Empty for what has no unit."""
    words: str

    def plain(self, value: Any) -> Any:
        """A value as it is written: an amount in bytes as a number, an address or other bytes as hex."""
        if isinstance(value, bytes) and self.type is Type.AMOUNT:
            value = int.from_bytes(value)
        match value:
            case bytes():
                return (address_text(value) if len(value) == ADDRESS_BYTES else value.hex()) or None
            case tuple():
                return ", ".join(value) or None
            case int() if self.type in MOST:
                return min(value, MOST[self.type])
            case str():
                return printable(value) or None  # a line is a row
        return value


class Table(NamedTuple):
    """A table. Its name is that of its files."""

    name: str
    words: str
    columns: tuple[Column, ...]

    @property
    def page(self) -> dict[str, Any]:
        """The table as it is in ``schema.json``."""
        columns = [{**column._asdict(), "type": column.type.value} for column in self.columns]
        return {"name": self.name, "words": self.words, "columns": columns}

    def row(self, *things: object, **values: Any) -> Row:
        """A row of values, and of what things have in attributes of the columns' names."""
        found = {
            column.name: getattr(thing, column.name)
            for column in self.columns
            for thing in things
            if hasattr(thing, column.name)
        }
        return self, found | values


Row: TypeAlias = tuple[Table, Mapping[str, Any]]
"""A row of a table: the values by column, of which those that are left out are null."""


class Source(NamedTuple):
    """The tables of a kind of folder. A package offers one in the entry point group ``stampede.tables``."""

    title: str
    """The kind of folder, such as ``a lab``."""
    files: tuple[str, ...]
    """Files of which each folder of the kind has one."""
    tables: tuple[Table, ...]
    rows: Callable[[Path], Iterable[Row]]
    """The rows of a folder's tables, in the order of each table. Raises :class:`~cluster.common.errors.BadInput`."""


def text(name: str, words: str) -> Column:
    return Column(name, Type.TEXT, "", words)


def integer(name: str, unit: str, words: str) -> Column:
    return Column(name, Type.INTEGER, unit, words)


def amount(name: str, words: str, per: str = "") -> Column:
    """A column of amounts in the smallest unit, or of prices ``per`` cycle or cell."""
    return Column(name, Type.AMOUNT, "smallest CBY unit" + (per and f" per {per}"), words)


def number(name: str, unit: str, words: str) -> Column:
    return Column(name, Type.NUMBER, unit, words)


def truth(name: str, words: str) -> Column:
    return Column(name, Type.TRUTH, "", words)
