"""Proofs that validators serve at the end of a run, verified against the final blocks: live and in the simulator.

Each judged validator is asked, at rest, for what any client may ask (``docs/http.md``):

=================  ===================================================================================================
rule               what must hold
=================  ===================================================================================================
served_finality    the proof that a block is final is of the chain's block at that height: a quorum of the committee
                   signed a finalization of it, or of a descendant that the links lead to. A validator that caught up
                   by other validators' proofs may have none for its newest blocks yet; then another validator has
                   one, or knows a finalization of a later view, whose block is not kept yet
served_proofs      the proof of a key at the final height, or at one of the retained heights below, leads to the state
                   root in that height's header; a key that is there has a value, and one that is absent has none
=================  ===================================================================================================

Keys and heights are drawn from the run's seed: a key that was never written, an account of the genesis, timers that are
pending, and timers that ended, whose removal had to change links. Certificates are judged by
:mod:`cluster.audit.safety.certificates`, which shares no rule with the validators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Protocol

from blake3 import blake3

from cluster.audit.chains import read_blocks
from cluster.audit.figures import NEWEST_HEIGHTS, NEWEST_KEPT
from cluster.audit.ledger import Ledger
from cluster.audit.safety.certificates import is_certified
from cluster.record.archive import BlockRecord
from cluster.record.run import MonitorRecord, RunRecord, ValidatorRecord
from cluster.scenario.genesis import validators_of
from consensus.messages import Certificate, VoteKind
from consensus.messages import decode as decode_message
from consensus.types import GENESIS_VIEW, ConsensusError
from spec.encoding import tagged
from validator.chain.records import account_key, timer_key
from validator.primitives.types import Hash
from validator.state.proof import ProofError, verify

SERVED_FINALITY: Final = "served_finality"
SERVED_PROOFS: Final = "served_proofs"
SERVED_RULES: Final = (SERVED_FINALITY, SERVED_PROOFS)

PAST_HEIGHTS: Final = 2
"""The number of heights below the final one at which a validator is asked about keys."""
MAX_HEIGHTS_BACK: Final = NEWEST_HEIGHTS
"""The maximum depth below the final height of the heights at which keys are asked about.

