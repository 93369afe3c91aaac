"""A small API server of Kubernetes on the loopback, with a KubeRay operator whose jobs take a written course.

It speaks what ``stampede k8s`` uses: objects by label and field, watches with versions, logs that are followed, and
commands in pods over a websocket. It speaks what a driver in a pod uses, too: evictions, and objects of Chaos Mesh,
which are in force after a while. Faults are planted by :meth:`ApiServer.plant`. A job's pods appear once their watch
has begun, so every state of theirs passes through it.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import json
import re
import struct
import tarfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from kits.kubernetes.client.cluster import OF_A_DRIVER, Cluster, client_of
from kits.kubernetes.faults.pods import Pods
from kits.kubernetes.library import Configuration

Object = dict[str, Any]
TOKEN = "a-token"
NAMESPACE = "testnets"
INSTANCE = "smoke"
CHAOS = "/apis/chaos-mesh.org/v1alpha1"
PATH = re.compile(
    r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<part>[^/]+))?"
)
WEBSOCKET_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CREATED = "2026-01-01T00:00:00Z"
MAX_WAIT_S = 30.0
"""Bounds every wait of the server."""
LATE_S = 0.25
"""A client that does not leave meanwhile gets a late answer."""


class Deleted(Exception):
    """The job is no longer there."""


@dataclass
class Fault:
    """A planted fault: what matches is answered so, a number of times."""

    verb: str
    resource: str
    """A plural, or a plural with a part: ``pods/log``."""
    answer: int | str
    """A status, or one of these: ``drop`` closes the connection; ``lost`` does so after the object was created;
    ``hang`` says nothing until the client leaves; ``late`` says nothing for :data:`LATE_S`, and then what is right;
    ``trickle`` says what is right in pieces of :attr:`piece` bytes; ``cut`` ends a stream after :attr:`after` lines, in
    the middle of the next one; ``gone`` ends a watch with 410."""
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    after: int = 0
    body: str | None = None
    piece: int = 1


@dataclass
class Log:
    """What a container prints."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    """Time and text."""
    has_ended: bool = False


class ApiServer:
    """The server; a context that serves. All state is public, under :attr:`changed`."""

    def __init__(self, course: Callable[[ApiServer, str], None] = lambda server, name: None) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        """By plural and name: tests have one namespace."""
        self.changed = threading.Condition(threading.RLock())
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Verb, resource and query of each."""
        self.asked: list[str] = []
        """Method, path without the namespace, and query of each."""
        self.bodies: list[Any] = []
        self.executed: list[list[str]] = []
        self.logs: dict[str, Log] = {}
        self.volume: dict[str, bytes] = {}
        """The files of the runs' volume."""
        self.archive: bytes | None = None
        """Sent by ``tar`` instead of the volume."""
        self.on_interrupt: Callable[[], None] = lambda: None
        self.has_driver = True
        """Whether a driver is there to be interrupted."""
        self.inject_answer = (0, "added: kill at height 5", "")
        self.faults: list[Fault] = []
        self.allowed: Collection[tuple[str, str]] | None = None
        """What the user may do, as verb and resource; ``None`` if everything."""
        self.refused: dict[str, int] = {}
        """Statuses of all answers to a method."""
        self.refused_evictions = 0
        """A disruption budget forbids this many more of them."""
        self.has_chaos_mesh = True
        self.looks_until_injected = 1
        """Chaos Mesh needs this many looks; -1 is for ever."""
        self.waits: list[float] = []
        """Pauses between attempts of a driver, in seconds."""
        self.on_request: Callable[[int], None] = lambda number: None
        """Called with the number of each request, from 1."""
        self.looks = 0
        """How often a client has looked for signals, if a test counts that."""
        self.course = course
        self.version = 100
        self._history: list[tuple[int, str, str, Object]] = []
        self._begun: set[str] = set()
        self._is_closing = False
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"server_of": self}))
        self._http.daemon_threads = True

    def __enter__(self) -> ApiServer:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self._is_closing = True
            self.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def write_config(self, path: Path, token: str = TOKEN) -> Path:
        """A configuration as kubectl's, with the contexts ``lab`` (current) and ``other`` (nobody listens there)."""
        clusters = {"lab": self.url, "other": "http://127.0.0.1:1"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [{"name": name, "cluster": {"server": url}} for name, url in clusters.items()],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in clusters],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def plant(self, verb: str, resource: str, answer: int | str, **settings: Any) -> None:
        self.faults.append(Fault(verb, resource, answer, **settings))

    def fault_for(self, verb: str, resource: str) -> Fault | None:
        with self.changed:
            for fault in self.faults:
                if (fault.verb, fault.resource) == (verb, resource) and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def count(self, verb: str, resource: str) -> int:
        """How many such requests came."""
        return sum(request[:2] == (verb, resource) for request in self.requests)

    def names(self, plural: str) -> list[str]:
        return sorted(name for kind, name in self.objects if kind == plural)

    @property
    def pods(self) -> dict[str, Object]:
        return {name: thing for (kind, name), thing in self.objects.items() if kind == "pods"}

    @property
    def nodes(self) -> dict[str, Object]:
        return {name: thing for (kind, name), thing in self.objects.items() if kind == "nodes"}

    @property
    def chaos(self) -> dict[str, Object]:
        """The objects of Chaos Mesh."""
        return {name: thing for (kind, name), thing in self.objects.items() if kind.endswith("chaos")}

    def add(self, *pods: Object) -> None:
        """Add pods that run, with their nodes."""
        for pod in pods:
            self.put("pods", pod)
            node = pod["spec"]["nodeName"]
            if node not in self.nodes:
                self.put("nodes", {"metadata": {"name": node}, "spec": {}})

    def api(self, token: str = TOKEN) -> Pods:
        """What a driver in a pod uses."""
        return api_at(self.url, token, self.waits.append)

    # --- objects ------------------------------------------------------------------------------------------------------

    def put(self, plural: str, thing: Object, event: str = "MODIFIED") -> None:
        """Store an object and tell the watches."""
        with self.changed:
            self.version += 1
            thing["metadata"]["resourceVersion"] = str(self.version)
            thing["metadata"].setdefault("creationTimestamp", CREATED)
            key = plural, thing["metadata"]["name"]
            event = event if key in self.objects else "ADDED"
            self.objects[key] = thing
            self._history.append((self.version, plural, event, copy.deepcopy(thing)))
            self.changed.notify_all()

    def remove(self, plural: str, name: str) -> None:
        """Delete an object with all that it owns."""
        with self.changed:
            thing = self.objects.pop((plural, name), None)
            if thing is None:
                return
            self._begun.discard(name)
            self.version += 1
            thing["metadata"]["resourceVersion"] = str(self.version)
            self._history.append((self.version, plural, "DELETED", thing))
            for kind, other in list(self.objects):
                owners = self.objects[kind, other]["metadata"].get("ownerReferences") or []
                if any(each["name"] == name for each in owners):
                    if kind == "pods" and other in self.logs:
                        self.logs[other].has_ended = True
                    self.remove(kind, other)
            self.changed.notify_all()

    def next_events(
        self, version: int, plural: str, matches: Callable[[Object], bool]
    ) -> list[tuple[int, str, Object]]:
        """What happened after a version, as soon as there is anything: version, kind of event, object."""

        def found() -> list[tuple[int, str, Object]]:
            of_kind = [
                (at, event, thing) for at, kind, event, thing in self._history if at > version and kind == plural
            ]
            return [each for each in of_kind if matches(each[2])]

        self.wait(lambda: bool(found()))
        return found()

    def begin(self, plural: str) -> None:
        """Let the jobs take their course once their pods are watched."""
        with self.changed:
            jobs = [name for kind, name in self.objects if kind == "rayjobs" and name not in self._begun]
            if plural != "pods" or not jobs:
                return
            self._begun.update(jobs)
        for name in jobs:
            threading.Thread(target=self._run_course, args=(name,), daemon=True).start()

    def _run_course(self, name: str) -> None:
        """A job's course ends early if the job is deleted."""
        with suppress(Deleted):
            self.course(self, name)

    def wait(self, has_come: Callable[[], bool], timeout_s: float = MAX_WAIT_S) -> bool:
        """Wait under the lock; returns early when the server closes."""
        with self.changed:
            self.changed.wait_for(lambda: self._is_closing or has_come(), timeout_s)
            return has_come()

    def log_lines(self, log: Log, follows: bool) -> Iterator[tuple[str, str]]:
        """The lines of a log, until it has ended or, without ``follows``, until now."""
        number = 0
        while True:
            self.wait(partial(self._has_news, log, number, follows))
            yield from log.lines[number:]
            number = len(log.lines)
            if log.has_ended or not follows or self._is_closing:
                return

    def _has_news(self, log: Log, number: int, follows: bool) -> bool:
        return len(log.lines) > number or log.has_ended or not follows

    # --- what an operator does ----------------------------------------------------------------------------------------

    def _job(self, name: str) -> Object:
        """A copy of a job. Raises :class:`Deleted` if there is none."""
        try:
            return copy.deepcopy(self.objects["rayjobs", name])
        except KeyError:
            raise Deleted(name) from None

    def job_status(self, name: str, **status: str) -> None:
        with self.changed:
            job = self._job(name)
            job["status"] = job.get("status", {}) | status
            self.put("rayjobs", job)

    def make_pods(self, name: str, **status: Any) -> None:
        """The pods of a job's templates, pending or with a status."""
        with self.changed:
            spec = self._job(name)["spec"]
            ray = spec["rayClusterSpec"]
            groups = {group["groupName"]: group["template"] for group in ray.get("workerGroupSpecs", [])}
            templates = {"head": ray["headGroupSpec"]["template"], **groups, "submitter": spec["submitterPodTemplate"]}
            for group, template in templates.items():
                pod = copy.deepcopy(template)
                meta = pod.setdefault("metadata", {})
                meta |= {"name": f"{name}-{group}", "ownerReferences": [{"kind": "RayJob", "name": name}]}
                pod["status"] = {"phase": "Pending", **copy.deepcopy(status)}
                self.put("pods", pod)

    def pods_are(self, name: str, *groups: str, **status: Any) -> None:
        """Give pods of a job a status; by default all."""
        with self.changed:
            mine = [pod for (kind, _), pod in self.objects.items() if kind == "pods"]
            for pod in mine:
                if pod["metadata"]["name"].startswith(f"{name}-") and (
                    not groups or pod["metadata"]["name"].removeprefix(f"{name}-") in groups
                ):
                    self.put("pods", {**copy.deepcopy(pod), "status": copy.deepcopy(status)})

    def pods_run(self, name: str, *groups: str) -> None:
        self.pods_are(name, *groups, **running("ray"))

    def say(self, name: str, *lines: str, second: int = 0) -> None:
        """Print lines on a job's submitter; all lines of a second have the same time."""
        with self.changed:
            log = self.logs.setdefault(f"{name}-submitter", Log())
            log.lines += [(f"2026-01-01T00:00:{second:02}.5Z", line) for line in lines]
            self.changed.notify_all()

    def end(self, name: str, status: str = "SUCCEEDED", **more: str) -> None:
        """End a job's log and the job."""
        self.end_log(name)
        self.job_status(name, jobStatus=status, jobDeploymentStatus="Complete", **more)

    def end_log(self, name: str) -> None:
        """End a job's log, as the end of its submitter does."""
        with self.changed:
            self.logs.setdefault(f"{name}-submitter", Log()).has_ended = True
            self.changed.notify_all()
        terminated = [{"name": "ray-job-submitter", "state": {"terminated": {"exitCode": 0}}}]
        self.pods_are(name, "submitter", phase="Succeeded", containerStatuses=terminated)


