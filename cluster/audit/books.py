"""The auditor's books of a whole run: one ledger per distinct served chain, and the violations found in each chain.

Validators that served the same bytes share a ledger, so a run of many validators costs about as much as one. The
ledger of the longest chain is the run's; others are kept as far as the checks need them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from cluster.audit.chains import ChainReader, ServedChain, is_part, longest_chain
from cluster.audit.figures import Failure
from cluster.audit.ledger import Ledger
from cluster.audit.reexecution.bisect import bisect
from cluster.audit.reexecution.describe import Page
from cluster.audit.reexecution.evidence import Proof, proofs
from cluster.audit.reexecution.reexecutor import Reexecution
from cluster.audit.specified.judge import SpecifiedChain
from cluster.audit.violation import Violation, hex_bytes
from cluster.record.archive import BlockRecord, DivergedExecution
from cluster.record.chain_store import ServedBlocks, joined
from cluster.record.run import RunRecord, ValidatorRecord
from spec.encoding import address_of
from validator.primitives.types import address_text

MAX_ACCOUNTS_ASKED: Final = 256
MAX_PENDING_ASKED: Final = 256


class Finding(NamedTuple):
    """A violation, and the validators whose chains show it."""

    validators: tuple[str, ...]
    violation: Violation
    evidence: bool = False
    """Whether the violation is in receipts that a diverged validator gave as evidence, instead of in a served chain."""


class FinalQueries(NamedTuple):
    """The accounts and timers about which every validator is asked at the end of a run.

    :class:`ValidatorRecord` keeps the answers as ``balances`` and ``pending_timers``.
    """

    accounts: tuple[str, ...]
    """Addresses, as ``0x…``."""
    timers: tuple[str, ...]
    """Timer ids, as hex: pending ones and ended ones."""


class Tip(NamedTuple):
    """What the ledger expects of a validator's state after its last block."""

    height: int
    balances: Mapping[bytes, int]
    pending: Set[bytes]
    """Ids of pending timers."""
    held: int
    """The sum of the balances of all accounts."""
    burned: int

    @classmethod
    def of(cls, ledger: Ledger) -> Tip:
        world = ledger.world
        return cls(ledger.height, dict(world.balance), frozenset(world.timers), ledger.held, ledger.burned)

    def balance(self, address: str) -> int:
        """The balance of an account, by its address as text."""
        return self.balances.get(hex_bytes(address.removeprefix("0x")), 0)

    def is_pending(self, timer_id: str) -> bool:
        """Whether a timer is pending, by its id in hex."""
        return hex_bytes(timer_id) in self.pending


@dataclass
class KeptLedger:
    """The ledger of a chain from height 1 on, with copies of its state at the heights of validators' last blocks."""

    blocks: Sequence[BlockRecord]
    """The chain's blocks: those that the ledger has processed, then those that it has yet to process."""
    ledger: Ledger
    tips: dict[int, Tip] = field(default_factory=dict)
    reader: ChainReader = field(default_factory=ChainReader)
    """The reader of the run's blocks."""
    entered: int = 0
    """The number of blocks that the ledger has processed, including one that deviates."""

    def __post_init__(self) -> None:
        self._note({self.ledger.height})

    @classmethod
    def of_run(cls, record: RunRecord, chain: Sequence[BlockRecord], kept: KeptLedger | None) -> KeptLedger:
        """The ledger of a run's longest chain, with its state at the tip of each validator of :func:`sharing`.

        It goes on with ``kept`` if that has processed only blocks of this chain, and has the state at each tip that it
        has passed. Else the chain is processed from height 1 on.
        """
        kept = kept or cls(chain, Ledger(record.genesis))
        tips = {validator.tip for validator in sharing(record, chain)}
        is_of_chain = kept.blocks[: kept.entered] == chain[: kept.entered]
        if not is_of_chain or any(tip < kept.ledger.height for tip in tips - kept.tips.keys()):
            kept = cls(chain, Ledger(record.genesis), reader=kept.reader)
        kept.blocks = chain
        return kept.advance(tips)

    def advance(self, tips: Collection[int] = ()) -> KeptLedger:
        """Feed the ledger all blocks that it lacks, and keep a copy of its state at each of the heights ``tips``."""
        self._note(tips)
        for record in self.blocks[self.entered :]:
            if self.ledger.broken:
                break
            self.ledger.apply(record.block, record.receipts)
            self.entered += 1
            self._note(tips)
        return self

    def _note(self, tips: Collection[int]) -> None:
        if self.ledger.height in tips and not self.ledger.broken:
            self.tips[self.ledger.height] = Tip.of(self.ledger)