It is bounded because the cost of a proof grows with what later blocks changed.
"""
FINALITY_HEIGHTS: Final = 6
"""The number of heights, besides the final one, at which a validator is asked to prove its blocks final."""
TIMERS_ASKED: Final = 2
"""The most proofs of present timers, and of absent ones, that are requested per height."""
SHOWN_DIGITS: Final = 16

Page = dict[str, Any]


class Unproved(Exception):
    """A validator did not serve a proof; the message is the reason, in one line."""


class Server(Protocol):
    """Requests proofs from one validator. Both methods raise :class:`Unproved` if it does not serve the proof."""

    def finality(self, height: int) -> tuple[bytes, Sequence[bytes], bytes] | None:
        """Request the proof that a height's block is final: header, links and certificate, each encoded.

        ``None`` if the validator has none yet.
        """

    def proof(self, key: bytes, height: int) -> Page:
        """Request the proof of a key in the state of a height, as the page that the validator serves."""


@dataclass(slots=True)
class Answers:
    """The results of verifying one validator's answers."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    """The number of verified answers, by rule."""
    violations: list[str] = field(default_factory=list)
    is_asked: bool = False
    """Whether the validator was asked and its answers count."""
    proved_final: int = 0
    """The height up to which valid finality proofs cover the chain."""
    unproved: list[int] = field(default_factory=list)
    """Heights of blocks for which the validator has no finality proof."""
    voters: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The signers of valid certificates, keyed by the certified height."""
    awaited: frozenset[int] = frozenset()
    """The heights in ``unproved`` whose proof is pending: the validator knows a finalization of a later view."""

    def look(self, rule: str, problem: str) -> None:
        """Count the verification of an answer. ``problem`` is empty if the answer is right."""
        self.counts[rule] += 1
        if problem:
            self.violations.append(f"at the end: {rule}: {self.name}: {problem}")


class ProofAudit:
    """Asks validators and verifies their answers, against the served chain and its books.

    Its state does not change, so several validators may be asked concurrently.
    """

    def __init__(self, record: RunRecord, chain: Sequence[BlockRecord], ledger: Ledger) -> None:
        """``ledger`` is the ledger of exactly the blocks of ``chain``."""
        self._record = record
        self._blocks = read_blocks(chain)
        self._ledger = ledger
        self._validators = validators_of(record.genesis, record.scheme)

    def ask(self, found: ValidatorRecord, server: Server, answers: Answers) -> Iterator[None]:
        """Ask one validator for all proofs and enter the results into ``answers``, yielding after each answer.

        A byzantine validator's answers do not count. One that diverged is judged by the check of state roots.
        """
        tip = min(found.tip, len(self._blocks))
        if found.byzantine or not tip or (found.status or {}).get("diverged") is not None:
            return
        answers.is_asked = True
        first = min(max(found.first_height, (found.status or {}).get("first_block", 1)), tip)  # what it pruned is gone
        for height in self._drawn(found, "finality", first, tip, FINALITY_HEIGHTS):
            self._look_at_finality(server, height, answers)
            yield
        final_view = (found.status or {}).get("final_view", GENESIS_VIEW)
        answers.awaited = frozenset(height for height in answers.unproved if self._view_of(height) < final_view)
        retained = min(self._record.scenario.storage.retained_heights, MAX_HEIGHTS_BACK)
        lowest = max(first, tip - retained + 1)
        for height in self._drawn(found, "state", lowest, tip, PAST_HEIGHTS):
            for key, is_there in self._keys_at(found, height).items():
                answers.look(SERVED_PROOFS, self._proof_problem(server, key, height, is_there))
                yield

    # --- what is asked ------------------------------------------------------------------------------------------------

    def _drawn(self, found: ValidatorRecord, what: str, lowest: int, tip: int, count: int) -> list[int]:
        """The tip, and up to ``count`` heights drawn from the run's seed between ``lowest`` and the tip."""
        drawn = (self._draw(found, f"{what}/{number}") for number in range(count))
        return list(dict.fromkeys([tip, *(lowest + _number(each) % (tip - lowest + 1) for each in drawn)]))

    def _keys_at(self, found: ValidatorRecord, height: int) -> dict[bytes, bool]:
        """The state keys to ask about at a height, and whether each is present in that height's state."""
        drawn = self._draw(found, f"key/{height}")
        keys = {drawn: False}
        accounts = sorted(self._record.genesis.accounts)
        if accounts:  # accounts are never removed
            keys[account_key(accounts[_number(drawn) % len(accounts)])] = True
        return keys if self._ledger.broken else keys | timers_at(self._ledger, height)

    def _draw(self, found: ValidatorRecord, what: str) -> bytes:
        """32 bytes derived from the run's seed, the validator and the purpose."""
        return blake3(f"{self._record.seed}/{found.name}/{what}".encode()).digest()

    # --- what is answered ---------------------------------------------------------------------------------------------

    def _look_at_finality(self, server: Server, height: int, answers: Answers) -> None:
        try:
            proof = server.finality(height)
        except Unproved as error:
            answers.look(SERVED_FINALITY, f"does not prove the block at height {height} final: {error}")
            return
        if proof is None:
            answers.unproved.append(height)
            return
        found = self._verified(height, *proof)
        answers.look(SERVED_FINALITY, found if isinstance(found, str) else "")
        if isinstance(found, str):
            return
        certified = height + len(proof[1])
        answers.proved_final = max(answers.proved_final, certified)
        answers.voters[certified] = tuple(found.signed)

    def _verified(self, height: int, header: bytes, links: Sequence[bytes], encoded: bytes) -> Certificate | str:
        """Verify a finality proof. Returns its certificate; the problem in words if the proof does not hold."""
        what, last = f"the finality proof of height {height}", height + len(links)
        hashes = [block.block_hash for block in self._blocks[height - 1 : last]]
        if [tagged(b"header", each) for each in (header, *links)] != hashes:
            return f"{what} is not of the chain's blocks"
        try:
            certificate = decode_message(encoded)
        except ConsensusError as error:
            return f"{what} cannot be read: {error}"
        if not isinstance(certificate, Certificate) or certificate.kind != VoteKind.FINALIZE:
            return f"{what} has no finalization"
        says = (certificate.view, certificate.parent_view, bytes(certificate.digest))
        if says != (self._view_of(last), self._view_of(last - 1), hashes[-1]):
            return f"the certificate in {what} is of another block"
        if not is_certified(certificate, self._validators, self._record.genesis.chain_id.encode(), GENESIS_VIEW):
            return f"the certificate in {what} is not signed by a quorum: {list(certificate.signed)}"
        return certificate

    def _proof_problem(self, server: Server, key: bytes, height: int, is_there: bool) -> str:
        """Request and verify the proof of a key. Returns the problem in words; empty if the proof holds."""
        what = f"the proof of {key.hex()[:SHOWN_DIGITS]}… at height {height}"
        try:
            page = server.proof(key, height)
            told = None if page["value"] is None else bytes.fromhex(page["value"])
            value = verify(Hash(self._blocks[height - 1].header_root), key, bytes.fromhex(page["proof"]))
        except Unproved as error:
            return f"does not prove {key.hex()[:SHOWN_DIGITS]}… at height {height}: {error}"
        except ProofError as error:
            return f"{what} does not verify: {error}"
        except (KeyError, TypeError, ValueError) as error:
            return f"{what} cannot be read: {type(error).__name__}: {error}"
        if value != told:
            return f"{what} proves another value than the page tells"
        if (value is not None) != is_there:
            return f"{what} says that it is {'absent' if is_there else 'there'}, and it is not"
        return ""

    def _view_of(self, height: int) -> int:
        return self._blocks[height - 1].view if height else GENESIS_VIEW


