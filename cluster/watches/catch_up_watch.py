"""The watch of catching up: it checks that a validator that lacks final blocks requests them, from each peer in turn.

- A request for blocks is sent only while none is open. A request is open until blocks come, requested or not, or the
  retry time has passed. When the requested block comes, the next request does not wait for the timer.
- With each request the timer for the next one starts, with the configured time.
- Requests go to the peers round-robin, in the order of their numbers.
- A validator that knows a finalization ahead of its final block requests, executes or commits blocks. It is idle for no
  longer than :data:`IDLE_RETRIES` retry times by its own clock, without pauses.
  A validator that diverged is not followed until it starts again.
- A validator reads one item at a time from its disk for each peer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import Mechanism, SafetyRule
from cluster.simulation.machine import Machine
from cluster.watches.watch import Read, Watch
from consensus.messages import FINALIZE, AnyCertificate
from validator.chain.block import decode_block, header_hash
from validator.chain.messages import BlockRequest, BlockResponse, FinalBlocksRequest, FinalBlocksResponse
from validator.node.events import (
    BlockFinal,
    Certified,
    Completed,
    Diverged,
    Effect,
    Event,
    Message,
    Run,
    Send,
    SetTimer,
    Timeout,
)
from validator.node.executor.jobs import (
    BlocksRead,
    Execute,
    Executed,
    Finalize,
    Finalized,
    FinalizedInvalid,
    Job,
    ReadBlocks,
    ReadSnapshot,
    SnapshotRead,
)
from validator.node.node import DEFAULT_SYNC_RETRY_MS

SYNC: Final = "sync"
IDLE_RETRIES: Final = 2
"""Retry times for which a validator may be idle: one until the next request, one for other events at the same time."""


@dataclass(slots=True)
class _Asking:
    """The watch's knowledge of one validator since its start: its requests, its final blocks, and its work."""

    last_peer: int
    """The peer that got the last request; before the first request, the validator's own index."""
    is_open: bool = False
    wanted: bytes = b""
    """The digest of the block requested last; empty if the last request was for a range of blocks."""
    is_answered: bool = False
    """Whether the block with the digest ``wanted`` came."""
    reading_for: set[int] = field(default_factory=set)
    """The peers for which the validator's executor reads blocks or snapshots."""
    certified_view: int = 0
    """The newest view for which the validator knows a finalization."""
    final_view: int = 0
    """The view of the validator's newest final block."""
    jobs: int = 0
    """Number of blocks being executed or committed."""
    has_diverged: bool = False
    busy_ms: float = 0.0
    """When the validator was last busy catching up, or lacked no final block."""


