"""Entries for everything that a simulated validator receives, does and makes final.

An entry has a virtual time (printed in milliseconds), a kind (:data:`KINDS`), the validators concerned, and a text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.common.wording import counted
from cluster.scenario import Scenario
from cluster.simulation.clock import VirtualClock
from cluster.simulation.driver import Simulation
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from consensus import messages as consensus
from consensus.messages import VoteKind
from validator.chain import messages
from validator.node.events import (
    BlockFinal,
    Completed,
    Diverged,
    Effect,
    Event,
    EvidenceFound,
    Joined,
    PeerFault,
    Run,
    Submit,
    Synced,
    Timeout,
    TransactionDropped,
    TransactionRefused,
)
from validator.node.executor import jobs
from validator.node.peer_service import Request
from validator.primitives.codec import CodecError

KINDS: Final = {
    "vote": "a vote arrives (``a → b``), or is lost (``a ✗ b``); likewise the other messages",
    "proposal": "a leader's block",
    "certificate": "a certificate of votes",
    "request": "a request for certificates, blocks, a snapshot or a view",
    "block": "blocks on request",
    "snapshot": "a snapshot's offer and chunks, and view reports to a joining validator",
    "transactions": "transactions from validator to validator",
    "garbage": "bytes that are no message",
    "load": "transactions of the load's users",
    "job": "the executor begins or ends a job",
    "timer": "a timer expires",
    "sync": "the journal is durable",
    "final": "a block is final",
    "machine": "a validator starts, stops, pauses, resumes, joins or diverges",
    "evidence": "proof of misbehaviour",
    "drop": "something was dropped, and why",
    "fault": "a fault begins or ends",
}
DIGEST_DIGITS: Final = 8
CERTIFICATE_WORDS: Final = {
    VoteKind.NOTARIZE: "notarization",
    VoteKind.NULLIFY: "nullification",
    VoteKind.FINALIZE: "finalization",
    VoteKind.TIMEOUT: "timeouts",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a replay: what happened, when, and to which validators."""

    at_us: int
    kind: str
    whom: tuple[int, ...]
    """Indexes of the validators concerned; empty means all."""
    text: str

    def line(self) -> str:
        return f"{self.at_us / MICROSECONDS_PER_MILLISECOND:12.3f}  {self.kind:<12}  {self.text}"


