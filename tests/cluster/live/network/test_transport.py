"""Streams between validators over real loopback sockets: who is let in, what is refused, what becomes of messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
import uvloop
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster.faults.kinds.cut import CutFault
from cluster.live.network import transport as transport_module
from cluster.live.network.handshake import (
    MAX_HANDSHAKE_FRAME_BYTES,
    Accepted,
    DialerHandshake,
    HandshakeMessage,
    Hello,
    Identity,
    ListenerHandshake,
    Proof,
    Refusal,
    Refused,
    Welcome,
    decode_handshake,
    encode_handshake,
)
from cluster.live.network.links import OutgoingLinks
from cluster.live.network.transport import LENGTH_BYTES, FrameStream, PeerAddress, Transport
from cluster.scenario.network import Network
from cluster.scenario.sections.links import LinksSection
from consensus.keys import Signer, ValidatorSet
from consensus.types import PublicKey, Signature
from tests.cluster.live.network.wire_vectors import CHAIN, SCHEME, SIGNERS, VALIDATORS, identity
from tests.hangs import HANGS_AFTER_S, bounded

HOST = "127.0.0.1"


@dataclass(frozen=True)
class LyingSigner:
    """Claims a key and signs with another."""

    claimed: Signer
    own: Signer

    @property
    def public_key(self) -> PublicKey:
        return self.claimed.public_key

    def sign(self, message: bytes) -> Signature:
        return self.own.sign(message)


class Node:
    """A transport, with what came to it."""

    def __init__(self, who: Identity) -> None:
        self.received: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self.refusals: asyncio.Queue[str] = asyncio.Queue()
        self.crashes: list[BaseException] = []
        self.transport = Transport(
            who,
            lambda sender, payload: self.received.put_nowait((sender, payload)),
            self.refusals.put_nowait,
            self.crashes.append,
        )

    async def start(self, port: int = 0) -> PeerAddress:
        self.address = await self.transport.listen(HOST, port)
        await self.transport.start()
        return self.address

    async def next(self) -> tuple[int, bytes]:
        async with asyncio.timeout(HANGS_AFTER_S):
            return await self.received.get()

    async def refusal(self) -> str:
        async with asyncio.timeout(HANGS_AFTER_S):
            return await self.refusals.get()


@asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    """Start nodes that know each other's addresses; close them."""
    try:
        for node in nodes:
            await node.start()
        for node in nodes:
            node.transport.set_addresses({other.transport.index: other.address for other in nodes})
        yield
    finally:
        for node in nodes:
            await node.transport.close()
            assert node.crashes == []


def test_an_address_is_nobody_elses_before_the_transport_starts() -> None:
    """Of two sockets that have bound a port, and do not listen yet, Linux lets only one listen later."""

    async def test() -> None:
        first, other = Node(identity(0)), Node(identity(1))
        address = await first.transport.listen(HOST)
        with pytest.raises(OSError, match="in use"):
            await other.transport.listen(HOST, address.port)
        async with running(other):
            await first.transport.start()
            other.transport.set_addresses({0: address})
            first.transport.set_addresses({1: other.address})
            other.transport.send(0, b"hello")
            assert await first.next() == (1, b"hello")
            await first.transport.close()

    for make_loop in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(test())


# --- a raw peer -------------------------------------------------------------------------------------------------------


