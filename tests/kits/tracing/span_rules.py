"""What holds for the spans of a whole run, as a collector has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kits.tracing.block_spans import MAY_OUTLAST
from tests.kits.tracing.collector import GotSpan

ORDER = ("schedule", "wait", "late", "fire")
"""The parts of a timer's trace, in the order in which they begin."""
RELATIONS = {"schedules": "scheduled by", "scheduled by": "schedules"}
BLOCKS = ("block", "schedule", "fire")


def traces_of(spans: Sequence[GotSpan]) -> dict[bytes, list[GotSpan]]:
    found: dict[bytes, list[GotSpan]] = {}
    for span in spans:
        found.setdefault(span.trace, []).append(span)
    return found


def problems_of(spans: Sequence[GotSpan]) -> list[str]:
    """What is wrong with a run's spans, in words."""
    traces = traces_of(spans)
    found = [problem for trace in traces.values() for problem in _of_trace(trace)]
    return [*found, *_of_links(traces)]


def _of_trace(trace: Sequence[GotSpan]) -> Iterator[str]:
    known = {span.span: span for span in trace}
    for number, count in Counter(span.span for span in trace).items():
        if count > 1:
            yield f"the id of {known[number].name} is there {count} times"
    roots = [span for span in trace if not span.parent]
    if len(roots) != 1:
        yield f"{len(roots)} first spans"
    for span in trace:
        if span.end < span.start:
            yield f"{span.name} ends before it begins"
        if not span.parent:
            continue
        parent = known.get(span.parent)
        if parent is None:
            yield f"the parent of {span.name} is missing"
            continue
        if span.start < parent.start:
            yield f"{span.name} begins before {parent.name}"
        if span.end > parent.end and span.name not in MAY_OUTLAST:
            yield f"{span.name} ends after {parent.name}"
        if span.name == "build" and span.service != parent.attributes["stampede.block.proposer"]:
            yield f"{span.service} builds a block of {parent.attributes['stampede.block.proposer']}"
    yield from _of_timer(trace, roots)


def _of_timer(trace: Sequence[GotSpan], roots: Sequence[GotSpan]) -> Iterator[str]:
    if not roots or roots[0].name != "timer":
        return
    root = roots[0]
    parts = {span.name: span for span in trace if span.parent == root.span}
    begins = [parts[name].start for name in ORDER if name in parts]
    if begins != sorted(begins):
        yield "a timer's parts are not in order"
    fired_at = root.attributes.get("stampede.timer.fired_at")
    if ("fire" in parts) != (fired_at is not None) or "schedule" not in parts:
        yield "a timer's fire or schedule is missing"
    if fired_at is not None and fired_at < root.attributes["stampede.timer.trigger_height"]:
        yield "a timer fires before it is due"


def _of_links(traces: dict[bytes, list[GotSpan]]) -> Iterator[str]:
    links = {
        (trace, target, relation)
        for trace, spans in traces.items()
        for span in spans
        for target, _, relation in span.links
    }
    for trace, spans in traces.items():
        for span in spans:
            for target, root, relation in span.links:
                if not any(each.span == root and not each.parent for each in traces.get(target, ())):
                    yield f"{span.name} links to a span that is not there"
                elif (target, trace, RELATIONS[relation]) not in links:
                    yield f"{span.name} {relation} something that does not link back"
