"""The image's bill of materials, as CycloneDX 1.6 in JSON: ``python -m k8s.image.sbom LOCK [--debian FOLDER]``.

It lists the interpreter, the Python packages that this interpreter finds, and the Debian packages whose status files
are in ``FOLDER``. Packages that are not those of the lock are an error: one line each, exit code 1. Equal
installations give equal bytes: the document has no date and no serial number.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final, NamedTuple

PROJECT: Final = "stampede"
NOT_KEPT: Final = frozenset({"pip", "setuptools", "wheel"})
"""They install the others, and are gone from the image then."""
LOCKED: Final = re.compile(r"([\w.-]+)==([^\s;]+)(\s*;)?")
"""A line of a lock: name, version, and a marker if it is not for each platform."""
MAX_LICENSE_NAME: Final = 100
"""Characters. Longer ones are a licence's text."""

Component = dict[str, Any]


class Locked(NamedTuple):
    """What a lock says of a package."""

    versions: list[str]
    """More than one if they are for different platforms."""
    everywhere: bool
    """Whether it is for each platform."""


def canonical(name: str) -> str:
    """A package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(lock: str) -> dict[str, Locked]:
    """The packages of a lock by name."""
    packages: dict[str, Locked] = {}
    for line in filter(None, map(LOCKED.match, lock.splitlines())):
        packages.setdefault(canonical(line[1]), Locked([], line[3] is None)).versions.append(line[2])
    return packages


def differences(found: dict[str, str], wanted: dict[str, Locked]) -> Iterator[str]:
    """One line for each package that is not there, has another version, or is not in the lock."""
    for name, version in sorted(found.items()):
        if name not in wanted:
            yield f"{name}: {version}, and not in the lock"
        elif version not in wanted[name].versions:
            yield f"{name}: {version}, and {' or '.join(wanted[name].versions)} in the lock"
    for name in sorted(wanted.keys() - found.keys() - NOT_KEPT):
        if wanted[name].everywhere:
            yield f"{name}: not installed, and {wanted[name].versions[0]} in the lock"


def python_component(distribution: Distribution) -> Component:
    """A Python package."""
    metadata: Any = distribution.metadata
    name, version = canonical(metadata["Name"]), distribution.version
    return {
        **_named("library", name, version, f"pkg:pypi/{name}@{version}"),
        **_licensed(metadata.get("License-Expression"), _license_name(metadata)),
    }


def debian_component(status: str) -> Component:
    """A package of Debian, from its entry in dpkg's status."""
    fields = HeaderParser().parsestr(status)
    name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
    version_in_url = version.replace("+", "%2B").replace(":", "%3A").replace("~", "%7E")
    return _named("library", name, version, f"pkg:deb/debian/{name}@{version_in_url}?arch={architecture}")


def document(components: Iterable[Component], version: str) -> Component:
    """The whole bill: what it is of, and the components in order."""
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _named("application", PROJECT, version, f"pkg:pypi/{PROJECT}@{version}")},
        "components": sorted(components, key=lambda each: str(each["bom-ref"])),
    }


def _named(kind: str, name: str, version: str, url: str) -> Component:
    return {"type": kind, "bom-ref": url, "name": name, "version": version, "purl": url}


def _licensed(expression: str | None, name: str | None) -> Component:
    if expression:
        return {"licenses": [{"expression": expression}]}
    return {"licenses": [{"license": {"name": name}}]} if name else {}


def _license_name(metadata: Any) -> str | None:
    """The licence in the package's own words: its field, unless it holds the whole text, or its classifiers."""
    stated = (metadata.get("License") or "").strip()
    if stated and "\n" not in stated and len(stated) <= MAX_LICENSE_NAME:
        return str(stated)
    classified = [each for each in metadata.get_all("Classifier") or () if each.startswith("License ::")]
    return "; ".join(each.rpartition(" :: ")[2] for each in classified) or None


def main() -> int:
    """Print the bill of this installation; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m k8s.image.sbom", description="Print the bill of materials.")
    parser.add_argument("lock", type=Path, help="the lock that was installed")
    parser.add_argument("--debian", type=Path, metavar="FOLDER", help="status files of Debian's packages")
    options = parser.parse_args()
    installed = {canonical(each.metadata["Name"]): each for each in distributions()}
    own = installed.pop(PROJECT)
    found = {name: each.version for name, each in installed.items()}
    if problems := list(differences(found, locked(options.lock.read_text(encoding="utf-8")))):
        print("\n".join(f"sbom: {problem}" for problem in problems), file=sys.stderr)
        return 1
    python = platform.python_version()
    components = [
        {**_named("platform", "python", python, f"pkg:generic/python@{python}"), **_licensed("PSF-2.0", None)}
    ]
    components += map(python_component, installed.values())
    if options.debian is not None:
        components += [debian_component(each.read_text(encoding="utf-8")) for each in options.debian.iterdir()]
    json.dump(document(components, own.version), sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
