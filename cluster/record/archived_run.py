"""A run's folder, read for executing the run again: genesis, blocks, result, and the executions that diverged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.common.errors import BadInput
from cluster.record.archive import (
    BLOCKS_FILE,
    GENESIS_FILE,
    TRACES_FILE,
    BlockRecord,
    DivergedExecution,
    decode_traces,
)
from cluster.record.chain_store import FileBlocks, ServedBlocks
from cluster.record.folder import read_result
from cluster.record.genesis_file import read_genesis
from cluster.scenario.code.gate import code_of_genesis, pass_gate
from validator.chain.genesis import Genesis


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """The files of a run's folder from which the run is executed again."""

    genesis: Genesis
    blocks: Sequence[BlockRecord]
    result: dict[str, Any]
    executions: list[DivergedExecution]
    """The executions of the validators that diverged."""


def read_run(folder: Path) -> ArchivedRun:
    """A run's genesis, blocks and result. The genesis's code has to pass the gate. Raises :class:`BadInput`."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder")
    result = read_result(folder)
    try:
        blocks = ServedBlocks.all_of(FileBlocks.archived(folder / BLOCKS_FILE))
        traces = (folder / TRACES_FILE).read_bytes() if (folder / TRACES_FILE).exists() else None
    except OSError as error:
        raise BadInput(f"{error.filename}: cannot be read: {error.strerror}") from None
    executions = [] if traces is None else decode_traces(traces, str(folder / TRACES_FILE))
    genesis = read_genesis(folder / GENESIS_FILE)
    pass_gate(code_of_genesis(genesis), str(folder / GENESIS_FILE))
    return ArchivedRun(genesis, blocks, result, executions)
