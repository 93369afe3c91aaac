"""Where the result of a command goes apart from the terminal: JSON, JUnit XML, a summary in Markdown, and annotations.

``run``, ``up``, ``attach``, ``drill``, ``sweep`` and ``fuzz`` have these options. A command describes its end as an
:class:`Ending`, and :meth:`Outputs.write` writes it to each place. Where ``GITHUB_ACTIONS`` is ``true``, each failed
and each inconclusive part is also an annotation of GitHub's workflow (a line on standard output).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple

from cluster.commands.console.command import FILE, Command, flag, option
from cluster.commands.console.options import parse_collector
from cluster.common.files import all_tried, write_for_user, write_json_for_user, writing_for_user
from cluster.common.outcome import SIGNS, Outcome
from cluster.common.wording import counted, cut

ACTIONS_VARIABLE: Final = "GITHUB_ACTIONS"
SUMMARY_VARIABLE: Final = "GITHUB_STEP_SUMMARY"
"""The variable with the file to which the steps of a job append their summaries."""
MAX_ANNOTATIONS: Final = 10
"""Maximum number of annotations of each level. GitHub shows this many of a step."""
MAX_LISTED: Final = 50
"""Maximum number of parts that a summary lists."""
MAX_DETAIL: Final = 1_000
"""Maximum number of characters of a detail in a summary or an annotation. GitHub takes 1 MiB for a step's summary."""
_SPECIAL: Final = re.compile(r"([\\`*_\[\]|~#])")

Level = Literal["error", "warning"]


class Part(NamedTuple):
    """A part of a result that did not pass: a check of a run, or a seed of a sweep."""

    name: str
    outcome: Outcome
    detail: str
    again: str = ""
    """The command that repeats this part alone; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a command, as all outputs show it."""

    title: str
    """The name of what ran, such as ``run smoke``."""
    outcome: Outcome
    parts: Sequence[Part]
    """The parts that did not pass."""
    kind: str
    """A word for a part: ``check`` or ``seed``."""
    figures: Mapping[str, str]
    """The most important figures, as text."""
    facts: Mapping[str, str]
    """Seed, commit and what else identifies the work."""
    again: str
    """The command that repeats the work; empty if each part has its command."""
    page: Callable[[], object]
    """Function that gives the JSON of the result; called only if it is wanted, as is :attr:`junit`."""
    junit: Callable[[], str]
    table: tuple[Sequence[str], Sequence[Sequence[str]]] = ((), ())
    """A table for the summary, as its headings and its rows; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files that the user wants of a result, and whether the terminal stays quiet."""

    json: Path | None = None
    junit: Path | None = None
    summary: Path | None = None
    quiet: bool = False
    """Whether the terminal shows only what did not pass, and the verdict."""
    annotates: bool = True
    """Whether a workflow of GitHub gets annotations."""
    collector: str | None = None
    """The address to which spans are posted; ``None`` if there are none."""

    def write(self, ending: Ending) -> None:
        """Write all files, and print the annotations if a workflow of GitHub runs. Raises :class:`BadInput`."""
        for line in annotations_of(ending) if self.annotates else ():
            print(line, flush=True)
        with all_tried() as trying:
            if self.json is not None:
                with trying():
                    write_json_for_user(self.json, ending.page())
            if self.junit is not None:
                with trying():
                    write_for_user(self.junit, ending.junit())
            if self.summary is not None:
                with trying():
                    _write_summary(self.summary, markdown(ending))


TERMINAL_ONLY: Final = Outputs()


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Command):
    """``--json``, ``--junit``, ``--summary`` and ``--quiet``."""

    json: Path | None = option("also write the result to FILE", writes=FILE)
    junit: Path | None = option("also write JUnit XML to FILE, a test case per check or seed", writes=FILE)
    summary: Path | None = option(
        f"also write a summary in Markdown to FILE; appended to the file that {SUMMARY_VARIABLE} names",
        writes=FILE,
    )
    quiet: bool = flag("print only what did not pass, and the verdict")

    @property
    def outputs(self) -> Outputs:
        return Outputs(self.json, self.junit, self.summary, self.quiet)


