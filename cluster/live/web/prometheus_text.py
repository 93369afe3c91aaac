"""Writes Prometheus' text format, and merges the pages of many validators."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Final

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"

HISTOGRAM: Final = "histogram"
HISTOGRAM_SUFFIXES: Final = ("_bucket", "_sum", "_count")
SUM_DIGITS: Final = 6

Samples = Sequence[tuple[Mapping[str, str], int]]
"""Values with their labels."""


class Histogram:
    """Counts of values up to each of some bounds, with their sum, as Prometheus keeps them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """``bounds`` ascend. Values above the last one are counted as well."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        """Number of values above the bound before and up to each bound; the last ones are above all bounds."""
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: Mapping[str, str] = MappingProxyType({})) -> list[str]:
        """The samples of a metric with this name, cumulative as the format demands."""
        bounds = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        totals = list(accumulate(self._counts))
        lines = [
            _sample(f"{name}_bucket", {**labels, "le": bound}, total)
            for bound, total in zip(bounds, totals, strict=True)
        ]
        sum_ = _sample(f"{name}_sum", labels, round(self._sum, SUM_DIGITS))
        return [*lines, sum_, _sample(f"{name}_count", labels, totals[-1])]


def render_histograms(name: str, description: str, label: str, histograms: Mapping[str, Histogram]) -> str:
    """A metric with a histogram per value of a label, keyed by that value; the empty value has no label."""
    lines = [f"# HELP {name} {description}", f"# TYPE {name} {HISTOGRAM}"]
    for value, histogram in histograms.items():
        lines += histogram.lines(name, {label: value} if value else {})
    return "\n".join(lines) + "\n"


def labelled(label: str, values: Mapping[str, int]) -> Samples:
    return [({label: text}, value) for text, value in values.items()]


def render_metric(name: str, kind: str, description: str, samples: int | Samples) -> str:
    """One metric in Prometheus' text format. ``kind`` is ``gauge`` or ``counter``; a plain number has no labels."""
    lines = [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
    for labels, value in [({}, samples)] if isinstance(samples, int) else samples:
        lines.append(_sample(name, labels, value))
    return "\n".join(lines) + "\n"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- one page of many -----------------------------------------------------------------------------------------------


def merge_pages(pages: Mapping[str, str], label: str) -> str:
    """One page with every sample of ``pages``, which are keyed by name; each sample has its page's name as ``label``.

    Each metric appears once, with its first description. Lines that are not samples are left out.
    """
    families: defaultdict[str, tuple[dict[str, str], list[str]]] = defaultdict(lambda: ({}, []))
    """Description and type, and samples, keyed by metric."""
    family_of: dict[str, str] = {}
    """The metric of each name that a histogram's samples have."""
    for name, page in pages.items():
        for line in page.splitlines():
            if match := _DESCRIBED.fullmatch(line):
                what, metric, text = match.groups()
                families[metric][0].setdefault(what, text)
                if (what, text) == ("TYPE", HISTOGRAM):
                    family_of.update({f"{metric}{suffix}": metric for suffix in HISTOGRAM_SUFFIXES})
            elif match := _SAMPLE.fullmatch(line):
                metric, labels, value = match.groups()
                inside = f'{label}="{_escape(name)}"' + (f",{labels}" if labels else "")
                families[family_of.get(metric, metric)][1].append(f"{metric}{{{inside}}} {value}")
    lines: list[str] = []
    for metric, (described, samples) in families.items():
        if samples:
            lines += [f"# {what} {metric} {text}" for what, text in sorted(described.items())]
            lines += samples
    return "".join(f"{line}\n" for line in lines)


_DESCRIBED: Final = re.compile(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)")
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([-+]?(?:[0-9.eE+-]+|Inf)|NaN)")
