"""The safety monitor: checks consensus and state of a simulated run at every certificate and block.

The monitor is an observer: it sees the certificates that honest validators accept, the blocks that they finalize with
the results, and the proofs that they give. Each new item is compared with the earlier ones: it keeps digests of each
final block, and each view's certified block. A certificate that comes again much later is verified again. The monitor
never raises: violations are noted with their times.

=================  ===================================================================================================
rule               what must hold
=================  ===================================================================================================
certificates,      certificates and final blocks are consistent (:mod:`cluster.audit.safety.certified_chain`)
one_block_a_view,
notarized_first,
skips, certified,
proved_final,
ancestry, leaders
agreement          one block at each height
roots              every validator's execution gives the root of the header
silence            a validator that found a final block that does not execute to its header sends nothing more until a
                   restart
ledger             the books of timers and amounts (:mod:`cluster.audit.ledger`)
proofs             sampled proofs of presence, absence and history verify against headers
bounded            engine and mempool keep no more than their bounds (:mod:`cluster.watches.kept_watch`)
answers            a peer that is stuck in a view is helped on (:mod:`cluster.watches.answer_watch`)
patience           a view is not given up early (:mod:`cluster.watches.patience_watch`)
restraint          nothing unneeded is sent (:mod:`cluster.watches.restraint_watch`)
durable_votes,     a validator's messages fit what it must remember (:mod:`cluster.watches.vote_watch`)
own_votes, lock,
abstention
timeouts,          timers and repetitions follow from past events (:mod:`cluster.watches.pacing_watch`)
repetitions
mempool,           effects are those of a model of the node's part, such as :mod:`cluster.watches.mempool_watch`
execution,
catch_up
figures            a validator's numbers for a final block are those of the books
pruning            no needed block is gone (:mod:`cluster.watches.kept_watch`)
=================  ===================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from blake3 import blake3

from cluster.audit.ledger import Ledger
from cluster.audit.proofs import timers_at
from cluster.audit.safety.certified_chain import CertifiedChain
from cluster.audit.safety.rule_log import RuleLog
from cluster.audit.violation import short
from cluster.common.wording import counted
from cluster.record.archive import BlockRecord
from cluster.record.rules import SafetyRule as Rule
from cluster.record.run import MonitorRecord
from cluster.simulation.machine import Machine
from cluster.watches.watch import Watch
from validator.chain.block import Block, Header, header_hash
from validator.chain.genesis import Genesis
from validator.chain.messages import Reading
from validator.chain.records import account_key
from validator.chain.transactions import address_of
from validator.node.events import BlockFinal, Certified, Diverged
from validator.primitives.codec import CodecError, decode
from validator.primitives.types import Address, Hash
from validator.state import HistoryError, View
from validator.state.proof import ProofError, verify
from validator.storage.archive import ArchivedBlock

PROOFS_EVERY_HEIGHTS: Final = 8
STATE_EVERY_HEIGHTS: Final = 4
RECORDS_SHOWN: Final = 3
HISTORY_HEIGHTS: Final = 4
"""How far below the final height a historical proof is requested."""
FIGURES: Final = {
    "transactions": "transactions",
    "fires": "fires",
    "destroyed": "destroyed",
    "pending": "pending_timers",
    "backlog": "backlog",
    "basefee_cycle": "basefee_cycle",
    "basefee_lane_timer": "basefee_lane_timer",
    "lane_cycles": "lane_cycles",
}
"""The names of a block's numbers in the books, each with its name in validators' reports."""


Prove = Callable[[bytes, int], bytes]
"""``prove(key, height)``: a validator's encoded proof."""


@dataclass(frozen=True, slots=True)
class _Final:
    """A final block, as the first validator reported it."""

    content: bytes
    """A digest of the block and of its receipts (:func:`_digest_of`)."""
    block: bytes
    """A digest of the block."""
    digest: bytes
    """The hash of its header."""
    state_root: bytes
    view: int

    @classmethod
    def of(cls, archived: ArchivedBlock, header: Header) -> _Final:
        content = _digest_of(archived.block, archived.receipts)
        return cls(content, _digest_of(archived.block), header_hash(header), header.state_root, header.view)


