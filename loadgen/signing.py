"""Signing of transactions in separate processes, so that one processor core does not limit a Locust process's load.

A process of a :class:`SigningPool` gets batches of messages over a socket, and answers with the signatures. It derives
the users' keys itself. It ends with its Locust process, which closes the socket.

A batch and its answer are a length (four bytes, big-endian) and MessagePack: ``[[user's number, message]]``, and
``[signature]`` in the same order.
"""

from __future__ import annotations

import argparse
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from queue import Queue
from typing import Final

import msgspec

from loadgen.workloads.plan import user_key
from loadgen.workloads.user import Outgoing

_LENGTH: Final = struct.Struct(">I")
_decoder: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes]])
_answer_decoder: Final = msgspec.msgpack.Decoder(list[bytes])


class SigningError(Exception):
    """A process of a signing pool has ended. The message is one line."""


class SigningPool:
    """Processes that sign transactions. In a process patched by gevent, waiting for them lets other greenlets run."""

    def __init__(self, seed: int, count: int) -> None:
        """Start ``count`` processes. They derive the users' keys from ``seed``, the plan's seed."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._free: Queue[socket.socket] = Queue()
        for _ in range(count):
            own, theirs = socket.socketpair()
            with theirs:
                self._processes.append(_start(seed, theirs.fileno()))
            self._free.put(own)

    def sign(self, batch: Sequence[Outgoing]) -> None:
        """Sign the transactions that are not signed yet. Raises :class:`SigningError`."""
        unsigned = [each for each in batch if not each.wire]
        if not unsigned:
            return
        connection = self._free.get()
        try:
            _send(connection, msgspec.msgpack.encode([(each.number, each.message) for each in unsigned]))
            answer = _receive(connection)
        except OSError:
            answer = None
        finally:
            self._free.put(connection)
        if answer is None:
            raise SigningError("a process that signs has ended")
        for each, signature in zip(unsigned, _answer_decoder.decode(answer), strict=True):
            each.accept(signature)

    def close(self) -> None:
        """End the signing processes."""
        for _ in self._processes:
            self._free.get().close()
        for process in self._processes:
            process.wait()
        self._processes.clear()


def _start(seed: int, descriptor: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "loadgen.signing", "--seed", str(seed), "--socket", str(descriptor)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(descriptor,))


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _receive(connection: socket.socket) -> bytes | None:
    """Receive the next message; ``None`` if the other side has closed the connection."""
    head = _read(connection, _LENGTH.size)
    return None if head is None else _read(connection, _LENGTH.unpack(head)[0])


def _read(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadgen.signing", description="Sign what comes over a socket.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--socket", type=int, required=True, help="file descriptor")
    options = parser.parse_args()
    keys = cache(lambda number: user_key(options.seed, number))
    with socket.socket(fileno=options.socket) as connection:
        connection.setblocking(True)  # gevent made both ends non-blocking
        while (batch := _receive(connection)) is not None:
            signatures = [keys(number).sign(message).signature for number, message in _decoder.decode(batch)]
            _send(connection, msgspec.msgpack.encode(signatures))


if __name__ == "__main__":
    main()
