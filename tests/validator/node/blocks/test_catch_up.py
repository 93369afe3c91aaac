"""A validator that lacks blocks which its peers have pruned: when it believes them, and when not."""

from __future__ import annotations

import pytest

from tests.validator.network import Network, peer_message
from validator.chain.block import Block, Header, header_hash, transactions_root
from validator.chain.messages import BlocksPruned, FinalBlocksRequest, FinalBlocksResponse, PeerMessage, encode_message
from validator.node.blocks.catch_up import TIMES_PRUNED, BlocksGone
from validator.node.events import Message, PeerFault
from validator.node.node import Node
from validator.primitives.codec import encode
from validator.primitives.types import ZERO_HASH, Hash


def behind(count: int = 4) -> tuple[Network, Node]:
    """Validators, the last of which knows a finalization, and gets no final blocks."""
    network, last = Network(count=count, cut={count - 1}).start(), count - 1
    network.run_to(8, *range(last))
    network.cut.clear()
    network.tap = lambda _sender, _target, payload: (
        None if isinstance(peer_message(payload), FinalBlocksResponse) else payload
    )
    network.run_until(lambda: network.validator(last).node._finality.target is not None)
    return network, network.validator(last).node


def says(node: Node, sender: int, begins_at: int, times: int = 1) -> list[str]:
    """Faults that are found in a peer's saying where its blocks begin."""
    event = Message(sender, encode_message(BlocksPruned(begins_at)))
    effects = [effect for _ in range(times) for effect in node.handle(event)]
    return [effect.reason for effect in effects if isinstance(effect, PeerFault)]


def test_it_ends_when_all_but_f_peers_have_said_so_several_times() -> None:
    _, node = behind()
    assert says(node, 0, 5, times=TIMES_PRUNED) == []
    assert says(node, 1, 2, times=TIMES_PRUNED - 1) == []
    with pytest.raises(BlocksGone) as caught:
        says(node, 1, 7)
    assert str(caught.value) == (
        "the peers have pruned block 1, the next one needed here (2 of 3 say so): without its data folder the"
        " validator joins by a snapshot"
    )


def test_as_many_as_may_lie_are_not_believed_however_often_they_say_it() -> None:
    network, node = behind(7)
    for liar in (0, 1):
        assert says(node, liar, 100, times=50) == []
    for honest in (2, 3):
        says(node, honest, 100, times=TIMES_PRUNED - 1)
    network.tap = lambda _sender, _target, payload: payload
    network.run_to(8)


def test_an_answer_to_an_older_request_says_nothing() -> None:
    network, node = behind()
    for begins_at in (1, 0, -1, -(2**63)):
        for peer in range(3):
            assert says(node, peer, begins_at, times=10) == []
    network.tap = lambda _sender, _target, payload: payload
    network.run_to(8)
    for peer in range(3):
        assert says(node, peer, 2**64 - 1, times=10) == [], "it has what it needs"


def test_what_was_said_is_forgotten_when_blocks_come() -> None:
    network, node = behind()
    says(node, 0, 5, times=TIMES_PRUNED)
    says(node, 1, 5, times=TIMES_PRUNED - 1)
    network.tap = lambda _sender, _target, payload: payload
    network.run_until(lambda: not node._catch_up._pruned)
    network.run_to(8)


def test_a_peer_that_prunes_says_where_its_blocks_begin() -> None:
    network = Network().start()
    network.run_to(3)
    for machine in network.machines:
        executor = network.validator(machine.index).executor
        executor._keep_blocks, executor._archive._first = 8, 2
    said: list[tuple[int, PeerMessage | None]] = []

    def note(sender: int, _target: int, payload: bytes) -> bytes:
        said.append((sender, peer_message(payload)))
        return payload

    network.tap = note
    network.machines[0].receive(3, encode_message(FinalBlocksRequest(2, 5)))
    network.run_until(lambda: (0, BlocksPruned(3)) in said)


def test_an_answer_counts_though_another_block_is_wanted_by_now() -> None:
    network = Network().start()
    network.run_to(3)
    node = network.validator(0).node
    catch_up, tree = node._catch_up, node._tree
    node._finality.target = None
    above = empty_block(tree.final_height + 2)
    catch_up._is_asking = False
    catch_up.want(header_hash(above.header))
    assert catch_up._is_asking
    catch_up.want(Hash(b"\2" * 32))
    assert catch_up.take_block(1, encode(above))
    assert not catch_up._is_asking, "the other one may be asked for now"
    assert header_hash(above.header) in tree
    assert not catch_up.take_block(1, encode(empty_block(tree.final_height + 3))), "nobody asked for that one"


def empty_block(height: int) -> Block:
    """A block on one that nobody has."""
    nothing = (transactions_root([]), ZERO_HASH, ZERO_HASH, b"", b"", b"", 0, 0, 0, 0)
    return Block(Header("test", height, height, b"\7" * 32, 0, *nothing), ())
