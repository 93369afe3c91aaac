"""Watches a cluster's objects and follows pods' logs; both are delivered through one queue.

A watch that breaks is resumed from the last resource version that was seen. If the server no longer has that version
(410 Gone), all objects are listed again. In both cases the queue gets the whole state after each change.
"""

from __future__ import annotations

import json
import queue
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import urllib3

from cluster.common.wording import printable
from kits.kubernetes.client.cluster import Cluster, Object, Query, Target, lines_of
from kits.kubernetes.client.errors import ClusterError
from kits.kubernetes.client.execution import Container
from kits.kubernetes.kinds import POD, Kind

COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")
"""Escape sequence for colours. It is removed from logs: Ray colours its output even without a terminal."""
WATCH_S: Final = 60
"""Duration of a watch: the server ends it after this time, and then it is resumed."""
SILENCE_S = 90.0
"""A stream without data for this time counts as broken, and is requested again."""
NOTHING_MORE: Final[Query] = MappingProxyType({})
PAUSE_S = 0.5
"""Pause between a stream's end and the next attempt."""


@dataclass(frozen=True, slots=True)
class State:
    """The current objects that a watch selects, keyed by name."""

    kind: Kind
    objects: dict[str, Object]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log."""

    text: str


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log: its container has ended, and all its lines were read."""


Seen = State | Line | LogEnd | ClusterError


class Watches:
    """Watches objects and follows logs in threads, which put all that they see into the queue :attr:`seen`.

    :meth:`close` ends the threads.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.seen: queue.SimpleQueue[Seen] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._cluster = cluster.waiting_by(self._closing.wait)
        self._namespace = namespace

    def watch(self, kind: Kind, query: Query, is_optional: bool = False) -> None:
        """Start to watch the objects of a kind that the query selects. Errors of an optional watch are ignored."""
        threading.Thread(target=self._watch, args=(kind, query, is_optional), daemon=True).start()

    def follow(self, pod: str, container: str) -> None:
        """Start to follow a container's log from its beginning."""
        threading.Thread(target=self._follow, args=(pod, container), daemon=True).start()

    def close(self) -> None:
        """Stop the threads. A thread that waits for the server ends when the server answers, or with the process."""
        self._closing.set()

    def _watch(self, kind: Kind, query: Query, is_optional: bool) -> None:
        try:
            for objects in states(self._cluster, kind, self._namespace, query, self._closing):
                self.seen.put(State(kind, objects))
        except ClusterError as error:
            if not is_optional:
                self._fail(error)

    def _follow(self, pod: str, container: str) -> None:
        try:
            for line in log_lines(Container(self._cluster, self._namespace, pod, container), self._closing):
                self.seen.put(Line(line))
            self.seen.put(LogEnd())
        except ClusterError as error:
            self._fail(error)

    def _fail(self, error: ClusterError) -> None:
        if not self._closing.is_set():
            self.seen.put(error)


# --- watches --------------------------------------------------------------------------------------------------------


def states(
    cluster: Cluster, kind: Kind, namespace: str, query: Query, closing: threading.Event
) -> Iterator[dict[str, Object]]:
    """Watch objects: yields all objects that the query selects, keyed by name, at first and after each change.

    Raises :class:`ClusterError`.
    """
    objects: dict[str, Object] = {}
    version = ""
    while not closing.is_set():
        if not version:
            page = cluster.list(kind, namespace, query)
            objects = {each["metadata"]["name"]: each for each in page.get("items") or []}
            version = page["metadata"]["resourceVersion"]
            yield dict(objects)
        try:
            for event in _events(cluster, kind, namespace, query, version):
                if event["type"] == "ERROR":
                    version = ""  # 410 Gone or another error event: list again
                    break
                meta = event["object"]["metadata"]
                version = meta["resourceVersion"]
                if event["type"] == "BOOKMARK":
                    continue
                if event["type"] == "DELETED":
                    objects.pop(meta["name"], None)
                else:
                    objects[meta["name"]] = event["object"]
                yield dict(objects)
                if closing.is_set():
                    return
        except urllib3.exceptions.HTTPError:
            pass  # a dropped connection: resume from the last version
        except ClusterError as error:
            if error.status != HTTPStatus.GONE:
                raise
            version = ""
        closing.wait(PAUSE_S)


