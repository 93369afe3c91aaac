"""One whole validator out of its parts: recovery from a disk, the executor and the node."""

from __future__ import annotations

from dataclasses import dataclass

from consensus.keys import Signer, ValidatorSet
from validator.disk import Disk
from validator.executor import Executor
from validator.genesis import Genesis
from validator.journal import open_journal
from validator.node import FinalPoint, Node, NodeConfig, NodeIdentity
from validator.transition import Transition
from validator.types import Height


@dataclass(slots=True)
class Validator:
    """A recovered validator, ready for its first event (:class:`validator.events.Started`)."""

    node: Node
    executor: Executor


def open_validator(
    disk: Disk,
    genesis: Genesis,
    index: int,
    signer: Signer,
    validators: ValidatorSet,
    config: NodeConfig,
    transition: type[Transition] = Transition,
) -> Validator:
    """Open a validator's data folder and recover what it holds; an empty one starts from the genesis.

    Raises :class:`~validator.disk.DiskError`, :class:`~validator.executor.RecoveryError` or
    :class:`~validator.genesis_block.GenesisError`, each one line.
    """
    executor = Executor(disk, genesis, transition)
    header = executor.final_header
    abstain_through = executor.archive.abstain_through
    start = FinalPoint(executor.final_digest, Height(header.height), header.view, abstain_through)
    identity = NodeIdentity(index, signer, validators, genesis.chain_id)
    return Validator(Node(config, identity, start, open_journal(disk)), executor)
