"""A run in which clients and a validator flood the others with transactions that can never run."""

from __future__ import annotations

from typing import Any

from nacl.signing import SigningKey

from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.common.units import MICROSECONDS_PER_MILLISECOND
from cluster.scenario import Scenario
from cluster.simulation.machine import Machine
from cluster.simulation.observer import Observer
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.keys import KeyedHashScheme
from validator.chain.messages import TransactionsMessage, encode_message
from validator.chain.transactions import Transaction, Transfer, address_of, sign
from validator.node.events import TransactionRefused

FLOODED: dict[str, Any] = {
    "name": "flooded",
    "consensus": {"block_interval_ms": 100, "leader_timeout_ms": 400, "advance_timeout_ms": 600, "rebroadcast_ms": 300},
    "load": {"users": [{"workload": "transfer", "count": 4, "interval_ms": 100}]},
    "stop": {"height": 20, "drain_blocks": 2, "timeout_s": 60},
    "success": {"heights_compared": 20, "transactions": 40, "fires": 0},
}
EVERY_US = 100 * MICROSECONDS_PER_MILLISECOND
TRANSACTIONS_AT_A_TIME = 6
FLOODED_REQUEST = -1
TO = bytes(range(20))


class Flood(WatchedSimulation):
    """Every 100 ms each validator gets transactions from a client, and the same number from the last validator."""

    def begin(self) -> None:
        super().begin()
        self.made = 0
        self.clock.after(0, "flood", b"", self._flood)

    def _flood(self) -> None:
        self.clock.after(EVERY_US, "flood", b"", self._flood)
        for machine in self.machines[:-1]:
            machine.submit(FLOODED_REQUEST, self._wires())
            machine.receive(len(self.machines) - 1, encode_message(TransactionsMessage(self._wires())))

    def _wires(self) -> tuple[bytes, ...]:
        return tuple(self._never_runnable() for _ in range(TRANSACTIONS_AT_A_TIME))

    def _never_runnable(self) -> bytes:
        """Pays better than everybody, if only there was an account to pay."""
        self.made += 1
        key = SigningKey(self.made.to_bytes(32, "big"))
        kind: dict[str, int] = ({}, {"nonce": 2**64 - 1}, {"gas_limit": 999}, {"max_fee_per_cycle": 0})[self.made % 4]
        given = {"nonce": 0, "gas_limit": 10**6, "max_fee_per_cycle": 10**15} | kind
        transaction = Transaction(
            address_of(bytes(key.verify_key)),
            cells_limit=0,
            max_priority_fee_per_cycle=10**14,
            max_fee_per_cell=10**15,
            action=Transfer(TO),
            **given,
        )
        return sign(key, self.record.genesis.chain_id, transaction)


class Refused(Observer):
    """Counts the transactions that validators refuse."""

    effects = frozenset({TransactionRefused})

    def __init__(self) -> None:
        self.count = 0

    def performs(self, machine: Machine, effect: TransactionRefused) -> None:
        self.count += 1


def test_a_flood_of_what_never_runs_does_not_stop_those_who_pay() -> None:
    scenario = {**FLOODED, "limits": {"max_transactions": 50}}
    flood = Flood(Scenario.model_validate(scenario), 5, "test", scheme=KeyedHashScheme())
    refusals = Refused()
    flood.observe(refusals)
    record = flood.run()
    verdict = check_run(record)
    assert verdict.outcome is Outcome.PASS, verdict
    assert record.load.transactions_rejected == 0, "of those who pay"
    statuses = [found.status for found in record.validators]
    for status in statuses[:-1]:
        assert status is not None
        refused = status["transactions_refused"]
        assert set(refused) == {"unaffordable", "nonce_too_high", "gas_too_low", "fee_too_low"}
        assert sum(refused.values()) > 5 * 50, "many times the pool's size"
        assert status["pending_transactions"] <= 16 * 4
    assert refusals.count == sum(sum(status["transactions_refused"].values()) for status in statuses if status)
