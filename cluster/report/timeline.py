"""The data of the zoomable timeline: views and blocks of each validator, faults, messages of the recorded windows.

Plain data for ``templates/page.js``, with at most :data:`MAX_MOMENTS` views and blocks per validator. Beyond that, the
longest view, and the longest wait for a block, of each group of neighbours is kept, with its end. Times are
milliseconds since the start of the run; those of messages are whole microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice, pairwise, zip_longest
from typing import Any, Final

from cluster.audit.books import Books
from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.record import message_trace as trace
from cluster.record.run import RunRecord, TracedMessage, TraceWindow, ViewEntered
from cluster.report.fault_labels import Marked

MAX_MOMENTS: Final = 1_500
BEGINNING_SHARE: Final = 0.02
"""Length of the empty part displayed before the first content, as a share of the time after it."""

NOT_SEEN_ARRIVING: Final = -1
"""Value of a message's travel time if the message was lost, or if its arrival was not recorded."""
NOT_SEEN_LEAVING: Final = -2
"""Value of a message's travel time if only its arrival was recorded. The message's time is then that of the arrival."""

COLOURS: Final = {
    trace.MessageKind.PROPOSAL: ("c1", ""),
    trace.MessageKind.NOTARIZE: ("c0", ""),
    trace.MessageKind.FINALIZE: ("c2", ""),
    trace.MessageKind.NULLIFY: ("c4", "5 3"),
    trace.MessageKind.TIMEOUT: ("c5", "5 3"),
    trace.MessageKind.CERTIFICATE: ("c3", "2 2"),
    trace.MessageKind.REQUEST: ("c6", "6 2 2 2"),
    trace.MessageKind.BLOCK: ("c7", ""),
    trace.MessageKind.SNAPSHOT: ("c7", "2 2"),
    trace.MessageKind.TRANSACTIONS: ("ink-3", "1 3"),
    trace.MessageKind.OTHER: ("fail", "1 3"),
}
"""Colour (a variable of the style) and dashes of each kind of message."""


def timeline_data(books: Books, marks: Sequence[Marked]) -> dict[str, Any]:
    """The timeline of a run, to become JSON.

    ``marks`` are the run's faults and stalls (:func:`cluster.report.fault_labels.marked`).
    """
    record = books.record
    shown = record.trace.watched or tuple(range(min(record.scenario.validators.count, trace.MAX_WATCHED)))
    places = {index: place for place, index in enumerate(shown)}
    names = record.scenario.validators.names
    entered: dict[int, list[ViewEntered]] = {index: [] for index in shown}
    for seen in record.trace.views:
        if seen.validator in entered:
            entered[seen.validator].append(seen)
    views = {index: _views(entered[index]) for index in shown}
    lanes = [
        {
            "name": names[index],
            "views": views[index],
            "blocks": _thinned(record.finalizations.moments_of(index)),
        }
        for index in shown
    ]
    final, drawn = set(books.views.values()), {int(view[1]) for mine in views.values() for view in mine}
    newest = max(final, default=0)
    return {
        "begun": _rounded(_begun_ms(record)),
        "duration": _rounded(max(record.duration_ms, 1.0)),
        "unit": "virtual" if record.backend == "sim" else "",
        "lanes": lanes,
        "hidden": len(names) - len(shown),
        "failedViews": sorted(view for view in drawn if view <= newest and view not in final),
        "faults": [_band(each, [names[index] for index in shown]) for each in marks],
        "kinds": [{"name": kind, "colour": COLOURS[kind][0], "dash": COLOURS[kind][1]} for kind in trace.KINDS],
        "windows": [_window(window, places) for window in record.trace.windows],
    }


def _begun_ms(record: RunRecord) -> float:
    """The time at which the timeline begins: shortly before the first content, since a live run's hosts take seconds to
    come up."""
    moments = [seen.at_ms for seen in record.trace.views[:1]] + [seen.at_ms for seen in islice(record.finalizations, 1)]
    moments += [fault.begun_ms for fault in record.faults if fault.begun_ms is not None]
    first_ms = min(moments, default=0.0)
    return max(0.0, first_ms - BEGINNING_SHARE * (record.duration_ms - first_ms))


