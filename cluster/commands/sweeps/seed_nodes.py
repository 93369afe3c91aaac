"""The nodes on which the seeds of a sweep run, and how many at a time on each.

A local Ray has one node. In a joined cluster the nodes that are marked for seeds take part, or all if none is marked.
A node takes part once a survey (:func:`surveyor`) shows that it has the same Python, packages and code. If some
nodes lack the code, the driver joins the cluster again with the code as its runtime environment. A node then has one
worker until its first seed has ended, so that it compiles the code once. Nodes may join and be lost at any time.

A survey is the first code of Stampede that runs on a node. It is pickled by value and needs only Python, so that it
also answers on a node without a checkout. Compiled code (``__pycache__``, Numba's caches) is neither compared nor
shipped: it depends on the machine and on the times of the source files.
"""

from __future__ import annotations

import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from cluster.common.checkout import ROOT
from cluster.common.errors import BadInput, HarnessError
from cluster.common.interrupts import Interrupts
from cluster.common.plugins import CHECKS, FAULTS, PLANTED, PROJECT, SECTIONS, points
from cluster.common.wording import counted, first_few
from cluster.live.driver.ray_session import RaySession, one_line
from cluster.live.nodes.ray_nodes import SEEDS, RayNode, with_role
from loadgen.workloads.registry import GROUP as WORKLOADS
from validator.primitives.offered import package_of

FOLDERS: Final = ("actors", "cluster", "consensus", "kits", "loadgen", "scenarios", "spec", "validator")
"""Folders that are compared and shipped."""
SUFFIXES: Final = (".css", ".html", ".j2", ".js", ".json", ".py", ".pyi", ".yaml")
"""Suffixes of the compared and shipped files; other files are compiled, or the user's own."""
PACKAGES: Final = (
    "blake3",
    "hypothesis",
    "jinja2",
    "llvmlite",
    "locust",
    "msgpack",
    "msgspec",
    "networkx",
    "numba",
    "numpy",
    "psutil",
    "pycryptodome",
    "pydantic",
    "pynacl",
    "pyyaml",
    "ray",
    "urllib3",
    "uvloop",
)
"""Distributions whose versions must be the same everywhere; so must be those of packages that add to :data:`ADDED`."""
ADDED: Final = (CHECKS, FAULTS, PLANTED, SECTIONS, WORKLOADS)
"""Groups of entry points from which a scenario names what its runs execute."""
PYTHON: Final = "Python"
SHOWN: Final = 3
"""Maximum number of differences in a line."""
OLDEST: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file of an archive, so that equal code makes equal archives."""

Survey = tuple[dict[str, str | None], str | None]
"""Versions of Python and packages (``None`` if not installed), and the digest of the code (``None`` without code)."""


class Differences(NamedTuple):
    """How a node differs from this process."""

    versions: str
    """Different versions of Python and packages, in one line; empty if they are the same."""
    has_code: bool
    """Whether the node has the same code as this process."""


def surveyor() -> Callable[[], Survey]:
    """A function that surveys the process in which it is called. It is pickled by value."""
    added = {package_of(point) for group in ADDED for point in points(group) if point.dist is not None} - {PROJECT}
    folders, suffixes, packages, python = FOLDERS, SUFFIXES, (*PACKAGES, *sorted(added)), PYTHON

    def survey() -> Survey:
        import hashlib
        import importlib.util
        import platform
        from importlib import metadata
        from pathlib import Path

        versions: dict[str, str | None] = {python: platform.python_version()}
        for package in packages:
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                versions[package] = None
        found = importlib.util.find_spec("cluster")
        places = list(found.submodule_search_locations or ()) if found is not None else []
        if not places:
            return versions, None
        root, digest = Path(places[0]).parent, hashlib.sha256()
        for folder in folders:
            files = [path for path in (root / folder).rglob("*") if path.suffix in suffixes and path.is_file()]
            for name, path in sorted((path.relative_to(root).as_posix(), path) for path in files):
                content = path.read_bytes()
                digest.update(f"{len(name)} {name} {len(content)} ".encode() + content)
        return versions, digest.hexdigest()

    return survey


def compare(here: Survey, there: Survey) -> Differences:
    """How a node's survey differs from that of this process."""
    mine, theirs = here[0], there[0]
    differing = [
        f"{name} is {theirs.get(name) or 'missing'} there and {mine[name] or 'missing'} here"
        for name in mine
        if mine[name] != theirs.get(name)
    ]
    return Differences(first_few(differing, SHOWN), here[1] == there[1])


def code_files(root: Path = ROOT) -> Iterator[Path]:
    """The files of the code, in order."""
    for folder in FOLDERS:
        yield from sorted(path for path in (root / folder).rglob("*") if path.suffix in SUFFIXES and path.is_file())


