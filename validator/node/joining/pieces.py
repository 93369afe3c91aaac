"""A chunk of a snapshot on its way from one peer, in pieces that fit into messages.

The values in a chunk have no common bound but their own (2**24 bytes each), so a chunk may be longer than a message.
The server cuts it into pieces of :data:`~validator.chain.messages.MAX_PIECE_BYTES`; a joining validator asks for
one after the other and checks the whole chunk in the end. What a peer can make it keep until then is bounded by
:data:`~validator.chain.messages.MAX_CHUNK_BYTES`.
"""

from __future__ import annotations

from validator.chain.messages import MAX_CHUNK_BYTES, MAX_PIECE_BYTES, ChunkRequest, ChunkResponse
from validator.primitives.types import Height
from validator.state.snapshot import SnapshotError


class ChunkPieces:
    """The pieces of one chunk from one peer. Two peers may cut a chunk differently: theirs are never put together."""

    def __init__(self, height: Height, chunk: int) -> None:
        self.height = height
        self.chunk = chunk
        self._data = bytearray()
        self._total = 0

    @property
    def request(self) -> ChunkRequest:
        """Asks for the next piece."""
        return ChunkRequest(self.height, self.chunk, len(self._data))

    def take(self, response: ChunkResponse) -> bytes | None:
        """Take a piece; the whole chunk, not checked yet, once its last piece is there.

        A piece that was not asked for, or came before, is passed over: the caller asks for :attr:`request` anew if
        nothing was taken. Raises :class:`SnapshotError` if it is none that an honest peer cuts.
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
