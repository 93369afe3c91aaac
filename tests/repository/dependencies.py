"""The dependencies that ``pyproject.toml`` declares."""

from __future__ import annotations

import tomllib

from packaging.requirements import Requirement

from tests.repository.sources import text_files


def declared(group: str | None = None) -> list[Requirement]:
    """The requirements in ``pyproject.toml``: the project's and its kits', or a group's with those that it includes."""
    project = tomllib.loads(text_files()["pyproject.toml"])
    if group is None:
        kits = project["project"]["optional-dependencies"].values()
        return [Requirement(line) for lines in (project["project"]["dependencies"], *kits) for line in lines]
    entries = project["dependency-groups"][group]
    included = [each for entry in entries if isinstance(entry, dict) for each in declared(entry["include-group"])]
    return [*included, *(Requirement(entry) for entry in entries if isinstance(entry, str))]
