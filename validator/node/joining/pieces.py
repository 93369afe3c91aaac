"""Transfer of a snapshot's chunk from one peer, in pieces that fit into messages.

Only the size of each value in a chunk is bounded (2**24 bytes), so a chunk may be longer than a message. The server
cuts it into pieces of :data:`~validator.chain.messages.MAX_PIECE_BYTES`; a joining validator requests one after the
other and checks the whole chunk at the end. Until then it keeps at most
:data:`~validator.chain.messages.MAX_CHUNK_BYTES` for a peer.
"""

from __future__ import annotations

from validator.chain.messages import MAX_CHUNK_BYTES, MAX_PIECE_BYTES, ChunkRequest, ChunkResponse
from validator.primitives.types import Height
from validator.state.snapshot import SnapshotError


class ChunkPieces:
    """The pieces of one chunk from one peer. Two peers may cut a chunk differently, so their pieces are never mixed."""

    def __init__(self, height: Height, chunk: int) -> None:
        self.height = height
        self.chunk = chunk
        self._data = bytearray()
        self._total = 0

    @property
    def request(self) -> ChunkRequest:
        """The request for the next piece."""
        return ChunkRequest(self.height, self.chunk, len(self._data))

    def take(self, response: ChunkResponse) -> bytes | None:
        """Take a piece. Returns the whole chunk, not checked yet, with its last piece.

        A piece that was not requested, or came before, is ignored; the caller sends :attr:`request` again if nothing
        was taken. Raises :class:`SnapshotError` if no honest peer cuts such a piece.
        """
        if (response.height, response.chunk, response.offset) != (self.height, self.chunk, len(self._data)):
            return None
        if not 0 < response.total <= MAX_CHUNK_BYTES or self._total not in (0, response.total):
            raise SnapshotError(f"a chunk of {response.total} bytes")
        if len(response.data) != min(response.total - response.offset, MAX_PIECE_BYTES):
            raise SnapshotError(f"a piece of {len(response.data)} bytes")
        self._total = response.total
        self._data += response.data
        return bytes(self._data) if len(self._data) == self._total else None
