"""Executes the blocks of a simulated run in a fresh process, under another hash seed, before the verdict.

A policy of a user's file may give other results in another process: by ``hash()``, random numbers, a clock, or what
its module keeps. Simulated validators share one process, and so would all be wrong in the same way. A block that one of
them cannot execute to the proposer's result stops the chain, so such a block is executed twice here. On the live
testnet every validator is a process, and another one executes the chain again
(:mod:`cluster.audit.reexecution.follower`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from cluster.audit.chains import longest_chain
from cluster.audit.reexecution import END, MODULE
from cluster.audit.reexecution.evidence import invalid_blocks
from cluster.audit.reexecution.reexecutor import Reexecutor
from cluster.audit.specified.differences import of_receipts
from cluster.common.checkout import HASH_SEED_VARIABLE, ROOT, other_hash_seed, own_environment
from cluster.common.errors import HarnessError
from cluster.common.files import write_atomically
from cluster.record.archive import BLOCKS_FILE, GENESIS_FILE, BlockRecord, Reexecuted, write_blocks
from cluster.record.archived_run import ArchivedRun
from cluster.record.genesis_file import to_json
from cluster.record.run import RunRecord, note_own_problem
from cluster.scenario.code.policy_source import warnings_in
from spec.encoding import Unreadable
from validator.chain.genesis import Genesis, PolicyFile

MAX_BLOCKS: Final = 512
"""The most blocks that are executed again, from height 1 on."""
MAX_BLAMED: Final = 8
"""The most blamed blocks that are executed twice."""
SEEDS_TRIED: Final = 2
"""The number of hash seeds under which the blocks of an archived run are executed."""
LINES_NAMED: Final = 3
"""The most lines of a policy that are named as possible causes."""


def execute_again(record: RunRecord, folder: Path | None = None, hash_seeds: int = 1) -> None:
    """Enter ``record.reexecuted`` of a run whose policy is a user's file: the first of the executions under this many
    hash seeds that differs, or the last. Nothing is left in ``folder`` (default: the system's for temporary files),
    which exists.

    A process that gives no answer is a problem of the run's machinery.
    """
    policy, blocks = record.genesis.policy_file, longest_chain(record.lives)[:MAX_BLOCKS]
    if policy is None or record.reexecuted is not None or not blocks:
        return
    record.reexecuted = _executed_twice(record, policy, blocks)
    if record.reexecuted is not None:
        return
    with TemporaryDirectory(dir=folder, prefix="again-") as name:
        place = Path(name)
        write_blocks(place / BLOCKS_FILE, blocks)
        write_atomically(place / GENESIS_FILE, to_json(record.genesis))
        try:
            for found in _under_hash_seeds(hash_seeds, policy, blocks, place):
                record.reexecuted = found
        except HarnessError as error:
            note_own_problem(record, f"the blocks could not be executed again: {error}")


def second_execution(run: ArchivedRun, folder: Path) -> Reexecuted | None:
    """What differs in two executions of a block of an archived run with a user's policy; ``None`` if nothing does.

    The run's final blocks are executed under :data:`SEEDS_TRIED` hash seeds. A block that did not become final is not
    in the archive: the run's result says what was found there. Raises :class:`HarnessError`.
    """
    policy, told = run.genesis.policy_file, run.result.get("reexecuted", {})
    if policy is None:
        return None
    for found in _under_hash_seeds(SEEDS_TRIED, policy, run.blocks, folder):
        if found.reason:
            return found
    return Reexecuted(told["heights"], "", told["reason"]) if told.get("reason") else None


def _under_hash_seeds(
    count: int, policy: PolicyFile, blocks: Sequence[BlockRecord], folder: Path
) -> Iterator[Reexecuted]:
    """The results under this many hash seeds, up to the first that differs; see :func:`executed_elsewhere`."""
    for number in range(count):
        found = executed_elsewhere(policy, blocks, folder, other_hash_seed() + number)
        yield found
        if found.reason:
            return


def executed_elsewhere(policy: PolicyFile, blocks: Sequence[BlockRecord], folder: Path, hash_seed: int) -> Reexecuted:
    """The result of executing blocks in a fresh process under a hash seed. ``folder`` has them and their genesis, whose
    policy is ``policy``.

    Raises :class:`HarnessError`.
    """
    found = execute(sys.executable, hash_seed, folder, len(blocks))
    if not found.reason:
        return found
    what = first_difference(blocks[found.heights].receipts, found.receipts) or found.reason
    return replace(found, reason=f"{what}; {_blamed(policy)}")


def execute(python: str, hash_seed: int, folder: Path, heights: int) -> Reexecuted:
    """Let a Python execute the first blocks of a run in a fresh process (:mod:`cluster.audit.reexecution.follower`).

    Raises :class:`HarnessError` if it does not answer.
    """
    genesis = json.loads((folder / GENESIS_FILE).read_text())
    done = subprocess.run(
        [python, "-m", MODULE, str((folder / BLOCKS_FILE).resolve())],
        input=f"{json.dumps(genesis)}\n{heights}\n{END.decode()}\n",
        env=environment() | {HASH_SEED_VARIABLE: str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return msgspec.json.decode(done.stdout.splitlines()[-1] if done.stdout else "", type=Reexecuted)
    except msgspec.DecodeError:
        said = "".join(f": {line}" for line in done.stderr.strip().splitlines()[-1:])
        raise HarnessError(f"{python}, hash seed {hash_seed}: the process ended with {done.returncode}{said}") from None


def environment() -> dict[str, str]:
    """The environment of another Python: with our modules, without those that the user has for this one."""
    return own_environment() | {"PYTHONPATH": str(ROOT)}


def _executed_twice(record: RunRecord, policy: PolicyFile, blocks: Sequence[BlockRecord]) -> Reexecuted | None:
    """What differs in two executions of a block that honest validators blame on an honest one; ``None`` if nothing does
    in the :data:`MAX_BLAMED` highest such blocks, or if there is none."""
    blamed = sorted(each for each in set(invalid_blocks(record)) if each[0] <= len(blocks))
    for parent, block in blamed[-MAX_BLAMED:]:
        one, other = (_receipts_of(record.genesis, blocks[:parent], block) for _ in range(2))
        if one and other and (what := first_difference(one, other)):
            return Reexecuted(parent, "", f"{what}; {_blamed(policy)}", other)
    return None


def _blamed(policy: PolicyFile) -> str:
    """The policy's file, with the lines that may give other results in another execution."""
    causes = [f"line {line}: {what}" for line, what in warnings_in(policy.source, with_silenced=True)]
    more = [f"and {len(causes) - LINES_NAMED} more lines"] if len(causes) > LINES_NAMED else []
    lines = "; ".join(causes[:LINES_NAMED] + more)
    return f"the policy of {policy.file} ran there" + (f" ({lines})" if lines else "")


def _receipts_of(genesis: Genesis, final: Sequence[BlockRecord], block: bytes) -> bytes:
    """The encoded receipts of a block on top of final ones; empty if it has none, or if the final ones differ."""
    reexecutor = Reexecutor(genesis)
    if any(reexecutor.take(record) is not None for record in final):
        return b""
    found = reexecutor.take(BlockRecord(block, b"", b""))
    return b"" if found is None else found.receipts


def first_difference(recorded: bytes, again: bytes) -> str:
    """The first field in which two encoded receipts of a block differ, in words; empty if none does, or if one of them
    cannot be read."""
    try:
        found = next(of_receipts(recorded, again), None)
    except Unreadable:
        return ""
    return "" if found is None else "{} is {} in one, {} in the other".format(*found.brief)