@dataclass
class SafetyMonitor(Watch):
    """Checks during one run that consensus and state are safe, and keeps the violations."""

    effects = frozenset({BlockFinal, Certified, Diverged})

    certificates: CertifiedChain
    genesis: Genesis
    log: RuleLog
    retained_heights: int
    """Heights of which validators keep the state (section ``storage``)."""
    on_final: Callable[[int, int, bytes], None] = lambda index, height, block: None
    """``on_final(index, height, block)`` is called with each block that a validator made final and the books have."""
    _final: dict[int, _Final] = field(default_factory=dict)
    _ledger: Ledger | None = None
    _diverged: set[tuple[str, int]] = field(default_factory=set)
    """Validators that diverged, each with the number of the life in which it did."""
    _looked_through: set[int] = field(default_factory=set)
    """The heights whose states were checked."""

    @property
    def divergences(self) -> list[str]:
        """The validators that diverged, in words."""
        return [f"{name} diverged" for name, _ in sorted(self._diverged)]

    @property
    def height(self) -> int:
        """The height of the newest final block seen."""
        return max(self._final, default=0)

    @property
    def ledger(self) -> Ledger:
        """The books of the final blocks seen."""
        if self._ledger is None:
            self._ledger = Ledger(self.genesis)
            self.certificates.genesis_hash = self._ledger.chain.genesis_hash
        return self._ledger

    def record(self) -> MonitorRecord:
        """The counts and violations so far."""
        violations = list(self.log.violations)
        unproved = [height for height, final in self._final.items() if final.view > self.certificates.newest_finalized]
        if unproved:
            violations.append(
                self.log.at_this_time(
                    f"{Rule.PROVED_FINAL}: {len(unproved)} blocks from height {min(unproved)} on were made final, and"
                    f" no validator knows a finalization"
                )
            )
        return MonitorRecord(violations, {rule: self.log.counts[rule] for rule in Rule})

    def ledger_of(self, chain: Sequence[BlockRecord]) -> Ledger | None:
        """The books, if they are of exactly these blocks from the first height on and without a violation so far."""
        if self.log.violations or len(chain) != len(self._final):
            return None
        entered = (self._final.get(height) for height in range(1, len(chain) + 1))
        is_same = all(
            final is not None and final.content == _digest_of(record.block, record.receipts)
            for final, record in zip(entered, chain, strict=True)
        )
        return self._ledger if is_same else None

    # --- what is seen -------------------------------------------------------------------------------------------------

    def sends(self, machine: Machine, recipient: int | None, payload: bytes, content: Reading | None) -> None:
        self.said(machine.name, machine.tally.starts)

    def performs(self, machine: Machine, effect: BlockFinal | Certified | Diverged) -> None:
        """Check a certificate that a validator accepts, or a block that it made final."""
        if type(effect) is Certified:
            self.certificates.certified(machine.name, effect.certificate)
        elif type(effect) is BlockFinal:
            self._finalizes(machine, effect)
        else:
            self.diverged(machine.name, machine.tally.starts)

    def _finalizes(self, machine: Machine, block: BlockFinal) -> None:
        assert machine.validator is not None, "it has made a block final"
        executor, name, height = machine.validator.executor, machine.name, block.height
        archived = executor.archive.get(height)
        assert archived is not None, "a final block was archived"
        self._keeps(machine, height, archived)
        self.counts_of(name, block)
        if executor.final_header.height != height:
            return
        if self.wants_proofs(height, machine.index):
            oldest = max(height - self.retained_heights, executor.archive.joined_height)
            self.check_proofs(name, height, oldest, executor.prove)
        if height % STATE_EVERY_HEIGHTS == 0:
            self.check_state(name, height, executor.final_view)
            told, used = sum(executor.used_bytes.values()), machine.disk.used_bytes
            what = f"{name} counts {told:,} bytes on its disk, and there are {used:,}"
            self.log.look(Rule.FIGURES, told == used, what)

    def opens(self, machine: Machine) -> None:
        """Check the newest blocks of a disk: one may have become durable just before a kill."""
        assert machine.validator is not None, "it has opened its disk"
        archive, recovered = machine.validator.executor.archive, machine.validator.executor.recovered_height
        for height in range(max(1, min(self.height + 1, recovered)), recovered + 1):
            archived = archive.get(height)
            if archived is not None:
                self._keeps(machine, height, archived)

    def _keeps(self, machine: Machine, height: int, archived: ArchivedBlock) -> None:
        self.final(machine.name, height, archived)
        self.on_final(machine.index, height, archived.block)

    # --- final blocks -----------------------------------------------------------------------------------------------

    def final(self, name: str, height: int, archived: ArchivedBlock) -> None:
        """Check a block that a validator made final and archived. The first block of a height enters the books."""
        known = self._final.get(height)
        if known is not None:
            state_root = known.state_root
            is_same = _digest_of(archived.block) == known.block
            self.log.look(Rule.AGREEMENT, is_same, f"{name} has another final block at height {height}")
            if not is_same:
                return
        else:
            try:
                header = decode(archived.block, Block).header
            except CodecError as error:
                self.log.look(
                    Rule.AGREEMENT, False, f"{name} kept a block at height {height} that cannot be read: {error}"
                )
                return
            state_root = header.state_root
        self.log.look(Rule.ROOTS, archived.computed_root == state_root, f"{name} computed another root at {height}")
        if known is not None:
            return
        self._final[height] = final = _Final.of(archived, header)
        ledger = self.ledger
        self.certificates.final(height, header, final.digest)
        self.log.counts[Rule.PROVED_FINAL] += 1
        self._enter(ledger, height, archived)

    def _enter(self, ledger: Ledger, height: int, archived: ArchivedBlock) -> None:
        """Enter a final block into the books, and note the violations that they find in it."""
        known = len(ledger.violations)
        ledger.apply(archived.block, archived.receipts)
        self.log.counts[Rule.LEDGER] += 1
        for violation in ledger.violations[known:]:
            self.log.note(f"{Rule.LEDGER}: height {violation.height}: {violation.what}")

    def counts_of(self, name: str, block: BlockFinal) -> None:
        """Compare the numbers that a validator reports for a final block with the books, which contain the block."""
        ledger, height = self._ledger, block.height
        if ledger is None or ledger.broken or not 0 < height <= len(ledger.blocks):
            return
        wrong = [
            f"{figure} {given:,} of {due:,}"
            for column, figure in FIGURES.items()
            if (given := getattr(block, figure)) != (due := getattr(ledger.blocks, column)[height - 1])
        ]
        what = f"{name} counts otherwise than the books at height {height}: {', '.join(wrong)}" if wrong else ""
        self.log.look(Rule.FIGURES, not wrong, what)

    # --- who diverged -----------------------------------------------------------------------------------------------

    def diverged(self, name: str, life: int) -> None:
        """Note that a validator diverged in its life of this number: a final block does not execute to its header."""
        self._diverged.add((name, life))

    def said(self, name: str, life: int) -> None:
        """Check, when a validator sends a message to its peers, that it has not diverged in this life."""
        is_silent = (name, life) in self._diverged
        self.log.look(Rule.SILENCE, not is_silent, f"{name} diverged and takes part all the same")

    # --- proofs -----------------------------------------------------------------------------------------------------

    def wants_proofs(self, height: int, validator: int) -> bool:
        """Whether a validator that made this height final must give proofs: at some heights, half of the validators in
        turn."""
        times, rest = divmod(height, PROOFS_EVERY_HEIGHTS)
        return not rest and (times + validator) % 2 == 0

    def check_proofs(self, name: str, height: int, oldest: int, prove: Prove) -> None:
        """Check proofs of a validator at this final height: of present keys, of an absent one, and of past heights.

        ``oldest``: the oldest height that it has to retain.
        """
        drawn = blake3(height.to_bytes(8, "big")).digest()
        proposer = address_of(self.genesis.validators[drawn[0] % len(self.genesis.validators)])
        somebody = next(iter(self.genesis.accounts), proposer)
        expected = {drawn: False, **({} if self._ledger is None else timers_at(self._ledger, height))}
        asked = [(key, height) for key in expected]
        past = (max(height - HISTORY_HEIGHTS, oldest), oldest)
        for address, at in ((proposer, height), (somebody, height), *((somebody, before) for before in past)):
            key = account_key(address)
            asked.append((key, at))
            if (is_there := self._has_account(address)) is not None:
                expected[key] = is_there
        for key, at in dict.fromkeys(asked):
            known = self._final.get(at)
            if known is None:
                continue
            try:
                value = verify(Hash(known.state_root), key, prove(key, at))
            except HistoryError as error:
                self.log.look(Rule.PROOFS, False, f"{name}: height {at} cannot be proved: {error}")
                continue
            except ProofError as error:
                self.log.look(
                    Rule.PROOFS, False, f"{name}: height {at}: the proof of {key.hex()} does not verify: {error}"
                )
                continue
            is_wrong = expected.get(key, value is not None) != (value is not None)
            self.log.look(Rule.PROOFS, not is_wrong, f"{name}: height {at}: the proof of {key.hex()} says the contrary")

    def check_state(self, name: str, height: int, state: View) -> None:
        """Compare the whole state of the newest height, which all validators share, with the specification's. This is
        done at the first validator that reaches it."""
        ledger = self._ledger
        if ledger is None or ledger.broken or ledger.height != height or height in self._looked_through:
            return
        self._looked_through.add(height)
        expected, found = ledger.chain.leaves, dict(state.scan(b""))
        wrong = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
        shown = ", ".join(_record_text(key, found.get(key), expected.get(key)) for key in wrong[:RECORDS_SHOWN])
        what = f"{name}: {counted(len(wrong), 'record')} of the state of height {height} are otherwise than specified"
        self.log.look(Rule.STATE, not wrong, f"{what}: {shown}")

    def _has_account(self, address: Address) -> bool | None:
        """Whether an account is there at all heights, or at none so far; ``None`` if it was created on the way.

        The genesis's accounts are never removed, and one unknown to the books was never paid anything.
        """
        if address in self.genesis.accounts:
            return True
        ledger = self._ledger
        return False if ledger is not None and not ledger.broken and address not in ledger.world.balance else None


def _digest_of(*parts: bytes) -> bytes:
    """A hash of several byte strings and their lengths, 32 bytes long."""
    hasher = blake3()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "big"))
        hasher.update(part)
    return hasher.digest()


def _record_text(key: bytes, found: bytes | None, expected: bytes | None) -> str:
    """How a record of the state differs, in words."""
    is_there = "is missing" if found is None else "is too much" if expected is None else "has another value"
    return f"{short(key)} {is_there}"


def broken(record: MonitorRecord, rule: str) -> list[str]:
    """The violations of one rule."""
    return [violation for violation in record.violations if violation.split(": ")[1] == rule]
