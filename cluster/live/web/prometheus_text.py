"""Writes Prometheus' text format, and merges the pages of many validators."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"

Samples = Sequence[tuple[Mapping[str, str], int]]
"""Values with their labels."""


def labelled(label: str, values: Mapping[str, int]) -> Samples:
    return [({label: text}, value) for text, value in values.items()]


def render_metric(name: str, kind: str, description: str, samples: int | Samples) -> str:
    """One metric in Prometheus' text format. ``kind`` is ``gauge`` or ``counter``; a plain number has no labels."""
    lines = [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
    for labels, value in [({}, samples)] if isinstance(samples, int) else samples:
        inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        lines.append(f"{name}{{{inside}}} {value}" if inside else f"{name} {value}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- one page of many -----------------------------------------------------------------------------------------------


def merge_pages(pages: Mapping[str, str], label: str) -> str:
    """One page with every sample of ``pages``, which are keyed by name; each sample has its page's name as ``label``.

    Each metric appears once, with its first description. Lines that are not samples are left out.
    """
    families: defaultdict[str, tuple[dict[str, str], list[str]]] = defaultdict(lambda: ({}, []))
    """Description and type, and samples, keyed by metric."""
    for name, page in pages.items():
        for line in page.splitlines():
            if match := _DESCRIBED.fullmatch(line):
                what, metric, text = match.groups()
                families[metric][0].setdefault(what, text)
            elif match := _SAMPLE.fullmatch(line):
                metric, labels, value = match.groups()
                inside = f'{label}="{_escape(name)}"' + (f",{labels}" if labels else "")
                families[metric][1].append(f"{metric}{{{inside}}} {value}")
    lines: list[str] = []
    for metric, (described, samples) in families.items():
        if samples:
            lines += [f"# {what} {metric} {text}" for what, text in sorted(described.items())]
            lines += samples
    return "".join(f"{line}\n" for line in lines)


_DESCRIBED: Final = re.compile(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)")
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([-+]?(?:[0-9.eE+-]+|Inf)|NaN)")
