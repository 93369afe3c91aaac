"""``stampede executor``: :mod:`validator.node.executor.serving` on standard input and output."""

from __future__ import annotations

import sys

from cluster.common.errors import BadInput
from cluster.disks.memory import MemoryDisk
from cluster.misbehaviour.planted import PartsPatch, RunCounter, planted_bugs
from validator.node.assembly import PRODUCTION
from validator.node.executor.serving import ReferenceExecutor, serve
from validator.node.executor.stream import ExecutorError
from validator.transition.transition import Transition


def run_executor(mutant: str | None, has_tree: bool) -> None:
    """Answer the requests on standard input until it ends. Raises :class:`BadInput`.

    ``mutant`` is a planted bug of the transition, which the executor then has. With ``has_tree`` it answers state
    roots.
    """
    executor = ReferenceExecutor(_transition_of(mutant), MemoryDisk if has_tree else None)
    output = sys.__stdout__
    assert output is not None, "the stream has an output"

    def write(frame: bytes) -> None:
        try:
            output.buffer.write(frame)
            output.buffer.flush()
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise BadInput(f"standard output: cannot be written: {error.strerror}") from None

    try:
        serve(executor, sys.stdin.buffer.read, write)
    except ExecutorError as error:
        raise BadInput(f"standard input: {error}") from None
    except BrokenPipeError:
        pass  # the validator is gone


def _transition_of(mutant: str | None) -> type[Transition]:
    if mutant is None:
        return Transition
    bug = planted_bugs().get(mutant)
    patch = None if bug is None else bug.patch
    transition = patch.parts(RunCounter()).transition if isinstance(patch, PartsPatch) else Transition
    if transition is PRODUCTION.transition:
        raise BadInput(f"--mutant: {mutant[:64]!r} is no planted bug of the transition, such as 'wrong-balance'")
    return transition
