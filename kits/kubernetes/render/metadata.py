"""Names and labels of rendered objects."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any, Final

from kits.kubernetes.names import (
    COMPONENT_LABEL,
    MANAGED_BY_LABEL,
    PART_OF_LABEL,
    STAMPEDE,
    VERSION_LABEL,
    instance_labels,
)
from kits.kubernetes.render.deployment import Deployment

Manifest = dict[str, Any]

_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9_.-]")


def common_labels() -> dict[str, str]:
    """The labels that all objects made by Stampede have."""
    return {
        PART_OF_LABEL: STAMPEDE,
        VERSION_LABEL: _NO_LABEL.sub("-", version(STAMPEDE)),
        MANAGED_BY_LABEL: STAMPEDE,
    }


def labels_of(deployment: Deployment, component: str | None = None) -> dict[str, str]:
    """The labels of a deployment's object or, with ``component``, of that component's pods."""
    of_component = {} if component is None else {COMPONENT_LABEL: component}
    return {**instance_labels(deployment.name), **of_component, **common_labels()}


def make(
    api: str, kind: str, name: str, deployment: Deployment, *, is_namespaced: bool = True, **content: Any
) -> Manifest:
    """The manifest of an object of a deployment, with its metadata; ``content`` are its other fields."""
    metadata: dict[str, Any] = {"name": name}
    if is_namespaced and deployment.namespace is not None:
        metadata["namespace"] = deployment.namespace
    return {"apiVersion": api, "kind": kind, "metadata": {**metadata, "labels": labels_of(deployment)}, **content}