def running(container: str) -> Object:
    """The status of a pod that is ready."""
    return {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": container, "image": "stampede:1", "state": {"running": {}}}],
    }


# --- HTTP -----------------------------------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else an answer's body waits 40 ms for the acknowledgement of its headers
    server_of: ApiServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve("list")

    def do_POST(self) -> None:
        self._serve("create")

    def do_DELETE(self) -> None:
        self._serve("delete")

    def do_PATCH(self) -> None:
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        self._serve("patch")

    def _serve(self, verb: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = json.loads(body) if body else {}
        self.fault: Fault | None = None
        url = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        brief = url.path.rstrip("/").replace(f"/namespaces/{NAMESPACE}", "")
        self.server_of.asked.append(
            " ".join([self.command, brief, *(f"{k}={v}" for k, v in sorted(self.query.items()))])
        )
        self.server_of.bodies.append(content)
        if brief.startswith(CHAOS) and (brief == CHAOS or not self.server_of.has_chaos_mesh):
            return self._chaos_mesh()
        found = PATH.fullmatch(url.path)
        assert found is not None, url.path
        self.plural, self.name, part = found["plural"], found["name"] or "", found["part"]
        if verb == "list":
            verb = "watch" if "watch" in self.query else "get" if self.name else "list"
        resource = f"{self.plural}/{part}" if part else self.plural
        with self.server_of.changed:
            self.server_of.requests.append((verb, resource, self.query))
            self.server_of.changed.notify_all()
        self.server_of.on_request(len(self.server_of.requests))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._status(401, "Unauthorized", "Unauthorized")
        self.fault = self.server_of.fault_for(verb, resource)
        if self.fault is not None and self._misbehave(self.fault, resource):
            return None
        if self.plural == "selfsubjectaccessreviews":
            return self._review(content["spec"]["resourceAttributes"])
        if self.command in self.server_of.refused:
            return self._status(self.server_of.refused[self.command], "Forbidden", "is forbidden")
        if not self._is_allowed(verb, resource):
            return self._status(403, "Forbidden", f'User "me" cannot {verb} resource "{resource}"')
        if part == "exec":
            return self._execute(parse_qs(url.query)["command"])
        if part == "log":
            return self._log()
        if part == "eviction":
            return self._evict(content)
        return getattr(self, f"_{verb}")(content)

    def _is_allowed(self, verb: str, resource: str) -> bool:
        return self.server_of.allowed is None or (verb, resource) in self.server_of.allowed

    def _review(self, asked: dict[str, str]) -> None:
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        self._answer({"status": {"allowed": self._is_allowed(asked["verb"], resource)}}, 201)

    def _misbehave(self, fault: Fault, resource: str) -> bool:
        if isinstance(fault.answer, int):
            self._status(fault.answer, "Planted", fault.body or f"planted {fault.answer} of {resource}", fault.headers)
            return True
        is_gone = fault.answer == "drop"
        if fault.answer in ("hang", "late"):
            is_gone = self._leaves_within(MAX_WAIT_S if fault.answer == "hang" else LATE_S)
        self.close_connection = self.close_connection or is_gone
        return is_gone

    def _leaves_within(self, seconds: float) -> bool:
        """Whether the client closes the connection, or is given up after :data:`MAX_WAIT_S`."""
        before = self.connection.gettimeout()
        self.connection.settimeout(seconds)
        try:
            self.connection.recv(1)
        except TimeoutError:
            return seconds == MAX_WAIT_S
        except OSError:
            pass
        finally:
            with suppress(OSError):
                self.connection.settimeout(before)
        return True

    def _pieces(self, data: bytes) -> list[bytes]:
        """What is sent at a time."""
        size = self.fault.piece if self.fault is not None and self.fault.answer == "trickle" else len(data)
        return [data[at : at + size] for at in range(0, len(data), max(size, 1))]

    def _answer(self, page: Object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(page).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):
            for piece in self._pieces(data):
                self.wfile.write(piece)

    def _status(self, code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> None:
        page = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}
        self._answer(page, code, headers)

    # --- objects ------------------------------------------------------------------------------------------------------

    def _matches(self, thing: Object) -> bool:
        meta = thing["metadata"]
        labels = [each.split("=") for each in self.query.get("labelSelector", "").split(",") if each]
        fields = dict(each.split("=") for each in self.query.get("fieldSelector", "").split(",") if each)
        return (
            all((meta.get("labels") or {}).get(name) == value for name, value in labels)
            and fields.get("metadata.name", meta["name"]) == meta["name"]
            and fields.get("type", thing.get("type")) == thing.get("type")
        )

    def _get(self, _: Object) -> None:
        thing = self.server_of.objects.get((self.plural, self.name))
        if thing is None:
            return self._status(404, "NotFound", f'{self.plural} "{self.name}" not found')
        if self.plural.endswith("chaos"):
            thing = self._looked_at(thing)
        return self._answer(thing)

    def _list(self, _: Object) -> None:
        with self.server_of.changed:
            items = [each for (kind, _), each in self.server_of.objects.items() if kind == self.plural]
            items = [each for each in items if self._matches(each)]
            self._answer({"metadata": {"resourceVersion": str(self.server_of.version)}, "items": items})

    def _create(self, thing: Object) -> None:
        name = thing["metadata"]["name"]
        if (self.plural, name) in self.server_of.objects:
            return self._status(409, "AlreadyExists", f'{self.plural} "{name}" already exists')
        if self.plural == "pods":
            account = thing["spec"]["serviceAccountName"]
            if account != "default" and ("serviceaccounts", account) not in self.server_of.objects:
                why = f'error looking up service account stampede/{account}: serviceaccount "{account}" not found'
                return self._status(403, "Forbidden", f'pods "{name}" is forbidden: {why}')
            thing["status"] = running(thing["spec"]["containers"][0]["name"])
        self.server_of.put(self.plural, thing)
        if self.fault is not None and self.fault.answer == "lost":
            self.close_connection = True
            return None
        return self._answer(thing, 201)

    def _delete(self, options: Object) -> None:
        thing = self.server_of.objects.get((self.plural, self.name))
        if thing is None:
            return self._status(404, "NotFound", f'{self.plural} "{self.name}" not found')
        uid = thing["metadata"].get("uid")
        if options.get("preconditions", {}).get("uid", uid) != uid:
            return self._status(409, "Conflict", "the UID in the precondition does not match")
        self.server_of.remove(self.plural, self.name)
        return self._answer({"kind": "Status", "status": "Success"})

    def _evict(self, eviction: Object) -> None:
        if self.name in self.server_of.pods and self.server_of.refused_evictions:
            self.server_of.refused_evictions -= 1
            return self._status(429, "TooManyRequests", "Cannot evict pod as it would violate the disruption budget.")
        return self._delete(eviction["deleteOptions"])

    def _patch(self, change: Object) -> None:
        thing = self.server_of.objects.get((self.plural, self.name))
        if thing is None:
            return self._status(404, "NotFound", f'{self.plural} "{self.name}" not found')
        thing = merged(copy.deepcopy(thing), change)
        self.server_of.put(self.plural, thing)
        return self._answer(thing)

    # --- Chaos Mesh ---------------------------------------------------------------------------------------------------

    def _chaos_mesh(self) -> None:
        """What it offers, if it is there."""
        if self.server_of.has_chaos_mesh:
            return self._answer({"kind": "APIResourceList", "groupVersion": "chaos-mesh.org/v1alpha1", "resources": []})
        return self._status(404, "NotFound", "page not found")

    def _looked_at(self, chaos: Object) -> Object:
        """An object with its status, which says after a while that it is in force."""
        looks = chaos["looks"] = chaos.get("looks", 0) + 1
        is_injected = 0 <= self.server_of.looks_until_injected <= looks
        conditions = [{"type": "AllInjected", "status": str(is_injected)}, {"type": "Paused", "status": "False"}]
        return {**chaos, "status": {"conditions": conditions}}

    # --- streams ------------------------------------------------------------------------------------------------------

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        """A chunk, or several; one without data ends the stream."""
        for piece in self._pieces(data) or [b""]:
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.flush()

    def _is_cut(self, sent: int, line: bytes) -> bool:
        """Whether the planted fault ends the stream here, in the middle of the line."""
        if self.fault is None or self.fault.answer != "cut" or sent < self.fault.after:
            return False
        with suppress(OSError):
            self._chunk(line[: len(line) // 2])
        return True

    def _watch(self, _: Object) -> None:
        server, version, sent = self.server_of, int(self.query["resourceVersion"]), 0
        self._begin_stream()
        if self.fault is not None and self.fault.answer == "gone":
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            self._chunk(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            return self._chunk(b"")
        server.begin(self.plural)
        with suppress(OSError):
            while events := server.next_events(version, self.plural, self._matches):
                for at, event, thing in events:
                    version = at
                    line = json.dumps({"type": event, "object": thing}).encode() + b"\n"
                    if self._is_cut(sent, line):
                        return None
                    self._chunk(line)
                    sent += 1
            self._chunk(b"")
        return None

    def _log(self) -> None:
        log = self.server_of.logs.setdefault(self.name, Log())
        since, sent, follows = self.query.get("sinceTime", "")[:19], 0, self.query.get("follow") == "true"
        self._begin_stream()
        with suppress(OSError):
            for time, text in self.server_of.log_lines(log, follows):
                line = f"{time} {text}\n".encode()
                if time[:19] < since:
                    continue
                if self._is_cut(sent, line):
                    return
                self._chunk(line)
                sent += 1
            self._chunk(b"")

    # --- commands -----------------------------------------------------------------------------------------------------

    def _execute(self, command: list[str]) -> None:
        self.server_of.executed.append(command)
        accept = base64.b64encode(hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + WEBSOCKET_KEY).digest())
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.send_header("Sec-WebSocket-Protocol", self.headers["Sec-WebSocket-Protocol"])
        self.end_headers()
        self.close_connection = True
        with suppress(OSError):
            code, output, errors = self._run(command)
            pieces = [output[at : at + 40_000] for at in range(0, len(output), 40_000)]
            for piece in pieces:
                if self.fault is not None and self.fault.answer == "cut":
                    return self._frame(2, b"\x01" + piece[: len(piece) // 2])
                self._frame(2, b"\x01" + piece)
            if errors:
                self._frame(2, b"\x02" + errors.encode())
            causes = [{"reason": "ExitCode", "message": str(code)}]
            failure = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
            self._frame(2, b"\x03" + json.dumps({"status": "Success"} if code == 0 else failure).encode())
            self._frame(8, b"\x03\xe8")
        return None

    def _frame(self, opcode: int, data: bytes) -> None:
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
        first, *rest = self._pieces(bytes([0x80 | opcode]) + size + data)
        self.wfile.write(first)
        for piece in rest:
            self._wait_for_looks()
            self.wfile.write(piece)

    def _wait_for_looks(self) -> None:
        """Until the client has waited in vain for the rest of a frame, and looked for signals meanwhile."""
        server = self.server_of
        with server.changed:
            before = server.looks
            assert server.wait(lambda: server.looks > before + 1), "nobody counts the looks"

    def _run(self, command: list[str]) -> tuple[int, bytes, str]:
        """A command in a pod: exit code, output, errors."""
        server = self.server_of
        if command[0] == "tar":
            top = command[-1].removesuffix("/.")
            files = {name: data for name, data in server.volume.items() if name.startswith(f"{top}/")}
            if not files:
                return 2, b"", f"tar: {top}: Cannot stat: No such file or directory"
            return 0, server.archive or archive_of(files), ""
        if command[0] == "python":
            server.on_interrupt()
            return int(not server.has_driver), b"", ""
        if command[0] == "cat":
            path = command[1].removeprefix("/opt/stampede/runs/")
            return (0, server.volume[path], "") if path in server.volume else (1, b"", "no such file")
        assert command[:2] == ["stampede", "inject"], command
        code, output, errors = server.inject_answer
        return code, output.encode() + b"\n" if output else b"", errors


def archive_of(files: dict[str, bytes]) -> bytes:
    """A tar archive of files by their names."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def merged(fields: Object, change: Object) -> Object:
    """A merge patch (RFC 7386)."""
    for name, value in change.items():
        fields[name] = merged(fields.get(name) or {}, value) if isinstance(value, dict) else value
    return {name: value for name, value in fields.items() if value is not None}


# --- a driver in a pod --------------------------------------------------------------------------------------------


def pod_of_host(number: int, node: str = "machine-0", instance: str = INSTANCE) -> Object:
    """A pod as the server lists it."""
    name = f"{instance}-host-{number}-x7k2p"
    labels = {"app.kubernetes.io/instance": instance, "stampede.io/host": str(number)}
    spec = {"nodeName": node, "containers": [{"name": "ray-worker", "image": "stampede"}]}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "spec": spec}


def api_at(url: str, token: str = TOKEN, wait: Callable[[float], None] = lambda seconds: None) -> Pods:
    """The API of a server."""

    def connect() -> Cluster:
        configuration = Configuration(host=url)
        configuration.api_key["authorization"] = f"Bearer {token}"
        return client_of(configuration, wait, OF_A_DRIVER, has_answered=True)

    return Pods(NAMESPACE, INSTANCE, connect)
