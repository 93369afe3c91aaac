"""Modules of the user's that would be taken for ours, in processes that look into the working directory first."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cluster.common.checkout import ROOT
from cluster.common.errors import BadInput

OWN_PACKAGES: Final = ("cluster", "consensus", "loadgen", "validator")


def check_working_directory(folder: Path) -> None:
    """Ray's workers and Locust import from the working directory first.

    Raises :class:`BadInput` where something there has the name of a package of ours.
    """
    if folder.resolve() == ROOT:
        return
    for name in OWN_PACKAGES:
        for path in (folder / f"{name}.py", folder / name / "__init__.py"):
            if path.exists() and not path.resolve().is_relative_to(ROOT / name):
                raise BadInput(
                    f"{path}: would be taken for Stampede's own {name} by the processes of a live testnet:"
                    " run from another folder"
                )