class Replay(Observer):
    """Calls ``on_entry`` with an entry for everything that happens in a run."""

    effects = frozenset(
        {BlockFinal, Diverged, EvidenceFound, Joined, PeerFault, Run, TransactionDropped, TransactionRefused}
    )

    def __init__(self, clock: VirtualClock, names: Sequence[str], on_entry: Callable[[Entry], None]) -> None:
        self._clock = clock
        self._names = names
        self._on_entry = on_entry

    def concerns(self, machine: Machine) -> bool:
        """Twins are shown, too."""
        return True

    def note(self, kind: str, whom: tuple[int, ...], text: str) -> None:
        """Report an entry at the current time."""
        self._on_entry(Entry(self._clock.now_us, kind, whom, text))

    def _say(self, machine: Machine, kind: str, text: str) -> None:
        self.note(kind, (machine.index,), f"{machine.name} {text}")

    def starts(self, machine: Machine) -> None:
        self._say(machine, "machine", "starts")

    def stops(self, machine: Machine, is_crash: bool) -> None:
        self._say(machine, "machine", "is down" if is_crash else "stops")

    def pauses(self, machine: Machine) -> None:
        self._say(machine, "machine", "pauses")

    def goes_on(self, machine: Machine) -> None:
        self._say(machine, "machine", f"resumes, {len(machine.held):,} events waited")

    def gets(self, machine: Machine, event: Event) -> None:
        match event:
            case Timeout(timer):
                of_view = f" of view {timer.number}" if timer.number else ""
                self._say(machine, "timer", f"timer {timer.owner}{of_view} expires")
            case Synced(token):
                self._say(machine, "sync", f"journal is durable up to {token}")
            case Completed(result):
                self._say(machine, "job", f"is done: {describe_result(result)}")
            case Submit(transactions=transactions):
                self._say(machine, "load", f"gets {counted(len(transactions), 'transaction')} from a user")
            case _:
                pass

    def performs(self, machine: Machine, effect: Effect) -> None:
        match effect:
            case BlockFinal():
                counts = (effect.transactions, effect.fires)
                text = describe_final(effect.height, effect.view, effect.digest, *counts, effect.state_root)
                self._say(machine, "final", text)
            case Run(job):
                self._say(machine, "job", f"begins: {describe_job(job)}")
            case Diverged(height, reason=reason):
                self._say(machine, "machine", f"diverged at height {height}: {reason}")
            case Joined(height):
                self._say(machine, "machine", f"has the snapshot of height {height}")
            case EvidenceFound(kind, culprit):
                self._say(machine, "evidence", f"proves {kind} of validator {culprit}")
            case PeerFault(peer, reason):
                self._say(machine, "drop", f"drops what validator {peer} sent: {reason}")
            case TransactionRefused(digest, reason, peer):
                whose = "a user" if peer is None else f"validator {peer}"
                self._say(machine, "load", f"refuses transaction {head(digest)} of {whose}: {reason}")
            case TransactionDropped(digest, reason):
                self._say(machine, "load", f"drops transaction {head(digest)} from its mempool: {reason}")
            case _:
                pass

    def sent(
        self, machine: Machine, recipients: Sequence[int], payload: bytes, arrivals: Sequence[tuple[int, int]]
    ) -> None:
        arriving = {machine.index, *(recipient for recipient, _ in arrivals)}
        for lost in (recipient for recipient in recipients if recipient not in arriving):
            kind, text = describe(payload, self._names)
            self.note(kind, (machine.index, lost), f"{machine.name} ✗ {self._names[lost]}  {text}")

    def receives(self, machine: Machine, sender: Machine, payload: bytes) -> None:
        kind, text = describe(payload, self._names)
        state = "" if machine.is_running else " (is down)"
        state = " (waits: paused)" if machine.is_paused else state
        self.note(kind, (sender.index, machine.index), f"{sender.name} → {machine.name}{state}  {text}")


def replayed(scenario: Scenario, seed: int, on_entry: Callable[[Entry], None]) -> Simulation:
    """A simulation that reports an entry for everything that happens in it. Its digest is that of the run."""

    def notice(text: str) -> None:
        replay.note("fault", (), text)

    simulation = Simulation(scenario, seed, "", on_notice=notice)
    replay = Replay(simulation.clock, scenario.validators.names, on_entry)
    simulation.observe(replay)
    return simulation


# --- texts ----------------------------------------------------------------------------------------------------------


def head(digest: bytes) -> str:
    """The first hex digits of a digest, as text."""
    return digest.hex()[:DIGEST_DIGITS] or "none"


def describe_final(height: int, view: int, digest: bytes, transactions: int, fires: int, state_root: bytes) -> str:
    """Describe a final block as text."""
    counts = f"{counted(transactions, 'transaction')}, {counted(fires, 'fire')}"
    return f"height {height}, view {view}, block {head(digest)}: {counts}, state {head(state_root)}"


def describe(payload: bytes, names: Sequence[str]) -> tuple[str, str]:
    """The entry of a message between validators: its kind and its text."""
    try:
        message = messages.decode_message(payload)
        if isinstance(message, messages.ConsensusMessage):
            return _consensus(consensus.decode(message.payload), names)
    except (CodecError, consensus.MessageError):
        return "garbage", f"{len(payload):,} bytes that are no message"
    return _other(message)


def _consensus(message: consensus.Message, names: Sequence[str]) -> tuple[str, str]:
    match message:
        case consensus.Vote():
            return "vote", _vote(message, names)
        case consensus.Timeout(vote, high):
            return "vote", f"{_vote(vote, names)}{'' if high is None else f' with {_certificate(high)}'}"
        case consensus.Proposal():
            text = f"view {message.view} on view {message.parent_view}, block {head(message.digest)}"
            return "proposal", f"{text}, {len(message.body):,} bytes, signed by {_name(message.vote.signer, names)}"
        case consensus.CertificateRequest(views):
            return "request", f"for the certificates of views {', '.join(map(str, views))}"
        case consensus.Certificate() | consensus.TimeoutCertificate():
            return "certificate", _certificate(message)


