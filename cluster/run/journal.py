"""The journal of a run: what its loop was told, as frames, from which another loop comes to the same state.

A loop is a function of what it is told (:mod:`cluster.run.loop`). A day of a run has millions of heights and looks at
the network of which nothing follows. They are not kept, so a journal grows with the faults and the requests of a run.
With each frame the highest height and the newest look come before it, since what it means may depend on them.

A frame (:mod:`validator.storage.frames`) has the JSON array ``[kind, fields]``, encoded as a record is
(:mod:`cluster.record.saved`): a number of :data:`KINDS`, and the values of its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from cluster.common.errors import BadInput
from cluster.faults.events import (
    BitFlipped,
    Counted,
    Due,
    Failed,
    MachineLost,
    Network,
    Observed,
    Seat,
    Voted,
)
from cluster.record.saved import decode, encode
from cluster.run.events import (
    Absent,
    Begun,
    ForkTaken,
    JoinBegun,
    JoinEnded,
    Left,
    NewHeight,
    Order,
    ScenarioChanged,
    Seen,
    Standings,
    StopRequested,
    Time,
    Up,
    Violation,
)
from validator.storage.frames import frame, is_torn, split

KINDS: Final[tuple[type[Seen], ...]] = (
    Up,
    Time,
    NewHeight,
    StopRequested,
    Violation,
    JoinBegun,
    JoinEnded,
    ScenarioChanged,
    ForkTaken,
    Standings,
    Left,
    Absent,
    Network,
    Due,
    Voted,
    Failed,
    MachineLost,
    Counted,
    BitFlipped,
    Observed,
    Begun,
)
"""What a loop is told. Numbers in journals are places in this list."""

OFTEN: Final = (Time, NewHeight, JoinBegun, JoinEnded, Standings, Network)
"""Kinds that are told again and again, and that change nothing if no order follows."""


class DamagedJournal(ValueError):
    """A journal is not one that this code wrote. The message is one line."""


class Journal:
    """Decides what of a run is kept, and gives it to ``write`` as frames."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._height: NewHeight | None = None
        """The highest height, if it is not kept yet, as the next."""
        self._highest = 0
        self._network: Network | None = None
        self._known: Sequence[Seat] = ()
        """The validators as they were kept last."""

    def note(self, seen: Seen, orders: Sequence[Order]) -> None:
        """Note what the loop was told, and what followed."""
        match seen:
            case NewHeight(height) if height > self._highest:
                self._height, self._highest = seen, height
            case Network():
                self._network = seen
        if orders or not isinstance(seen, OFTEN) or (isinstance(seen, Network) and self._is_news(seen)):
            self._keep(seen)

    def _keep(self, seen: Seen) -> None:
        for before in (self._height, self._network):
            if before is not None and before is not seen:
                self._write(encoded(before))
        self._write(encoded(seen))
        if self._network is not None:
            self._known = self._network.seats
        self._height = self._network = None

    def _is_news(self, network: Network) -> bool:
        """Whether a validator is seen in another state. Its height alone is none."""
        return len(network.seats) != len(self._known) or any(
            seat._replace(height=known.height) != known for seat, known in zip(network.seats, self._known, strict=True)
        )


def encoded(seen: Seen) -> bytes:
    """The frame of what was told."""
    return frame(encode((KINDS.index(type(seen)), seen)))


def read_journal(content: bytes, begin: int = 0) -> tuple[list[Seen], int]:
    """All that a journal has from the frame at an offset on, and the length of its complete part in bytes. A frame that
    a crash has torn does not count, nor does anything after it.

    Raises :class:`DamagedJournal`, also for a frame that is damaged in another way.
    """
    frames, size = split(content[begin:])
    whole = begin + size
    if whole < len(content) and not is_torn(content[whole:], whole):
        raise DamagedJournal(f"is damaged: the frame at offset {whole} is not what was written")
    try:
        return [_decoded(each.payload) for each in frames], whole
    except BadInput as error:
        raise DamagedJournal(f"is damaged: {error}") from None


def _decoded(payload: bytes) -> Seen:
    kind, fields = decode(payload, tuple[int, msgspec.Raw])
    if not 0 <= kind < len(KINDS):
        raise BadInput(f"kind {kind} is none of {len(KINDS)}")
    return decode(bytes(fields), KINDS[kind])
