"""Objects of Chaos Mesh for faults of a scenario: which faults it can do, and their manifests. Pure.

Chaos Mesh acts on pods. So it can separate two validators only if they are on different hosts, and every validator of
one host is separated from every validator of the other. It acts on packets, under TCP: lost packets are
retransmitted, so that messages are late instead of lost. Its effect on a link adds to what the transport of the
validators emulates, so it adds only the difference of a latency, and replaces nothing else. A fault that would change
its meaning that way is done by the transport.

StressChaos takes processors from a pod with busy threads. The slowdown of the executor's jobs then depends on the pod's
limits, not on the fault's ``job_ms``.

Source: the custom resource definitions of Chaos Mesh, ``chaos-mesh.org/v1alpha1``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from cluster.common.units import MICROSECONDS_PER_MILLISECOND, MILLISECONDS_PER_SECOND
from cluster.faults.link_effects import LinkEffect, LinkFaultInForce
from cluster.scenario.network import Network
from kits.kubernetes.kinds import NETWORK_CHAOS, POD_CHAOS, STRESS_CHAOS, Kind
from kits.kubernetes.names import HOST_LABEL, INSTANCE_LABEL, instance_labels

NETWORK: Final = NETWORK_CHAOS.plural
POD: Final = POD_CHAOS.plural
STRESS: Final = STRESS_CHAOS.plural
FULL_LOAD: Final = 100
"""Percent of a processor that each busy thread tries to use."""
NETEM_FIELDS: Final = frozenset({"latency_ms", "jitter_ms", "loss", "duplication"})
"""Properties of a link that Chaos Mesh can change in the same way as the transport."""
SPARE_S: Final = 60
"""An object that is not deleted ends by itself this long after its fault."""
LONGEST_MS: Final = 3_600_000
"""Maximum duration of a fault without a duration."""
GRACE_S: Final = 1

HostPairs = frozenset[tuple[int, int]]
"""Pairs of sending and receiving host, by number."""


class NotByPods(ValueError):
    """Chaos Mesh cannot do a fault as the scenario means it. The message is one line."""


class Deployment(NamedTuple):
    """The deployment whose pods a fault targets."""

    namespace: str
    instance: str


class ByPods(NamedTuple):
    """A link fault as Chaos Mesh can perform it, between hosts."""

    pairs: HostPairs
    changes: Mapping[str, float]
    """Additional impairments of packets between the hosts, keyed by scenario field; empty if no packet arrives."""


def by_pods(effect: LinkEffect, network: Network, hosts: Sequence[int]) -> ByPods:
    """Convert a fault of links between validators to one between hosts. Raises :class:`NotByPods`.

    ``hosts`` has the host of each validator.
    """
    fault, everybody = LinkFaultInForce(effect), range(len(network.names))
    if not fault.changes_links:
        raise NotByPods("it follows the leader, whoever that is")
    hit = {(one, other) for one in everybody for other in everybody if one != other and fault.hits(one, other)}
    changes = _additions(effect, network, hit)
    pairs = frozenset((hosts[one], hosts[other]) for one, other in hit)
    for one in everybody:
        for other in everybody:
            pair = hosts[one], hosts[other]
            if pair in pairs and one != other and ((one, other) not in hit or pair[0] == pair[1]):
                names = f"{network.names[one]} and {network.names[other]}"
                raise NotByPods(f"pods cannot tell {names} apart from the others of hosts {pair[0]} and {pair[1]}")
    return ByPods(pairs, changes)


def _additions(effect: LinkEffect, network: Network, hit: Collection[tuple[int, int]]) -> dict[str, float]:
    """The impairments that Chaos Mesh must add to those that the transport emulates, to get the values of a fault.

    Raises :class:`NotByPods` if adding cannot do that.
    """
    changes = dict(effect.changes)
    if others := sorted(changes.keys() - NETEM_FIELDS):
        raise NotByPods(f"it cannot change {', '.join(others)} of single messages")
    for name, value in changes.items():
        found = {getattr(quality, name) for pair in hit if (quality := network.quality(*pair)) is not None}
        if name == "latency_ms" and len(found) == 1 and max(found) <= value:
            changes[name] = value - max(found)
        elif any(found):
            raise NotByPods(f"some of the links have an emulated {name} already, which it cannot replace")
    return changes


def network_chaos(name: str, deployment: Deployment, effect: LinkEffect, found: ByPods) -> list[dict[str, Any]]:
    """The NetworkChaos objects of a link fault between hosts. Each is named ``name``, a dash and a number."""
    receivers_of: dict[int, set[int]] = {}
    for sender, receiver in found.pairs:
        receivers_of.setdefault(sender, set()).add(receiver)
    senders_of: dict[tuple[int, ...], list[int]] = {}
    for sender, receivers in sorted(receivers_of.items()):
        senders_of.setdefault(tuple(sorted(receivers)), []).append(sender)
    return [
        _object(
            NETWORK_CHAOS,
            f"{name}-{number}",
            deployment,
            {
                **_effect(found.changes),
                "mode": "all",
                "selector": _selector(deployment, senders),
                "direction": "to",
                "target": {"mode": "all", "selector": _selector(deployment, receivers)},
                "duration": _duration(effect.for_ms),
            },
        )
        for number, (receivers, senders) in enumerate(senders_of.items())
    ]


def pod_chaos(name: str, deployment: Deployment, host: int) -> dict[str, Any]:
    """The PodChaos object that kills the pod of a host."""
    spec = {"action": "pod-kill", "mode": "all", "gracePeriod": GRACE_S, "selector": _selector(deployment, [host])}
    return _object(POD_CHAOS, name, deployment, spec)


def stress_chaos(name: str, deployment: Deployment, host: int, threads: int) -> dict[str, Any]:
    """The StressChaos object that loads the processors of the pod of a host with busy threads."""
    spec = {
        "mode": "all",
        "selector": _selector(deployment, [host]),
        "stressors": {"cpu": {"workers": threads, "load": FULL_LOAD}},
        "duration": _duration(None),
    }
    return _object(STRESS_CHAOS, name, deployment, spec)


def _effect(changes: Mapping[str, float]) -> dict[str, Any]:
    if not changes:
        return {"action": "partition"}
    effect: dict[str, Any] = {"action": "netem"}
    if not changes.keys().isdisjoint(("latency_ms", "jitter_ms")):
        delays = {"latency": changes.get("latency_ms", 0), "jitter": changes.get("jitter_ms", 0)}
        effect["delay"] = {name: _microseconds(value_ms) for name, value_ms in delays.items()}
    if "loss" in changes:
        effect["loss"] = {"loss": _percent(changes["loss"])}
    if "duplication" in changes:
        effect["duplicate"] = {"duplicate": _percent(changes["duplication"])}
    return effect


def _microseconds(value_ms: float) -> str:
    return f"{round(value_ms * MICROSECONDS_PER_MILLISECOND)}us"


def _percent(share: float) -> str:
    return f"{share * 100:g}"


def _duration(for_ms: int | None) -> str:
    return f"{-(-(LONGEST_MS if for_ms is None else for_ms) // MILLISECONDS_PER_SECOND) + SPARE_S}s"


def _selector(deployment: Deployment, hosts: Collection[int]) -> dict[str, Any]:
    return {
        "namespaces": [deployment.namespace],
        "labelSelectors": {INSTANCE_LABEL: deployment.instance},
        "expressionSelectors": [
            {"key": HOST_LABEL, "operator": "In", "values": [str(number) for number in sorted(hosts)]}
        ],
    }


def _object(kind: Kind, name: str, deployment: Deployment, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": kind.api,
        "kind": kind.name,
        "metadata": {
            "name": name,
            "namespace": deployment.namespace,
            "labels": instance_labels(deployment.instance),
        },
        "spec": dict(spec),
    }
