"""The code of Stampede on the nodes of a cluster: compares it and its environment with this process, and ships it.

A survey is the first code of Stampede that runs on a node. It is pickled by value and needs only Python, so that it
also answers on a node without a checkout. Compiled code (``__pycache__``, Numba's caches) is neither compared nor
shipped: it depends on the machine and on the times of the source files.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from cluster.common.checkout import ROOT
from cluster.common.wording import first_few

FOLDERS: Final = ("actors", "cluster", "consensus", "kits", "loadgen", "scenarios", "spec", "validator")
"""Folders that are compared and shipped."""
SUFFIXES: Final = (".css", ".html", ".j2", ".js", ".json", ".py", ".pyi", ".yaml")
"""Suffixes of the compared and shipped files; other files are compiled, or the user's own."""
PACKAGES: Final = (
    "blake3",
    "hypothesis",
    "jinja2",
    "llvmlite",
    "locust",
    "msgpack",
    "msgspec",
    "networkx",
    "numba",
    "numpy",
    "psutil",
    "pycryptodome",
    "pydantic",
    "pynacl",
    "pyyaml",
    "ray",
    "urllib3",
    "uvloop",
)
"""Distributions whose versions must be the same everywhere."""
PYTHON: Final = "Python"
SHOWN: Final = 3
"""Maximum number of differences in a line."""
OLDEST: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file of an archive, so that equal code makes equal archives."""

Survey = tuple[dict[str, str | None], str | None]
"""Versions of Python and packages (``None`` if not installed), and the digest of the code (``None`` without code)."""


class Differences(NamedTuple):
    """How a node differs from this process."""

    versions: str
    """Different versions of Python and packages, in one line; empty if they are the same."""
    has_code: bool
    """Whether the node has the same code as this process."""


def surveyor() -> Callable[[], Survey]:
    """A function that surveys the process in which it is called. It is pickled by value."""
    folders, suffixes, packages, python = FOLDERS, SUFFIXES, PACKAGES, PYTHON

    def survey() -> Survey:
        import hashlib
        import importlib.util
        import platform
        from importlib import metadata
        from pathlib import Path

        versions: dict[str, str | None] = {python: platform.python_version()}
        for package in packages:
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                versions[package] = None
        found = importlib.util.find_spec("cluster")
        places = list(found.submodule_search_locations or ()) if found is not None else []
        if not places:
            return versions, None
        root, digest = Path(places[0]).parent, hashlib.sha256()
        for folder in folders:
            files = [path for path in (root / folder).rglob("*") if path.suffix in suffixes and path.is_file()]
            for name, path in sorted((path.relative_to(root).as_posix(), path) for path in files):
                content = path.read_bytes()
                digest.update(f"{len(name)} {name} {len(content)} ".encode() + content)
        return versions, digest.hexdigest()

    return survey


def compare(here: Survey, there: Survey) -> Differences:
    """How a node's survey differs from that of this process."""
    mine, theirs = here[0], there[0]
    differing = [
        f"{name} is {theirs.get(name) or 'missing'} there and {mine[name] or 'missing'} here"
        for name in mine
        if mine[name] != theirs.get(name)
    ]
    return Differences(first_few(differing, SHOWN), here[1] == there[1])


def code_files(root: Path = ROOT) -> Iterator[Path]:
    """The files of the code, in order."""
    for folder in FOLDERS:
        yield from sorted(path for path in (root / folder).rglob("*") if path.suffix in SUFFIXES and path.is_file())


def write_archive(target: Path, root: Path = ROOT) -> None:
    """Write the code as a zip file, the same bytes for the same code. Raises :class:`OSError`."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in code_files(root):
            archive.writestr(zipfile.ZipInfo(path.relative_to(root).as_posix(), OLDEST), path.read_bytes())
