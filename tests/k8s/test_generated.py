"""The manifests below ``k8s/`` are what the renderer makes, and overlays make what it makes with their settings."""

from __future__ import annotations

import copy
import os
import re
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from kits.kubernetes.render.metadata import Manifest
from kits.kubernetes.text import KUSTOMIZATION_FILE, yaml_text
from tests.k8s.generated import FOLDER, FOLDERS, JOBS, NAMESPACE, OVERLAYS, SINGLE_FILES, difference, generated, variant
from tests.tools import KUBECTL, needs

COMMAND = "python -m tests.k8s.generated"


def committed() -> dict[str, str]:
    """Texts by path below ``k8s/``."""
    files = [path for folder in FOLDERS for path in (FOLDER / folder).rglob("*") if path.is_file()]
    return {
        path.relative_to(FOLDER).as_posix(): path.read_text()
        for path in [*files, *(FOLDER / name for name in SINGLE_FILES)]
    }


def test_the_files_are_what_the_renderer_makes() -> None:
    found, expected = committed(), generated()
    assert found.keys() == expected.keys(), COMMAND
    assert [path for path in found if found[path] != expected[path]] == [], COMMAND


def by_name(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    found = {(each["kind"], each["metadata"]["name"]): each for each in manifests}
    assert len(found) == len(manifests)
    return found


def documents_of(folder: str) -> list[Manifest]:
    """The manifests that a kustomization names, read by hand: resources, then its patches."""
    place = FOLDER / folder
    page = yaml.safe_load((place / KUSTOMIZATION_FILE).read_text())
    assert page.keys() <= {"apiVersion", "kind", "namespace", "resources", "patches"}
    found: list[Manifest] = []
    for resource in page["resources"]:
        if (place / resource).is_dir():
            found += documents_of((place / resource).resolve().relative_to(FOLDER).as_posix())
        else:
            found += yaml.safe_load_all((place / resource).read_text())
    named = by_name(found)
    for patch in page.get("patches", []):
        target = patch["target"]["kind"], patch["target"]["name"]
        for operation in yaml.safe_load((place / patch["path"]).read_text()):
            patched(named[target], operation)
    if "namespace" in page:
        for each in found:
            if each["kind"] != "Namespace":
                each["metadata"]["namespace"] = page["namespace"]
    return found


def patched(document: Any, operation: dict[str, Any]) -> None:
    """Apply one operation of a JSON patch."""
    *parents, last = (step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:])
    place = document
    for step in parents:
        place = place[int(step)] if isinstance(place, list) else place[step]
    if isinstance(place, list) and operation["op"] == "add":
        assert last == "-"
        place.append(operation["value"])
        return
    key = int(last) if isinstance(place, list) else last
    if operation["op"] == "remove":
        del place[key]
    else:
        place[key] = operation["value"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_makes_what_the_renderer_makes(overlay: str) -> None:
    expected = variant(OVERLAYS[overlay], NAMESPACE)
    assert by_name(documents_of(f"overlays/{overlay}")) == by_name(expected)


@pytest.mark.slow
@needs(KUBECTL)
@pytest.mark.parametrize(
    "folder",
    ["namespace", "base", "monitoring", *(f"overlays/{each}" for each in OVERLAYS), *(f"jobs/{j}" for j in JOBS)],
)
def test_kustomize_reads_them_so_too(folder: str) -> None:
    command = [str(KUBECTL), "kustomize", str(FOLDER / folder)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert by_name(list(yaml.safe_load_all(text))) == by_name(documents_of(folder))


@needs(KUBECTL)
def test_an_overlay_of_ones_own_names_another_image(tmp_path: Path) -> None:
    image = {"name": "stampede", "newName": "registry.example/stampede", "newTag": "7"}
    base = os.path.relpath(FOLDER / "overlays" / "laptop", tmp_path.resolve())
    (tmp_path / KUSTOMIZATION_FILE).write_text(yaml_text({"resources": [base], "images": [image]}))
    command = [str(KUBECTL), "kustomize", str(tmp_path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert set(re.findall(r"image: (\S+)", text)) == {"registry.example/stampede:7"}


def test_a_dry_run_of_base_and_jobs_needs_no_namespace() -> None:
    """They go to the namespace of the command: a server knows that one, or says so for all objects alike."""
    for folder in ("base", "monitoring", *(f"jobs/{job}" for job in JOBS)):
        for each in documents_of(folder):
            assert each["kind"] != "Namespace", folder
            assert "namespace" not in each["metadata"], folder


def test_every_file_is_named_by_the_kustomization_beside_it() -> None:
    for path in committed():
        place = PurePosixPath(path)
        if place.name not in (KUSTOMIZATION_FILE, *SINGLE_FILES):
            page = yaml.safe_load((FOLDER / place.parent / KUSTOMIZATION_FILE).read_text())
            named = [*page["resources"], *(patch["path"] for patch in page.get("patches", []))]
            assert place.name in named, path


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {}),
        ({}, {"a/b~c": {"d": [1]}}),
        ({"a/b~c": {"d": [1, 2, 3]}}, {"a/b~c": {"d": [1]}}),
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 3}, {"b": 4}]}),
        ({"a": [1]}, {"a": {"b": 1}}),
    ],
)
def test_a_difference_makes_the_one_of_the_other(before: Any, after: Any) -> None:
    document = copy.deepcopy(before)
    operations = list(difference(before, after))
    assert operations
    for each in operations:
        patched(document, each)
    assert document == after
    assert list(difference(after, after)) == []