def timers_at(ledger: Ledger, height: int) -> dict[bytes, bool]:
    """Timer keys to ask about at one of the newest :data:`MAX_HEIGHTS_BACK` heights, and whether each is present then.

    They are some timers pending at that height, and the timers that ended last before it, whose removal had to change
    links of the state tree.
    """
    scheduled = (life for life in reversed(ledger.timers.newest) if life.scheduled_at <= height)
    lives = list(islice(scheduled, NEWEST_KEPT))
    gone = [life for life in lives if life.ended_at is not None and life.ended_at <= height]
    kept = [life for life in lives if life.ended_at is None or life.ended_at > height]
    newest = sorted(gone, key=lambda life: life.ended_at or 0)[-TIMERS_ASKED:]
    return {timer_key(life.timer_id): False for life in newest} | {
        timer_key(life.timer_id): True for life in kept[:TIMERS_ASKED]
    }


def with_answers(watched: MonitorRecord | None, answers: Iterable[Answers]) -> MonitorRecord:
    """Merge the validators' verified answers into the record of a run's monitor, or into a new one if it had none."""
    before, answers = watched or MonitorRecord([], {}), tuple(answers)
    violations, counts = list(before.violations), dict.fromkeys(SERVED_RULES, 0)
    voters: dict[int, tuple[int, ...]] = {}
    newest = max((each.proved_final for each in answers), default=0)
    knows_all = all(each.is_asked for each in answers)  # else a validator that was not asked may have the proof
    awaited = frozenset().union(*(each.awaited for each in answers))
    for each in answers:
        for height in each.unproved:
            if height <= each.proved_final or (height > newest and knows_all and height not in awaited):
                each.look(SERVED_FINALITY, f"does not prove the block at height {height} final, and must by now")
        violations += each.violations
        for height, signers in each.voters.items():
            voters[height] = tuple(sorted({*voters.get(height, ()), *signers}))
        for rule, count in each.counts.items():
            counts[rule] += count
    return MonitorRecord(violations, before.counts | counts, before.reached, voters)


def _number(drawn: bytes) -> int:
    return int.from_bytes(drawn[:8], "big")
