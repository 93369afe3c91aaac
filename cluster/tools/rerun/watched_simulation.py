"""A simulation that reports an entry for everything that a validator receives, does and makes final.

The observers of :class:`WatchedSimulation` change nothing, so its digest is that of the run. An entry has a virtual
time (printed in milliseconds), a kind (:data:`KINDS`), the validators concerned, and a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.common.wording import counted
from cluster.faults.link_model import Links
from cluster.scenario import Scenario
from cluster.simulation.driver import Simulation
from cluster.simulation.machine import Machine
from consensus import messages as consensus
from consensus.messages import VoteKind
from validator.chain import messages
from validator.node import events
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


Note = Callable[[str, tuple[int, ...], str], None]
"""A function that takes an entry at the current time. It is called as ``note(kind, whom, text)``."""


class WatchedMachine(Machine):
    """A simulated machine that reports its events and effects by calling :attr:`note`."""

    __slots__ = ("note",)

    note: Note

    def say(self, kind: str, text: str) -> None:
        self.note(kind, (self.index,), f"{self.name} {text}")

    def start(self) -> None:
        self.say("machine", "starts")
        Machine.start(self)

    def crash(self, random: Random, scattered: bool = False) -> None:
        self.say("machine", "is down")
        Machine.crash(self, random, scattered)

    def shut_down(self) -> None:
        self.say("machine", "stops")
        Machine.shut_down(self)

    def pause(self) -> None:
        self.say("machine", "pauses")
        Machine.pause(self)

    def go_on(self) -> None:
        self.say("machine", f"resumes, {len(self.held):,} events waited")
        Machine.go_on(self)

    def deliver(self, event: events.Event) -> None:
        if not self.is_paused and self.is_running and not isinstance(event, events.Message):
            self._say_event(event)
        Machine.deliver(self, event)

    def _say_event(self, event: events.Event) -> None:
        match event:
            case events.Timeout(timer):
                of_view = f" of view {timer.number}" if timer.number else ""
                self.say("timer", f"timer {timer.owner}{of_view} expires")
            case events.Synced(token):
                self.say("sync", f"journal is durable up to {token}")
            case events.Completed(result):
                self.say("job", f"is done: {describe_result(result)}")
            case events.Submit(transactions=transactions):
                self.say("load", f"gets {counted(len(transactions), 'transaction')} from a user")
            case _:
                pass

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.BlockFinal():
                counts = (effect.transactions, effect.fires)
                self.say("final", describe_final(effect.height, effect.view, effect.digest, *counts, effect.state_root))
            case events.Run(job):
                self.say("job", f"begins: {describe_job(job)}")
            case events.Diverged(height, reason=reason):
                self.say("machine", f"diverged at height {height}: {reason}")
            case events.Joined(height):
                self.say("machine", f"has the snapshot of height {height}")
            case events.EvidenceFound(kind, culprit):
                self.say("evidence", f"proves {kind} of validator {culprit}")
            case events.PeerFault(peer, reason):
                self.say("drop", f"drops what validator {peer} sent: {reason}")
            case events.TransactionRefused(digest, reason, peer):
                whose = "a user" if peer is None else f"validator {peer}"
                self.say("load", f"refuses transaction {head(digest)} of {whose}: {reason}")
            case events.TransactionDropped(digest, reason):
                self.say("load", f"drops transaction {head(digest)} from its mempool: {reason}")
            case _:
                pass
        Machine._perform(self, effect)


class _WatchedLinks(Links):
    """Simulated links that record in :attr:`lost` which receivers the last message does not reach."""

    lost: Sequence[int] = ()

    def arrivals(
        self, sender: int, receivers: Iterable[int], size: int, now_us: int, random: Random | None = None
    ) -> list[tuple[int, int]]:
        wanted = list(receivers)
        found = Links.arrivals(self, sender, wanted, size, now_us)
        arrived = {receiver for receiver, _ in found}
        self.lost = [receiver for receiver in wanted if receiver != sender and receiver not in arrived]
        return found


class WatchedSimulation(Simulation):
    """A simulation that calls ``on_entry`` with an entry for everything that happens."""

    machine_class = WatchedMachine

    def __init__(self, scenario: Scenario, seed: int, on_entry: Callable[[Entry], None]) -> None:
        self._names = scenario.validators.names
        self._on_entry = on_entry
        super().__init__(scenario, seed, "", on_notice=partial(self._note, "fault", ()))

    def _note(self, kind: str, whom: tuple[int, ...], text: str) -> None:
        self._on_entry(Entry(self.clock.now_us, kind, whom, text))

    def _make_links(self) -> Links:
        return _WatchedLinks(self.scenario.network, self.random)

    def _machine(self, index: int, name: str) -> Machine:
        return self._watched(super()._machine(index, name))

    def _twin(self, machine: Machine) -> Machine:
        return self._watched(super()._twin(machine))

    def _watched(self, machine: Machine) -> Machine:
        assert isinstance(machine, WatchedMachine)
        machine.note = self._note
        return machine

    def _send(self, sender: int, recipient: int | None, payload: bytes) -> None:
        super()._send(sender, recipient, payload)
        links = self.links
        assert isinstance(links, _WatchedLinks)
        if links.lost:
            kind, text = describe(payload, self._names)
            for target in links.lost:
                self._note(kind, (sender, target), f"{self._names[sender]} ✗ {self._names[target]}  {text}")

    def _deliver(self, sender: int, recipient: int, payload: bytes) -> None:
        kind, text = describe(payload, self._names)
        machine = self.machines[recipient]
        state = "" if machine.is_running else " (is down)"
        state = " (waits: paused)" if machine.is_paused else state
        self._note(kind, (sender, recipient), f"{self._names[sender]} → {self._names[recipient]}{state}  {text}")
        super()._deliver(sender, recipient, payload)


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
