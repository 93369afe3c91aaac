"""A small server on the loopback that speaks the paths of the Kubernetes API that a driver uses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from kits.kubernetes.client.cluster import OF_A_DRIVER, Cluster, client_of
from kits.kubernetes.faults.pods import Pods
from kits.kubernetes.library import Configuration

NAMESPACE: Final = "testnets"
INSTANCE: Final = "smoke"
TOKEN: Final = "Bearer secret"
CHAOS: Final = "/apis/chaos-mesh.org/v1alpha1"
PATCHES: Final = ("application/merge-patch+json", "application/strategic-merge-patch+json")
Answer = tuple[int, dict[str, Any]]


def pod_of_host(number: int, node: str = "machine-0", instance: str = INSTANCE) -> dict[str, Any]:
    """A pod as the server lists it."""
    name = f"{instance}-host-{number}-x7k2p"
    labels = {"app.kubernetes.io/instance": instance, "stampede.io/host": str(number)}
    spec = {"nodeName": node, "containers": [{"name": "ray-worker", "image": "stampede"}]}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "spec": spec}


def _merged(fields: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A merge patch of flat fields (RFC 7386)."""
    return {key: value for key, value in {**fields, **change}.items() if value is not None}


@dataclass
class FakeCluster:
    """What the server knows, and what it was asked."""

    url: str = ""
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    chaos: dict[str, dict[str, Any]] = field(default_factory=dict)
    has_chaos_mesh: bool = True
    failing: list[int] = field(default_factory=list)
    """Statuses of the next answers."""
    refused: dict[str, int] = field(default_factory=dict)
    """Statuses of all answers to a method and the beginning of a path, such as ``PATCH /api/v1/nodes``."""
    refused_evictions: int = 0
    """A disruption budget forbids so many more of them."""
    looks_until_injected: int = 1
    """Chaos Mesh needs so many looks; -1 is for ever."""
    asked: list[str] = field(default_factory=list)
    """Method and path of each request, without the namespace."""
    bodies: list[Any] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    """Pauses between attempts, in seconds."""

    def add(self, *pods: dict[str, Any]) -> None:
        for each in pods:
            self.pods[each["metadata"]["name"]] = each
            node = each["spec"]["nodeName"]
            self.nodes.setdefault(node, {"metadata": {"name": node}, "spec": {}})

    def api(self, token: str = TOKEN) -> Pods:
        return api_at(self.url, token, self.waits.append)

    # --- answers ------------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any, token: str) -> Answer:
        space = f"/api/v1/namespaces/{NAMESPACE}"
        brief = path.replace(f"/namespaces/{NAMESPACE}", "")
        self.asked.append(f"{method} {brief}" + "".join(f" {key}={value[0]}" for key, value in sorted(query.items())))
        self.bodies.append(body)
        if token != TOKEN:
            return 401, status(401, "Unauthorized")
        if self.failing:
            return (number := self.failing.pop(0)), status(number, "try again")
        for what, number in self.refused.items():
            if f"{method} {path}".startswith(what):
                return number, status(number, "is forbidden")
        if path == f"{space}/pods":
            return 200, {"kind": "PodList", "items": self._selected(query.get("labelSelector", [""])[0])}
        if path.startswith(f"{space}/pods/"):
            return self._pod(method, path.removeprefix(f"{space}/pods/"), body)
        if path.startswith("/api/v1/nodes/"):
            return self._node(method, path.removeprefix("/api/v1/nodes/"), body)
        if path.startswith(CHAOS) and self.has_chaos_mesh:
            return self._chaos(method, brief.removeprefix(CHAOS).strip("/"), body)
        return 404, status(404, "page not found")

    def _selected(self, selector: str) -> list[dict[str, Any]]:
        wanted = dict(pair.split("=") for pair in selector.split(",") if pair)
        return [each for each in self.pods.values() if wanted.items() <= each["metadata"]["labels"].items()]

    def _pod(self, method: str, rest: str, body: Any) -> Answer:
        name, _, sub = rest.partition("/")
        if name not in self.pods:
            return 404, status(404, f'pods "{name}" not found')
        options = body["deleteOptions"] if sub == "eviction" else body
        if options["preconditions"]["uid"] != self.pods[name]["metadata"]["uid"]:
            return 409, status(409, "the UID in the precondition does not match")
        if sub == "eviction" and self.refused_evictions:
            self.refused_evictions -= 1
            return 429, status(429, "Cannot evict pod as it would violate the pod's disruption budget.")
        found = self.pods.pop(name)
        return (201, {"kind": "Status", "status": "Success"}) if sub else (200, found)

    def _node(self, method: str, name: str, body: Any) -> Answer:
        if name not in self.nodes:
            return 404, status(404, f'nodes "{name}" not found')
        node = self.nodes[name]
        if method == "PATCH":
            node["spec"] = _merged(node["spec"], body["spec"])
            meta = node["metadata"]
            meta["annotations"] = _merged(meta.get("annotations", {}), body["metadata"]["annotations"])
        return 200, node

    def _chaos(self, method: str, rest: str, body: Any) -> Answer:
        kind, _, name = rest.partition("/")
        if not kind:
            return 200, {"kind": "APIResourceList", "groupVersion": "chaos-mesh.org/v1alpha1", "resources": []}
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.chaos:
                return 409, {**status(409, "it exists"), "reason": "AlreadyExists"}
            self.chaos[name] = {**body, "looks": 0}
            return 201, body
        if name not in self.chaos:
            return 404, status(404, f'{kind} "{name}" not found')
        if method == "DELETE":
            return 200, self.chaos.pop(name)
        found = self.chaos[name]
        found["looks"] += 1
        is_injected = 0 <= self.looks_until_injected <= found["looks"]
        conditions = [{"type": "AllInjected", "status": str(is_injected)}, {"type": "Paused", "status": "False"}]
        return 200, {**found, "status": {"conditions": conditions}}


def api_at(url: str, token: str = TOKEN, wait: Callable[[float], None] = lambda seconds: None) -> Pods:
    """The API of a server."""

    def connect() -> Cluster:
        configuration = Configuration(host=url)
        configuration.api_key["authorization"] = token
        return client_of(configuration, wait, OF_A_DRIVER, has_answered=True)

    return Pods(NAMESPACE, INSTANCE, connect)


def status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message}


@contextmanager
def kubernetes_api() -> Iterator[FakeCluster]:
    """A server with an empty cluster."""
    cluster = FakeCluster()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            parts = urlsplit(self.path)
            token = self.headers.get("authorization", "")
            if self.command == "PATCH":
                assert self.headers["Content-Type"] in PATCHES, "the body is no list of operations"
            code, page = cluster.answer(self.command, parts.path.rstrip("/"), parse_qs(parts.query), body, token)
            content = json.dumps(page).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    for method in ("GET", "POST", "DELETE", "PATCH"):
        setattr(Handler, f"do_{method}", Handler._answer)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    cluster.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