def _events(cluster: Cluster, kind: Kind, namespace: str, query: Query, version: str) -> Iterator[Any]:
    asked = {**query, "watch": "true", "resourceVersion": version, "timeoutSeconds": WATCH_S}
    asked["allowWatchBookmarks"] = "true"
    with cluster.stream(Target("watch", kind, namespace), asked, SILENCE_S) as answer:
        for line in lines_of(answer):
            try:
                yield json.loads(line)
            except ValueError:
                return  # cut off in the middle of a line


# --- logs -----------------------------------------------------------------------------------------------------------


def plain(line: str) -> str:
    """A line of a log as it is printed: without colours and tabs, and with other control characters escaped."""
    return printable(COLOUR.sub("", line).expandtabs(1))


def log_lines(
    container: Container, closing: threading.Event, follows: bool = True, more: Query = NOTHING_MORE
) -> Iterator[str]:
    """Yield each line of a container's log once, until the container has ended. Without ``follows``, end at the newest.

    ``more`` are further fields of the query, such as ``previous``.

    After a dropped connection, the lines since the time of the last line (in whole seconds) are requested again. Each
    line has a time in nanoseconds, by which lines that were seen before are skipped; several lines may have the same
    time. Raises :class:`ClusterError`.
    """
    last, seen_at_last = "", 0
    while not closing.is_set():
        has_ended = not follows or _has_ended(container)
        query = {"container": container.name, "timestamps": "true", "follow": "false" if has_ended else "true", **more}
        if last:
            query["sinceTime"] = f"{last[:19]}Z"
        at_last, is_whole = 0, False
        try:
            target = Target("get", POD, container.namespace, container.pod, "log")
            with container.cluster.stream(target, query, SILENCE_S) as answer:
                for line in lines_of(answer):
                    if not line.endswith(b"\n") and not has_ended:
                        break  # cut off: the server sends it again
                    time, _, text = line.decode("utf-8", "replace").rstrip("\r\n").partition(" ")
                    order = _in_order(time)
                    if order < last:
                        continue
                    at_last = at_last + 1 if order == last else 1
                    if order == last and at_last <= seen_at_last:
                        continue
                    last, seen_at_last = order, at_last
                    yield text
                is_whole = True
        except urllib3.exceptions.HTTPError:
            pass
        except ClusterError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return  # the pod is gone
            if error.status != HTTPStatus.BAD_REQUEST or has_ended:
                raise
            # the container has not started
        if has_ended and is_whole:
            return
        closing.wait(PAUSE_S)


def _in_order(time: str) -> str:
    """The timestamp of a log line with its fraction padded to nine digits, so that sorting as text sorts by time."""
    seconds, _, fraction = time.removesuffix("Z").partition(".")
    return f"{seconds}.{fraction:0<9}"


def _has_ended(container: Container) -> bool:
    """Whether a container has ended, or its pod is gone."""
    found = container.cluster.get(POD, container.namespace, container.pod)
    if found is None:
        return True
    statuses = found.get("status", {}).get("containerStatuses") or []
    states = [each for each in statuses if each["name"] == container.name]
    return any("terminated" in each.get("state", {}) for each in states)


def last_lines(container: Container, count: int, of_previous: bool = False) -> list[str]:
    """The last lines of a container's log, or of that of its previous start; none if they cannot be had."""
    query: Query = {"tailLines": count, **({"previous": "true"} if of_previous else {})}
    found: list[str] = []
    with suppress(ClusterError):  # the container may be gone by now
        found.extend(plain(line) for line in log_lines(container, threading.Event(), False, query))
    return found