def _vote(vote: consensus.Vote, names: Sequence[str]) -> str:
    block = f", block {head(vote.digest)}" if vote.digest else ""
    return f"{vote.kind.name.lower()} view {vote.view}{block}, signed by {_name(vote.signer, names)}"


def _certificate(certificate: consensus.AnyCertificate) -> str:
    what = CERTIFICATE_WORDS[certificate.kind]
    block = f", block {head(certificate.digest)}" if isinstance(certificate, consensus.Certificate) else ""
    signers = " ".join(map(str, certificate.signed))
    return f"{what} of view {certificate.view}{block if block != ', block none' else ''}, signed by {signers}"


def _other(message: messages.PeerMessage) -> tuple[str, str]:
    match message:
        case messages.TransactionsMessage(transactions):
            return "transactions", counted(len(transactions), "transaction")
        case messages.BlockResponse(body):
            return "block", f"of {len(body):,} bytes"
        case messages.FinalBlocksResponse(bodies, links):
            return (
                "block",
                f"{counted(len(bodies), 'final block')}, {counted(len(links), 'header')} up to a finalization",
            )
        case messages.BlocksPruned(begins_at):
            return "block", f"none: those here begin at height {begins_at}"
        case messages.SnapshotOffer(manifest=manifest):
            return "snapshot", f"offer with a manifest of {len(manifest):,} bytes"
        case messages.ChunkResponse(height, chunk, data, total=total):
            whole = f" of {total:,}" if total != len(data) else ""
            return "snapshot", f"chunk {chunk} of height {height}, {len(data):,}{whole} bytes"
        case messages.ViewReport():
            return "snapshot", "the current view"
        case messages.ConsensusMessage():
            return "garbage", type(message).__name__
        case _:
            return "request", _request(message)


def _request(message: Request) -> str:
    match message:
        case messages.BlockRequest(digest):
            return f"for block {head(digest)}"
        case messages.FinalBlocksRequest(first, most):
            return f"for final blocks from height {first} on, at most {most}"
        case messages.SnapshotRequest():
            return "for a snapshot"
        case messages.ChunkRequest(height, chunk, offset):
            start = f" from byte {offset:,} on" if offset else ""
            return f"for chunk {chunk} of the snapshot of height {height}{start}"
        case messages.ViewRequest():
            return "for the current view"


def describe_job(job: jobs.Job) -> str:
    """Describe a job of an executor as text."""
    match job:
        case jobs.Build(view, parent, candidates=candidates):
            return f"build for view {view} on {head(parent)}, {counted(len(candidates), 'candidate')}"
        case jobs.Execute(digest, block):
            return f"execute block {head(digest)} of height {block.header.height}, view {block.header.view}"
        case jobs.Finalize(digest):
            return f"make block {head(digest)} final"
        case jobs.ReadBlocks(peer, first, most):
            return f"read blocks from height {first} on, at most {most}, for validator {peer}"
        case jobs.ReadSnapshot(peer):
            return f"read of a snapshot for validator {peer}"
        case jobs.ReadAccounts(addresses):
            return f"read {counted(len(addresses), 'account')} for the mempool"


def describe_result(result: jobs.JobResult) -> str:
    """Describe the result of an executor's job as text."""
    match result:
        case jobs.Built(view, digest=digest, block=block):
            return f"built block {head(digest)} of height {block.header.height} for view {view}"
        case jobs.Executed(digest, error):
            return f"executed block {head(digest)}: {error or 'valid'}"
        case jobs.Finalized(digest, header):
            return f"block {head(digest)} of height {header.height} is committed"
        case jobs.FinalizedInvalid(digest, header, reason):
            return f"block {head(digest)} of height {header.height} is final and invalid: {reason}"
        case jobs.BlocksRead(peer, bodies):
            return f"read {counted(len(bodies), 'block')} for validator {peer}"
        case jobs.SnapshotRead(peer):
            return f"read of a snapshot for validator {peer}"
        case jobs.AccountsRead(accounts=accounts):
            return f"read {counted(len(accounts), 'account')} for the mempool"


def _name(index: int, names: Sequence[str]) -> str:
    return names[index] if index < len(names) else f"validator {index}, which does not exist"
