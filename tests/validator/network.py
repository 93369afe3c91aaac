"""Four whole validators in virtual time: the simulator's machines on links that a test can cut, bend and listen to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar, get_args

from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.disks.memory import MemoryDisk
from cluster.simulation.clock import VirtualClock
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer, connect
from consensus.interface import VotingConfig
from consensus.keys import Ed25519Scheme, KeyedHashScheme, SignatureScheme, Signer, ValidatorSet
from consensus.messages import Message, Proposal, Vote
from consensus.messages import decode as decode_consensus
from tests.validator.chains import make_genesis
from validator.chain.block import MAX_BLOCK_BYTES
from validator.chain.messages import ConsensusMessage, PeerMessage, decode_message
from validator.node.assembly import Parts, Validator, open_validator
from validator.node.events import (
    CancelTimer,
    Effect,
    ReplaceJournal,
    Reply,
    Send,
    SetTimer,
    Submit,
    SubmitResult,
)
from validator.node.limits import DEFAULT_BLOCK_LIMITS, DEFAULT_POOL_LIMITS, BlockLimits, PoolLimits
from validator.node.node import NodeConfig
from validator.primitives.codec import CodecError
from validator.transition.transition import Transition

Tap = Callable[[int, int, bytes], bytes | None]
"""``(sender, target, payload)`` to what arrives; ``None`` where nothing does."""

EffectType = TypeVar("EffectType", bound=Effect)

STEP_LIMIT = 400_000


@dataclass
class WatchedMachine(Machine):
    """Tells of effects after it performed them."""

    after: Callable[[WatchedMachine, Effect], None] = lambda _machine, _effect: None
    replaced_journals: int = 0

    def _perform(self, effect: Effect) -> None:
        if self.validator is None:
            return  # stopped by an earlier effect of the same event
        Machine._perform(self, effect)
        self.replaced_journals += isinstance(effect, ReplaceJournal)
        self.after(self, effect)


class Seen(Observer):
    """Keeps the effects of all validators, but messages, timers and the journal."""

    effects = frozenset(get_args(Effect)) - {CancelTimer, ReplaceJournal, Send, SetTimer}

    def __init__(self, kept: list[tuple[int, Effect]]) -> None:
        self.kept = kept

    def performs(self, machine: Machine, effect: Effect) -> None:
        self.kept.append((machine.index, effect))


@dataclass
class Network:
    """The validators, their clock, and what they said."""

    count: int = 4
    latency_ms: int = 5
    sync_retry_ms: int = 250
    pool: PoolLimits = DEFAULT_POOL_LIMITS
    blocks: BlockLimits = DEFAULT_BLOCK_LIMITS
    scheme: SignatureScheme = field(default_factory=KeyedHashScheme)
    transitions: dict[int, type[Transition]] = field(default_factory=dict)
    tap: Tap = lambda _sender, _target, payload: payload
    extra_ms: Callable[[int, bytes], int] = lambda _target, _payload: 0
    """How much longer than the others a message takes."""
    effects: list[tuple[int, Effect]] = field(default_factory=list)
    said: dict[tuple[int, int, int], bytes] = field(default_factory=dict)
    """The digest of each vote that left, by ``(signer, kind, view)``; two that differ are a failure."""
    cut: set[int] = field(default_factory=set)
    """Validators that nothing reaches and that reach nobody."""

    def __post_init__(self) -> None:
        self.clock = VirtualClock()
        signers = [self.scheme.signer(bytes([i + 1]) * 32) for i in range(self.count)]
        self.validators = ValidatorSet(tuple(signer.public_key for signer in signers), self.scheme)
        self.genesis = replace(make_genesis(), validators=self.validators.public_keys)
        self.machines = [self._machine(index, signer) for index, signer in enumerate(signers)]
        self.random = Random(7)
        self._request = 0

    def _machine(self, index: int, signer: Signer) -> WatchedMachine:
        voting = VotingConfig(
            leader_timeout_ms=200, advance_timeout_ms=300, rebroadcast_ms=100, max_body_bytes=MAX_BLOCK_BYTES
        )
        config = NodeConfig(
            voting, block_interval_ms=10, sync_retry_ms=self.sync_retry_ms, pool=self.pool, blocks=self.blocks
        )

        def boot(disk: MemoryDisk) -> Validator:
            kind = self.transitions.get(index, Transition)
            return open_validator(disk, self.genesis, index, signer, self.validators, config, Parts(transition=kind))

        machine = WatchedMachine(index, f"validator-{index}", self.clock, boot, self._send)
        connect(machine, [Seen(self.effects)])
        return machine

    # --- driving ----------------------------------------------------------------------------------------------------

    def start(self) -> Network:
        for machine in self.machines:
            machine.start()
        return self

    def run_until(self, is_over: Callable[[], bool], limit_ms: int = 60_000) -> None:
        """Step until it is over; fails where that takes too long."""
        deadline = self.clock.now_us + limit_ms * MICROSECONDS_PER_MILLISECOND
        for _ in range(STEP_LIMIT):
            if is_over():
                return
            assert self.clock.step()
            assert self.clock.now_us < deadline, f"heights {self.heights()} after {limit_ms} ms"
        raise AssertionError(f"heights {self.heights()} after {STEP_LIMIT} steps")

    def run_to(self, height: int, *indices: int, limit_ms: int = 60_000) -> None:
        """Until these validators, by default all, have made a height final."""
        watched = indices or range(self.count)
        self.run_until(lambda: all(self.height(index) >= height for index in watched), limit_ms)

    def run_for(self, span_ms: int) -> None:
        end = self.clock.now_us + span_ms * MICROSECONDS_PER_MILLISECOND
        self.clock.after(span_ms * MICROSECONDS_PER_MILLISECOND, "end", b"", lambda: None)
        self.run_until(lambda: self.clock.now_us >= end)

    def submit(self, index: int, *wires: bytes) -> list[str | None]:
        """What the validator answers for each transaction, once it has read what it must."""
        return [result.error for result in self.offer(index, *wires)]

    def offer(self, index: int, *wires: bytes) -> tuple[SubmitResult, ...]:
        """The same, in full."""
        self._request += 1
        request, told = self._request, len(self.effects)
        self.machines[index].deliver(Submit(request, wires))

        def reply() -> Reply | None:
            told_since = (effect for _, effect in self.effects[told:] if isinstance(effect, Reply))
            return next((effect for effect in told_since if effect.request == request), None)

        self.run_until(lambda: reply() is not None)
        found = reply()
        assert found is not None
        return found.results

    def crash(self, index: int) -> None:
        self.machines[index].crash(self.random)

    def _send(self, sender: int, recipient: int | None, payload: bytes) -> None:
        self._note(sender, payload)
        for target in range(self.count) if recipient is None else (recipient,):
            if target == sender or {sender, target} & self.cut:
                continue
            arriving = self.tap(sender, target, payload)
            if arriving is not None:
                self._deliver(sender, target, arriving)

    def _deliver(self, sender: int, target: int, payload: bytes) -> None:
        machine = self.machines[target]
        delay_us = (self.latency_ms + self.extra_ms(target, payload)) * MICROSECONDS_PER_MILLISECOND
        self.clock.after(delay_us, f"{sender}>{target}", b"", lambda: machine.receive(sender, payload))

    def _note(self, sender: int, payload: bytes) -> None:
        """Nobody votes twice: not in one life, and not in two."""
        message = consensus_message(payload)
        vote = message.vote if isinstance(message, Proposal) else message
        if isinstance(vote, Vote) and vote.signer == sender:
            key = (sender, int(vote.kind), int(vote.view))
            assert self.said.setdefault(key, bytes(vote.digest)) == vote.digest, f"a double vote: {key}"

    # --- reading ----------------------------------------------------------------------------------------------------

    def validator(self, index: int) -> Validator:
        validator = self.machines[index].validator
        assert validator is not None, f"validator {index} is down"
        return validator

    def height(self, index: int) -> int:
        machine = self.machines[index]
        return -1 if machine.validator is None else machine.validator.node.height

    def heights(self) -> list[int]:
        return [self.height(index) for index in range(self.count)]

    def effects_of(self, kind: type[EffectType], index: int) -> list[EffectType]:
        return [effect for at, effect in self.effects if at == index and isinstance(effect, kind)]

    def require_one_chain(self, *indices: int) -> None:
        """The same blocks, roots and receipts as far as any two of them go."""
        watched = list(indices or range(self.count))
        lowest = min(self.height(index) for index in watched)
        assert lowest > 0
        for height in range(1, lowest + 1):
            archived = [self.validator(index).executor.archive.get(height) for index in watched]
            seen = {(item.block, item.receipts, item.computed_root) for item in archived if item is not None}
            assert len(seen) == 1, f"height {height}"


def consensus_message(payload: bytes) -> Message | None:
    """The consensus message in a payload, or ``None``."""
    message = peer_message(payload)
    return decode_consensus(message.payload) if isinstance(message, ConsensusMessage) else None


def peer_message(payload: bytes) -> PeerMessage | None:
    try:
        return decode_message(payload)
    except CodecError:
        return None


def ed25519() -> SignatureScheme:
    return Ed25519Scheme()