class CatchUpWatch(Watch):
    """Checks in one run how honest validators catch up on final blocks."""

    SUBJECTS = frozenset(
        {
            BlockResponse,
            BlocksRead,
            Executed,
            FinalBlocksResponse,
            Finalized,
            FinalizedInvalid,
            SnapshotRead,
            SYNC,
        }
    )
    JUDGED = frozenset({BlockFinal, Certified, Diverged, Execute, Finalize, ReadBlocks, ReadSnapshot, Send})

    def __init__(self, names: Sequence[str], look: Look, read: Read, retry_ms: int = DEFAULT_SYNC_RETRY_MS) -> None:
        super().__init__(names, look)
        self._read = read
        self._retry_ms = retry_ms
        self._asking = [_Asking(index) for index in range(len(names))]
        self.lacking: set[int] = set()
        """The validators that know a finalization ahead of their final block, and do nothing about it."""

    def begins(self, machine: Machine) -> None:
        assert machine.validator is not None, "it has started"
        index, view = machine.index, machine.validator.executor.final_header.view
        self._asking[index] = _Asking(index, certified_view=view, final_view=view, busy_ms=machine.own_clock.awake_ms)
        self.lacking.discard(index)

    def judge(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """Check a validator's requests for blocks and the work on them. The time is its own clock's without pauses."""
        index, now_ms = machine.index, machine.own_clock.awake_ms
        asking = self._asking[index]
        is_late = asking.is_answered and type(event) is Timeout and event.timer.owner == SYNC
        _note_event(asking, event, now_ms)
        self._look_at_idleness(index, asking, now_ms)
        for number, effect in enumerate(effects):
            if type(effect) is Send:
                if effect.recipient is None:
                    continue
                request = self._read(effect.payload)
                if isinstance(request, (BlockRequest, FinalBlocksRequest)):
                    what = f"{self._names[index]} has the block that it asked for, and waits for a timer to ask on"
                    self._look(SafetyRule.CATCH_UP, not is_late, what)
                    self._asks(index, asking, effect.recipient, effects[number + 1 : number + 2])
                    asking.wanted = request.digest if type(request) is BlockRequest else b""
                    asking.is_answered = False
                    asking.busy_ms = now_ms
            elif type(effect) is Run:
                self._runs(index, asking, effect.job, now_ms)
            elif type(effect) is Certified:
                _note_certificate(asking, effect.certificate, now_ms)
            elif type(effect) is BlockFinal:
                asking.final_view, asking.busy_ms = effect.view, now_ms
            elif type(effect) is Diverged:
                asking.has_diverged = True
        if asking.certified_view > asking.final_view and not asking.jobs:
            self.lacking.add(index)
        else:
            self.lacking.discard(index)

    def _runs(self, index: int, asking: _Asking, job: Job, now_ms: float) -> None:
        """Check or note a job that a validator gives its executor."""
        if isinstance(job, (Execute, Finalize)):
            asking.jobs, asking.busy_ms = asking.jobs + 1, now_ms
        elif isinstance(job, (ReadBlocks, ReadSnapshot)):
            what = f"{self._names[index]} reads two things at once for {self._names[job.peer]}"
            self._look(SafetyRule.CATCH_UP, job.peer not in asking.reading_for, what)
            asking.reading_for.add(job.peer)

    def _asks(self, index: int, asking: _Asking, peer: int, behind: Sequence[Effect]) -> None:
        name, count = self._names[index], len(self._names)
        self._look(SafetyRule.CATCH_UP, not asking.is_open, f"{name} asks for blocks while a request is open")
        expected = next(other for step in range(1, count + 1) if (other := (asking.last_peer + step) % count) != index)
        what = f"{name} asks {self._names[peer]} for blocks, in the turn of {self._names[expected]}"
        self._look(SafetyRule.CATCH_UP, peer == expected, what)
        timers = [effect.delay_ms for effect in behind if type(effect) is SetTimer and effect.timer.owner == SYNC]
        what = f"{name} asks for blocks, and for the next time sets timers of {timers} ms, not [{self._retry_ms}]"
        self._look(SafetyRule.CATCH_UP, timers == [self._retry_ms], what)
        asking.is_open, asking.last_peer = True, peer
        self.reached.add(Mechanism.BLOCKS_ASKED_FOR)

    def _look_at_idleness(self, index: int, asking: _Asking, now_ms: float) -> None:
        if asking.certified_view <= asking.final_view or asking.jobs or len(self._names) == 1 or asking.has_diverged:
            return
        idle_ms = now_ms - asking.busy_ms
        holds = idle_ms <= IDLE_RETRIES * self._retry_ms
        what = (
            ""
            if holds
            else f"{self._names[index]} knows a finalization of view {asking.certified_view}, has final blocks up to"
            f" view {asking.final_view}, and did nothing about it for {idle_ms:,.0f} ms"
        )
        self._look(SafetyRule.CATCH_UP, holds, what)


def _note_event(asking: _Asking, event: Event, now_ms: float) -> None:
    if type(event) is Timeout:
        asking.is_open &= event.timer.owner != SYNC
    elif type(event) is Message:
        if type(event.content) is BlockResponse:
            asking.is_answered |= asking.is_open and _is_block(event.content.body, asking.wanted)
            asking.is_open = False
        elif type(event.content) is FinalBlocksResponse:
            asking.is_open = False
    elif type(event) is Completed:
        if isinstance(event.result, (Executed, Finalized, FinalizedInvalid)):
            asking.jobs, asking.busy_ms = asking.jobs - 1, now_ms
        elif isinstance(event.result, (BlocksRead, SnapshotRead)):
            asking.reading_for.discard(event.result.peer)


def _note_certificate(asking: _Asking, certificate: AnyCertificate, now_ms: float) -> None:
    if certificate.kind == FINALIZE:
        if asking.certified_view <= asking.final_view:
            asking.busy_ms = now_ms
        asking.certified_view = max(asking.certified_view, certificate.view)


def _is_block(body: bytes, digest: bytes) -> bool:
    block = decode_block(body)
    return block is not None and header_hash(block.header) == digest
