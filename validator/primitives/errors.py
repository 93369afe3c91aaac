"""Exceptions for failures of a handler's run (SPEC §2, §4). Receipts show their names.

A :class:`Rejection` is a refused host call, which the program may catch; every other :class:`HandlerFailure` ends the
handler. Neither is a bug of the validator: bugs raise other types and stop it.
"""

from __future__ import annotations


class HandlerFailure(Exception):
    """A handler's run failed and all its effects are reverted. ``name`` is the error that the receipt shows.

    ``why`` is for the program's author, and may depend on the version of Python. It is in no receipt.
    """

    def __init__(self, name: str, why: str = "") -> None:
        super().__init__(name)
        self.name = name
        self.why = why


class Rejection(HandlerFailure):
    """A host call was refused. ``name`` is an error of SPEC §4, such as ``InsufficientBalance`` or ``NotFound``."""


class OutOfCycles(HandlerFailure):
    def __init__(self) -> None:
        super().__init__("OutOfCycles")


class OutOfCells(HandlerFailure):
    def __init__(self) -> None:
        super().__init__("OutOfCells")


class BadScript(HandlerFailure):
    """The payload is not a list of operations (SPEC §2, ``builtin:script``)."""

    def __init__(self) -> None:
        super().__init__("BadScript")


class ScriptFailed(HandlerFailure):
    """The script executed its ``fail`` operation."""

    def __init__(self) -> None:
        super().__init__("ScriptFailed")
