"""The audit of a live run while it runs: every final block is fetched once, and compared between validators.

A thread of the driver polls the validators, over HTTP like any client. A validator ahead of the run's store is asked
for blocks and receipts, which the store takes. All others are asked for digests of the blocks that the store has
(``GET /blocks?…&digests=1``), and for a whole block only where the digest differs. So a validator's served chain is
known when its disk is lost or it ends. The audit's ledger, which replays the chain, stays some blocks behind the store,
so that it can stop at each validator's last height.

Violations are reported in words as soon as they are seen; the verdict comes only from the checks at the end.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec

from cluster.audit.books import KeptLedger
from cluster.audit.chains import read_served
from cluster.audit.ledger import Ledger
from cluster.audit.proofs import with_answers
from cluster.audit.violation import BOUNDS, CHAIN, CONSERVATION, STATE_ROOTS, TIMERS
from cluster.live.handover.left import LeftAudit
from cluster.live.handover.rows import Row, Told
from cluster.record.archive import BlockRecord
from cluster.record.chain_store import BlockStore, ServedBlocks
from cluster.record.run import RunRecord, ValidatorRecord
from cluster.record.saved import again, save_validator
from cluster.record.status import MAX_EVIDENCE
from cluster.watches.live.reexecution_process import ReexecutionProcess
from cluster.watches.live.safety_watch import SafetyWatch
from loadgen.client import ClientError, Gone, ValidatorClient

AGREEMENT: Final = "agreement"
SAFETY: Final = "safety"
WATCHED: Final = (AGREEMENT, STATE_ROOTS, CHAIN, TIMERS, CONSERVATION, BOUNDS, SAFETY)
"""The checks that a run can fail before its end."""

BLOCKS_PER_REQUEST: Final = 64
DIGESTS_PER_REQUEST: Final = 256
TIMEOUT_S: Final = 2.0
ROUND_S: Final = 0.5
SHARE: Final = 3
"""Minimum ratio of the pause after a round to the round's duration. In the pause the driver gets the processor."""
LEDGER_LAG: Final = 64
"""Maximum number of blocks that the ledger stays behind the store to wait for a slow validator."""
LEDGER_STEP: Final = 256
"""Blocks that the ledger processes per round."""
MAX_TOLD: Final = 100
"""Maximum number of violations whose texts are kept; all violations are counted."""
MAX_SEEN: Final = 10
"""Violations per check that are kept in the run's record."""
ROUNDS_SKIPPED: Final = 4
"""Number of rounds that skip a validator that did not answer."""
Figure = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


def nothing_yet(record: RunRecord, index: int) -> ValidatorRecord:
    """The record of a validator that was not queried yet."""
    section = record.scenario.validators
    blocks = ServedBlocks(record.store)
    return ValidatorRecord(section.names[index], index, blocks, byzantine=tuple(section.node(index).byzantine))


class _Read(msgspec.Struct):
    """The fields of a status page that are read during a run and at its end. All others are only shown."""

    height: Figure = 0
    first_block: Figure = 1
    snapshot_height: Figure = 0
    recovered_height: Figure = 0
    final_view: Figure = 0
    pending_timers: Figure = 0
    replayed_blocks: Figure = 0
    starts: Figure = 1
    mutant_runs: Figure = 0
    disk_bytes: dict[str, Figure] = {}
    transactions_refused: dict[str, Figure] = {}
    transactions_dropped: dict[str, Figure] = {}
    evidence: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MAX_EVIDENCE)] = []
    diverged: dict[str, Any] | None = None


def read_status(client: ValidatorClient) -> dict[str, Any]:
    """A validator's status page. Raises :class:`ClientError`, also if a field that is read is of another type."""
    page = client.status()
    try:
        msgspec.convert(page, _Read)
    except msgspec.ValidationError as error:
        raise ClientError(f"the status page of {client.endpoint}: {error}") from None
    return page


def first_height_of(status: Mapping[str, Any]) -> int:
    """The first height that a validator has executed itself, by its status page."""
    snapshot_height = status.get("snapshot_height")
    return snapshot_height + 1 if isinstance(snapshot_height, int) and snapshot_height > 0 else 1


def take_blocks(
    client: ValidatorClient, found: ValidatorRecord, store: BlockStore, is_external: bool = False
) -> Iterator[list[int]]:
    """Fetch the blocks that a validator serves above ``found.blocks``, and add them to it and to the store.

    An external validator is asked only for heights that the store has from others: it could serve blocks without end.
    Yields after each answer: the heights at which the new blocks differ from the store's. Raises :class:`ClientError`.
    """
    served = found.blocks
    assert isinstance(served, ServedBlocks)
    while True:
        before = served.tip
        ahead = min(len(store) - served.tip, DIGESTS_PER_REQUEST)
        if is_external and ahead <= 0:
            return
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
    """The violations found so far.

    All are counted. The texts of the first :data:`MAX_TOLD` are kept. The record gets :data:`MAX_SEEN` for each check.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self.counts: Counter[str] = Counter(dict.fromkeys(WATCHED, 0))
        self.words: list[str] = []
        self.seen_in_ledger = self.seen_roots = 0
        """How many of the ledger's violations, and of the wrong roots, were told."""
        self._taken = 0

    def tell(self, check: str, what: str) -> None:
        self.counts[check] += 1
        seen = self._record.seen_violations.setdefault(check, [])
        if len(seen) < MAX_SEEN and what not in seen:
            seen.append(what)
        if len(self.words) < MAX_TOLD:
            self.words.append(f"{check}: {what}")

    def take_new(self) -> list[str]:
        """The texts of the violations since the last call."""
        new = self.words[self._taken :]
        self._taken += len(new)
        return new