@dataclass
class Books:
    """The auditor's results for one run, computed once, and read by the checks, the metrics and the report."""

    record: RunRecord
    ledger: Ledger
    """The ledger of the longest chain."""
    chain: Sequence[BlockRecord]
    """The longest chain, from height 1 on."""
    chains: dict[str, ServedChain] = field(default_factory=dict)
    """The served chains, keyed by validator name."""
    lost_chains: list[ServedChain] = field(default_factory=list)
    """The chains of the validators in ``record.lost``, in the same order."""
    findings: list[Finding] = field(default_factory=list)
    tips: dict[str, Tip] = field(default_factory=dict)
    divergences: list[DivergedExecution] = field(default_factory=list)
    """Executions that differ from a final block, as diverged validators report them; sorted by height, then by name."""
    bisections: list[Page] = field(default_factory=list)
    """For each divergence, the first step of the block that differs (:mod:`cluster.audit.reexecution.bisect`)."""
    reasons: dict[Failure, str] = field(default_factory=dict)
    """Why runs of programs failed, and at which line, as far as it was looked for
    (:mod:`cluster.commands.run.reasons`). Receipts have only the errors' names."""
    proofs: list[Proof] = field(default_factory=list)
    """Every proof of misbehaviour presented by a validator that is not byzantine."""

    @cached_property
    def reexecution(self) -> Reexecution:
        """Executes the run's final blocks again, as far as callers ask."""
        record = self.record
        is_stores = record.reexecuted is not None and self.chain == ServedBlocks.all_of(record.store)
        return Reexecution(record.genesis, self.chain, record.reexecuted if is_stores else None)

    @property
    def common_height(self) -> int:
        """The lowest tip among the judged validators; 0 if the record lacks a validator of the scenario."""
        if len(self.record.validators) < self.record.scenario.validators.count:
            return 0
        return min((self.chains[validator.name].tip for validator in self.judged), default=0)

    @cached_property
    def views(self) -> Mapping[int, int]:
        """The consensus view in which each final block was proposed, keyed by height."""
        chains = [self.chains[validator.name] for validator in self.seen]
        return {height: chain.view_at(height) for chain in chains for height in chain.heights}

    @property
    def judged(self) -> list[ValidatorRecord]:
        """All validators but the byzantine ones."""
        return [validator for validator in self.record.validators if not validator.byzantine]

    @property
    def served(self) -> list[tuple[str, ServedChain]]:
        """The non-empty chains served at the end, or before a disk was lost, each with its validator's name.

        Those of byzantine validators are left out.
        """
        served = [(validator.name, self.chains[validator.name]) for validator in self.seen]
        for validator, chain in zip(self.record.lost, self.lost_chains, strict=True):
            if chain and not validator.byzantine:
                served.append((f"{validator.name} with the disk that it lost at height {validator.tip}", chain))
        return served

    @property
    def seen(self) -> list[ValidatorRecord]:
        """The validators that served at least one block, except byzantine ones."""
        return [validator for validator in self.judged if self.chains[validator.name]]


