"""System instructions (SPEC §12): given only by those who may, and done as they say; and the parameters they change."""

from __future__ import annotations

from dataclasses import replace

from cluster.audit.chain_codec import Cancelled, CancelTimer, Extended, ExtendTimer, System, TransactionReceipt
from cluster.audit.chain_codec import UpdateTimerConfig as Update
from cluster.audit.ledger.context import CHAIN, TIMERS, Part
from cluster.audit.ledger.timer_register import TimerRegister
from validator.chain.genesis import Genesis
from validator.primitives import script_json
from validator.primitives.errors import BadScript
from validator.primitives.params import GOVERNED, ParameterError, Parameters, parse_value
from validator.primitives.types import address_text


class Instructions:
    """The parameters of a chain, block after block: the genesis's, and the changes by instructions since."""

    def __init__(self, genesis: Genesis) -> None:
        self._deployers = genesis.system_deployers
        self.in_force = genesis.parameters
        """In the block that was entered last."""
        self.following = genesis.parameters
        """In force from the next block on."""

    def begin_block(self) -> None:
        """Changes up to the block before take effect."""
        self.in_force = self.following

    def enter(self, part: Part, receipt: TransactionReceipt, action: System, timers: TimerRegister) -> None:
        """Enter an instruction, before its effects are entered into the register of timers."""
        instruction, changes = action.instruction, receipt.effects.timer_changes
        if isinstance(instruction, Update):
            self._update(part, receipt, instruction)
        if not receipt.ok:
            return
        if receipt.sender not in self._deployers:
            part.found(CHAIN, f"gave a system instruction, which {address_text(receipt.sender)} must not")
        expected: tuple[Cancelled | Extended, ...] = ()
        if isinstance(instruction, CancelTimer) and instruction.timer_id in timers.pending:
            expected = (Cancelled(instruction.timer_id),)
        elif isinstance(instruction, ExtendTimer):
            expected = (Extended(instruction.timer_id, min(instruction.new_expires_at, part.context.latest_end)),)
        if changes != expected or receipt.effects.scheduled or receipt.effects.movements:
            part.found(TIMERS, "did something else than its system instruction says")

    def _update(self, part: Part, receipt: TransactionReceipt, instruction: Update) -> None:
        changed = self.changed_by(instruction.config)
        if receipt.ok and changed is not None:
            self.change(changed)
        elif receipt.ok:
            part.found(CHAIN, "changed parameters in a way that is not allowed")
        elif changed is not None and receipt.error == "ConfigInvalid":
            part.found(CHAIN, "was refused a change of parameters that is allowed")

    def changed_by(self, config: str) -> Parameters | None:
        """The next block's parameters with a change made; ``None`` if the change is not allowed."""
        try:
            given = script_json.parse(config.encode())
            if not isinstance(given, dict) or not GOVERNED.issuperset(given):
                return None
            return replace(self.following, **{name.lower(): parse_value(name, value) for name, value in given.items()})
        except (BadScript, ParameterError, UnicodeEncodeError):
            return None

    def change(self, parameters: Parameters) -> None:
        """These are in force from the next block on."""
        self.following = parameters
