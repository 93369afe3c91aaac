"""Client of a cluster's API server: requests with bounded retries, and refusals as one-line errors.

The configuration of a command is that of ``kubectl``: ``KUBECONFIG``, else ``~/.kube/config``, else the pod's own
account. A driver in a pod has the latter. A request is retried after status 429, 500 and 502 to 504, after a dropped
connection and after a late answer, as often as the client's :class:`Patience` says. The pause before a retry is the one
that the server asks for; without one, pauses double. If the server has never answered a command and cannot be reached,
the request is not retried.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

import urllib3
import yaml

from cluster.common.checkout import NO_PROXY
from cluster.common.errors import BadInput
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.client.rights import Right
from kits.kubernetes.kinds import POD, REVIEW, Kind
from kits.kubernetes.library import ApiClient, ApiException, Configuration, config
from loadgen.client import reason_of

CONFIG_VARIABLE: Final = "KUBECONFIG"
DEFAULT_CONFIG: Final = "~/.kube/config"

RETRIED: Final = frozenset({429, 500, 502, 503, 504})
METHODS: Final = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "delete": "DELETE", "patch": "PATCH"}
MISSING_RIGHT: Final = re.compile(r"\bcannot \w+ resource\b")
"""What the API server says of a right that a role does not give."""
MAX_LINE_BYTES: Final = 16 * 2**20
"""Maximum length of a line in a stream. The objects that an API server sends are far smaller."""

Object = dict[str, Any]
Query = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client goes on with one request."""

    tries: int
    connect_timeout_s: float
    read_timeout_s: float
    first_pause_s: float
    max_pause_s: float
    """Maximum pause before a retry, even if the server asks for a longer one."""


OF_A_COMMAND = Patience(10, 5, 15, 0.5, 30)
"""It covers an outage of the API server of two minutes."""
OF_A_DRIVER: Final = Patience(4, 3, 5, 0.25, 1)
"""A driver has a chain to watch."""


@dataclass(frozen=True, slots=True)
class Place:
    """The cluster (as a ``kubectl`` context) and the namespace of a deployment."""

    namespace: str
    context: str | None = None
    """Context in the ``kubectl`` configuration; ``None`` means its current context."""


@dataclass(frozen=True, slots=True)
class Target:
    """The verb and the resource of a request."""

    verb: str
    """The verb in the terms of Kubernetes roles: get, list, watch, create, delete or patch."""
    kind: Kind
    namespace: str | None = None
    name: str | None = None
    part: str = ""
    """Name of a subresource, such as ``log``; empty for the resource itself."""

    @property
    def path(self) -> str:
        api = f"/apis/{self.kind.api}" if "/" in self.kind.api else f"/api/{self.kind.api}"
        namespace = f"namespaces/{self.namespace}" if self.kind.is_namespaced else ""
        name = "" if self.verb == "create" and not self.part else self.name
        return "/".join(each for each in (api, namespace, self.kind.plural, name, self.part) if each)

    def __str__(self) -> str:
        resource = f"{self.kind.resource}/{self.part}" if self.part else self.kind.resource
        where = f" in namespace {self.namespace}" if self.kind.is_namespaced else ""
        return f"{self.verb} {resource}{where}"


