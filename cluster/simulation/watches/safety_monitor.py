"""The safety monitor: checks consensus and state of a simulated run at every certificate and block.

The monitor is an observer: it sees the certificates that honest validators believe, the blocks that they make final
with what they computed, and proofs that they give. What comes late is compared with what came first: of each final
block it keeps digests, of each view what was certified. A certificate that comes again much later is verified again. It
raises nothing: what is wrong is written down with its time.

=================  ===================================================================================================
rule               what must hold
=================  ===================================================================================================
certificates       each is signed by a quorum of distinct members of its view's committee, for this chain, view, kind
                   and block (:mod:`cluster.audit.certificates`)
one_block_a_view   a view has one notarized block, and finalizes no other
notarized_first    who finalises a view knows the notarization of its block, or somebody did
skips              Simplex: a finalised view has no nullification. HotStuff: a quorum that times out in a finalised
                   view or later names that view or a later one
agreement          one block at each height
roots              everybody's execution gives the root of the header
certified          the final block of a view is the one that the view's certificates name, with that parent view; no
                   finalised view is passed over
proved_final       each final block's view, or a later one, is finalised by a certificate, by the end at the latest
ancestry           a final block's parent is the final block below it, and every view between the two is skipped with
                   the certificates that the protocol asks for
leaders            a final block's proposer leads its view
silence            whoever found a final block that does not execute to its header says nothing more, until it restarts
ledger             the books of timers and amounts (:mod:`cluster.audit.ledger.ledger`)
proofs             sampled proofs of presence, absence and history verify against headers
bounded            an engine keeps no more than its bounds (:mod:`cluster.simulation.watches.memory_watch`)
answers            a peer that is stuck in a view is helped on (:mod:`cluster.simulation.watches.answer_watch`)
patience           a view is not given up early (:mod:`cluster.simulation.watches.patience_watch`)
durable_votes,     what a validator says goes with what it must remember (:mod:`cluster.simulation.watches.vote_watch`)
own_votes, lock,
abstention
=================  ===================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from blake3 import blake3

from cluster.audit.certificates import highest_named, is_certified
from cluster.audit.ledger.ledger import Ledger
from cluster.audit.served_proofs import timers_at
from cluster.record.archive import BlockRecord
from cluster.record.rules import SafetyRule as Rule
from cluster.record.run import MonitorRecord
from cluster.simulation.watches.rule_log import RuleLog
from consensus.keys import ValidatorSet
from consensus.messages import AnyCertificate, Certificate, TimeoutCertificate, VoteKind
from consensus.types import GENESIS_VIEW, Digest, View
from validator.chain.block import Block, Header, header_hash
from validator.chain.genesis import Genesis
from validator.chain.records import account_key
from validator.chain.transactions import address_of
from validator.primitives.codec import CodecError, decode
from validator.primitives.types import Address, Hash
from validator.state import HistoryError
from validator.state.proofs.proof import ProofError, verify
from validator.storage.archive import ArchivedBlock

PROOFS_EVERY_HEIGHTS: Final = 8
CERTIFICATES_REMEMBERED: Final = 4_096
"""The newest ones that were verified; a certificate that comes again is not looked at again."""
HISTORY_HEIGHTS: Final = 4
"""How far below the final height a historical proof is asked for."""


Subject = tuple[View, Digest]
"""The fields of a certificate of a block beside its view: parent view and digest."""

Prove = Callable[[bytes, int], bytes]
"""``prove(key, height)``: a validator's encoded proof."""


@dataclass(slots=True)
class _View:
    """The monitor's knowledge of one view."""

    notarized: Subject | None = None
    finalized: Subject | None = None
    nullified: bool = False


@dataclass(frozen=True, slots=True)
class _Final:
    """A final block, as the first validator that had it."""

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


