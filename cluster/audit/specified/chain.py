"""A chain of the specification, made of this project's genesis and transactions."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any, Final

from cluster.audit.specified.programs import PvmLanguage
from cluster.common.errors import BadInput
from spec import encoding
from spec.block import new_chain
from spec.encoding import Hash
from spec.leaves import leaves
from spec.policies.fifo import Fifo
from spec.tree import Tree
from spec.world import Agent, GenesisActor, World
from spec.world import Genesis as SpecGenesis
from validator.chain.genesis import Genesis
from validator.chain.transactions import Transaction, unsigned_hash


def spec_chain(genesis: Genesis, own_policy: type[Fifo] | None = None) -> World:
    """The chain of a genesis at height 0. ``own_policy`` is the class of a user's policy
    (:func:`~cluster.audit.specified.own_policy.own_policy`).

    Raises :class:`~cluster.common.errors.BadInput` for a user's policy without one.
    """
    file = genesis.policy_file
    if file is not None and own_policy is None:
        raise BadInput(f"the policy {genesis.policy_name!r} is not specified: it is the user's")
    parameters = genesis.parameters.to_names()
    stated = [[name, str(value)] for name, value in genesis.policy_parameters.items()]
    actors = {
        bytes(address): GenesisActor(
            actor.code, actor.deployer, actor.balance, None if actor.agent is None else Agent(*astuple(actor.agent))
        )
        for address, actor in genesis.actors.items()
    }
    return new_chain(
        SpecGenesis(
            {name: str(value) if isinstance(value, str) else value for name, value in parameters.items()},
            genesis.policy.value,
            own_policy,
            {bytes(address): balance for address, balance in genesis.accounts.items()},
            actors,
            genesis.system_deployers,
            genesis.runners,
            genesis.chain_id,
            genesis.validators,
            None if file is None else (file.name, file.source, *([stated] if stated else [])),
            [(epoch.first_view, epoch.members) for epoch in genesis.epochs],
        ),
        PvmLanguage(),
    )


def _spec_struct(value: Any) -> Any:
    """An action or an instruction as the specification's struct of the same name and fields."""
    kind = getattr(encoding, type(value).__name__)
    fields = (getattr(value, name) for name in kind._fields)
    return kind(*[_spec_struct(field) if type(field).__module__.startswith("validator") else field for field in fields])


def spec_transaction(transaction: Transaction) -> encoding.Transaction:
    """An unsigned transaction for the specification."""
    numbers = (getattr(transaction, name) for name in encoding.Transaction._fields[:8])
    action = _spec_struct(transaction.action)
    return encoding.Transaction._make((*numbers, action, transaction.sender, unsigned_hash(transaction)))


MOST_LEAVES: Final = 2_000
"""The leaves of a state up to which it has a root. A root of as many takes some 30 ms of processor time."""


class StateRoots:
    """The state tree of a chain of the specification. Its root is asked for at the genesis, then after each block.

    A root depends on all blocks before. So there is none any more once a state had too many leaves.
    """

    def __init__(self, last_height: int | None = None) -> None:
        """``last_height``: the last height that has a root."""
        self._last_height = last_height
        self._tree: Tree | None = Tree()

    def root(self, world: World) -> Hash | None:
        """The state root after the last block."""
        if self._tree is None:
            return None
        is_past = self._last_height is not None and world.height > self._last_height
        if is_past or len(state := leaves(world)) > MOST_LEAVES:
            self.end()
            return None
        self._tree.apply(world.height, dict.fromkeys(self._tree.values) | state)
        return self._tree.root

    def leaves(self, world: World) -> dict[bytes, bytes]:
        """The leaves of the tree after the last block, whose root was asked for."""
        return leaves(world) if self._tree is None else self._tree.values

    def end(self) -> None:
        """Have no root any more."""
        self._tree = None
