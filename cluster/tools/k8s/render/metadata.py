"""Names and labels of rendered objects."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any, Final

from cluster.live.kubernetes.names import (
    COMPONENT_LABEL,
    MANAGED_BY_LABEL,
    PART_OF_LABEL,
    STAMPEDE,
    VERSION_LABEL,
    instance_labels,
)
from cluster.tools.k8s.render.deployment import Deployment

Manifest = dict[str, Any]

_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9_.-]")


def common_labels() -> dict[str, str]:
    """The labels of everything that Stampede makes."""
    return {
        PART_OF_LABEL: STAMPEDE,
        VERSION_LABEL: _NO_LABEL.sub("-", version(STAMPEDE)),
        MANAGED_BY_LABEL: STAMPEDE,
    }


def labels_of(deployment: Deployment, component: str | None = None) -> dict[str, str]:
    """The labels of an object, or of a component's pod."""
    of_component = {} if component is None else {COMPONENT_LABEL: component}
    return {**instance_labels(deployment.name), **of_component, **common_labels()}


def make(
    api: str, kind: str, name: str, deployment: Deployment, *, is_namespaced: bool = True, **content: Any
) -> Manifest:
    """An object of a deployment."""
    metadata: dict[str, Any] = {"name": name}
    if is_namespaced and deployment.namespace is not None:
        metadata["namespace"] = deployment.namespace
    return {"apiVersion": api, "kind": kind, "metadata": {**metadata, "labels": labels_of(deployment)}, **content}