def write_archive(target: Path, root: Path = ROOT) -> None:
    """Write the code as a zip file, the same bytes for the same code. Raises :class:`OSError`."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in code_files(root):
            archive.writestr(zipfile.ZipInfo(path.relative_to(root).as_posix(), OLDEST), path.read_bytes())


LOOK_EVERY_S: Final = 1.0
POLL_S: Final = 0.2
SURVEY_TIMEOUT_S: Final = 90.0
"""A node that does not answer a survey within this time is not used."""
PATIENCE_S: Final = 60.0
"""If no node is left, the sweep waits this long for one to join."""
SURVEYS: Final = 10
"""Maximum number of surveys of a node that was sent the code but still reports different code."""
ARCHIVE: Final = "stampede.zip"


@dataclass(slots=True, eq=False)
class SeedNode:
    """A node of the cluster that runs seeds of the sweep."""

    node: RayNode
    slots: int
    """Maximum number of workers at a time."""
    memory: int
    """Bytes that Ray reserves for each worker."""
    compiles: bool = False
    """Whether the node's first seed compiles the code."""
    is_lost: bool = False
    busy: int = 0
    """Number of workers that run now."""
    done: int = 0
    """Count of numbers (seeds) that ended on this node."""
    seconds: float = 0.0
    """Total run time, in seconds, of the numbers that ended on this node."""
    returned: int = 0
    """Count of numbers that were lost on this node and run again."""
    pending: Any = None
    """Reference to the pending answer, while the node is being asked whether it is alive; else ``None``."""

    @property
    def is_open(self) -> bool:
        """Whether the node is alive, as far as is known."""
        return not self.is_lost and self.pending is None

    @property
    def has_room(self) -> bool:
        return self.is_open and self.busy < (1 if self.compiles and not self.done else self.slots)

    @property
    def progress(self) -> str:
        """The node's progress, in one line."""
        line = f"node {self.node.name}: {counted(self.done, 'seed')}"
        if self.done:
            line += f", {self.seconds / self.done:.1f} s a seed"
        if self.returned:
            line += f", {self.returned:,} begun again"
        return line + (", lost" if self.is_lost else "")


