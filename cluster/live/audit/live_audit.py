"""The books of a live run, kept while it runs: every final block is fetched once, and compared with what others have.

A thread of the driver goes round the validators, over HTTP like any client. Whoever is ahead of the run's store is
asked for blocks and receipts, which the store takes; all others for digests of the blocks that the store has
(``GET /blocks?…&digests=1``), and for a whole block only where theirs differs. So what a validator served is known when
its disk or its life ends. The ledger follows some blocks behind, so that it can stop at everybody's last height.

What breaks a rule is told as soon as it is seen, in words; the verdict comes from the checks alone, at the end.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from cluster.audit.books import KeptLedger
from cluster.audit.ledger.context import BOUNDS, CHAIN, CONSERVATION, TIMERS
from cluster.audit.ledger.ledger import Ledger
from cluster.audit.served.chains import read_served
from cluster.live.audit.reexecution_process import ReexecutionBeside
from cluster.live.audit.safety_watch import SafetyWatch
from cluster.live.handover.left_record import LeftAudit, LeftValidator
from cluster.live.handover.told import Row, Told
from cluster.record.archive import BlockRecord
from cluster.record.chain_store import BlockStore, ServedBlocks
from cluster.record.run import RunRecord, ValidatorRecord
from loadgen.client import ClientError, Gone, ValidatorClient

AGREEMENT: Final = "agreement"
STATE_ROOTS: Final = "state_roots"
SAFETY: Final = "safety"
WATCHED: Final = (AGREEMENT, STATE_ROOTS, CHAIN, TIMERS, CONSERVATION, BOUNDS, SAFETY)
"""The checks that a run may already fail while it runs."""

BLOCKS_PER_REQUEST: Final = 64
DIGESTS_PER_REQUEST: Final = 256
TIMEOUT_S: Final = 2.0
ROUND_S: Final = 0.5
SHARE: Final = 3
"""A round is followed by a pause of so many times its length, so that the driver has the processor for itself."""
LEDGER_LAG: Final = 64
"""How many blocks the ledger stays behind the store at most, for a validator that is behind."""
LEDGER_STEP: Final = 256
"""Blocks that the ledger is fed in a round."""
MAX_TOLD: Final = 100
"""Violations kept in words; all are counted."""
MAX_SEEN: Final = 10
"""Of each check, those that stay in the run's record."""
ROUNDS_SKIPPED: Final = 4
"""A validator that did not answer is left alone for so many rounds."""


def nothing_yet(record: RunRecord, index: int) -> ValidatorRecord:
    """The record of a validator that was asked for nothing."""
    section = record.scenario.validators
    blocks = ServedBlocks(record.store)
    return ValidatorRecord(section.names[index], index, blocks, byzantine=tuple(section.node(index).byzantine))


def first_height_of(status: Mapping[str, Any]) -> int:
    """The first height that a validator has executed itself, by its status page."""
    snapshot_height = status.get("snapshot_height")
    return snapshot_height + 1 if isinstance(snapshot_height, int) and snapshot_height > 0 else 1


def take_blocks(client: ValidatorClient, found: ValidatorRecord, store: BlockStore) -> Iterator[list[int]]:
    """Enter all blocks that a validator serves beyond what is known of it, pausing after each answer: yields the
    heights at which they differ from the store's. Raises :class:`ClientError`."""
    served = found.blocks
    assert isinstance(served, ServedBlocks)
    while True:
        before = served.tip
        ahead = min(len(store) - served.tip, DIGESTS_PER_REQUEST)
        if ahead > 0:
            for digest in client.block_digests(served.tip + 1, ahead):
                if digest != store.digest(served.tip + 1):
                    break
                served.extend_as_stored(served.tip + 1)
            else:
                if served.tip == before:
                    return
                yield []
                continue
        count = 1 if ahead > 0 else BLOCKS_PER_REQUEST
        blocks = client.blocks(served.tip + 1, count)
        if not blocks:
            return
        known = len(served.differing)
        for block in blocks:
            served.append(BlockRecord(*block))
        yield list(served.differing)[known:]


