"""Many drawn programs, by the VM and by the second interpreter: ``python -m tests.validator.pvm.soak 0:100000``.

Seeds are taken in chunks, by one process or as many as are asked for. Chunks without a difference are noted in a file
of the folder ``--out``, by a digest of the code that they tried; so a soak that was interrupted goes on where it was,
and one of other code begins anew. Ends with 1 where a seed's program differs, and says which and how.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from tests.validator.pvm.test_agreement import difference

CHUNK = 200
ROOT = Path(__file__).resolve().parents[3]
TRIED = ("validator", "tests/validator")
SHOWN = 3


class Chunk(NamedTuple):
    """Seeds from ``first`` to before ``end``, those that differ apart with how."""

    first: int
    end: int
    different: list[tuple[int, str]]


def tried(first: int, end: int) -> Chunk:
    """Try the programs of a chunk."""
    return Chunk(first, end, [(seed, how) for seed in range(first, end) if (how := _trouble(seed)) is not None])


def _trouble(seed: int) -> str | None:
    """How a seed's program differs. One that makes the VM or the interpreter fail differs, too, and ends nothing."""
    try:
        return difference(seed)
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        return traceback.format_exc()


def code_digest() -> str:
    """Of what decides what a seed's program is and does: the modules of the validator and its tests that it loads."""
    digest = hashlib.sha256(sys.version.encode())
    loaded = {Path(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    for path in sorted(path for path in loaded if any(path.is_relative_to(ROOT / folder) for folder in TRIED)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that is to be gone on with; one that was cut off is taken out of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    path.write_text(whole, encoding="utf-8")
    return whole.splitlines()


class Notes:
    """The chunks that are done, a line each; a line that was cut off counts for nothing."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{code_digest()}.txt"
        lines = whole_lines(self.path)
        self.done = {(int(first), int(end)) for first, _, end in (line.partition(":") for line in lines)}

    def add(self, chunk: Chunk) -> None:
        self.done.add((chunk.first, chunk.end))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{chunk.first}:{chunk.end}\n")


def chunks(first: int, end: int) -> Iterator[tuple[int, int]]:
    """At the same places wherever a soak begins."""
    while first < end:
        last = min(end, first - first % CHUNK + CHUNK)
        yield first, last
        first = last


def results(waiting: Sequence[tuple[int, int]], processes: int) -> Iterator[Chunk]:
    """As they come; in this process where it is one."""
    if processes == 1:
        for bounds in waiting:
            yield tried(*bounds)
        return
    with ProcessPoolExecutor(processes) as pool:
        try:
            for future in as_completed([pool.submit(tried, *bounds) for bounds in waiting]):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def soak(first: int, end: int, processes: int, folder: Path) -> int:
    """How many programs differ."""
    notes, different = Notes(folder), 0
    waiting = [bounds for bounds in chunks(first, end) if bounds not in notes.done]
    left = sum(last - start for start, last in waiting)
    tried_before = end - first - left
    print(f"{end - first:,} programs, {tried_before:,} of them tried before, {processes} at a time", flush=True)
    for chunk in results(waiting, processes):
        left -= chunk.end - chunk.first
        different += len(chunk.different)
        if not chunk.different:
            notes.add(chunk)
        print(f"{end - first - left:,} of {end - first:,} programs tried, {different:,} differ", flush=True)
        for seed, how in chunk.different[:SHOWN]:
            print(f"seed {seed}: {how}", flush=True)
    return different


def seeds(text: str) -> tuple[int, int]:
    first, colon, end = text.partition(":")
    if not (colon and first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds: expected FIRST:END")
    return int(first), int(end)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Programs drawn from seeds, by the VM and a second interpreter.")
    parser.add_argument("seeds", type=seeds, metavar="FIRST:END")
    parser.add_argument("--processes", type=int, default=1, choices=range(1, 65), metavar="N")
    parser.add_argument("--out", type=Path, default=Path("runs/soak-programs"), metavar="FOLDER")
    options = parser.parse_args(arguments)
    first, end = options.seeds
    return 1 if soak(first, end, options.processes, options.out) else 0


if __name__ == "__main__":
    gc.freeze()  # what is loaded by now is not looked through again and again
    sys.exit(main())