@dataclass(slots=True)
class Cluster:
    """Client of a cluster's API server, with the credentials of one user."""

    api: ApiClient
    wait: Callable[[float], object]
    """Function that waits a number of seconds before a retry. It may raise :class:`KeyboardInterrupt`."""
    patience: Patience
    has_answered: bool = False

    def waiting_by(self, wait: Callable[[float], object]) -> Cluster:
        """A copy of this client that calls ``wait`` to wait before a retry."""
        return replace(self, wait=wait)

    # --- objects ------------------------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Read an object; ``None`` if there is none of that kind and name."""
        try:
            return self._json(Target("get", kind, namespace, name))
        except ClusterError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def list(self, kind: Kind, namespace: str, query: Query) -> Object:
        """List all objects that the query (``labelSelector``, ``fieldSelector``) selects, as one page."""
        return self._json(Target("list", kind, namespace), query)

    def create(self, manifest: Object, kind: Kind, namespace: str) -> bool:
        """Create an object. Returns ``False`` if its name is taken."""
        is_repeated = False

        def note_repetition() -> None:
            nonlocal is_repeated
            is_repeated = True

        target = Target("create", kind, namespace, manifest["metadata"]["name"])
        try:
            self._json(target, body=manifest, on_retry=note_repetition)
        except ClusterError as error:
            if error.status != HTTPStatus.CONFLICT or "AlreadyExists" not in str(error):
                raise
            return is_repeated  # the answer to the first attempt was lost
        return True

    def delete(self, kind: Kind, namespace: str, name: str, options: Object | None = None) -> bool:
        """Delete an object and its dependents, with further ``options``. Returns ``False`` if there was none."""
        try:
            body = {"propagationPolicy": "Background", **(options or {})}
            self._json(Target("delete", kind, namespace, name), body=body)
        except ClusterError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    def patch(self, kind: Kind, name: str, content: Object) -> None:
        """Merge fields into a cluster-scoped object; ``None`` removes a field."""
        self._json(Target("patch", kind, None, name), body=content)

    def evict(self, namespace: str, name: str, options: Object) -> None:
        """Evict a pod; ``options`` say how it is deleted. A disruption budget that forbids it is status 429."""
        target = Target("create", POD, namespace, name, "eviction")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        self._json(target, body=body, retried=RETRIED - {HTTPStatus.TOO_MANY_REQUESTS})

    def has(self, api: str) -> bool:
        """Whether the cluster has an API, such as ``ray.io/v1``."""
        try:
            self._json(Target("get", Kind(api, "", "", is_namespaced=False)))
        except ClusterError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    def refuses(self, right: Right, namespace: str) -> bool:
        """Whether the cluster says that its user lacks a right."""
        resource, _, part = right.resource.partition("/")
        asked = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": part}
        asked |= {"namespace": namespace} if right.is_namespaced else {}
        review = {"apiVersion": REVIEW.api, "kind": REVIEW.name, "spec": {"resourceAttributes": asked}}
        answer = self._json(Target("create", REVIEW), body=review)
        return (answer.get("status") or {}).get("allowed") is False

    # --- requests -----------------------------------------------------------------------------------------------------

    @contextmanager
    def stream(
        self, target: Target, query: Query, read_timeout_s: float | None = None
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Send a request whose answer is read as it arrives. Reading raises :class:`urllib3.exceptions.HTTPError`."""
        answer = self._request(target, query, read_timeout_s=read_timeout_s, is_streamed=True)
        try:
            yield answer
        finally:
            answer.close()

    def _json(
        self,
        target: Target,
        query: Query | None = None,
        body: Object | None = None,
        on_retry: Callable[[], None] = lambda: None,
        retried: Collection[int] = RETRIED,
    ) -> Object:
        answer = self._request(target, query or {}, body, self.patience.read_timeout_s, on_retry, retried=retried)
        try:
            page = json.loads(answer.data)
        except ValueError:
            raise ClusterError(f"{self.server}: {target}: the answer is no JSON") from None
        if not isinstance(page, dict):
            raise ClusterError(f"{self.server}: {target}: the answer is no object")
        return page

    @property
    def server(self) -> str:
        """The address of the API server."""
        return str(self.api.configuration.host)

    def _request(
        self,
        target: Target,
        query: Query,
        body: Object | None = None,
        read_timeout_s: float | None = None,
        on_retry: Callable[[], None] = lambda: None,
        is_streamed: bool = False,
        retried: Collection[int] = RETRIED,
    ) -> Any:
        """Send a request, with retries; returns the answer, which has a success status. Raises :class:`ClusterError`.

        The content of a streamed answer is not read yet. ``on_retry`` is called before a retry if the server may have
        carried out the previous attempt.
        """
        content_type = "application/merge-patch+json" if target.verb == "patch" else "application/json"
        patience = self.patience
        pause_s, trouble, status = patience.first_pause_s, "", 0
        for attempt in range(patience.tries):
            if attempt:
                self.wait(min(pause_s, patience.max_pause_s))
                pause_s = patience.first_pause_s * 2**attempt
                if status != HTTPStatus.TOO_MANY_REQUESTS:
                    on_retry()
            try:
                answer = self.api.call_api(
                    target.path,
                    METHODS[target.verb],
                    query_params=list(query.items()),
                    header_params={"Accept": "application/json", "Content-Type": content_type},
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _return_http_data_only=True,
                    _request_timeout=(patience.connect_timeout_s, read_timeout_s),
                )
                self.has_answered = True
                if not is_streamed:
                    _ = answer.data  # raises for late and broken answers
                return answer
            except ApiException as error:
                self.has_answered = self.has_answered or bool(error.status)
                if error.status not in retried:
                    raise self.refusal(target, int(error.status or 0), error.body, str(error.reason)) from None
                status, trouble = error.status, _reason(error.body, str(error.reason))
                pause_s = _asked_pause_s(error, pause_s)
            except ValueError as error:  # a token that no header can hold
                raise ClusterError(f"{self.server}: {target}: cannot be asked: {reason_of(error)}") from None
            except urllib3.exceptions.HTTPError as error:
                status, trouble = 0, reason_of(error)
                if not self.has_answered:
                    break
        if status == 0:
            raise ClusterError(f"no cluster answers at {self.server}: {target}: {trouble}")
        raise ClusterError(f"{self.server}: {target}: status {status} after {patience.tries} tries: {trouble}", status)

    def refusal(self, target: Target, status: int, body: bytes | str | None, default: str) -> ClusterError:
        """The error for an answer with a status of failure. ``default`` is the reason if the body has none.

        A 403 is a missing right only if its text says so: a quota, a policy and a missing account are refused so, too.
        """
        reason = _reason(body, default)
        if status == 0:
            return ClusterError(f"no cluster answers at {self.server}: {reason}")
        if status == HTTPStatus.UNAUTHORIZED:
            return ClusterError(f"{self.server}: no right to {target}: the credentials are refused (401)", status)
        if status == HTTPStatus.FORBIDDEN and MISSING_RIGHT.search(reason):
            return ClusterError(f"{self.server}: no right to {target} (403): {reason}", status)
        return ClusterError(f"{self.server}: {target}: status {status}: {reason}", status)


def connect(context: str | None, wait: Callable[[float], object]) -> Cluster:
    """A client of the cluster that ``kubectl`` would use. Raises :class:`BadInput` without a valid configuration."""
    configuration = Configuration()
    file = os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG
    has_file = any(os.path.exists(os.path.expanduser(each)) for each in file.split(os.pathsep))
    try:
        if has_file or context is not None or CONFIG_VARIABLE in os.environ:
            config.load_kube_config(file, context, configuration, persist_config=False)
        else:
            file = "the pod's own account"
            config.load_incluster_config(configuration)
    except config.ConfigException as error:
        hint = f"expected {CONFIG_VARIABLE}, {DEFAULT_CONFIG} or a pod with an account"
        raise BadInput(f"{file}: names no cluster: {reason_of(error)}: {hint}") from None
    except (yaml.YAMLError, OSError, AttributeError, TypeError, ValueError) as error:
        raise BadInput(f"{file}: cannot be read as kubectl's configuration: {reason_of(error)}") from None
    if has_file and not str(configuration.host).startswith(("http://", "https://")):
        raise BadInput(f"{file}: server: {configuration.host!r}: expected http://… or https://…")
    return client_of(configuration, wait, OF_A_COMMAND)


def in_a_pod() -> Cluster:
    """A driver's client of the cluster that this process runs in. Raises :class:`ClusterError`."""
    configuration = Configuration()
    try:
        config.load_incluster_config(configuration)
    except config.ConfigException as error:
        raise ClusterError(f"the Kubernetes API cannot be used: {error}") from None
    return client_of(configuration, time.sleep, OF_A_DRIVER, has_answered=True)


def client_of(
    configuration: Configuration, wait: Callable[[float], object], patience: Patience, has_answered: bool = False
) -> Cluster:
    """A client with this configuration of the library."""
    configuration.no_proxy = os.environ.get(NO_PROXY)  # the library reads it and forgets it
    configuration.retries = False  # urllib3 would retry silently
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # the author of the configuration chose this
    return Cluster(ApiClient(configuration), wait, patience, has_answered)


def lines_of(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The lines of a streamed answer, with their line breaks. The last line may lack its line break.

    Raises :class:`urllib3.exceptions.HTTPError` if the connection breaks, and for a line that is too long.
    """
    rest = b""
    for chunk in answer.stream(decode_content=False):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in whole)
        if len(rest) > MAX_LINE_BYTES:
            raise urllib3.exceptions.ProtocolError(f"a line of more than {MAX_LINE_BYTES:,} bytes")
    if rest:
        yield rest


def _reason(body: bytes | str | None, default: str) -> str:
    """The message of the error that the API server answered, with its reason unless the message contains it."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        page = json.loads(text)
        message, reason = str(page.get("message") or ""), str(page.get("reason") or "")
    except (ValueError, AttributeError):
        message, reason = text.strip(), ""
    if reason == "AlreadyExists":
        return f"{reason}: {message}"
    return message or reason or default


def _asked_pause_s(error: ApiException, default_s: float) -> float:
    asked = (error.headers or {}).get("Retry-After", "")
    return float(asked) if asked.isdecimal() else default_s
