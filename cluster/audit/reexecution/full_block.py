"""Measures the processor time of a full block of honest transactions and timers on this machine.

A separate chain is built: its blocks schedule timers until enough are due at one height to fill the timer lane, and the
block of that height also has as many payments as fit. An executor that did not build that block is measured while it
executes it. Cycles that the block cannot hold, and those of the deferred lane, are added at the same time per cycle: a
full block is one whose transactions, timers and messages use all the cycles that they may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from nacl.signing import SigningKey

from cluster.disks.memory import MemoryDisk
from loadgen.workloads.script import burn, cost_of, encode_script, fire_gas_limit, schedule_at
from validator.chain.block import Block
from validator.chain.genesis import Genesis, GenesisActor
from validator.chain.transactions import (
    SCRIPT_CODE,
    Action,
    Call,
    Transaction,
    Transfer,
    address_of,
    parse,
    sign,
    transaction_hash,
)
from validator.node.executor.executor import MAX_BLOCK_TRANSACTIONS, Executor, execution_error
from validator.node.executor.jobs import Build, Built, Finalize
from validator.primitives.types import PRICE_LIMIT, Address
from validator.transition.transition import PreparedTransaction

DUE: Final = 12
"""The height of the full block."""
SENDERS: Final = 64
RICH: Final = 2**120
FEE: Final = PRICE_LIMIT - 1
FIRE: Final = [burn(1)]
TIMERS_PER_TRANSACTION: Final = 16


def full_block_seconds(genesis: Genesis, clock: Callable[[], float]) -> float:
    """The processor time of a full block, in seconds by ``clock``; 0 if the parameters leave no room for a payment."""
    return _FullBlock(genesis, clock).seconds()


class _FullBlock:
    """A chain built to contain a full block, with two executors: one builds the blocks, one only executes them."""

    def __init__(self, genesis: Genesis, clock: Callable[[], float]) -> None:
        self._parameters = p = genesis.parameters
        self._clock = clock
        self._keys = [SigningKey(bytes([1, number]) + bytes(30)) for number in range(SENDERS)]
        self._senders = [address_of(bytes(key.verify_key)) for key in self._keys]
        self._nonces = [0] * SENDERS
        self._timers = p.lane_timer_cycles // fire_gas_limit(FIRE, p)
        per_actor = max(1, p.max_timers_per_actor // TIMERS_PER_TRANSACTION) * TIMERS_PER_TRANSACTION
        self._actors = [Address(b"\xfb" * 10 + at.to_bytes(10, "big")) for at in range(-(-self._timers // per_actor))]
        accounts = dict.fromkeys(self._senders, RICH)
        actors = {address: GenesisActor(SCRIPT_CODE, self._senders[0], RICH) for address in self._actors}
        own = replace(
            genesis, chain_id="full-block", accounts=accounts, actors=actors, system_deployers=(), runners=(), epochs=()
        )
        self._author, self._verifier = (Executor(MemoryDisk(), own) for _ in range(2))

    def seconds(self) -> float:
        waiting = list(self._schedules())
        for _ in range(DUE - 1):
            taken = {transaction_hash(data) for data in self._add(waiting[:MAX_BLOCK_TRANSACTIONS])[0].transactions}
            waiting = [each for each in waiting if each.hash not in taken]
        p = self._parameters
        payments = min(MAX_BLOCK_TRANSACTIONS, p.lane_user_cycles // p.tx_base_cycles)
        block, seconds = self._add([self._transfer(number) for number in range(payments)])
        used = block.header.user_cycles + block.header.lane_cycles
        return seconds * (p.lane_user_cycles + p.lane_timer_cycles + p.lane_deferred_cycles) / used if used else 0.0

    def _add(self, candidates: list[PreparedTransaction]) -> tuple[Block, float]:
        """Add the next block. Returns it, and the seconds that it takes an executor that did not build it."""
        author, verifier = self._author, self._verifier
        height = author.final_header.height + 1
        built = author.run(Build(height, author.final_digest, 0, tuple(candidates)))
        assert isinstance(built, Built)
        began = self._clock()
        error = execution_error(verifier, built.block)
        seconds = self._clock() - began
        assert error is None, error
        for executor in (author, verifier):
            executor.run(Finalize(built.digest, b""))
        return built.block, seconds

    def _schedules(self) -> Iterator[PreparedTransaction]:
        p, gas_limit = self._parameters, fire_gas_limit(FIRE, self._parameters)
        for number in range(-(-self._timers // TIMERS_PER_TRANSACTION)):
            script = [schedule_at(DUE, FIRE, gas_limit=gas_limit)] * TIMERS_PER_TRANSACTION
            cost, payload = cost_of(script), encode_script(script)
            call = Call(self._actors[number % len(self._actors)], "run", payload)
            yield self._signed(number, call, p.tx_base_cycles + cost.cycles, len(payload) + cost.cells)

    def _transfer(self, number: int) -> PreparedTransaction:
        return self._signed(
            number, Transfer(self._senders[(number + 1) % SENDERS]), self._parameters.tx_base_cycles, 0, 1
        )

    def _signed(self, number: int, action: Action, gas_limit: int, cells: int, value: int = 0) -> PreparedTransaction:
        sender = number % SENDERS
        transaction = Transaction(
            self._senders[sender], self._nonces[sender], gas_limit, cells, FEE, 0, FEE, action, value
        )
        self._nonces[sender] += 1
        wire = sign(self._keys[sender], "full-block", transaction)
        return PreparedTransaction(transaction_hash(wire), wire, parse(wire, "full-block"))
