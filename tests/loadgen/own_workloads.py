"""Texts of workloads of one's own."""

from __future__ import annotations

from typing import Any

BEGINNING = """
from loadgen.workloads.base import Intent, Options, Workload
from validator.chain.transactions import Transfer

COUNTED = []


class Own(Workload):
    def pay(self, value=1):
        member = self.member
        return Intent(Transfer(member.random.choice(member.peers)), member.parameters.tx_base_cycles, 0, value=value)

"""
PAYS = BEGINNING + "    def intents(self, observation):\n        return [self.pay()]\n"


def acting(*lines: str) -> str:
    """A workload whose turns are these lines."""
    return BEGINNING + "    def intents(self, observation):\n" + "".join(f"        {line}\n" for line in lines)


def group(source: str, name: str = "own", **fields: Any) -> dict[str, Any]:
    return {"workload": {"name": name, "source": source}, **fields}
