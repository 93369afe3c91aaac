"""The faucet of a live testnet: pays clients with its token from an account of the genesis, by ordinary transfers.

Its money was minted at genesis, and its transfers are signed, sent and charged like all others: the chain does not know
the faucet. Each payment and the rate of all payments are bounded. A transfer that a validator accepted and lost is sent
again with the next payment, with its original nonce.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, ClassVar, Final

from starlette.exceptions import HTTPException

from cluster.common.units import SECONDS_PER_MINUTE
from cluster.live.web.server import ClientBudgets, Rate
from cluster.scenario import Scenario
from cluster.scenario.sections.chain import FAUCET_OWNER, SEED_PREFIX, FaucetSection, account_key
from loadgen.client import ClientError, ValidatorClient
from loadgen.workloads import Intent, LoadUser, Member, Observation, Options, Workload
from loadgen.workloads.arrival import Schedule
from loadgen.workloads.user import FEE_HEADROOM, TIP_LEVELS, TIP_STEP
from validator.chain.transactions import Transfer, address_of, transaction_hash
from validator.primitives.params import Parameters
from validator.primitives.types import Address, address_text, is_reserved

TIMEOUT_S: Final = 2.0
"""Timeout of each request to a validator."""


class _Payments(Workload[Options]):
    """The faucet's workload: its only transaction is the payment that is requested now."""

    name: ClassVar[str] = "faucet"
    options_type: ClassVar[type[Options]] = Options
    asked: Intent | None = None
    nonce = 0
    """Nonce of the payment that was signed last."""

    @property
    def is_signed(self) -> bool:
        return self.asked is None

    def intents(self, observation: Observation) -> list[Intent]:
        asked, self.asked = self.asked, None
        self.nonce = observation.next_nonce
        return [] if asked is None else [asked]


class Faucet:
    """One testnet's faucet. May be used from several threads."""

    def __init__(
        self,
        section: FaucetSection,
        seed: int,
        chain_id: str,
        parameters: Parameters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` returns seconds."""
        key = account_key(seed, FAUCET_OWNER.removeprefix(SEED_PREFIX))
        self.address: Address = address_of(bytes(key.verify_key))
        self._section = section
        self._parameters = parameters
        member = Member(0, self.address, self.address, (), (), Random(0), parameters)
        self._payments = _Payments(Options(), member)
        self._user = LoadUser(key, chain_id, Schedule(1), self._payments)
        self._promised: dict[int, int] = {}
        """Amounts of payments under way, keyed by nonce."""
        self._lock = threading.Lock()
        most = section.requests_per_minute
        self._budget = ClientBudgets(Rate(most / SECONDS_PER_MINUTE, most), clock)

    @classmethod
    def of(cls, scenario: Scenario, seed: int, chain_id: str) -> Faucet | None:
        """The faucet that a scenario asks for, if any."""
        section = scenario.chain.faucet
        return None if section is None else cls(section, seed, chain_id, scenario.chain.parameters())

    def pay(self, to: Address, amount: int, urls: Mapping[str, str]) -> dict[str, Any]:
        """Pay an address: send a transfer to the first validator of ``urls``, keyed by name, that answers.

        Returns the fields of the transfer. Raises :class:`HTTPException`.
        """
        if is_reserved(to):
            raise HTTPException(400, f"to: {address_text(to)} is reserved for the system")
        if not 1 <= amount <= self._section.max_amount:
            raise HTTPException(400, f"amount: {amount} is not within 1 to {self._section.max_amount}")
        with self._lock:
            self._take_turn()
            for name, url in urls.items():
                with ValidatorClient(url, TIMEOUT_S) as client:
                    observation = self._look(client, amount)
                    if observation is not None:
                        return self._send(client, observation, to, amount, name)
        raise HTTPException(503, "no validator answered for the prices and the faucet's account")

    def _take_turn(self) -> None:
        """Apply the rate limit. Every request counts, whatever its result and whichever client sent it."""
        if not self._budget.take("all clients"):
            most = self._section.requests_per_minute
            raise HTTPException(429, f"too many payments, expected at most {most} a minute")

    def _look(self, client: ValidatorClient, amount: int) -> Observation | None:
        """The newest prices and the faucet's account; ``None`` if this validator does not answer.

        Raises :class:`HTTPException` if the account holds too little.
        """
        try:
            height = client.status()["height"]
            if height == 0:
                return None
            block, account = client.block(height), client.account(self.address)
        except (ClientError, KeyError):
            return None
        fees = [block[f"basefee_{name}"] for name in ("cycle", "cell", "lane_timer")]
        self._promised = {nonce: due for nonce, due in self._promised.items() if nonce >= account["nonce"]}
        transfer_fee = self._parameters.tx_base_cycles * (FEE_HEADROOM * fees[0] + TIP_STEP * TIP_LEVELS)
        free = account["balance"] - sum(self._promised.values()) - transfer_fee * (1 + len(self._promised))
        if amount > free:
            raise HTTPException(409, f"amount: {amount} is more than the {max(0, free)} that the faucet has left")
        return Observation(height, account["nonce"], *fees)

    def _send(
        self, client: ValidatorClient, observation: Observation, to: Address, amount: int, name: str
    ) -> dict[str, Any]:
        payments = self._payments
        payments.asked = Intent(Transfer(to), self._parameters.tx_base_cycles, 0, value=amount)
        while not payments.is_signed:  # transfers that may have been lost are sent first
            wires = self._user.next_transactions(observation)
            if not wires:
                payments.asked = None
                raise HTTPException(429, "too many transfers are under way; wait for a block")
            self._post(client, wires)
        self._promised[payments.nonce] = amount
        return {
            "hash": transaction_hash(wires[-1]).hex(),
            "from": address_text(self.address),
            "to": address_text(to),
            "amount": amount,
            "nonce": payments.nonce,
            "validator": name,
        }

    def _post(self, client: ValidatorClient, wires: list[bytes]) -> None:
        is_new = self._payments.is_signed
        try:
            results = client.post_transactions(wires)
        except ClientError:
            self._payments.asked = None
            self._user.undelivered(wires)
            advice = "it may have taken the transfer, which is sent again with the next one" if is_new else "ask again"
            raise HTTPException(503, f"the validator did not answer; {advice}") from None
        for wire, result in zip(wires, results, strict=True):
            if result.error is not None:
                self._user.rejected(wire)
        if is_new and (reason := results[-1].error) is not None:
            raise HTTPException(503, f"the validator refused the transfer: {reason}")
