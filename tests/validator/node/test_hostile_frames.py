"""A hostile peer's frames into whole validators: counted rejections, no exception, no growth, the same blocks."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validator.executors import wire
from tests.validator.network import Network
from tests.validator.node.hostile_frames import HostilePeer, record_foreign, requests
from validator.node import node as node_module
from validator.node.events import Dropped, PeerFault
from validator.primitives.codec import CodecError

ATTACKER = 3
HEIGHT = 7
FEW, MANY = 6, 30
"""Frames each time that the attacker sends something."""


@cache
def foreign() -> list[bytes]:
    return record_foreign()


def play(seed: int, frames: int) -> Network:
    """A run in which a validator also sends so many hostile frames with some of its own."""
    seen, busy = requests(), count()
    peer = HostilePeer(Random(seed), seen, foreign())

    def tap(sender: int, target: int, payload: bytes) -> bytes:
        if ATTACKER in (sender, target):
            seen.append(payload)
        if sender == ATTACKER:
            for _ in range(frames if next(busy) % 5 == 0 else 0):
                network.machines[target].receive(ATTACKER, peer.draw())
        return payload

    network = Network(tap=tap).start()
    network.submit(0, wire(0), wire(1, ["set", "k", "v"]), wire(2, ["emit", "n", "x"]))
    network.run_to(HEIGHT)
    return network


def sizes(network: Network, index: int) -> dict[str, int]:
    """How much a validator keeps that grows with what peers send."""
    node: Any = network.validator(index).node
    return {
        **node.consensus_sizes._asdict(),
        "blocks": len(node._tree._held),
        "waiting": len(node.mempool),
        "held": node._offers._transactions_held.total() + len(node._offers._offers),
        "read for": len(node._peer_service._reading_for),
        "wanted": len(node._verification.awaited),
    }


def roots(network: Network, index: int) -> list[bytes]:
    archive = network.validator(index).executor.archive
    blocks = [archive.get(height) for height in range(1, HEIGHT + 1)]
    return [block.computed_root for block in blocks if block is not None]


def withstand(seed: int) -> Counter[str]:
    """The victims' rejections by reason."""
    quiet, few, many = play(seed, 0), play(seed, FEW), play(seed, MANY)
    for network in (few, many):
        network.require_one_chain()
        for index in range(3):
            assert roots(network, index) == roots(quiet, index)
            for name, size in sizes(network, index).items():
                assert size <= 2 * sizes(quiet, index)[name] + 8, (name, size, sizes(quiet, index)[name])
    rejected = Counter(
        effect.reason for index, effect in many.effects if index < 3 and isinstance(effect, PeerFault | Dropped)
    )
    assert rejected["undecodable"] > 0
    assert all(effect.peer == ATTACKER for index, effect in many.effects if index < 3 and isinstance(effect, PeerFault))
    return rejected


@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_hostile_frames_are_counted_and_the_blocks_are_the_same(seed: int) -> None:
    withstand(seed)


@pytest.mark.slow
def test_many_seeds_meet_every_rejection() -> None:
    seen = sum((withstand(seed) for seed in range(20)), Counter[str]())
    assert seen.keys() >= {"undecodable", "bad_transactions", "oversized", "not_the_signer", "duplicate", "stale"}, seen


def test_a_hostile_peer_draws_what_it_says() -> None:
    frames = [*requests(), *foreign()]
    peer = HostilePeer(Random(1), frames, foreign())
    drawn = [peer.draw() for _ in range(1_000)]
    assert sum(each in frames for each in drawn) > 50 and len(set(drawn) - set(frames)) > 400


# --- planted faults ---------------------------------------------------------------------------------------------------


def test_a_node_that_does_not_expect_garbage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Exception):
        """Nobody raises it."""

    monkeypatch.setattr(node_module, "CodecError", Other)
    with pytest.raises(CodecError):
        withstand(1)


def test_a_node_that_keeps_what_it_is_sent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gossip = node_module.Node._on_gossip

    def keep(node: Any, sender: int, transactions: tuple[bytes, ...]) -> None:
        on_gossip(node, sender, transactions)
        node._offers._offers += [object()] * len(transactions)
        node._offers._offers, kept = [], node._offers._offers
        node._peer_service._reading_for.update(range(1_000, 1_000 + len(kept)))

    monkeypatch.setattr(node_module.Node, "_on_gossip", keep)
    with pytest.raises(AssertionError, match="read for"):
        withstand(1)


def test_a_node_that_stops_listening_after_garbage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    on_message = node_module.Node._on_message
    deaf: set[int] = set()

    def listen(node: Any, sender: int, payload: bytes, message: Any) -> None:
        if id(node) not in deaf:
            on_message(node, sender, payload, message)
        if payload[:1] != b"\x91":
            deaf.add(id(node))

    monkeypatch.setattr(node_module.Node, "_on_message", listen)
    with pytest.raises(AssertionError, match="heights"):
        withstand(1)
