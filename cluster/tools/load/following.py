"""Follows the final blocks of a testnet that another process runs: when transactions became final, and the backlog."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from cluster.audit.chain_codec import Unreadable, read_block, read_key_and_nonce
from loadgen.client import ClientError, ValidatorClient
from loadgen.workloads.measures import is_chosen, send_key

MAX_KEPT: Final = 1 << 17
"""Transactions whose time is kept at most; of more a part, chosen by their keys' bits as senders choose theirs."""
MAX_BLOCKS: Final = 64
"""Blocks of a request."""
TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Look:
    """The chain at one moment."""

    at_s: float
    """Monotonic."""
    height: int
    transactions: int
    """Final since the beginning."""
    backlog: int
    """Timers that are due and wait."""
    pending: int
    """Transactions in the mempool of the validator that was asked."""


class ChainFollower:
    """One testnet from now on. A block's transactions are taken to be final when the block is first seen so."""

    def __init__(self, validators: Sequence[str]) -> None:
        self._clients = cycle([ValidatorClient(url, TIMEOUT_S) for url in validators])
        self._client = next(self._clients)
        self._height: int | None = None
        self._transactions = 0
        self._chosen_bits = 0
        self.final: dict[str, float] = {}
        """Milliseconds since the epoch, by :func:`~loadgen.workloads.measures.send_key`: all, or the chosen part."""

    def look(self) -> Look | None:
        """Read what is new; ``None`` if the validator does not answer, and then another one is next."""
        try:
            status = self._client.status()
            height = int(status["height"])
            if self._height is None:
                self._height = height
            while self._height < height:
                self._read(self._client.blocks(self._height + 1, min(MAX_BLOCKS, height - self._height)))
            return Look(
                time.monotonic(),
                self._height,
                self._transactions,
                int(status.get("backlog", 0)),
                int(status.get("pending_transactions", 0)),
            )
        except (ClientError, Unreadable, KeyError, TypeError, ValueError):
            self._client = next(self._clients)
            return None

    def _read(self, blocks: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        if not blocks:
            raise ValueError("the blocks up to its height are not there")
        now_ms = time.time() * 1_000
        assert self._height is not None
        for block, _, _ in blocks:
            for wire in read_block(block).transactions:
                self._transactions += 1
                key = send_key(*read_key_and_nonce(wire))
                if is_chosen(key, self._chosen_bits):
                    self.final.setdefault(key, now_ms)
            self._height += 1
        while len(self.final) > MAX_KEPT:
            self._chosen_bits += 1
            self.final = {key: at for key, at in self.final.items() if is_chosen(key, self._chosen_bits)}

    @property
    def chosen_bits(self) -> int:
        """Times are kept of those keys whose first so many bits are zero."""
        return self._chosen_bits
