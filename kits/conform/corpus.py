"""A corpus: conformance cases with their expected outputs, as files that can be shipped.

A folder has ``manifest.json`` and a folder for each family with a file for each case: ``{"description", "genesis",
"blocks", "expected"}``, as the vectors in ``tests/vectors/t8n`` have them, or ``decode`` in place of genesis and
blocks. The same seeds give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from cluster.common.errors import BadInput
from cluster.common.files import read_json_object, write_atomically
from cluster.common.strict_json import Wrong
from cluster.record.folder import claimed
from kits.conform.case import AnsweredCase, Case, Reference
from kits.conform.cases.family import Family
from kits.conform.source import GeneratedCases, execute_by_spec

FORMAT: Final = 1
"""Version of the corpus's files."""
MANIFEST: Final = "manifest.json"
CASE_FIELDS: Final = (
    frozenset({"description", "genesis", "blocks", "expected"}),
    frozenset({"description", "decode", "expected"}),
)


def case_file(number: int) -> str:
    """Name of a case's file in its family's folder."""
    return f"{number:04d}.json"


def export_corpus(folder: Path, families: list[Family], seeds: range) -> dict[str, Any]:
    """Write a corpus into a new or empty folder; returns its manifest. Raises :class:`BadInput`."""
    with claimed(folder, must_be_empty=True):
        try:
            source = GeneratedCases(tuple(family.name for family in families), seeds)
            listed = [_export_family(folder, family, source) for family in families]
            manifest = {
                "format": FORMAT,
                "stampede": version("stampede"),
                "cases": sum(family["cases"] for family in listed),
                "hash": _hash_of(family["hash"].encode() for family in listed),
                "families": listed,
            }
            write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
        except OSError as error:
            raise BadInput(f"{error.filename or folder}: cannot be written: {error.strerror}") from None
    return manifest


def _export_family(folder: Path, family: Family, source: GeneratedCases) -> dict[str, Any]:
    (folder / family.name).mkdir()
    contents: list[bytes] = []
    reached: set[str] = set()
    for place, seed in enumerate(source.seeds_of(family.name), 1):
        made = source.load(Reference(family.name, seed))
        reached |= made.rules
        case = made.case
        page = {
            "description": case.sentence,
            **case.request,
            "expected": made.answer,
        }
        contents.append(json.dumps(page, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        (folder / family.name / case_file(place)).write_bytes(contents[-1])
    return {
        "name": family.name,
        "about": family.about,
        "rules": sorted(reached),
        "cases": len(contents),
        "hash": _hash_of(contents),
    }


def _hash_of(parts: Any) -> str:
    """The SHA-256 of the parts' SHA-256 hashes, in hex."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()


@dataclass(frozen=True, slots=True)
class CorpusCases:
    """The cases of a corpus in a folder."""

    folder: Path
    families: tuple[tuple[str, int], ...]
    """Names of the families with the number of their cases."""

    @staticmethod
    def open(folder: Path, names: list[str]) -> CorpusCases:
        """Read a corpus's manifest, and check the files of the named families (all if there are none) by their hashes.

        Raises :class:`BadInput`.
        """
        manifest = _read(folder / MANIFEST)
        if manifest.get("format") != FORMAT:
            raise BadInput(f"{folder / MANIFEST}: has format {manifest.get('format')!r}, expected {FORMAT}")
        chosen = [each for each in manifest["families"] if not names or each["name"] in names]
        for each in chosen:
            try:
                files = [(folder / each["name"] / case_file(n)).read_bytes() for n in range(1, each["cases"] + 1)]
            except OSError as error:
                raise BadInput(f"{error.filename}: cannot be read: {error.strerror}") from None
            if _hash_of(files) != each["hash"]:
                raise BadInput(f"{folder / each['name']}: its files have another hash than {MANIFEST} says")
        return CorpusCases(folder, tuple((each["name"], each["cases"]) for each in chosen))

    def references(self) -> Iterator[Reference]:
        return (Reference(name, number) for name, count in self.families for number in range(1, count + 1))

    def count(self) -> int:
        return sum(count for _, count in self.families)

    def load(self, reference: Reference) -> AnsweredCase:
        path = self.folder / reference.family / case_file(reference.number)
        page = _read(path)
        if page.keys() not in CASE_FIELDS:
            raise BadInput(
                f"{path}: expected the fields {' or '.join(', '.join(sorted(each)) for each in CASE_FIELDS)}"
            )
        inputs = page.get("genesis", {}), page.get("blocks", []), page.get("decode", [])
        case = Case(reference.family, reference.number, page["description"], *inputs)
        try:
            _, rules = execute_by_spec(case)
        except Wrong as error:
            raise BadInput(f"{path}: {error}") from None
        return AnsweredCase(case, page["expected"], rules)


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json_object(path)
    except FileNotFoundError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