@dataclass(slots=True)
class SafetyMonitor:
    """One run's."""

    validators: ValidatorSet
    namespace: bytes
    genesis: Genesis
    leader: Callable[[View], int]
    """Of a view."""
    log: RuleLog
    _views: dict[int, _View] = field(default_factory=dict)
    _seen: dict[AnyCertificate, None] = field(default_factory=dict)
    """The newest certificates, in their order."""
    _final: dict[int, _Final] = field(default_factory=dict)
    _final_of: dict[int, Subject] = field(default_factory=dict)
    """By view the final block: what a certificate of it says."""
    _passed: int = GENESIS_VIEW
    """Up to this view nothing is made final any more that is not."""
    _timeouts: dict[int, int] = field(default_factory=dict)
    """Of the timeout certificates of a view the lowest high view: how far back they permit to skip."""
    _newest_finalized: int = GENESIS_VIEW
    _ledger: Ledger | None = None
    _diverged: set[tuple[str, int]] = field(default_factory=set)
    """Validators that did, and in which of their lives."""

    @property
    def height(self) -> int:
        """The newest final block that was seen."""
        return max(self._final, default=0)

    @property
    def ledger(self) -> Ledger:
        """The books of the final blocks that were seen."""
        if self._ledger is None:
            self._ledger = Ledger(self.genesis)
        return self._ledger

    def record(self) -> MonitorRecord:
        """The counts and violations so far."""
        violations = list(self.log.violations)
        unproved = [height for height, final in self._final.items() if final.view > self._newest_finalized]
        if unproved:
            violations.append(
                self.log.at_this_time(
                    f"{Rule.PROVED_FINAL}: {len(unproved)} blocks from height {min(unproved)} on were made final, and"
                    f" nobody knows a finalization"
                )
            )
        return MonitorRecord(violations, {rule: self.log.counts[rule] for rule in Rule})

    def ledger_of(self, chain: Sequence[BlockRecord]) -> Ledger | None:
        """The books, if they are of exactly these blocks from the first height on and nothing was wrong so far."""
        if self.log.violations or len(chain) != len(self._final):
            return None
        entered = (self._final.get(height) for height in range(1, len(chain) + 1))
        is_same = all(
            final is not None and final.content == _digest_of(record.block, record.receipts)
            for final, record in zip(entered, chain, strict=True)
        )
        return self._ledger if is_same else None

    # --- certificates -----------------------------------------------------------------------------------------------

    def certified(self, name: str, certificate: AnyCertificate) -> None:
        """A validator believes a certificate."""
        if certificate in self._seen:
            return
        self._seen[certificate] = None
        if len(self._seen) > CERTIFICATES_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self.log.look(Rule.CERTIFICATES, self._is_signed(certificate), f"{name} believes a bad {_words(certificate)}")
        view = self._views.setdefault(certificate.view, _View())
        if isinstance(certificate, TimeoutCertificate):
            self._on_timeouts(name, certificate)
        elif certificate.kind == VoteKind.NULLIFY:
            view.nullified = True
            self.log.look(Rule.SKIPS, view.finalized is None, f"view {certificate.view} is nullified and final")
        elif certificate.kind == VoteKind.NOTARIZE:
            self._on_notarization(certificate, view)
        else:
            self._on_finalization(name, certificate, view)

    def _is_signed(self, certificate: AnyCertificate) -> bool:
        return is_certified(certificate, self.validators, self.namespace, self._newest_finalized)

    def _on_notarization(self, certificate: Certificate, view: _View) -> None:
        subject = (certificate.parent_view, certificate.digest)
        other = view.notarized or view.finalized
        self.log.look(Rule.ONE_BLOCK, other in (None, subject), f"view {certificate.view} has two notarized blocks")
        view.notarized = view.notarized or subject
        self._compare(certificate.view, view)

    def _on_finalization(self, name: str, certificate: Certificate, view: _View) -> None:
        number, subject = certificate.view, (certificate.parent_view, certificate.digest)
        known = view.notarized is not None
        self.log.look(
            Rule.NOTARIZED_FIRST, known, f"{name} finalises view {number}, whose block nobody knows to be notarized"
        )
        self.log.look(
            Rule.ONE_BLOCK,
            view.notarized in (None, subject),
            f"view {number} finalises another block than it notarized",
        )
        self.log.look(Rule.ONE_BLOCK, view.finalized in (None, subject), f"view {number} finalises two blocks")
        self.log.look(Rule.SKIPS, not view.nullified, f"view {number} is final and nullified")
        low = [at for at, high in self._timeouts.items() if at >= number and high < number]
        self.log.look(Rule.SKIPS, not low, f"view {number} is final, which timeouts of view {low[:1]} did not know")
        view.finalized = subject
        self._newest_finalized = max(self._newest_finalized, number)
        self._compare(number, view)
        if number <= self._passed and number not in self._final_of:
            self.log.look(Rule.CERTIFIED, False, f"view {number} is finalised, and no final block is of it")

    def _compare(self, number: int, view: _View) -> None:
        """Hold the certificates of a view against its final block, if both are known."""
        block = self._final_of.get(number)
        if block is None:
            return
        for subject, verb in ((view.notarized, "notarizes"), (view.finalized, "finalises")):
            if subject is not None:
                self.log.look(
                    Rule.CERTIFIED, subject == block, f"view {number} {verb} another block than was made final"
                )

    def _on_timeouts(self, name: str, certificate: TimeoutCertificate) -> None:
        high = highest_named(certificate)
        self._timeouts[certificate.view] = min(high, self._timeouts.get(certificate.view, high))
        newest = self._newest_finalized
        if newest > certificate.view:
            finalized = (at for at, other in self._views.items() if other.finalized and at <= certificate.view)
            newest = max(finalized, default=GENESIS_VIEW)
        self.log.look(
            Rule.SKIPS,
            high >= newest,
            f"{name}: timeouts of view {certificate.view} go back to {high}, past final {newest}",
        )

    # --- final blocks -----------------------------------------------------------------------------------------------

    def final(self, name: str, height: int, archived: ArchivedBlock) -> None:
        """A validator made a block final, and kept this of it."""
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
        self._enter_view(height, header, final.digest)
        for what in self._ancestry_problems(height, header):
            self.log.look(Rule.ANCESTRY, False, f"the final block at height {height} {what}")
        self.log.counts[Rule.ANCESTRY] += 1
        self.log.counts[Rule.PROVED_FINAL] += 1
        view, proposer = View(header.view), header.proposer
        what = f"the final block at height {height} is of validator {proposer}, {self.leader(view)} leads view {view}"
        self.log.look(Rule.LEADERS, proposer == self.leader(view), what)
        self._enter(height, archived)

    def _enter_view(self, height: int, header: Header, digest: bytes) -> None:
        """Compare a final block with the certificates of its view, and of those that it passes over."""
        parent_view = self._view_below(height)
        self._final_of.setdefault(header.view, (parent_view, Digest(digest)))
        self._compare(header.view, self._views.get(header.view, _View()))
        for number in range(parent_view + 1, header.view):
            view = self._views.get(number)
            if view is not None and view.finalized is not None:
                self.log.look(Rule.CERTIFIED, False, f"view {number} is finalised, and height {height} passes it over")
        self._passed = max(self._passed, header.view)

    def _ancestry_problems(self, height: int, header: Header) -> Iterator[str]:
        if header.height != height:
            yield f"says height {header.height}"
        parent = self._final.get(height - 1)
        if parent is None and height > 1:
            yield "comes before the one below it"
        if parent is not None and header.parent_hash != parent.digest:
            yield "does not build on the one below it"
        parent_view = self._view_below(height)
        if header.view <= parent_view:
            yield f"is of view {header.view}, its parent of view {parent_view}"
        elif not self._is_skip_justified(parent_view, header.view):
            yield f"skips from view {parent_view} to {header.view} without the certificates for it"

    def _view_below(self, height: int) -> View:
        """Of the final block below a height."""
        parent = self._final.get(height - 1)
        return View(GENESIS_VIEW if parent is None else parent.view)

    def _is_skip_justified(self, parent_view: int, view: int) -> bool:
        if parent_view == view - 1 or self._timeouts.get(view - 1, view) <= parent_view:
            return True
        between = (self._views.get(skipped) for skipped in range(parent_view + 1, view))
        return all(skipped is not None and skipped.nullified for skipped in between)

    def _enter(self, height: int, archived: ArchivedBlock) -> None:
        """Keep the books; they begin with the chain."""
        known = len(self.ledger.log.violations)
        self.ledger.apply(archived.block, archived.receipts)
        self.log.counts[Rule.LEDGER] += 1
        for violation in self.ledger.log.violations[known:]:
            self.log.note(f"{Rule.LEDGER}: height {violation.height}: {violation.what}")

    # --- who diverged -----------------------------------------------------------------------------------------------

    def diverged(self, name: str, life: int) -> None:
        """A validator, after so many starts, says that a final block does not execute to its header."""
        self._diverged.add((name, life))

    def said(self, name: str, life: int) -> None:
        """A validator sends something to its peers."""
        is_silent = (name, life) in self._diverged
        self.log.look(Rule.SILENCE, not is_silent, f"{name} diverged and takes part all the same")

    # --- proofs -----------------------------------------------------------------------------------------------------

    def wants_proofs(self, height: int, validator: int) -> bool:
        """Whether a validator that made this height final is to prove something: half of them each time, in turn."""
        times, rest = divmod(height, PROOFS_EVERY_HEIGHTS)
        return not rest and (times + validator) % 2 == 0

    def check_proofs(self, name: str, height: int, prove: Prove) -> None:
        """Ask a validator whose final height this is for a key that is there, one that is not, and one of before."""
        drawn = blake3(height.to_bytes(8, "big")).digest()
        proposer = address_of(self.genesis.validators[drawn[0] % len(self.genesis.validators)])
        somebody = next(iter(self.genesis.accounts), proposer)
        expected = {drawn: False, **({} if self._ledger is None else timers_at(self._ledger, height))}
        asked = [(key, height) for key in expected]
        for address, at in ((proposer, height), (somebody, height), (somebody, height - HISTORY_HEIGHTS)):
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

    def _has_account(self, address: Address) -> bool | None:
        """Whether an account is there at all heights, or at none so far; ``None`` if it came up on the way.

        The genesis's accounts never go, and one that the books do not know was never paid anything.
        """
        if address in self.genesis.accounts:
            return True
        ledger = self._ledger
        return False if ledger is not None and not ledger.broken and address not in ledger.accounts.balances else None


def _digest_of(*parts: bytes) -> bytes:
    """32 bytes for some bytes and where each part of them ends."""
    hasher = blake3()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "big"))
        hasher.update(part)
    return hasher.digest()


def _words(certificate: AnyCertificate) -> str:
    return f"{certificate.kind.name.lower()} certificate of view {certificate.view}"


def broken(record: MonitorRecord, rule: str) -> list[str]:
    """The violations of one rule."""
    return [violation for violation in record.violations if violation.split(": ")[1] == rule]