@dataclass(frozen=True, kw_only=True)
class TracedOutputOptions(OutputOptions):
    """The same with ``--otlp``, for commands that run one scenario."""

    otlp: str | None = option(
        "export transactions and timers as spans to this collector of OpenTelemetry (OTLP over HTTP), such as Jaeger at"
        " http://localhost:4318; env: the address in OpenTelemetry's variables",
        "URL",
        parse_collector,
    )

    @property
    def outputs(self) -> Outputs:
        return replace(super().outputs, collector=self.otlp)


# --- annotations ----------------------------------------------------------------------------------------------------


def annotations_of(ending: Ending) -> Iterator[str]:
    """The lines that a workflow of GitHub shows: an error per failed part, a warning per inconclusive one.

    None outside of such a workflow. Of more than :data:`MAX_ANNOTATIONS` of a level the last line has the number left.
    """
    levels: tuple[tuple[Level, Outcome], ...] = (("error", Outcome.FAIL), ("warning", Outcome.INCONCLUSIVE))
    for level, outcome in levels:
        parts = [part for part in ending.parts if part.outcome is outcome]
        shown = parts if len(parts) <= MAX_ANNOTATIONS else parts[: MAX_ANNOTATIONS - 1]
        for part in shown:
            again = part.again or ending.again
            text = "\n".join(filter(None, (cut(part.detail, MAX_DETAIL), f"again: {again}" if again else "")))
            yield from annotation(level, f"{ending.title}: {ending.kind} {part.name}", text)
        if left := len(parts) - len(shown):
            yield from annotation(level, ending.title, f"{counted(left, f'more {ending.kind}')}")
    if not ending.parts and ending.outcome is not Outcome.PASS:
        level = "error" if ending.outcome is Outcome.FAIL else "warning"
        yield from annotation(level, ending.title, ending.outcome.value)


def annotation(level: Level, title: str, text: str) -> Iterator[str]:
    """One annotation, as a command of GitHub's workflows in one line; nothing outside of such a workflow.

    Characters that end a command or its title are escaped, so no text can give another command.
    """
    if os.environ.get(ACTIONS_VARIABLE) == "true":
        yield f"::{level} title={_escaped(title, ':', ',')}::{_escaped(text)}"


def _escaped(text: str, *more: str) -> str:
    for character in ("%", "\r", "\n", *more):  # the per cent sign first
        text = text.replace(character, f"%{ord(character):02X}")
    return text


# --- Markdown -------------------------------------------------------------------------------------------------------


def markdown(ending: Ending) -> str:
    """The end of a command in Markdown: verdict, what did not pass, figures, and the commands that repeat it."""
    lines = [f"## {SIGNS[ending.outcome]} {_plain(ending.title)}: {ending.outcome.value}", ""]
    lines += _table((ending.kind, "verdict", "detail"), [(p.name, p.outcome.value, p.detail) for p in _listed(ending)])
    if left := len(ending.parts) - len(_listed(ending)):
        lines += [f"{counted(left, f'more {ending.kind}')} did not pass.", ""]
    lines += _table(*ending.table)
    lines += _table(("metric", "value"), list(ending.figures.items()))
    lines += _table(("this run", ""), list(ending.facts.items()))
    commands = [part.again for part in _listed(ending) if part.again] or [ending.again]
    lines += [*(f"    {' '.join(command.split())}" for command in commands if command), ""]
    return "\n".join(lines)


def _listed(ending: Ending) -> Sequence[Part]:
    return ending.parts[:MAX_LISTED]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    lines = [_row(headings), "|" + "---|" * len(headings), *map(_row, rows)]
    return [*lines, ""]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_plain(cut(cell, MAX_DETAIL)) for cell in cells)} |"


def _plain(text: str) -> str:
    """A text that Markdown shows as it is, in one line."""
    marked = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", marked)


def _write_summary(path: Path, text: str) -> None:
    """Write a summary, or append it to the file that GitHub gives the step. Raises :class:`BadInput`."""
    steps = os.environ.get(SUMMARY_VARIABLE)
    if not steps or path.resolve() != Path(steps).resolve():
        write_for_user(path, text)
        return
    with writing_for_user(path), path.open("a", encoding="utf-8") as file:
        file.write(text)