class SeedNodes:
    """The nodes that run the seeds of a sweep. :meth:`open` finds them, :meth:`look` updates their state."""

    def __init__(
        self,
        session: RaySession,
        workers: int | None,
        memory: int,
        interrupts: Interrupts,
        notice: Callable[[str], None],
    ) -> None:
        """``workers`` is the maximum number of workers at a time (``None``: as many as fit). ``memory`` is the number
        of bytes for each."""
        self._session = session
        self._workers = workers
        self._memory = memory
        self._interrupts = interrupts
        self._notice = notice
        self._nodes: dict[str, SeedNode] = {}
        self._asked: dict[Any, tuple[RayNode, float]] = {}
        """Surveys under way, keyed by pending answer: the node, and the monotonic time at which it was asked."""
        self._refused: set[str] = set()
        self._lacking: list[RayNode] = []
        self._answers: Counter[str] = Counter()
        """Number of surveys that found different code, by node id."""
        self._is_shipped = False
        self._looked = time.monotonic()
        self._usable_s = time.monotonic()
        """When a node was last available, in monotonic seconds."""
        self._survey = surveyor()
        self._here = self._survey()

    # --- finding nodes ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Find the nodes. Raises :class:`BadInput` if none can take part."""
        nodes = self._session.nodes()
        if self._session.is_ours:
            self._nodes = {node.node_id: self._seed_node(node, self._workers) for node in nodes}
            return
        self._ask_new(self._session.nodes())
        self._wait_while(lambda: bool(self._asked))
        if self._lacking and self._ship():
            self._nodes.clear()
            self._lacking.clear()
            self._ask_new(self._session.nodes())
            self._wait_while(lambda: bool(self._asked) and not self._nodes)
        self._refuse_lacking()
        if not self._nodes:
            raise BadInput("no node of the Ray cluster can run seeds")

    def _wait_while(self, is_unknown: Callable[[], bool]) -> None:
        while is_unknown():
            self._interrupts.wait(POLL_S)
            self._take_surveys()

    def _refuse_lacking(self) -> None:
        while self._lacking:
            self._refuse(self._lacking.pop(), "its code differs from the code here")

    def _ask_new(self, nodes: list[RayNode]) -> None:
        known = {*self._nodes, *self._refused, *(node.node_id for node, _ in self._asked.values())}
        for node in with_role(nodes, SEEDS) or [node for node in nodes if node.is_alive]:
            if node.node_id not in known and node.resources.get("CPU", 0) >= 1:
                self._asked[self._ask(node)] = node, time.monotonic()

    def _ask(self, node: RayNode) -> Any:
        return self._session.call_on(node.node_id, self._survey)

    def _take_surveys(self) -> None:
        for answer, (node, since) in list(self._asked.items()):
            is_late = time.monotonic() > since + SURVEY_TIMEOUT_S
            if self._is_there(answer):
                del self._asked[answer]
                self._take_survey(node, answer)
            elif is_late:
                del self._asked[answer]
                self._refuse(node, f"it did not answer within {SURVEY_TIMEOUT_S:g} s")

    def _take_survey(self, node: RayNode, answer: Any) -> None:
        try:
            differences = compare(self._here, self._session.ray.get(answer))
        except self._session.ray.exceptions.RayError as error:
            self._refuse(node, one_line(error))
            return
        if differences.versions:
            self._refuse(node, differences.versions)
        elif not differences.has_code:
            self._answers[node.node_id] += 1
            if self._is_shipped and self._answers[node.node_id] < SURVEYS:  # its environment may be incomplete
                self._asked[self._ask(node)] = node, time.monotonic()
            else:
                self._lacking.append(node)
        else:
            self._nodes[node.node_id] = found = self._seed_node(node)
            found.compiles = self._is_shipped

    def _refuse(self, node: RayNode, reason: str) -> None:
        self._refused.add(node.node_id)
        self._notice(f"node {node.name} gets no seeds: {reason}")

    def _seed_node(self, node: RayNode, workers: int | None = None) -> SeedNode:
        memory = int(node.resources.get("memory", self._memory))
        slots = workers or max(1, min(int(node.resources.get("CPU", 0)), memory // self._memory))
        return SeedNode(node, slots, min(self._memory, memory // slots))

    def _ship(self) -> bool:
        """Join the cluster again, with the code as runtime environment. Returns whether that succeeded."""
        names = ", ".join(node.name for node in self._lacking)
        with tempfile.TemporaryDirectory(prefix="stampede-code-") as folder:
            archive = Path(folder) / ARCHIVE
            write_archive(archive)
            self._is_shipped = self._session.rejoin({"working_dir": str(archive)})
            if self._is_shipped:
                size = archive.stat().st_size / 2**20
                self._notice(f"the code is sent to the nodes ({size:.1f} MiB): {names} did not have it")
        return self._is_shipped

    # --- state of nodes -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Update which nodes joined, are ready or are lost. Raises :class:`HarnessError` if there was no usable node
        for :data:`PATIENCE_S`."""
        self._take_surveys()
        self._refuse_lacking()
        for each in self._nodes.values():
            if each.pending is not None and not each.is_lost and self._is_there(each.pending):
                self._take_pending(each)
        if any(not each.is_lost for each in self._nodes.values()):
            self._usable_s = time.monotonic()
        if self._session.is_ours or time.monotonic() < self._looked + LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        nodes = self._session.nodes()
        self._ask_new(nodes)
        alive = {node.node_id for node in nodes if node.is_alive}
        reasons = {node.node_id: node.why_lost for node in nodes}
        for each in self._nodes.values():
            if each.node.node_id not in alive:
                self.lose(each, reasons.get(each.node.node_id) or "Ray does not say why")
        if time.monotonic() > self._usable_s + PATIENCE_S:
            raise HarnessError(f"every node that ran seeds is lost, and none joined within {PATIENCE_S:g} s")

    def _take_pending(self, node: SeedNode) -> None:
        try:
            self._session.ray.get(node.pending)
        except self._session.ray.exceptions.RayError as error:
            self.lose(node, one_line(error))
        else:
            node.pending = None

    def lose(self, node: SeedNode, reason: str) -> None:
        """Mark the node as lost; it gets no more work."""
        if not node.is_lost:
            node.is_lost, node.pending = True, None
            self._notice(f"node {node.node.name} is lost: {reason}")

    def doubt(self, node: SeedNode) -> None:
        """Ask a node whose worker died whether it is alive; it gets no work until it answers."""
        if not node.is_lost and node.pending is None:
            node.pending = self._ask(node.node)

    def _is_there(self, answer: Any) -> bool:
        return bool(self._session.ray.wait([answer], timeout=0)[0])

    # --- work ---------------------------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """Maximum number of workers at a time, over all nodes."""
        found = sum(each.slots for each in self._nodes.values() if not each.is_lost)
        return max(1, found if self._workers is None else min(found, self._workers))

    def pick(self) -> SeedNode | None:
        """The node with the smallest share of its worker slots in use; ``None`` if no node has a free slot."""
        free = [each for each in self._nodes.values() if each.has_room]
        if not free or sum(each.busy for each in self._nodes.values()) >= self.slots:
            return None
        return min(free, key=lambda each: each.busy / each.slots)

    def progress(self) -> Iterator[str]:
        """The progress as text: a line for each node of a cluster, none for a local Ray."""
        if not self._session.is_ours:
            yield from (each.progress for each in self._nodes.values())
