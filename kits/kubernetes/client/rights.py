"""What each command of ``stampede k8s`` asks of a cluster's API. From this table come the least role of a user, and
what a command makes sure of before it makes anything.

A namespace that is missing and nodes that a fault has cordoned need more, which no role of a namespace can give.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kits.kubernetes.kinds import (
    CLAIM,
    CLUSTER_ROLE,
    CONFIG_MAP,
    CRON_JOB,
    DELETED,
    EVENT,
    NAMESPACE,
    NODE,
    POD,
    RAY_JOB,
    Kind,
    kind_of,
)

ROLE_NAME: Final = "stampede-client"
ROLES_API: Final = "rbac.authorization.k8s.io/v1"
MAKING: Final = ("run", "up")
DELETING: Final = (*MAKING, "delete")

EXEC: Final = (POD, "exec", "get create")
"""A command in a pod. A websocket is asked for with *get*; from Kubernetes 1.35 on it needs *create*, too."""
LOG: Final = (POD, "log", "get")
_FOLLOWS: Final = (
    (RAY_JOB, "", "get list watch"),
    (POD, "", "get list watch"),
    (EVENT, "", "list watch"),
    (CLAIM, "", "get"),
    LOG,
    EXEC,
)
_LOOKS: Final = (*((kind, "", "list") for kind in (RAY_JOB, CRON_JOB, CLAIM, POD)), LOG)
BESIDES: Final[Mapping[str, Sequence[tuple[Kind, str, str]]]] = {
    "run": (*_FOLLOWS, (POD, "", "create")),
    "up": _FOLLOWS,
    "list": _LOOKS,
    "status": _LOOKS,
    "logs": ((RAY_JOB, "", "get"), (CONFIG_MAP, "", "get"), (POD, "", "get list"), LOG),
    "report": (
        *((kind, "", "get") for kind in (RAY_JOB, CONFIG_MAP, CLAIM)),
        (CRON_JOB, "", "list"),
        (POD, "", "get create delete"),
        EXEC,
    ),
    "inject": ((POD, "", "list"), EXEC),
    "delete": (),
}
"""Kind, part and verbs of what a command does besides the making and deleting of a deployment's objects."""


class Right(NamedTuple):
    """A verb, and the resource for which it is allowed."""

    verb: str
    group: str
    resource: str
    """The plural of a kind, with its part: ``pods/exec``."""
    is_namespaced: bool = True

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {name}{'' if self.is_namespaced else ' in the whole cluster'}"


def rights_of(command: str, manifests: Sequence[dict[str, Any]] = ()) -> list[Right]:
    """The rights that a command needs, for a deployment with these manifests. What a cluster may lack is asked for only
    if they have it. Roles can be made only by a user who has all that they give."""
    made = [kind for kind in dict.fromkeys(map(kind_of, manifests)) if kind != NAMESPACE]
    basic = [kind for kind in DELETED if not kind.is_optional]
    found = list(_each(BESIDES[command]))
    if command in DELETING:
        found += _each((kind, "", "list delete") for kind in dict.fromkeys((*basic, *made)))
        found += _each([(NODE, "", "list patch")] if CLUSTER_ROLE in made else [])
    if command in MAKING:
        found += _each((kind, "", "create") for kind in made)
        found += (right for manifest in manifests for right in _given_by(manifest))
    return list(dict.fromkeys(found))


def missing_namespace() -> list[Right]:
    """The rights to make a namespace, and to delete it again."""
    return list(_each([(NAMESPACE, "", "create delete")]))


def client_role(namespace: str | None, manifests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The role with the rights for all commands, for deployments with these manifests; and a ClusterRole, if they have
    objects without a namespace."""
    found = dict.fromkeys(right for command in BESIDES for right in rights_of(command, manifests))
    place = {} if namespace is None else {"namespace": namespace}
    roles = [("Role", place, [right for right in found if right.is_namespaced])]
    roles.append(("ClusterRole", {}, [right for right in found if not right.is_namespaced]))
    return [
        {"apiVersion": ROLES_API, "kind": kind, "metadata": {"name": ROLE_NAME, **where}, "rules": list(_rules(rights))}
        for kind, where, rights in roles
        if rights
    ]


def _each(table: Iterable[tuple[Kind, str, str]]) -> Iterator[Right]:
    for kind, part, verbs in table:
        resource = f"{kind.plural}/{part}" if part else kind.plural
        yield from (Right(verb, kind.group, resource, kind.is_namespaced) for verb in verbs.split())


def _given_by(manifest: dict[str, Any]) -> Iterator[Right]:
    """The rights that a role gives."""
    for rule in manifest.get("rules", ()):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from (Right(verb, group, resource, manifest["kind"] == "Role") for verb in rule["verbs"])


def _rules(rights: Iterable[Right]) -> Iterator[dict[str, Any]]:
    """A rule for each group and list of verbs."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.resource), []).append(right.verb)
    resources: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), each in verbs.items():
        resources.setdefault((group, tuple(sorted(each))), []).append(resource)
    for (group, allowed), names in resources.items():
        yield {"apiGroups": [group], "resources": names, "verbs": list(allowed)}