class LiveAudit:
    """Audits a live run while it runs. :meth:`close` ends the audit; its findings stay available."""

    def __init__(
        self,
        record: RunRecord,
        now_ms: Callable[[], float] = lambda: 0.0,
        reexecution: ReexecutionProcess | None = None,
        told: Told | None = None,
    ) -> None:
        """``now_ms`` returns the time since the run began. ``reexecution`` re-executes the blocks, if given. ``told``
        gets the votes and certificates that hosts report, if they must outlive this process.
        """
        self._record = record
        self.reexecution = reexecution
        section = record.scenario.validators
        self.known = {index: nothing_yet(record, index) for index in range(section.count)}
        self.kept = KeptLedger(ServedBlocks(record.store), Ledger(record.genesis))
        self.safety = SafetyWatch(record, now_ms, told, self.kept.ledger.chain.genesis_hash)
        self._findings = _Findings(record)
        self._urls: Mapping[int, str] = {}
        self.wants_tiers = False
        """Whether a client of the dashboard waits for :attr:`tiers`, which cost a look at every pending timer."""
        self.tiers: dict[str, int] | None = None
        """Pending timers by tier, at the ledger's height; ``None`` if they are not wanted."""
        self._diverged: set[int] = set()
        self._skipped: Counter[int] = Counter()
        self.lock = threading.Lock()
        """Held by the thread that enters blocks, or judges votes and certificates."""
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._rounds: Future[None] | None = None

        self.take, self.note_hosts, self.doubt = self.safety.take, self.safety.heard.note_hosts, self.safety.heard.doubt

    @property
    def store(self) -> BlockStore:
        return self._record.store

    @property
    def judge_core_seconds(self) -> float:
        """Processor time of the process that executes blocks again."""
        return 0.0 if self.reexecution is None else self.reexecution.judge_core_seconds

    def state(self) -> LeftAudit:
        """The state that another driver's audit needs to go on."""
        chain = ServedBlocks.all_of(self.store)
        known = {index: save_validator(found, chain) for index, found in self.known.items()}
        safety = self.safety
        return LeftAudit(known, safety.counts, list(safety.log.violations), safety.backlog.judged)

    def take_over(self, state: LeftAudit, rows: Iterable[tuple[int, Row]] = ()) -> None:
        """Restore the state of another driver's audit. Blocks that the store no longer has are left out.

        ``rows`` are the votes and certificates that hosts had reported to that driver.
        """
        self.safety.take_over(state, rows)
        self.known = {index: again(found, self.store) for index, found in state.known.items()}

    def enter_unasked(self) -> None:
        """Enter what was seen into the record, if no validator was asked at the run's end."""
        if not self._record.validators:
            self._record.validators = list(self.known.values())
        if self._record.monitor is None:
            self.safety.look(self.store)
            self._record.monitor = with_answers(self.safety.record(), ())

    def start(self) -> None:
        """Start the thread that queries the validators in rounds."""
        self._rounds = self._pool.submit(self._run)

    def close(self) -> None:
        """End the audit's thread after its current request. Raises the :class:`OSError` that ended it early, if any."""
        self._closing.set()
        self._pool.shutdown()
        self._end_rounds()

    def end(self) -> None:
        """End the process that executes blocks again, if there is one."""
        if self.reexecution is not None:
            self.reexecution.close()

    def _end_rounds(self) -> None:
        """Wait for the end of the audit's thread. Raises the error that ended it, if any; a later call does nothing."""
        rounds, self._rounds = self._rounds, None
        if rounds is not None:
            rounds.result()

    def look(self, urls: Mapping[int, str], diverged: Set[int]) -> list[str]:
        """Set which validators can be queried, and which report that they diverged. Returns new violations, in words.

        Raises the :class:`OSError` that ended the audit's thread, if any.
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
        """Number of violations so far, keyed by check."""
        return self._findings.counts

    @property
    def page(self) -> dict[str, Any]:
        """Progress of the audit, and violations so far, for the testnet's status page."""
        judged = [found for found in self.known.values() if not found.byzantine]
        return {
            "blocks": len(self._record.store),
            "compared": min((found.tip for found in judged), default=0),
            "ledger": self.kept.ledger.height,
            "reexecuted": 0 if self.reexecution is None else self.reexecution.height,
            "violations": dict(self.counts),
            "failed": dict(self.kept.ledger.outcomes.failed),
            "told": self._findings.words[:],
        }

    def prunable_height(self, given_up: Set[int] = frozenset()) -> int:
        """The height up to which validators may prune their blocks. Raises :class:`OSError`.

        The store has all blocks up to this height, and every honest validator served them for comparison. ``given_up``
        are validators that will not come back, so they do not count. A late joiner counts once it serves blocks.
        """
        late = self._record.scenario.validators.late
        left = [found for found in self.known.values() if not found.byzantine and found.index not in given_up]
        height = min((found.tip for found in left if found.blocks or found.index not in late), default=0)
        stored = len(self.store)
        self.store.sync()
        return min(height, stored)

    def lose(self, index: int, url: str) -> tuple[ValidatorRecord, bool]:
        """Fetch the last blocks of a validator whose disk is about to be lost, and forget its chain.

        Returns what it served, and whether it answered to the end.
        """
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
        """Query every validator once for new blocks, then check what is new."""
        urls = dict(self._urls)
        # the furthest validator goes first and fills the store; ties rotate
        external, stored = self._record.scenario.validators.external, len(self._record.store)
        order = sorted(urls, key=lambda i: (i in external, -self.known[i].tip, (i + stored) % len(urls)))
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
        self._look_at_reexecution()
        self._advance(answering)
        self.tiers = self.kept.ledger.tiers if self.wants_tiers else None

    def _follow(self, client: ValidatorClient, found: ValidatorRecord) -> None:
        served, store = found.blocks, self._record.store
        assert isinstance(served, ServedBlocks)
        if found.byzantine:
            return  # its blocks are collected at the end, and not compared with others
        before = served.tip
        with suppress(Gone):
            for differing in self.take_blocks(client, found):
                for height in differing:
                    self._compare(found, height, served.differing[height])
                if self._closing.is_set():
                    return
        if served.tip == before and before < len(store):
            status = read_status(client)
            first = first_height_of(status)
            if first > before + 1:  # it joined by a snapshot
                found.first_height, found.blocks = first, ServedBlocks(store, first)
            else:
                self.note_gap(found, status)

    def take_blocks(self, client: ValidatorClient, found: ValidatorRecord) -> Iterator[list[int]]:
        """:func:`take_blocks`, for a validator of the run."""
        is_external = found.index in self._record.scenario.validators.external
        return take_blocks(client, found, self._record.store, is_external)

    def note_gap(self, found: ValidatorRecord, status: Mapping[str, Any]) -> None:
        """Check whether a validator pruned blocks before they were fetched, and report that once.

        The rest of such a validator's chain is unknown.
        """
        tip, first = found.first_height + len(found.blocks) - 1, status.get("first_block", 1)
        problem = f"{found.name} pruned blocks above height {tip}, the last one of its that was audited"
        if first > tip + 1 and problem not in self._record.problems:
            self._record.problems.append(problem)
            self._tell(CHAIN, problem)

    def _compare(self, found: ValidatorRecord, height: int, record: BlockRecord) -> None:
        """Report how a validator's block differs from the store's."""
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
        """Report each new block in the store whose header does not have the root that was computed for it."""
        wrong = self.kept.reader.stored(self._record.store).wrong_roots
        for height in wrong[self._findings.seen_roots :]:
            self._findings.seen_roots += 1
            self._tell_root("whoever served it first", height)

    def _watch_safety(self) -> None:
        """Check the certificates and votes that hosts reported."""
        with self.lock:  # otherwise its state changes while it is written
            self.safety.look(self._record.store)
        for violation in self.safety.log.violations[self.counts[SAFETY] :]:
            self._tell(SAFETY, violation)

    def _look_at_reexecution(self) -> None:
        """Give new blocks to the re-execution process, and report the difference that it found, if any."""
        difference = "" if self.reexecution is None else self.reexecution.look()
        if difference:
            self._tell(STATE_ROOTS, difference)

    def _tell_root(self, whose: str, height: int) -> None:
        self._tell(STATE_ROOTS, f"height {height}: the root that {whose} computed is not the header's")

    def _advance(self, answering: list[int]) -> None:
        """Advance the ledger to the height that every answering validator has, but by at most :data:`LEDGER_STEP`.

        It does not wait for a validator that is more than :data:`LEDGER_LAG` blocks behind the store.
        """
        chain, ledger, stored = self.kept.blocks, self.kept.ledger, len(self._record.store)
        assert isinstance(chain, ServedBlocks)
        common = min((self.known[index].tip for index in answering if not self.known[index].byzantine), default=0)
        chain.extend_as_stored(min(max(common, stored - LEDGER_LAG), ledger.height + LEDGER_STEP))
        self.kept.advance()
        for violation in ledger.violations[self._findings.seen_in_ledger :]:
            self._findings.seen_in_ledger += 1
            self._tell(violation.check, f"height {violation.height}: {violation.what}")

    def _tell(self, check: str, what: str) -> None:
        self._findings.tell(check, what)

    def _name(self, index: int) -> str:
        return self._record.scenario.validators.names[index]
