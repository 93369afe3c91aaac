"""``stampede verify-run``: executes a run's final blocks again, with this Python or others, under other hash seeds.

Each execution starts at the genesis, in a separate process (:mod:`cluster.audit.reexecution.follower`), and is compared
block by block: header, receipts, state root. A difference is reported with the step and the state keys. Planted bugs
are not executed again, so a run whose final blocks were affected by one does not verify.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cluster.audit.reexecution.again import environment, execute
from cluster.audit.reexecution.bisect import bisect
from cluster.audit.reexecution.describe import lines
from cluster.audit.reexecution.reexecutor import Reexecution
from cluster.common.checkout import ROOT, other_hash_seed
from cluster.common.errors import BadInput, ExitCode, HarnessError
from cluster.record.archive import DivergedExecution, Reexecuted
from cluster.record.archived_run import ArchivedRun, read_run
from cluster.record.folder import RESULT_FILE
from validator.chain.block import Block
from validator.primitives.codec import CodecError, decode

PACKAGES: Final = {
    "blake3": "blake3",
    "Crypto": "pycryptodome",
    "msgspec": "msgspec",
    "nacl": "pynacl",
    "numba": "numba",
    "numpy": "numpy",
}
"""The third-party modules that executing a block imports, each with the name of its distribution."""

OLDEST: Final = (3, 11)
PROBE_TIMEOUT_S: Final = 60
PROBE: Final = """
import sys
lacking = []
for name in {names!r}:
    try:
        __import__(name)
    except ImportError:
        lacking.append(name)
sys.stdout.write("%d.%d.%d %s" % (tuple(sys.version_info[:3]) + (",".join(lacking),)))
"""
"""A program for any Python version: prints its version and the modules that it cannot import."""


def checked_version(python: str) -> str:
    """The version of a Python that can execute blocks. Raises :class:`BadInput` with the reason and a remedy."""
    version, lacking = _probe(python)
    numbers = tuple(map(int, version.split(".")[:2]))
    if numbers < OLDEST:
        raise BadInput(f"{python}: is Python {version}; expected {OLDEST[0]}.{OLDEST[1]} or newer")
    if lacking:
        wanted = " ".join(f"{PACKAGES[name]}=={importlib.metadata.version(PACKAGES[name])}" for name in lacking)
        raise BadInput(
            f"{python}: Python {version} lacks {', '.join(PACKAGES[name] for name in lacking)}; install with:"
            f" {python} -m pip install {wanted}   (or let `make shadow SHADOW={python}` make an environment)"
        )
    if not (ROOT / "pyproject.toml").exists() and Path(python) != Path(sys.executable):
        raise BadInput(f"{python}: other Pythons execute a checkout's code, and this Stampede runs from {ROOT}")
    return version


def _probe(python: str) -> tuple[str, list[str]]:
    try:
        done = subprocess.run(
            [python, "-c", PROBE.format(names=sorted(PACKAGES))],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"{python}: cannot be run: {getattr(error, 'strerror', None) or error}") from None
    version, space, lacking = done.stdout.strip("\n").partition(" ")
    if done.returncode or not space or not version.replace(".", "").isdecimal():
        said = next(iter(done.stderr.splitlines()), "it does not say its version")
        oldest = ".".join(map(str, OLDEST))
        raise BadInput(f"{python}: does not run as a Python: {said}; expected the path of a Python {oldest} or newer")
    return version, [name for name in lacking.split(",") if name]


WORST_FIRST: Final = (ExitCode.FAIL, ExitCode.BAD_INPUT, ExitCode.INCONCLUSIVE)


def verify_run(folder: Path, pythons: Sequence[str] = (), hash_seeds: Sequence[int] = ()) -> ExitCode:
    """Execute a run again under each Python and hash seed. Prints a line for each; returns the worst exit code.

    If a Python cannot execute blocks, its line is printed on standard error. Raises :class:`BadInput` if the folder has
    no run.
    """
    run = read_run(folder)
    codes = []
    if (difference := difference_from_result(run)) is not None:
        print(f"fail: {difference}", flush=True)
        codes.append(ExitCode.FAIL)
    for python in pythons or [sys.executable]:
        try:
            version = checked_version(python)
        except BadInput as error:
            print(f"stampede: {error}", file=sys.stderr, flush=True)
            codes.append(error.exit_code)
            continue
        codes += [_shadow(run, folder, python, version, seed) for seed in hash_seeds or [other_hash_seed()]]
    return next((code for code in WORST_FIRST if code in codes), ExitCode.PASS)


def _shadow(run: ArchivedRun, folder: Path, python: str, version: str, hash_seed: int) -> ExitCode:
    try:
        found = execute(python, hash_seed, folder, len(run.blocks))
    except HarnessError as error:
        print(f"inconclusive: {error}", flush=True)
        return ExitCode.INCONCLUSIVE
    name = f"Python {version}, hash seed {hash_seed}"
    if python != sys.executable:
        name += f" ({python})"
    for line in _result_lines(run, name, version, found):
        print(line, flush=True)
    if found.reason:
        return ExitCode.FAIL
    return ExitCode.PASS if found.heights else ExitCode.INCONCLUSIVE


def _result_lines(run: ArchivedRun, name: str, version: str, found: Reexecuted) -> Iterator[str]:
    if found.reason:
        yield f"fail: {name}: height {found.heights + 1}: {found.reason}"
        yield from _where(run, version, found)
    elif not found.heights:
        yield f"inconclusive: {name}: the run kept no blocks"
    else:
        yield f"pass: {name}: {found.heights} heights re-executed to the same roots, the last one {found.root}"


def _where(run: ArchivedRun, python: str, found: Reexecuted) -> list[str]:
    """Lines of text: the step and the state keys at which another Python's execution differs from this process's."""
    if not found.trace:
        return []
    expected = _header_root(run.blocks[found.heights].block)
    given = (found.heights + 1, found.reason, expected, "", found.receipts, found.trace)
    (page,) = bisect(Reexecution(run.genesis, run.blocks), [DivergedExecution(f"Python {python}", *given)])
    return lines(page)[1:]


def _header_root(block: bytes) -> str:
    try:
        return decode(block, Block).header.state_root.hex()
    except CodecError:
        return ""


# --- the result -----------------------------------------------------------------------------------------------------


def difference_from_result(run: ArchivedRun) -> str | None:
    """Compare the archive of blocks with the highest validators in ``result.json``; returns the difference or ``None``.

    Raises :class:`BadInput`.
    """
    tips, held = _recorded_tips(run), len(run.blocks)
    recorded = max((height for height, _ in tips), default=0)
    if recorded != held:
        return f"recorded {recorded} heights, the archive holds {held}"
    roots = sorted({root or "none" for height, root in tips if height == recorded})
    if held and run.blocks[-1].computed_root.hex() not in roots:
        return (
            f"recorded state root {' and '.join(roots)} at height {held},"
            f" the archive holds {run.blocks[-1].computed_root.hex()}"
        )
    return None


def _recorded_tips(run: ArchivedRun) -> list[tuple[int, str | None]]:
    """Height and state root of each validator in ``result.json``. Raises :class:`BadInput`."""
    try:
        tips = [(tip["height"], tip["state_root"]) for tip in run.result["validators"]]
    except (KeyError, TypeError):
        tips = [(None, None)]
    if not all(isinstance(height, int) and isinstance(root, str | None) for height, root in tips):
        raise BadInput(f"{RESULT_FILE}: validators: expected a list of objects with height and state_root")
    return tips
