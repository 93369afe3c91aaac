"""Manifests as YAML: files for ``kubectl apply --kustomize``, or one stream for ``kubectl apply --filename -``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cluster.common.strict_yaml import dump
from kits.kubernetes.render.metadata import Manifest

KUSTOMIZATION_FILE: Final = "kustomization.yaml"
MADE_BY: Final = "# Made by `stampede k8s render`: docs/kubernetes.md says what each object is.\n"


def yaml_text(document: Any) -> str:
    """A document as YAML, in the order of its fields."""
    return dump(document, width=120)


def stream(manifests: Sequence[Manifest]) -> str:
    """All manifests as one stream of documents."""
    return "---\n".join(map(yaml_text, manifests))


def files(manifests: Sequence[Manifest]) -> dict[str, str]:
    """Texts keyed by file name: one for each manifest, and the kustomization that lists them."""
    found = {file_name(each): MADE_BY + yaml_text(each) for each in manifests}
    return {**found, KUSTOMIZATION_FILE: kustomization(resources=list(found))}


def file_name(manifest: Manifest) -> str:
    """The name of the file of a manifest."""
    return f"{manifest['kind'].lower()}-{manifest['metadata']['name']}.yaml"


def kustomization(**fields: Any) -> str:
    """The text of a kustomization file with these fields."""
    return MADE_BY + yaml_text({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", **fields})
