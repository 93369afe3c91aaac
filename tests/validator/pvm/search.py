"""Looks for the programs whose cycles take longest: ``python -m tests.validator.pvm.search 0:600 [--minutes 60]``.

A climb draws shapes of programs (:mod:`tests.validator.pvm.shapes`) from its seed, measures each, and goes on from the
dearest: it changes one bit by bit and keeps what takes longer a cycle. Process time, the least of some runs. What a
seed draws is the same each time, where it climbs to depends on what was measured. Climbs that are done are noted in the
folder ``--out`` by a digest of the code that they tried, so that a search that was interrupted goes on where it was. At
the end the dearest are measured some more times, and printed with their ratio to the median of what was drawn. Ends
with 1 where one takes more than ``--most`` times the median, or where a program broke the VM.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.validator.pvm.measure import nanoseconds
from tests.validator.pvm.shapes import Draw, Shape
from tests.validator.pvm.soak import code_digest, seeds, whole_lines
from validator.pvm.language.subset import ProgramError

DRAWN = 40
"""Shapes of a climb that are drawn."""
STEPS = 160
"""Changes that a climb tries."""
KEPT = 6
"""Shapes that a climb goes on from."""
CYCLES = 150_000
MIN_CYCLES = 60_000
"""Of a program that ends by itself before, its beginning and end are what is measured: it does not count."""
RUNS = 2
LAST_RUNS = 7
AGAIN = 3
"""Rounds in which the dearest are measured once more."""
SHOWN = 15
MOST = 4.0
"""Times the median that a cycle may take."""


class Found(NamedTuple):
    """What a cycle of a shape takes."""

    nanoseconds: float
    said: str
    source: str


class Climb(NamedTuple):
    """What one climb came to."""

    seed: int
    drawn: list[float]
    """Nanoseconds a cycle of each shape that was drawn."""
    tried: int
    dearest: Found | None
    broken: list[str]
    """Programs that made the VM fail, with how."""


class Climber:
    """One climb."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._draw = Draw(seed)
        self._kept: list[tuple[float, Shape]] = []
        self._tried = 0
        self._broken: list[str] = []

    def climb(self, steps: int | None = None) -> Climb:
        for _ in range(DRAWN):
            self._try(self._draw.shape())
        drawn = [figure for figure, _ in self._kept]
        for _ in range((STEPS if steps is None else steps) if drawn else 0):
            self._kept = sorted(self._kept, key=lambda each: -each[0])[:KEPT]
            _, shape = self._draw.random.choice(self._kept)
            self._try(self._draw.changed(shape))
        dearest = None
        for _, shape in sorted(self._kept, key=lambda each: -each[0])[:3]:  # one of them may have been a hiccup
            figure = self._measured(shape, LAST_RUNS)
            if figure is not None and (dearest is None or figure > dearest.nanoseconds):
                dearest = Found(figure, shape.said(), shape.source() or "")
        return Climb(self._seed, drawn, self._tried, dearest, self._broken)

    def _try(self, shape: Shape) -> None:
        self._tried += 1
        figure = self._measured(shape, RUNS)
        if figure is not None:
            self._kept.append((figure, shape))

    def _measured(self, shape: Shape, runs: int) -> float | None:
        """Nanoseconds a cycle; ``None`` of what is no program, or ends too early."""
        source = shape.source()
        if source is None:
            return None
        try:
            figure, cycles = nanoseconds(source, CYCLES, 1)
            if cycles < MIN_CYCLES:
                return None
            return min(figure, nanoseconds(source, CYCLES, runs - 1)[0])
        except ProgramError:
            return None
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for, too
            self._broken.append(f"{traceback.format_exc()}of\n{source}")
            return None


class Notes:
    """The climbs that are done, a line each; a line that was cut off counts for nothing."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{code_digest()}.jsonl"
        self.climbs = [self._read(line) for line in whole_lines(self.path)]

    @staticmethod
    def _read(line: str) -> Climb:
        climb = Climb(*json.loads(line))
        return climb._replace(dearest=None if climb.dearest is None else Found(*climb.dearest))

    def add(self, climb: Climb) -> None:
        self.climbs.append(climb)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(climb) + "\n")


class Outcome(NamedTuple):
    """What a search came to."""

    tried: int
    median: float
    nine_tenths: float
    dearest: list[Found]
    """The least of all that was measured of each, the dearest first."""
    broken: list[str]

    def is_within(self, most: float) -> bool:
        return not self.broken and bool(self.dearest) and self.dearest[0].nanoseconds <= most * self.median


def search(first: int, end: int, folder: Path, minutes: float) -> Outcome:
    """Climb from each seed that is not noted, until the minutes are over."""
    notes, stop = Notes(folder), time.monotonic() + 60 * minutes
    done = {climb.seed for climb in notes.climbs}
    for seed in range(first, end):
        if seed in done:
            continue
        if time.monotonic() > stop:
            break
        climb = Climber(seed).climb()
        notes.add(climb)
        if climb.dearest is not None:
            print(f"climb {seed}: {climb.dearest.nanoseconds:.1f} ns  {climb.dearest.said[:200]}", flush=True)
        for how in climb.broken[:1]:
            print(f"climb {seed} broke the VM: {how}", flush=True)
    return outcome([climb for climb in notes.climbs if first <= climb.seed < end])


def outcome(climbs: Sequence[Climb]) -> Outcome:
    drawn = sorted(figure for climb in climbs for figure in climb.drawn)
    found = sorted((climb.dearest for climb in climbs if climb.dearest is not None), reverse=True)[: 2 * SHOWN]
    for _ in range(AGAIN):  # in turns: other work on the machine comes and goes
        found = [
            each._replace(nanoseconds=min(each.nanoseconds, nanoseconds(each.source, CYCLES, LAST_RUNS)[0]))
            for each in found
        ]
    return Outcome(
        sum(climb.tried for climb in climbs),
        statistics.median(drawn),
        drawn[len(drawn) * 9 // 10],
        sorted(found, reverse=True),
        [how for climb in climbs for how in climb.broken],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Looks for the programs whose cycles take longest.")
    parser.add_argument("seeds", type=seeds, metavar="FIRST:END", help="of climbs")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no climb after so many")
    parser.add_argument("--most", type=float, default=MOST, metavar="TIMES", help="the median that a cycle may take")
    parser.add_argument("--out", type=Path, default=Path("runs/soak-prices"), metavar="FOLDER")
    options = parser.parse_args(arguments)
    first, end = options.seeds
    found = search(first, end, options.out, options.minutes)
    print(f"{found.tried:,} shapes tried; a cycle takes {found.median:.1f} ns in the median of those drawn,", end=" ")
    print(f"nine tenths at most {found.nine_tenths / found.median:.1f} times as long; the dearest:")
    for each in found.dearest[:SHOWN]:
        print(f"{each.nanoseconds:8.1f} ns  {each.nanoseconds / found.median:4.1f} x  {each.said[:240]}")
    print(f"{len(found.broken)} programs broke the VM")
    return 0 if found.is_within(options.most) else 1


if __name__ == "__main__":
    gc.freeze()  # what is loaded by now is not looked through again and again
    sys.exit(main())