class _Findings:
    """Violations: all are counted, the first :data:`MAX_TOLD` kept in words, and the first of each in a record."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self.counts: Counter[str] = Counter(dict.fromkeys(WATCHED, 0))
        self.words: list[str] = []
        self._taken = 0

    def tell(self, check: str, what: str) -> None:
        self.counts[check] += 1
        seen = self._record.seen_violations.setdefault(check, [])
        if len(seen) < MAX_SEEN and what not in seen:
            seen.append(what)
        if len(self.words) < MAX_TOLD:
            self.words.append(f"{check}: {what}")

    def take_new(self) -> list[str]:
        """Those in words since the last call."""
        new = self.words[self._taken :]
        self._taken += len(new)
        return new


class LiveAudit:
    """Follows a run. :meth:`close` ends it; what it knows stays."""

    def __init__(
        self,
        record: RunRecord,
        now_ms: Callable[[], float] = lambda: 0.0,
        beside: ReexecutionBeside | None = None,
    ) -> None:
        """``now_ms`` gives the time since the run began; ``beside`` executes the blocks again, if anything does."""
        self._record = record
        self.beside = beside
        self.safety = SafetyWatch(record, now_ms)
        section = record.scenario.validators
        self.known = {index: nothing_yet(record, index) for index in range(section.count)}
        self.kept = KeptLedger(ServedBlocks(record.store), Ledger(record.genesis))
        self._findings = _Findings(record)
        self._urls: Mapping[int, str] = {}
        self._seen_in_ledger = 0
        self._seen_roots = 0
        self._diverged: set[int] = set()
        self._skipped: Counter[int] = Counter()
        self.lock = threading.Lock()
        """Held by whoever enters blocks, or judges what was told."""
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._rounds: Future[None] | None = None

    @property
    def store(self) -> BlockStore:
        return self._record.store

    def state(self) -> LeftAudit:
        """What the audit of another process needs to go on."""
        return LeftAudit({index: LeftValidator.of(found) for index, found in self.known.items()}, self.safety.state())

    def take_over(self, state: LeftAudit, told: Told | None = None, rows: Iterable[tuple[int, Row]] = ()) -> None:
        """Go on with what the audit of another process knew of validators, as far as the store still has it, and with
        what hosts told that one (:class:`Told`).
        """
        self.safety.take_over(state.safety, told, rows)
        self.known = {index: found.again(self._record.store) for index, found in state.known.items()}

    def start(self) -> None:
        """Go round from now on."""
        self._rounds = self._pool.submit(self._run)

    def close(self) -> None:
        """End the thread, which may be in the middle of a request. Raises :class:`OSError` if that ended it early."""
        self._closing.set()
        self._pool.shutdown()
        self._end_rounds()

    def _end_rounds(self) -> None:
        """Raises what ended the thread, once."""
        rounds, self._rounds = self._rounds, None
        if rounds is not None:
            rounds.result()

    def look(self, urls: Mapping[int, str], diverged: Set[int]) -> list[str]:
        """Tell who can be asked, and who says of itself that it diverged. Returns new violations, in words.

        Raises :class:`OSError` if that ended the thread.
        """
        self._urls = urls
        if self._rounds is not None and self._rounds.done():
            self._end_rounds()
        for index in sorted(diverged - self._diverged):
            self._diverged.add(index)
            self._tell(STATE_ROOTS, f"{self._name(index)} executed a final block to another result, and stopped")
        return self._findings.take_new()

    @property
    def counts(self) -> Counter[str]:
        """Violations so far, by check."""
        return self._findings.counts

    @property
    def page(self) -> dict[str, Any]:
        """How far the books are, and what is wrong so far, as the testnet's status page has it."""
        judged = [found for found in self.known.values() if not found.byzantine]
        return {
            "blocks": len(self._record.store),
            "compared": min((found.tip for found in judged), default=0),
            "ledger": self.kept.ledger.height,
            "reexecuted": 0 if self.beside is None else self.beside.height,
            "violations": dict(self.counts),
            "told": self._findings.words[:],
        }

    def prunable_height(self, given_up: Set[int] = frozenset()) -> int:
        """The height up to which nobody needs blocks of validators any more: the run has them, each validator's are
        compared, and all have them that are to catch up with their own disks. Raises :class:`OSError`.

        ``given_up`` are validators that will not come back. One that joins late counts from when it serves blocks.
        """
        late = self._record.scenario.validators.late
        left = [found for found in self.known.values() if not found.byzantine and found.index not in given_up]
        height = min((found.tip for found in left if found.blocks or found.index not in late), default=0)
        stored = len(self.store)
        self.store.sync()
        return min(height, stored)

    def lose(self, index: int, url: str) -> tuple[ValidatorRecord, bool]:
        """A validator's disk is about to be lost. Returns what it served of it, and whether it served all."""
        with self.lock:
            found, serves = self.known[index], True
            try:
                with ValidatorClient(url, TIMEOUT_S) as client:
                    self._follow(client, found)
            except ClientError:
                serves = False
            self.known[index] = nothing_yet(self._record, index)
        return found, serves

    # --- rounds -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            begun_s = time.monotonic()
            self.go_round()
            self._closing.wait(max(ROUND_S, SHARE * (time.monotonic() - begun_s)))

    def go_round(self) -> None:
        """Ask everybody once, and enter what is new."""
        urls = dict(self._urls)
        # whoever is furthest goes first and fills the store, and of these another one each time
        order = sorted(urls, key=lambda index: (-self.known[index].tip, (index + len(self._record.store)) % len(urls)))
        answering: list[int] = []
        for index in order:
            if self._closing.is_set():
                return
            if self._skipped[index]:
                self._skipped[index] -= 1
                continue
            try:
                with self.lock, ValidatorClient(urls[index], TIMEOUT_S) as client:
                    self._follow(client, self.known[index])
                answering.append(index)
            except ClientError:
                self._skipped[index] = ROUNDS_SKIPPED
        self._audit_roots()
        self._watch_safety()
        self._look_beside()
        self._advance(answering)

    def _follow(self, client: ValidatorClient, found: ValidatorRecord) -> None:
        served, store = found.blocks, self._record.store
        assert isinstance(served, ServedBlocks)
        if found.byzantine:
            return  # what it serves is asked for at the end, and is no measure for others
        before = served.tip
        with suppress(Gone):
            for differing in take_blocks(client, found, store):
                for height in differing:
                    self._compare(found, height, served.differing[height])
                if self._closing.is_set():
                    return
        if served.tip == before and before < len(store):
            status = client.status()
            first = first_height_of(status)
            if first > before + 1:  # it joined by a snapshot
                found.first_height, found.blocks = first, ServedBlocks(store, first)
            else:
                self.note_gap(found, status)

    def note_gap(self, found: ValidatorRecord, status: Mapping[str, Any]) -> None:
        """If a validator pruned blocks before they were taken, nothing of it is known from there on: say so, once."""
        tip, first = found.first_height + len(found.blocks) - 1, status.get("first_block", 1)
        problem = f"{found.name} pruned blocks above height {tip}, the last one of its that was audited"
        if first > tip + 1 and problem not in self._record.problems:
            self._record.problems.append(problem)
            self._tell(CHAIN, problem)

    def _compare(self, found: ValidatorRecord, height: int, record: BlockRecord) -> None:
        """Tell how a validator's block differs from the store's."""
        other = self._record.store.at(height) if height <= len(self._record.store) else None
        mine = read_served(record)
        if mine is None:
            self._tell(CHAIN, f"{found.name}: the block at height {height} cannot be read")
            return
        if mine.header_root != mine.computed_root:
            self._tell_root(found.name, height)
        if other is not None and other.block != record.block:
            self._tell(AGREEMENT, f"{found.name} has another block at height {height} than others")
        elif other is not None and other.receipts != record.receipts:
            self._tell(CHAIN, f"{found.name} serves other receipts at height {height} than others")

    def _audit_roots(self) -> None:
        """Look at the roots of the blocks that the store took."""
        wrong = self.kept.reader.stored(self._record.store).wrong_roots
        for height in wrong[self._seen_roots :]:
            self._seen_roots += 1
            self._tell_root("whoever served it first", height)

    def _watch_safety(self) -> None:
        """Look at what hosts told of certificates and votes."""
        with self.lock:  # else its state changes while it is written
            self.safety.look(self._record.store)
        for violation in self.safety.log.violations[self.counts[SAFETY] :]:
            self._tell(SAFETY, violation)

    def _look_beside(self) -> None:
        """Feed the re-execution, and tell what it gives otherwise."""
        difference = "" if self.beside is None else self.beside.look()
        if difference:
            self._tell(STATE_ROOTS, difference)

    def _tell_root(self, whose: str, height: int) -> None:
        self._tell(STATE_ROOTS, f"height {height}: the root that {whose} computed is not the header's")

    def _advance(self, answering: list[int]) -> None:
        """Feed the ledger what everybody who answers has."""
        chain, ledger, stored = self.kept.blocks, self.kept.ledger, len(self._record.store)
        assert isinstance(chain, ServedBlocks)
        common = min((self.known[index].tip for index in answering if not self.known[index].byzantine), default=0)
        chain.extend_as_stored(min(max(common, stored - LEDGER_LAG), ledger.height + LEDGER_STEP))
        self.kept.advance()
        for violation in ledger.log.violations[self._seen_in_ledger :]:
            self._seen_in_ledger += 1
            self._tell(violation.check, f"height {violation.height}: {violation.what}")

    def _tell(self, check: str, what: str) -> None:
        self._findings.tell(check, what)

    def _name(self, index: int) -> str:
        return self._record.scenario.validators.names[index]
