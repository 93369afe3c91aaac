"""``false-snapshots``: what it gives to a validator that joins is not what the state root stands for."""

from __future__ import annotations

import msgspec

from cluster.byzantine.base import Behaviour, hand, recipient_of
from validator.codec import CodecError
from validator.events import Effect, Send
from validator.messages import ChunkResponse, decode_message


class FalseSnapshots(Behaviour):
    name = "false-snapshots"
    description = "gives chunks of snapshots in which one bit is wrong"

    def alter(self, effect: Effect) -> list[Effect]:
        chunk = _chunk_in(effect)
        if chunk is None or not chunk.data:
            return [effect]
        data, random = bytearray(chunk.data), self.position.random
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        self.bit()
        return [hand(recipient_of(effect), msgspec.structs.replace(chunk, data=bytes(data)))]


def _chunk_in(effect: Effect) -> ChunkResponse | None:
    if not isinstance(effect, Send):
        return None
    try:
        message = decode_message(effect.payload)
    except CodecError:
        return None
    return message if isinstance(message, ChunkResponse) else None
