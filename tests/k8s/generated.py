"""The manifests below ``k8s/``, made by the renderer: ``python -m tests.k8s.generated`` writes them anew.

An overlay is the difference between two renderings: objects of its own, and a JSON patch (RFC 6902) for each object of
the base that differs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cluster.common.checkout import ROOT
from cluster.scenario.files import load_scenario
from cluster.scenario.overrides import parse_setting
from kits.kubernetes.client.rights import client_role
from kits.kubernetes.render import Deployment, Monitoring
from kits.kubernetes.render.metadata import Manifest
from kits.kubernetes.render.objects import namespace, results_pod
from kits.kubernetes.rendering import rendered
from kits.kubernetes.section import KubernetesSection
from kits.kubernetes.text import (
    KUSTOMIZATION_FILE,
    MADE_BY,
    file_name,
    files,
    kustomization,
    stream,
    yaml_text,
)

FOLDER: Final = ROOT / "k8s"
SCENARIO: Final = Path("smoke")
NAME: Final = "stampede-smoke"
NAMESPACE: Final = "stampede"
ADDED_FILE: Final = "added.yaml"
"""The objects that an overlay adds to the base."""
ROLE_MADE_BY: Final = "# Made by `stampede k8s role`: docs/kubernetes.md says what it is for.\n"
FOLDERS: Final = ("namespace", "base", "monitoring", "overlays", "jobs")
"""Below ``k8s/``; what they hold is made here alone."""
SINGLE_FILES: Final = ("results.yaml", "client-role.yaml")

OVERLAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "laptop": (
        "kubernetes.validators={cpu: 500m, memory: 1536Mi, disk: 1Gi}",
        "kubernetes.driver={cpu: 1, memory: 2Gi, disk: 2Gi}",
        "kubernetes.spread=none",
    ),
    "ci": (
        "kubernetes.pull_policy=Never",
        "kubernetes.validators={cpu: 500m, memory: 1536Mi, disk: 512Mi}",
        "kubernetes.driver={cpu: 1, memory: 2Gi, disk: 1Gi}",
        "kubernetes.spread=none",
        "stop.timeout_s=300",
        "success.stall_ms=60000",
    ),
    "large": (
        "validators={count: 16}",
        "load.processes=4",
        "stop.timeout_s=300",
        "kubernetes.validators={cpu: 2, memory: 4Gi, disk: 20Gi}",
        "kubernetes.driver={cpu: 4, memory: 8Gi, disk: 50Gi}",
        "kubernetes.load={pods: 2, cpu: 2, memory: 2Gi}",
        "kubernetes.spread=required",
    ),
}
"""By overlay, what it sets in the scenario of the base."""

JOBS: Final[Mapping[str, tuple[str, ...]]] = {
    "drill-outage": ("drill", "outage", "how=pod"),
    "drill-reorg": ("drill", "reorg"),
    "drill-join": ("drill", "join"),
    "sweep": ("sweep", "0:1000"),
    "soak": ("soak",),
}
"""By folder, what its job does."""


def variant(settings: tuple[str, ...] = (), space: str | None = None, monitoring: bool = False) -> list[Manifest]:
    """The base's scenario with other settings."""
    changes = [parse_setting(each) for each in settings]
    return rendered(
        SCENARIO, changes=changes, name=NAME, namespace=space, monitoring=Monitoring() if monitoring else None
    )


def generated() -> dict[str, str]:
    """Texts by path below ``k8s/``."""
    base = variant()
    found = {f"namespace/{name}": text for name, text in files([namespace(NAMESPACE)]).items()}
    found |= {f"base/{name}": text for name, text in files(base).items()}
    added = [each for each in variant(monitoring=True) if each not in base]
    found |= {f"monitoring/{name}": text for name, text in files(added).items()}
    for overlay, settings in OVERLAYS.items():
        found |= {f"overlays/{overlay}/{name}": text for name, text in _overlay(base, variant(settings)).items()}
    for job, words in JOBS.items():
        found |= {f"jobs/{job}/{name}": text for name, text in files(rendered(SCENARIO, words, name=job)).items()}
    pod = results_pod(KubernetesSection.of(load_scenario(SCENARIO)), Deployment(NAME))
    role = ROLE_MADE_BY + stream(client_role(None, base))
    return {**found, "results.yaml": MADE_BY + yaml_text(pod), "client-role.yaml": role}


def _overlay(base: list[Manifest], wanted: list[Manifest]) -> dict[str, str]:
    """The files of an overlay that makes another rendering of the base."""
    before = {file_name(each): each for each in base}
    after = {file_name(each): each for each in wanted}
    assert before.keys() <= after.keys(), "an overlay takes nothing away"
    patches: dict[str, str] = {}
    targets = []
    for name, each in before.items():
        if operations := list(difference(each, after[name])):
            text = MADE_BY + yaml_text(operations)
            file = patches.setdefault(text, f"patch-{name}")
            targets.append({"path": file, "target": {"kind": each["kind"], "name": each["metadata"]["name"]}})
    found = {file: text for text, file in patches.items()}
    if added := [each for name, each in after.items() if name not in before]:
        found[ADDED_FILE] = MADE_BY + stream(added)
    resources = ["../../namespace", "../../base", *([ADDED_FILE] if added else [])]
    return {**found, KUSTOMIZATION_FILE: kustomization(namespace=NAMESPACE, resources=resources, patches=targets)}


def difference(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """The operations of a JSON patch that make one document of another."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _change(f"{path}/{_escaped(key)}", key in before, key in after, before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list):
        common = min(len(before), len(after))
        for position in range(common):
            yield from difference(before[position], after[position], f"{path}/{position}")
        for position in reversed(range(common, len(before))):
            yield {"op": "remove", "path": f"{path}/{position}"}
        for each in after[common:]:
            yield {"op": "add", "path": f"{path}/-", "value": each}
    elif before != after:
        yield {"op": "replace", "path": path, "value": after}


def _change(path: str, is_before: bool, is_after: bool, before: Any, after: Any) -> Iterator[dict[str, Any]]:
    if not is_after:
        yield {"op": "remove", "path": path}
    elif not is_before:
        yield {"op": "add", "path": path, "value": after}
    else:
        yield from difference(before, after, path)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def main() -> None:
    """Write all files anew."""
    for folder in FOLDERS:
        shutil.rmtree(FOLDER / folder, ignore_errors=True)
    for path, text in generated().items():
        target = FOLDER / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
