"""Messages a second between two processes: the validators' transport beside bare TCP streams.

Both carry the same messages, each with its length in front of it, over one loopback connection to a process that only
counts them. The bare streams are asyncio's, written in the transport's batches: what the handshake, the queues, the
counters and the links cost is the difference. Run by ``benchmarks/live.py``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TypeVar

import apart

from cluster.live.network.handshake import Identity
from cluster.live.network.transport import LENGTH_BYTES, MAX_QUEUED_MESSAGES, WRITE_BATCH_BYTES, PeerAddress, Transport
from consensus.keys import Ed25519Scheme, ValidatorSet

HOST = "127.0.0.1"
MESSAGE_BYTES = 300
SCHEME = Ed25519Scheme()
SIGNERS = [SCHEME.signer(bytes([index + 1]) * 32) for index in range(2)]
VALIDATORS = ValidatorSet(tuple(signer.public_key for signer in SIGNERS), SCHEME)
SENDER, RECEIVER = 0, 1

T = TypeVar("T")


def messages_per_second(count: int) -> Iterator[float]:
    """Over :class:`~cluster.live.network.transport.Transport`, then over a bare stream."""
    ours, theirs = Pipe()
    process = apart.started(_send, count, theirs)
    try:
        for receiver in (_transport_receiver, _bare_receiver):
            yield count / asyncio.run(_bounded(receiver(count, ours)))
    finally:
        process.kill()
        process.join()


def _send(count: int, pipe: Connection) -> None:
    for sender in (_transport_sender, _bare_sender):
        asyncio.run(_bounded(sender(count, pipe)))


async def _bounded(side: Awaitable[T]) -> T:
    async with asyncio.timeout(120):
        return await side


async def _told(pipe: Connection) -> PeerAddress:
    address: PeerAddress = await asyncio.to_thread(pipe.recv)
    return address


class _Counter:
    """Counts what arrives, and knows when the last one did."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._began = 0.0
        self.seconds = 0.0
        self.is_done = asyncio.Event()

    def note(self, count: int = 1) -> None:
        if not self._began:
            self._began = time.perf_counter()
        self._left -= count
        if self._left <= 0:
            self.seconds = time.perf_counter() - self._began
            self.is_done.set()


# --- the validators' transport ----------------------------------------------------------------------------------------


def _transport(index: int, on_message: Callable[[int, bytes], None]) -> Transport:
    def fail(error: BaseException) -> None:
        raise error

    identity = Identity(index, SIGNERS[index], VALIDATORS, "benchmark")
    return Transport(identity, on_message, lambda reason: None, fail)


async def _transport_receiver(count: int, pipe: Connection) -> float:
    counter = _Counter(count)
    transport = _transport(RECEIVER, lambda sender, payload: counter.note())
    pipe.send(await transport.listen(HOST))
    await transport.start()
    transport.set_addresses({SENDER: await _told(pipe)})
    await counter.is_done.wait()
    await transport.close()
    pipe.send(None)
    return counter.seconds


async def _transport_sender(count: int, pipe: Connection) -> None:
    transport = _transport(SENDER, lambda sender, payload: None)
    address = await transport.listen(HOST)
    await transport.start()
    pipe.send(address)
    transport.set_addresses({RECEIVER: await _told(pipe)})
    while RECEIVER not in transport.connected:
        await asyncio.sleep(0)
    payload = bytes(MESSAGE_BYTES)
    sent = 0
    while sent < count:
        room = MAX_QUEUED_MESSAGES // 2 - (sent - transport.counters.messages_sent)
        for _ in range(min(room, count - sent)):
            transport.send(RECEIVER, payload)
            sent += 1
        await asyncio.sleep(0)
    await asyncio.to_thread(pipe.recv)  # until all have arrived
    await transport.close()


# --- bare streams -----------------------------------------------------------------------------------------------------


async def _bare_receiver(count: int, pipe: Connection) -> float:
    counter = _Counter(count)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        buffer = bytearray()
        while data := await reader.read(WRITE_BATCH_BYTES):
            buffer += data
            position = 0
            while len(buffer) - position >= LENGTH_BYTES:
                length = int.from_bytes(buffer[position : position + LENGTH_BYTES], "big")
                if len(buffer) - position < LENGTH_BYTES + length:
                    break
                position += LENGTH_BYTES + length
                counter.note()
            del buffer[:position]
        writer.close()

    server = await asyncio.start_server(take, HOST, 0)
    pipe.send(PeerAddress(*server.sockets[0].getsockname()[:2]))
    await counter.is_done.wait()
    server.close()
    return counter.seconds


async def _bare_sender(count: int, pipe: Connection) -> None:
    address = await _told(pipe)
    _, writer = await asyncio.open_connection(address.host, address.port)
    frame = MESSAGE_BYTES.to_bytes(LENGTH_BYTES, "big") + bytes(MESSAGE_BYTES)
    a_batch = WRITE_BATCH_BYTES // len(frame)
    for first in range(0, count, a_batch):
        writer.write(b"".join([frame] * min(a_batch, count - first)))
        await writer.drain()
    writer.close()
    await writer.wait_closed()