class RawPeer:
    """A connection whose bytes the test writes itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @staticmethod
    async def connect(address: PeerAddress) -> RawPeer:
        return RawPeer(*await asyncio.open_connection(address.host, address.port))

    def write_frame(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)

    def write(self, message: HandshakeMessage) -> None:
        self.write_frame(encode_handshake(message))

    async def read(self) -> HandshakeMessage:
        async with asyncio.timeout(HANGS_AFTER_S):
            length = int.from_bytes(await self.reader.readexactly(LENGTH_BYTES), "big")
            return decode_handshake(await self.reader.readexactly(length))

    async def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        async with asyncio.timeout(HANGS_AFTER_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def prove(self, who: Identity, peer: int) -> tuple[Hello, Proof]:
        """The whole handshake of a dialer; returns what was sent."""
        handshake = DialerHandshake(who, peer)
        self.write(handshake.hello)
        proof = handshake.prove(await self.read())
        self.write(proof)
        await self.read()
        return handshake.hello, proof

    async def refused(self) -> str:
        """The reason that the other side gives for turning us away, after which it closes."""
        with pytest.raises(Refused) as caught:
            await self.read()
        assert await self.rest() == b""
        self.writer.close()
        return caught.value.reason


# --- messages ---------------------------------------------------------------------------------------------------------


@bounded
async def test_messages_reach_everybody_in_order() -> None:
    nodes = [Node(identity(index)) for index in range(4)]
    async with running(*nodes):
        for number in range(50):
            nodes[0].transport.send(None, b"all %d" % number)
            nodes[0].transport.send(2, b"one %d" % number)
        nodes[2].transport.send(0, b"")
        for node in nodes[1:]:
            expected = [word % n for n in range(50) for word in (b"all %d", b"one %d")]
            if node is not nodes[2]:
                expected = expected[::2]
            assert [await node.next() for _ in expected] == [(0, payload) for payload in expected]
        assert await nodes[0].next() == (2, b"")
        counters = nodes[0].transport.counters
        assert (counters.messages_sent, counters.messages_received) == (200, 1)
        assert counters.bytes_sent == sum(c.transport.counters.bytes_received for c in nodes[1:])
        assert nodes[0].refusals.empty()


@bounded
async def test_order_holds_for_messages_of_every_size() -> None:
    sizes = [(number * 7_919) % 3_000 for number in range(3_000)]
    sizes[100], sizes[2_000] = 3_000_000, transport_module.MAX_FRAME_BYTES
    sender, receiver = Node(identity(0)), Node(identity(1))
    async with running(sender, receiver):
        for number, size in enumerate(sizes):
            sender.transport.send(1, number.to_bytes(2, "big") + bytes(max(0, size - 2)))
        for number, size in enumerate(sizes):
            _, payload = await receiver.next()
            assert (int.from_bytes(payload[:2], "big"), len(payload)) == (number, max(2, size))
        assert sender.transport.counters.messages_dropped == 0


@bounded
async def test_a_full_queue_drops_the_oldest_and_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_QUEUED_MESSAGES", 5)
    sender, receiver = Node(identity(0)), Node(identity(1))
    await sender.start()
    for number in range(12):
        sender.transport.send(1, bytes([number]))
    assert sender.transport.counters.messages_dropped == 7
    assert sender.transport.connected == []
    sender.transport.set_addresses({1: await receiver.start()})
    assert [(await receiver.next())[1] for _ in range(5)] == [bytes([number]) for number in range(7, 12)]
    await sender.transport.close()
    await receiver.transport.close()


@bounded
async def test_a_queue_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_QUEUED_BYTES", 1_000)
    sender = Node(identity(0))
    await sender.start()
    for _ in range(4):
        sender.transport.send(1, bytes(400))
    assert sender.transport.counters.messages_dropped == 2
    await sender.transport.close()


@bounded
async def test_a_message_that_no_peer_takes_is_dropped_and_counted() -> None:
    sender, receiver = Node(identity(0)), Node(identity(1))
    async with running(sender, receiver):
        for size in (transport_module.MAX_FRAME_BYTES + 1, transport_module.MAX_FRAME_BYTES):
            sender.transport.send(None, bytes(size))
        assert sender.transport.counters.messages_oversized == 1
        assert len((await receiver.next())[1]) == transport_module.MAX_FRAME_BYTES


@bounded
async def test_a_restarted_peer_is_found_at_its_new_address() -> None:
    sender, receiver = Node(identity(0)), Node(identity(1))
    async with running(sender, receiver):
        sender.transport.send(1, b"before")
        assert await receiver.next() == (0, b"before")
        await receiver.transport.close()
        again = Node(identity(1))
        async with running(again):
            sender.transport.set_addresses({1: again.address})
            again.transport.set_addresses({0: sender.address})
            sender.transport.send(1, b"after")
            again.transport.send(0, b"hello")
            assert await sender.next() == (1, b"hello")
            received = await again.next()
            assert received == (0, b"after")


@bounded
async def test_a_peer_that_comes_back_at_its_old_address_is_dialed_again() -> None:
    sender, receiver = Node(identity(0)), Node(identity(1))
    async with running(sender, receiver):
        sender.transport.send(1, b"before")
        await receiver.next()
        await receiver.transport.close()
        again = Node(identity(1))
        await again.start(receiver.address.port)
        received = b""
        number = 0
        while not received:
            # What was written into the dead connection is lost; consensus repeats itself too.
            number += 1
            sender.transport.send(1, b"after %d" % number)
            try:
                async with asyncio.timeout(0.05):
                    _, received = await again.received.get()
            except TimeoutError:
                continue
        assert received.startswith(b"after")
        await again.transport.close()


@bounded
async def test_a_newer_connection_of_a_peer_replaces_the_older() -> None:
    node = Node(identity(1))
    async with running(node):
        older = await RawPeer.connect(node.address)
        await older.prove(identity(0), 1)
        newer = await RawPeer.connect(node.address)
        await newer.prove(identity(0), 1)
        assert await older.rest() == b""
        newer.write_frame(b"still here")
        assert await node.next() == (0, b"still here")
        newer.writer.close()
        older.writer.close()


# --- who is turned away -----------------------------------------------------------------------------------------------


NEW = SCHEME.signer(b"n" * 32)
WITH_ONE_MORE = ValidatorSet((*VALIDATORS.public_keys, NEW.public_key), SCHEME)


@pytest.mark.parametrize(
    ("dialer", "reason"),
    [
        (replace(identity(0), signer=NEW), "wrong_key"),
        (replace(identity(0), signer=LyingSigner(SIGNERS[0], SIGNERS[2])), "bad_signature"),
        (identity(0, "another"), "wrong_chain"),
        (Identity(4, NEW, WITH_ONE_MORE, CHAIN), "wrong_validator"),
    ],
    ids=["a stranger", "a key that it does not own", "another chain", "a validator that nobody knows"],
)
@bounded
async def test_who_is_no_peer_is_turned_away_and_both_sides_count_why(dialer: Identity, reason: str) -> None:
    node, other = Node(identity(1)), Node(dialer)
    async with running(node):
        await other.start()
        other.transport.set_addresses({1: node.address})
        assert await node.refusal() == reason
        assert await other.refusal() == reason
        assert node.transport.connected == []
        assert node.received.empty()
        await other.transport.close()


@pytest.mark.parametrize(
    ("listener", "reason"),
    [
        (identity(2), "wrong_validator"),
        (replace(identity(1), signer=SIGNERS[3]), "wrong_key"),
        (replace(identity(1), signer=LyingSigner(SIGNERS[1], SIGNERS[2])), "bad_signature"),
    ],
)
@bounded
async def test_a_dialer_makes_sure_whom_it_reached(listener: Identity, reason: str) -> None:
    dialer, impostor = Node(identity(0)), Node(listener)
    async with running(dialer):
        dialer.transport.send(1, b"secret")
        dialer.transport.set_addresses({1: await impostor.start()})
        assert await dialer.refusal() == reason
        assert impostor.received.empty()
        await impostor.transport.close()


@bounded
async def test_another_version_is_turned_away() -> None:
    node = Node(identity(1))
    async with running(node):
        peer = await RawPeer.connect(node.address)
        hello = DialerHandshake(identity(0), 1).hello
        peer.write(Hello(2, hello.chain_id, hello.dialer, hello.listener, hello.dialer_key, hello.nonce))
        assert await peer.refused() == "wrong_version"
        assert await node.refusal() == "wrong_version"


@bounded
async def test_a_recorded_handshake_proves_nothing() -> None:
    node = Node(identity(1))
    async with running(node):
        honest = await RawPeer.connect(node.address)
        hello, proof = await honest.prove(identity(0), 1)
        replayed = await RawPeer.connect(node.address)
        replayed.write(hello)
        assert isinstance(await replayed.read(), Welcome)
        replayed.write(proof)
        assert await replayed.refused() == "bad_signature"
        honest.write_frame(b"mine")
        assert await node.next() == (0, b"mine")
        honest.writer.close()


@bounded
async def test_an_answer_cannot_be_sent_back_in_the_other_direction() -> None:
    """Whoever dials validator 1 as validator 0 cannot have validator 0 sign for it by dialing that one."""
    victim, oracle = Node(identity(1)), ListenerHandshake(identity(0))
    async with running(victim):
        peer = await RawPeer.connect(victim.address)
        hello = DialerHandshake(identity(0), 1).hello
        peer.write(hello)
        answer = await peer.read()
        assert isinstance(answer, Welcome)
        asked = oracle.welcome(Hello(1, CHAIN, 1, 0, bytes(SIGNERS[1].public_key), answer.nonce))
        peer.write(Proof(asked.signature))
        assert await peer.refused() == "bad_signature"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x03\xc1\xc1\xc1",
        b"\x00\x00\x00\x06GET / ",
        b"\x00\x00\x00\x02\x91\x04",
        b"\x00\x00\x00\x0b" + b"\x92\x05\xa8whatever"[:11],
        b"\x00\x00\x00\x05\x92\x05\xa2\xff\xfe",
        b"\x00\x00\x03\xff\x92\x04" + b"\x91" * 1_020 + b"\xc0",
    ],
)
@bounded
async def test_garbage_is_turned_away(garbage: bytes) -> None:
    node = Node(identity(1))
    async with running(node):
        peer = await RawPeer.connect(node.address)
        peer.writer.write(garbage)
        await peer.rest()
        assert await node.refusal() in ("bad_handshake", "refused")
        peer.writer.close()


FIELDS = st.sampled_from(
    [
        b"\xc0",
        b"\x01",
        b"\xff",
        b"\xcf" + b"\xff" * 8,
        b"\xa2\xff\xfe",
        b"\xd9\xff",
        b"\xa5chain",
        b"\xc4\x20" + bytes(32),
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 900 + b"\xc0",
        b"\x81" * 900,
        b"\x81\xa2\xff\xfe\x01",
        b"\xd6\xff\x00\x00\x00\x01",
    ]
)
"""Values that a decoder may stumble over, and some that it takes."""
FRAMES = st.one_of(
    st.binary(max_size=MAX_HANDSHAKE_FRAME_BYTES),
    st.builds(
        lambda tag, fields: (bytes((0x91 + len(fields), tag)) + b"".join(fields))[:1_024],
        st.integers(0, 6),
        st.lists(FIELDS, max_size=8),
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), FRAMES), min_size=1, max_size=8))
@example([(False, b"\x92\x05\xa2\xff\xfe"), (True, b"\x92\x04" + b"\x91" * 1_020 + b"\xc0")])
@bounded
async def test_no_bytes_crash_a_transport(peers: list[tuple[bool, bytes]]) -> None:
    """Whatever comes, first of all or after a right hello, is counted as refused, and the transport goes on."""
    node = Node(identity(1))
    async with running(node):
        for says_hello, frame in peers:
            peer = await RawPeer.connect(node.address)
            if says_hello:
                peer.write(DialerHandshake(identity(0), 1).hello)
            peer.write_frame(frame)
            peer.writer.write_eof()
            await peer.rest()
            assert await node.refusal()
            peer.writer.close()
        assert node.received.empty()
        honest = await RawPeer.connect(node.address)
        await honest.prove(identity(0), 1)
        honest.write_frame(b"well")
        assert await node.next() == (0, b"well")
        honest.writer.close()


@pytest.mark.parametrize("frame", [b"\x92\x05\xa2\xff\xfe", b"\x92\x04" + b"\x91" * 1_020 + b"\xc0"])
@bounded
async def test_no_bytes_crash_a_dialer(frame: bytes) -> None:
    dialer = Node(identity(0))
    answering = await asyncio.start_server(lambda _r, w: RawPeer(_r, w).write_frame(frame), HOST)
    async with running(dialer):
        dialer.transport.set_addresses({1: PeerAddress(HOST, answering.sockets[0].getsockname()[1])})
        assert await dialer.refusal() in ("bad_handshake", "refused")
    answering.close()


@pytest.mark.parametrize("message", [Welcome(b"k", b"n", b"s"), Proof(b"s"), Accepted(), Refusal("wrong_key")])
def test_a_field_too_many_is_a_bad_handshake(message: HandshakeMessage) -> None:
    frame = encode_handshake(message)
    longer = bytes((frame[0] + 1,)) + frame[1:] + b"\xc0"
    with pytest.raises(Refused, match="bad_handshake"):
        decode_handshake(longer)


@bounded
async def test_a_connection_that_ends_in_the_handshake_is_counted() -> None:
    node = Node(identity(1))
    async with running(node):
        peer = await RawPeer.connect(node.address)
        peer.writer.write(b"\x00\x00")
        peer.writer.close()
        assert await node.refusal() == "handshake_broken"


@bounded
async def test_a_half_open_connection_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "HANDSHAKE_TIMEOUT_S", 0.05)
    node = Node(identity(1))
    async with running(node):
        peer = await RawPeer.connect(node.address)
        assert await node.refusal() == "handshake_timeout"
        await peer.rest()
        peer.writer.close()


@bounded
async def test_only_so_many_strangers_wait_at_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_HANDSHAKES", 2)
    node = Node(identity(1))
    async with running(node):
        peers = [await RawPeer.connect(node.address) for _ in range(3)]
        assert await node.refusal() == "too_many_handshakes"
        for peer in peers:
            peer.writer.close()


@bounded
async def strangers_by_the_hundred() -> None:
    """They connect and say nothing, or half a word; a peer that comes last is let in at once."""
    node = Node(identity(1))
    async with running(node):
        strangers = [await RawPeer.connect(node.address) for _ in range(200)]
        for stranger in strangers[::2]:
            stranger.writer.write(b"\x00\x00")
        honest = await RawPeer.connect(node.address)
        await honest.prove(identity(0), 1)
        honest.write_frame(b"well")
        assert await node.next() == (0, b"well")
        assert len(node.transport._handshakes) < transport_module.MAX_HANDSHAKES
        for peer in (*strangers, honest):
            peer.writer.close()


def test_strangers_by_the_hundred_keep_no_peer_out() -> None:
    strangers_by_the_hundred()


def test_a_listener_that_turns_the_newest_away_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Transport._take

    def turn_away(transport: Transport, stream: FrameStream) -> None:
        if len(transport._handshakes) >= transport_module.MAX_HANDSHAKES:
            stream.close()
        else:
            take(transport, stream)

    monkeypatch.setattr(Transport, "_take", turn_away)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        strangers_by_the_hundred()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=60), st.sampled_from(("whole", "cut", "longer", "flipped"))), max_size=6))
@bounded
async def test_a_proved_peers_stream_is_delivered_as_it_is_or_ended(frames: list[tuple[bytes, str]]) -> None:
    """Frames whose lengths lie: what is read of them is the sender's own, and the next peer is served."""
    node = Node(identity(1))
    async with running(node):
        peer = await RawPeer.connect(node.address)
        await peer.prove(identity(0), 1)
        for payload, how in frames:
            length = len(payload) + {"cut": -len(payload) // 2, "longer": 9, "flipped": 2**31}.get(how, 0)
            peer.writer.write(max(0, length).to_bytes(LENGTH_BYTES, "big") + payload)
        peer.writer.write_eof()
        await peer.rest()
        peer.writer.close()
        other = await RawPeer.connect(node.address)
        await other.prove(identity(2), 1)
        other.write_frame(b"well")
        while (received := await node.next()) != (2, b"well"):
            assert received[0] == 0
        assert node.refusals.qsize() <= 1 and all(len(each._buffer) < 500 for each in node.transport._incoming.values())
        other.writer.close()


@pytest.mark.parametrize("proved", [False, True])
@bounded
async def test_oversized_frames_end_the_connection(proved: bool) -> None:
    node = Node(identity(1))
    async with running(node):
        peer = await RawPeer.connect(node.address)
        if proved:
            await peer.prove(identity(0), 1)
        limit = transport_module.MAX_FRAME_BYTES if proved else MAX_HANDSHAKE_FRAME_BYTES
        peer.writer.write((limit + 1).to_bytes(LENGTH_BYTES, "big"))
        await peer.rest()
        assert await node.refusal() == "oversized_frame"
        assert node.received.empty()
        peer.writer.close()


@bounded
async def test_a_listener_may_not_send_on_a_dialed_connection() -> None:
    dialer = Node(identity(0))
    accepted: asyncio.Queue[RawPeer] = asyncio.Queue()
    server = await asyncio.start_server(lambda r, w: accepted.put_nowait(RawPeer(r, w)), HOST)
    port = server.sockets[0].getsockname()[1]
    async with running(dialer):
        dialer.transport.set_addresses({1: PeerAddress(HOST, port)})
        peer = await accepted.get()
        handshake = ListenerHandshake(identity(1))
        peer.write(handshake.welcome(await peer.read()))
        assert handshake.accept(await peer.read()) == 0
        peer.writer.write(b"\x00\x00\x00\x02\x91\x04\x00\x00\x00\x01x")
        assert await dialer.refusal() == "not_expected"
        peer.writer.close()
    server.close()


# --- framing ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(1, 30), min_size=1))
def test_frames_do_not_depend_on_how_bytes_arrive(payloads: list[bytes], steps: list[int]) -> None:
    data = b"".join(len(payload).to_bytes(LENGTH_BYTES, "big") + payload for payload in payloads)
    received: list[bytes] = []
    stream = FrameStream(pytest.fail)
    stream.deliver(received.append, max_bytes=40)
    position = 0
    while position < len(data):
        for step in steps:
            stream.data_received(data[position : position + step])
            position += step
    assert received == payloads


# --- peers that do not model their own links --------------------------------------------------------------------------


@bounded
async def test_what_a_peer_without_links_sends_passes_them_on_its_arrival() -> None:
    section = LinksSection.model_validate({"latency_ms": 0, "jitter_ms": 0})
    links = OutgoingLinks(Network(section, ["a", "b", "c", "d"], {}, 1), 0, 1)
    sender, receiver, other = Node(identity(0)), Node(identity(1)), Node(identity(2))
    receiver.transport.links_from = {0: links}
    cut = CutFault.model_validate({"kind": "cut", "from": ["a"], "to": ["b"], "at_height": 1, "for_ms": 9})
    async with running(sender, receiver, other):
        sender.transport.send(1, b"before")
        assert await receiver.next() == (0, b"before")
        links.set_faults({1: cut.effect(["a", "b", "c", "d"])})
        sender.transport.send(1, b"lost")
        sender.transport.send(2, b"elsewhere")
        assert await other.next() == (0, b"elsewhere")
        while links.totals()["dropped"] == 0:
            await asyncio.to_thread(int)
        other.transport.send(1, b"from another")
        assert await receiver.next() == (2, b"from another")
        links.set_faults({})
        sender.transport.send(1, b"after")
        assert await receiver.next() == (0, b"after")
        assert links.faults.counts()[1].dropped == links.totals()["dropped"] == 1
