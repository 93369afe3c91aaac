"""The program of an actor, as named in a scenario: a shipped one, the script actor, or a custom one.

A scenario file names a custom program by its path. The reader of the file replaces the path by the program's text, so
that the scenario then needs no other file, in the run's folder or on another host.

Shipped programs are programs of the chain, not modules of this project, so they are read as text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, model_validator

from loadgen.workloads.base import Options
from validator.chain.transactions import SCRIPT_CODE

FOLDER: Final = Path(__file__).resolve().parents[2] / "actors"
PROGRAM_SUFFIX: Final = ".py"
NAMES: Final = tuple(sorted(path.stem for path in FOLDER.glob(f"*{PROGRAM_SUFFIX}")))
"""Names of the shipped programs, which are those of their files without the suffix."""


def source_of(name: str) -> str:
    """The text of a shipped program. Raises :class:`KeyError` unless the name is one of :data:`NAMES`."""
    if name not in NAMES:
        raise KeyError(name)
    return (FOLDER / f"{name}{PROGRAM_SUFFIX}").read_text(encoding="ascii")


def is_program_path(text: str) -> bool:
    """Whether a program's name is the path of a file."""
    return "/" in text or text.endswith(PROGRAM_SUFFIX)


class ActorProgram(Options):
    """A program: the name of a shipped one, ``builtin:script``, or the path of a custom one; in full, name and text."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    """Name: that of a shipped program, ``builtin:script``, or any name if there is a text."""
    source: Annotated[str, Field(min_length=1)] | None = None
    """The program's text, unless it is a shipped one."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _is_known(self) -> ActorProgram:
        if self.source is None and self.name != SCRIPT_CODE and self.name not in NAMES:
            if is_program_path(self.name):
                raise ValueError(f"{self.name!r} is a path, which only a scenario that is read from a file may have")
            raise ValueError(
                f"unknown program {self.name!r}; known: {', '.join(NAMES) or 'none, for those that ship are missing'};"
                f" your own is a path, such as ./{self.name}{PROGRAM_SUFFIX}"
            )
        return self

    @property
    def is_script(self) -> bool:
        """Whether the program is the script actor, not a Python program."""
        return self.source is None and self.name == SCRIPT_CODE

    @property
    def code(self) -> str:
        """The code of an actor with this program: the program's text, or ``builtin:script``."""
        if self.source is not None:
            return self.source
        return SCRIPT_CODE if self.is_script else source_of(self.name)
