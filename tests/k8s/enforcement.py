"""Network policies as rules of nftables for a bridge, where nothing else enforces them.

A rule is about the packet that opens a TCP connection, and about each UDP datagram that is not an answer of DNS. What
goes from pod to pod of one node is concerned, and not what goes to the address of a Service. Policies are those that
Stampede renders: selectors by ``matchLabels``, peers without blocks of addresses, ports by number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

TABLE: Final = "bridge stampede_policies"
OPENS: Final = {"TCP": "tcp flags & (syn | ack) == syn", "UDP": "udp sport != 53"}
WAYS: Final = {"Ingress": ("ingress", "from", "daddr", "saddr"), "Egress": ("egress", "to", "saddr", "daddr")}
"""By policy type: field, field of the peers, side of the pods that are selected, side of the peers."""

Object = dict[str, Any]


def rules(namespace: str, policies: Sequence[Object], pods: Sequence[Object], namespaces: Sequence[Object]) -> str:
    """The file for ``nft`` that makes the policies of a namespace hold for the pods that have addresses now."""
    spaces = {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in namespaces}
    placed = [each for each in pods if each.get("status", {}).get("podIP")]
    lines = [f"table {TABLE} {{", "  chain forward {", "    type filter hook forward priority 0; policy accept;"]
    jumps: list[str] = []
    chains: list[str] = []
    for pod in placed:
        if pod["metadata"]["namespace"] != namespace:
            continue
        for way in WAYS:
            chosen = [each for each in policies if way in each["spec"]["policyTypes"] and _selects(each, pod)]
            if not chosen:
                continue
            address, chain = pod["status"]["podIP"], f"{way.lower()}_{len(chains)}"
            jumps.append(f"    ip {WAYS[way][2]} {address} jump {chain}")
            accepted = [line for each in chosen for line in _accepted(each, way, placed, spaces)]
            refused = [f"    ip protocol {protocol.lower()} {opens} drop" for protocol, opens in OPENS.items()]
            chains += [f"  chain {chain} {{", *accepted, *refused, "  }"]
    return "\n".join([*lines, *jumps, "  }", *chains, "}", ""])


def _accepted(policy: Object, way: str, pods: Sequence[Object], spaces: dict[str, Object]) -> Iterator[str]:
    """What a policy lets pass in one way."""
    field, peers_field, _, side = WAYS[way]
    for rule in policy["spec"].get(field) or ():
        ports = [f" {port.get('protocol', 'TCP').lower()} dport {port['port']}" for port in rule.get("ports") or ()]
        peers = rule.get(peers_field)
        sources = (
            [f"ip {side} {address}" for address in _addresses(policy, peers, pods, spaces)]
            if peers
            else ["ip version 4"]
        )
        for source in sources:
            for port in ports or [""]:
                yield f"    {source}{port} return"


def _addresses(policy: Object, peers: Sequence[Object], pods: Sequence[Object], spaces: dict[str, Object]) -> list[str]:
    """The addresses of the pods that are among the peers of a rule."""
    return sorted(
        {
            pod["status"]["podIP"]
            for peer in peers
            for pod in pods
            if _is_peer(peer, pod, policy["metadata"]["namespace"], spaces)
        }
    )


def _is_peer(peer: Object, pod: Object, own: str, spaces: dict[str, Object]) -> bool:
    space = pod["metadata"]["namespace"]
    if "namespaceSelector" in peer:
        is_in_space = _matches(peer["namespaceSelector"], spaces[space])
    else:
        is_in_space = space == own
    return is_in_space and _matches(peer.get("podSelector", {}), pod["metadata"].get("labels", {}))


def _selects(policy: Object, pod: Object) -> bool:
    return _matches(policy["spec"]["podSelector"], pod["metadata"].get("labels", {}))


def _matches(selector: Object, labels: Object) -> bool:
    assert selector.keys() <= {"matchLabels"}, f"a selector of another kind: {selector}"
    return selector.get("matchLabels", {}).items() <= labels.items()
