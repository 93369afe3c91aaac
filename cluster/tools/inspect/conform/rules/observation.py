"""What the execution of a case shows, arranged for the rules that look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cluster.tools.inspect.conform.case import Page
from cluster.tools.inspect.conform.cases.running_chain import ExecutedBlock
from validator.chain.block import Effects, FireReceipt, QueryReceipt, Scheduled
from validator.chain.genesis import Genesis


@dataclass(frozen=True, slots=True)
class ShownTransaction:
    """A transaction of the input with its result."""

    block: ExecutedBlock
    given: Page
    shown: Page

    @property
    def is_executed(self) -> bool:
        return bool(self.shown["status"] != "rejected")

    def number(self, name: str) -> int:
        """A number of the input; 0 if it is left out."""
        return int(self.given.get(name) or 0)


class Observation:
    """The blocks of a case as this implementation executed them."""

    def __init__(self, genesis: Genesis, blocks: Sequence[ExecutedBlock]) -> None:
        self.genesis, self.blocks = genesis, blocks
        self.policy: str = genesis.policy.value

    def is_auction(self, block: ExecutedBlock) -> bool:
        """Whether the policy's own rules are in force in a block; before, those of ``fifo`` are."""
        return self.policy != "fifo" and self.height(block) > block.parameters.activation_height

    @staticmethod
    def height(block: ExecutedBlock) -> int:
        return int(block.page["height"])

    @cached_property
    def transactions(self) -> list[ShownTransaction]:
        return [
            ShownTransaction(block, given, shown)
            for block in self.blocks
            for given, shown in zip(block.given.get("txs", ()), block.page["txs"], strict=False)
        ]

    @cached_property
    def executed(self) -> list[ShownTransaction]:
        """Transactions that were admitted."""
        return [each for each in self.transactions if each.is_executed]

    @cached_property
    def created(self) -> dict[str, str]:
        """Code of the actors that transactions deployed, by address."""
        return {each.shown["created"]: each.given["code"] for each in self.executed if "created" in each.shown}

    def rejected(self, error: str) -> list[ShownTransaction]:
        """Transactions that were refused with an error."""
        return [each for each in self.transactions if not each.is_executed and each.shown["error"] == error]

    @cached_property
    def fires(self) -> list[tuple[ExecutedBlock, FireReceipt]]:
        return [(block, fire) for block in self.blocks for fire in block.outcome.receipts.fires]

    @cached_property
    def queries(self) -> list[tuple[ExecutedBlock, QueryReceipt]]:
        return [(block, query) for block in self.blocks for query in block.outcome.receipts.queries]

    @cached_property
    def events(self) -> list[Page]:
        return [event for block in self.blocks for event in block.page["events"]]

    @cached_property
    def event_names(self) -> frozenset[str]:
        return frozenset(event["name"] for event in self.events)

    @cached_property
    def errors(self) -> dict[str, frozenset[str]]:
        """Names of errors: of reverted ``txs``, ``fires``, ``messages``, ``callbacks``, and ``caught`` by scripts."""
        found = {
            part: frozenset(
                run["error"] for block in self.blocks for run in block.page.get(part, ()) if run["status"] == "reverted"
            )
            for part in ("txs", "fires", "messages", "callbacks")
        }
        found["caught"] = frozenset(event["error"] for event in self.events if event["name"] == "ScriptCaught")
        return found

    def failed(self, *names: str) -> bool:
        """Whether a run ended with one of the errors, or a script caught it."""
        return any(name in errors for errors in self.errors.values() for name in names)

    @cached_property
    def effects(self) -> list[tuple[ExecutedBlock, str, Effects]]:
        """The effects of each run, with the kind of run as the output names it."""
        found: list[tuple[ExecutedBlock, str, Effects]] = []
        for block in self.blocks:
            receipts = block.outcome.receipts
            runs: tuple[tuple[str, Sequence[Any]], ...] = (
                ("txs", receipts.transactions),
                ("fires", receipts.fires),
                ("messages", receipts.messages),
                ("callbacks", receipts.callbacks),
            )
            found += [(block, kind, run.effects) for kind, listed in runs for run in listed]
        return found

    @cached_property
    def scheduled(self) -> list[tuple[ExecutedBlock, Scheduled]]:
        return [(block, timer) for block, _, effects in self.effects for timer in effects.scheduled]

    @cached_property
    def timers(self) -> dict[bytes, Scheduled]:
        """The timers of the case by their ids."""
        return {timer.timer_id: timer for _, timer in self.scheduled}

    def changes(self, tag: str) -> list[tuple[ExecutedBlock, Any]]:
        """Changes of timers of a kind, such as ``cancelled``."""
        return [
            (block, change)
            for block, _, effects in self.effects
            for change in effects.timer_changes
            if type(change).__name__.lower() == tag
        ]

    @cached_property
    def deferrals(self) -> list[tuple[ExecutedBlock, bytes, str]]:
        """Block, timer id and reason of each wait."""
        return [
            (block, timer_id, reason) for block in self.blocks for timer_id, reason in block.outcome.carried.items()
        ]

    def waited(self, reason: str) -> list[ExecutedBlock]:
        """Blocks in which a timer waited for a reason."""
        return [block for block, _, why in self.deferrals if why == reason]

    @cached_property
    def operations(self) -> frozenset[str]:
        """Names of operations in the scripts of the input that ran to their end in a transaction."""
        scripts = [each.given["payload"] for each in self.executed if isinstance(each.given.get("payload"), list)]
        return frozenset(name for script in scripts for name in _operation_names(script))


def _operation_names(script: Any) -> list[str]:
    names: list[str] = []
    for operation in script:
        if not isinstance(operation, list) or not operation or not isinstance(operation[0], str):
            continue
        names.append(operation[0])
        if operation[0] == "try":
            names += _operation_names(operation[1:])
    return names
