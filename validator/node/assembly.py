"""Assembly of a validator: recovery from a disk, the executor and the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from consensus.journal import JournalError
from consensus.keys import Signer, ValidatorSet
from validator.chain.genesis import Genesis
from validator.node.executor.executor import DEFAULT_STORAGE, Executor, RecoveryError, StorageConfig
from validator.node.node import FinalPoint, Node, NodeConfig, NodeIdentity
from validator.node.snapshot_join import SnapshotJoin
from validator.primitives.types import Height
from validator.storage.disk import Disk
from validator.storage.journal import JOURNAL_FILE, JournalContent, has_journal, open_journal
from validator.transition.transition import Transition


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a validator: classes, and the reader of its journal. Tests and planted bugs replace them."""

    transition: type[Transition] = Transition
    executor: type[Executor] = Executor
    node: type[Node] = Node
    join: type[SnapshotJoin] = SnapshotJoin
    """Fetches the state of a validator that starts without one."""
    journal: Callable[[Disk], JournalContent] = open_journal
    """Reads the journal."""
    storage: StorageConfig = DEFAULT_STORAGE


PRODUCTION: Final = Parts()


@dataclass(slots=True)
class Validator:
    """A recovered validator, ready for its first event (:class:`validator.node.events.Started`)."""

    node: Node
    executor: Executor


def open_validator(
    disk: Disk,
    genesis: Genesis,
    index: int,
    signer: Signer,
    validators: ValidatorSet,
    config: NodeConfig,
    parts: Parts = PRODUCTION,
) -> Validator:
    """Open a validator's data folder and recover its content; an empty folder starts from the genesis.

    Raises :class:`~validator.storage.disk.DiskError`, :class:`~validator.node.executor.executor.RecoveryError` or
    :class:`~validator.chain.genesis.GenesisError`, each one line.
    """
    executor = parts.executor(disk, genesis, parts.transition, parts.storage)
    header = executor.final_header
    archived = executor.archive.get(header.height)
    start = FinalPoint(
        digest=executor.final_digest,
        height=Height(header.height),
        view=header.view,
        abstain_through=executor.archive.abstain_through,
        certificate=b"" if archived is None else archived.certificate,
    )
    if not has_journal(disk) and header.height > executor.archive.joined_height:
        raise RecoveryError(
            f"{JOURNAL_FILE}: is missing, though {header.height:,} blocks are final, and with it what was voted for;"
            " without the whole folder the validator joins again"
        )
    identity = NodeIdentity(index, signer, validators, genesis)
    try:
        node = parts.node(config, identity, start, parts.journal(disk))
    except JournalError as error:
        raise RecoveryError(f"{JOURNAL_FILE}: {error}") from None
    return Validator(node, executor)
