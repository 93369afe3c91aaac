"""The journal of a run: what its loop was told, as frames, from which another loop comes to the same state.

A loop is a function of what it is told (:mod:`cluster.run.loop`). A day of a run has millions of heights and looks at
the network of which nothing follows. They are not kept, so a journal grows with the faults and the requests of a run.
With each frame the highest height and the newest look come before it, since what it means may depend on them.

A frame (:mod:`validator.storage.frames`) has the MessagePack array ``[kind, fields]``: a number of :data:`KINDS`, and
the values of its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

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
from cluster.run.events import (
    Absent,
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
from cluster.scenario import Scenario
from validator.storage.frames import frame, split

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
    what = KINDS.index(type(seen)), tuple(seen)
    try:
        return frame(msgspec.msgpack.encode(what, enc_hook=_plain))
    except UnicodeEncodeError:  # half a surrogate pair, from the name of a file in a reason
        return frame(msgspec.msgpack.encode(_readable(msgspec.to_builtins(what, enc_hook=_plain))))


def _readable(value: Any) -> Any:
    """The value with ``?`` in place of what no text can have."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_readable(key): _readable(each) for key, each in value.items()}
    return [_readable(each) for each in value] if isinstance(value, list | tuple) else value


def read_journal(content: bytes) -> tuple[list[Seen], int]:
    """All that a journal has, and the length of its complete part in bytes. A torn frame at its end does not count.

    Raises :class:`DamagedJournal`.
    """
    try:
        frames, whole = split(content)
        return [_decoded(each.payload) for each in frames], whole
    except (ValueError, msgspec.DecodeError) as error:
        raise DamagedJournal(f"is damaged: {error}") from None


def _decoded(payload: bytes) -> Seen:
    kind, fields = msgspec.msgpack.decode(payload, type=tuple[int, Sequence[Any]])
    if not 0 <= kind < len(KINDS):
        raise DamagedJournal(f"kind {kind} is none of {len(KINDS)}")
    return msgspec.convert(fields, KINDS[kind], dec_hook=_from_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Scenario):
        return value.model_dump(mode="json", exclude_unset=True)
    raise NotImplementedError(f"a journal has no place for a {type(value).__name__}")


def _from_plain(kind: type, value: Any) -> Any:
    if kind is not Scenario:
        raise NotImplementedError(f"a journal has no place for a {kind.__name__}")
    return Scenario.model_validate(value)