def legend(record: RunRecord) -> list[tuple[str, str, str, int]]:
    """The legend of messages: name, colour, dashes and number of each kind of which messages were recorded."""
    kept = Counter(message.kind for window in record.trace.windows for message in window.messages)
    return [(kind, *COLOURS[kind], kept[kind]) for kind in trace.KINDS if kind in kept]


def _thinned(moments: Sequence[tuple[float, int]]) -> list[list[float]]:
    """Pairs of time and height for the heights that became final. If there are too many, only those around the longest
    wait of each group of neighbours are kept."""
    if len(moments) <= MAX_MOMENTS:
        return [[_rounded(at), number] for at, number in moments]
    size = -(-len(moments) // ((MAX_MOMENTS - 1) // 2))
    last = len(moments) - 1
    kept = {0, last}
    for start in range(0, last, size):
        longest = max(range(start, min(last, start + size)), key=lambda at: moments[at + 1][0] - moments[at][0])
        kept |= {longest, longest + 1}
    return [[_rounded(moments[place][0]), moments[place][1]] for place in sorted(kept)]


def _views(entered: Sequence[ViewEntered]) -> list[list[float]]:
    """Views with their begin, and with their end if the next kept one begins later. If there are too many, only the
    longest one of each group of neighbours is kept."""
    ended = [
        seen if seen.until_ms is not None else seen._replace(until_ms=later.at_ms) for seen, later in pairwise(entered)
    ]
    if len(entered) > MAX_MOMENTS:
        size = -(-len(ended) // (MAX_MOMENTS - 1))
        ended = [max(ended[start : start + size], key=trace.lasted_ms) for start in range(0, len(ended), size)]
    kept = [*ended, *entered[-1:]]
    found: list[list[float]] = []
    for seen, later in zip_longest(kept, kept[1:]):
        end = [] if later is None or seen.until_ms == later.at_ms else [_rounded(seen.until_ms or 0.0)]
        found.append([_rounded(seen.at_ms), seen.view, *end])
    return found


def _band(each: Marked, lanes: Sequence[str]) -> dict[str, Any]:
    """The band of a fault or stall as JSON. A fault is on the lanes of the validators that it hit; a fault of links and
    a stall are on every lane."""
    return {
        "name": each.name,
        "short": each.short,
        "number": each.number,
        "from": _rounded(each.begun_ms),
        "to": _rounded(each.ended_ms),
        "lanes": [place for place, name in enumerate(lanes) if not each.hit or name in each.hit],
        "isStall": each.is_stall,
    }


def _window(window: TraceWindow, places: dict[int, int]) -> dict[str, Any]:
    known = [message for message in window.messages if message.sender in places and message.receiver in places]
    return {
        "reason": window.reason,
        "from": _rounded(window.begun_ms),
        "to": _rounded(window.ended_ms),
        "full": window.is_full,
        "messages": [_message(message, places) for message in known],
    }


def _message(message: TracedMessage, places: dict[int, int]) -> list[int]:
    """A message as JSON: kind, view, sender, receiver, time and travel time in microseconds, and size in bytes."""
    if message.sent_ms is None:
        assert message.received_ms is not None
        at_ms, took_us = message.received_ms, NOT_SEEN_LEAVING
    else:
        at_ms = message.sent_ms
        took_us = (
            NOT_SEEN_ARRIVING
            if message.received_ms is None
            else max(0, round((message.received_ms - message.sent_ms) * MICROSECONDS_PER_MILLISECOND))
        )
    return [
        trace.KINDS.index(trace.MessageKind(message.kind)),
        message.view,
        places[message.sender],
        places[message.receiver],
        round(at_ms * MICROSECONDS_PER_MILLISECOND),
        took_us,
        message.size,
    ]


def _rounded(at_ms: float) -> float:
    return round(at_ms, 2)
