"""The example actors in ``actors/``: programs of the chain, not modules of this project, so they are read as texts."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[2] / "actors"

NAMES: Final = tuple(sorted(path.stem for path in FOLDER.glob("*.py")))
"""The programs that ship, by the names of their files."""


def source_of(name: str) -> str:
    """A program's text. Raises :class:`KeyError` for a name that is none of :data:`NAMES`."""
    if name not in NAMES:
        raise KeyError(name)
    return (FOLDER / f"{name}.py").read_text(encoding="ascii")
