"""The audit of a run, as its driver sees it: a driver reports what it hears, and does not judge."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from cluster.live.handover.left import LeftAudit
from cluster.live.handover.rows import Row, Told
from cluster.live.host.observations import Observation
from cluster.record.run import RunRecord, ValidatorRecord


class Audit(Protocol):
    """The audit of one run."""

    wants_tiers: bool
    """Whether :attr:`tiers` are wanted."""
    tiers: dict[str, int] | None
    """Pending timers by tier; ``None`` if they are not wanted."""
    known: dict[int, ValidatorRecord]
    """What each validator has served."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while :meth:`state` is read."""

    @property
    def page(self) -> dict[str, Any]:
        """Progress, and violations so far, for the testnet's status page."""

    @property
    def judge_core_seconds(self) -> float:
        """Processor time of executing blocks again."""

    def start(self) -> None:
        """Begin to query the validators."""

    def take(self, index: int, observations: Sequence[Observation]) -> None:
        """Take what a host reports of a validator."""

    def note_hosts(self, running: Set[Hashable], answered_s: float) -> None:
        """Note the running processes of hosts, and when the last of them answered (monotonic seconds)."""

    def doubt(self, view: int) -> None:
        """Note that reports of views up to this one may be lost."""

    def look(self, urls: Mapping[int, str], diverged: Set[int]) -> list[str]:
        """Set who can be queried, and who says that it diverged. Returns new violations. Raises :class:`OSError`."""

    def lose(self, index: int, url: str) -> tuple[ValidatorRecord, bool]:
        """Fetch what a validator serves, whose disk is about to be lost, and whether it answered to the end."""

    def prunable_height(self, given_up: Set[int] = ...) -> int:
        """The height up to which validators may prune their blocks. Raises :class:`OSError`."""

    def close(self) -> None:
        """End the queries. Raises :class:`OSError`."""

    def collect(self, urls: dict[int, str], checkpoint: Callable[[], None]) -> None:
        """Fill the record with what validators at rest serve. ``checkpoint`` is called often, and may raise."""

    def enter_unasked(self) -> None:
        """Enter what was seen into the record, if nothing was collected."""

    def end(self) -> None:
        """End every process of the audit."""

    def state(self) -> LeftAudit:
        """The findings, for another driver."""

    def take_over(self, state: LeftAudit, rows: Iterable[tuple[int, Row]] = ...) -> None:
        """Restore the findings of another driver, and take the rows that it kept."""


MakeAudit = Callable[[RunRecord, Path, Callable[[], float], Told | None], Audit]
"""Makes the audit of a run, from its record, its folder, the time since it began in milliseconds, and the file of what
hosts tell, if that must outlive this process."""
