"""Transfer: plain payments between the accounts of the load's users."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from loadgen.workloads.base import Intent, Observation, Options, Workload
from validator.chain.transactions import Transfer as TransferAction


class TransferOptions(Options):
    """Options of :class:`Transfer`."""

    amount: Annotated[int, Field(ge=1, le=10**12)] = 1_000_000
    """Maximum amount of one payment, in the smallest CBY unit; each draws between 1 and this."""


class Transfer(Workload[TransferOptions]):
    """Pays a randomly drawn user of the plan in each turn, which may be the paying user itself."""

    name: ClassVar[str] = "transfer"
    options_type: ClassVar[type[Options]] = TransferOptions

    def intents(self, observation: Observation) -> list[Intent]:
        random = self.member.random
        return [
            Intent(
                action=TransferAction(random.choice(self.member.peers)),
                gas_limit=self.member.parameters.tx_base_cycles,
                cells_limit=0,
                value=random.randint(1, self.options.amount),
            )
        ]