def keep_books(record: RunRecord) -> Books:
    """Compute the :class:`Books` of a run from its record alone. No data that a validator served makes it raise."""
    chain = longest_chain(record.lives)
    kept = KeptLedger.of_run(record, chain, record.kept_ledger)
    books, owners = Books(record, kept.ledger, chain), sharing(record, chain)
    books.chains = {validator.name: kept.reader.read(validator) for validator in record.validators}
    books.lost_chains = [kept.reader.read(validator) for validator in record.lost]
    books.proofs = proofs(record, books.reexecution)  # before what diverged: most build on lower blocks
    if not chain:
        return books
    books.tips = {owner.name: kept.tips[owner.tip] for owner in owners if owner.tip in kept.tips}
    for violation in books.ledger.violations:
        holds = [v for v in owners if v.first_height <= violation.height <= v.tip]
        books.findings.append(Finding(tuple(validator.name for validator in holds), violation))
    for validator in books.judged:
        if validator not in owners:
            own = KeptLedger(_from_the_first(validator, chain), Ledger(record.genesis)).advance({validator.tip})
            if validator.tip in own.tips:
                books.tips[validator.name] = own.tips[validator.tip]
            books.findings.extend(
                Finding((validator.name,), violation)
                for violation in own.ledger.violations
                if violation.height >= validator.first_height
            )
        _enter_divergence(books, validator)
    books.divergences.sort(key=lambda told: (told.height, told.validator))
    if books.divergences:
        books.bisections = bisect(books.reexecution, books.divergences)
    return books


def sharing(record: RunRecord, chain: Sequence[BlockRecord]) -> list[ValidatorRecord]:
    """The validators that are not byzantine and served only blocks of a chain, as that chain has them."""
    return [each for each in record.validators if not each.byzantine and is_part(each, chain)]


def final_queries(ledger: Ledger) -> FinalQueries:
    """Choose the accounts and timers to ask every validator about at the end of a run, from the ledger of its chain.

    Their number is bounded. Accounts of validators come first, then those whose balance differs from the genesis, then
    the rest.
    """
    held, pending, half = ledger.world.balance, list(ledger.world.timers), MAX_PENDING_ASKED // 2
    changed = [address for address in held if held[address] != ledger.started.get(address, 0)]
    proposers = map(address_of, ledger.genesis.validators)
    accounts = list(dict.fromkeys([*proposers, *sorted(changed), *sorted(held)]))
    asked = pending if len(pending) <= MAX_PENDING_ASKED else pending[:half] + pending[-half:]
    return FinalQueries(
        accounts=tuple(map(address_text, accounts[:MAX_ACCOUNTS_ASKED])),
        timers=tuple(key.hex() for key in (*asked, *ledger.timers.ended_last)),
    )


# --- building -------------------------------------------------------------------------------------------------------


def _from_the_first(validator: ValidatorRecord, chain: Sequence[BlockRecord]) -> Sequence[BlockRecord]:
    """A validator's chain from height 1 on. Blocks below the height at which it joined are taken from ``chain``."""
    if validator.first_height == 1:
        return validator.blocks
    return joined(chain[: validator.first_height - 1], validator.blocks)


def _enter_divergence(books: Books, validator: ValidatorRecord) -> None:
    """Note what a validator reports of its divergence, and audit the receipts that it gives as evidence."""
    told: Any = (validator.status or {}).get("diverged")
    if not isinstance(told, dict):
        return
    height = told.get("height")
    if not isinstance(height, int):
        height = 0
    reason, expected, computed = (str(told.get(name, "")) for name in ("reason", "expected_root", "computed_root"))
    receipts, name = hex_bytes(str(told.get("receipts"))), validator.name
    books.divergences.append(DivergedExecution(name, height, reason, expected, computed, receipts, validator.trace))
    before = _from_the_first(validator, books.chain)[: height - 1]
    if not receipts or not 1 <= height <= min(len(before) + 1, len(books.chain)):
        return
    chain = SpecifiedChain(books.record.genesis)
    for record in before:
        chain.enter(record.block, record.receipts)
    deviation = chain.judge_receipts(books.chain[height - 1].block, receipts)
    if deviation is not None:
        books.findings.append(Finding((name,), deviation.violation, evidence=True))
