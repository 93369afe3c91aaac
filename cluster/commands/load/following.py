"""Reads the final blocks of a testnet in another process: observes when transactions become final, and the backlog."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from cluster.checks.metrics.load_latency import keys_in
from loadgen.client import ClientError, ValidatorClient
from loadgen.workloads.measures import is_chosen
from spec.encoding import Unreadable

MAX_KEPT: Final = 1 << 17
"""Maximum number of transactions whose time of finality is kept. If there are more, a sample is kept, chosen by bits of
their keys. Senders choose their sample in the same way."""
MAX_BLOCKS: Final = 64
"""Maximum number of blocks per request."""
TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Look:
    """An observation of the chain at one moment."""

    at_s: float
    """Time on the monotonic clock."""
    height: int
    transactions: int
    """Transactions that became final since the follower started."""
    backlog: int
    """Timers that are due and wait."""
    pending: int
    """Transactions in the mempool of the queried validator."""


class ChainFollower:
    """Follows one testnet from the first look on. A transaction counts as final when its final block is first seen."""

    def __init__(self, validators: Sequence[str]) -> None:
        self._clients = cycle([ValidatorClient(url, TIMEOUT_S) for url in validators])
        self._client = next(self._clients)
        self._height: int | None = None
        self._transactions = 0
        self._chosen_bits = 0
        self.final: dict[str, float] = {}
        """Times of finality in milliseconds since the epoch, keyed by :func:`~loadgen.workloads.measures.send_key`."""

    def look(self) -> Look | None:
        """Read the new blocks; returns an observation, or ``None`` if the validator does not answer.

        In that case the next call queries another validator.
        """
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
            for key in keys_in(block):
                self._transactions += 1
                if is_chosen(key, self._chosen_bits):
                    self.final.setdefault(key, now_ms)
            self._height += 1
        while len(self.final) > MAX_KEPT:
            self._chosen_bits += 1
            self.final = {key: at for key, at in self.final.items() if is_chosen(key, self._chosen_bits)}

    @property
    def chosen_bits(self) -> int:
        """Number of leading zero bits that a transaction's key must have for its time to be kept."""
        return self._chosen_bits
