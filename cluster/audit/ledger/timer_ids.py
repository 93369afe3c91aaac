"""Timer ids, recomputed by an observer (SPEC §4).

An id hashes the timer's payload, which receipts do not carry. If the payload follows from the chain itself, because a
``builtin:script`` actor schedules what its own input says, the id can be recomputed; else the functions here return
``None`` and nothing is claimed.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final, NamedTuple

from cluster.audit.chain_codec import keccak256
from cluster.audit.ledger.context import hex_bytes
from validator.primitives.types import TimerId

ENVELOPE_KEYS: Final = frozenset({"_handler", "_payload"})


_FIGURES: Final = (
    "gas_limit",
    "max_fee_per_cycle",
    "max_priority_fee_per_cycle",
    "payer_cap",
    "expires_at",
    "height",
    "in",
)
"""The integers of :class:`ScheduledTerms` as a script names them, in their order."""


def timer_id(actor: bytes, trigger_height: int, payload: bytes, schedule_nonce: int) -> TimerId:
    """``keccak256(actor ‖ height ‖ payload ‖ schedule_nonce)``, integers as eight bytes big-endian."""
    return TimerId(keccak256(actor + trigger_height.to_bytes(8, "big") + payload + schedule_nonce.to_bytes(8, "big")))


class ScheduledTerms(NamedTuple):
    """The terms of a script's ``schedule`` operation; fields left out are ``None``."""

    payload: bytes
    gas_limit: int | None
    max_fee_per_cycle: int | None
    max_priority_fee_per_cycle: int | None = None
    payer_cap: int | None = None
    expires_at: int | None = None
    height: int | None = None
    """When it fires; or else ``blocks_ahead``."""
    blocks_ahead: int | None = None
    fee_payer: str | None = None
    """``self``, ``sender`` or an address."""

    def trigger_height(self, now: int) -> int:
        """The height that was asked for at height ``now``."""
        return now + (self.blocks_ahead or 0) if self.height is None else self.height

    def payer(self, actor: bytes, sender: bytes) -> bytes:
        """The payer that was asked for; empty if the text is no address."""
        match self.fee_payer:
            case None | "self":
                return actor
            case "sender":
                return sender
        return hex_bytes(self.fee_payer.removeprefix("0x"))


def scheduled_terms(script: bytes) -> list[ScheduledTerms] | None:
    """The terms of a script's ``schedule`` operations, in order, or ``None`` if they are not known."""
    operations = _json(script)
    if not isinstance(operations, list):
        return None
    terms: list[ScheduledTerms] = []
    for operation in operations:
        while isinstance(operation, list) and len(operation) == 2 and operation[0] == "try":
            operation = operation[1]
        if not isinstance(operation, list) or not operation:
            return None
        if operation[0] != "schedule":
            continue
        if len(operation) != 2 or not isinstance(operation[1], dict):
            return None
        payload = _payload_bytes(operation[1].get("payload"))
        figures = [operation[1].get(name) for name in _FIGURES]
        payer = operation[1].get("fee_payer")
        are_integers = all(figure is None or type(figure) is int for figure in figures)
        if payload is None or not are_integers or not isinstance(payer, str | None):
            return None
        terms.append(ScheduledTerms._make([payload, *figures, payer]))
    return terms


def handler_input(payload: bytes) -> bytes:
    """The input of a fire's handler: the payload, or the content of its ``_handler``/``_payload`` envelope."""
    value = _json(payload)
    if not isinstance(value, dict) or frozenset(value) != ENVELOPE_KEYS or not isinstance(value["_payload"], str):
        return payload
    try:
        return base64.b64decode(value["_payload"], validate=True)
    except (binascii.Error, ValueError):
        return payload


def _payload_bytes(value: Any) -> bytes | None:
    """Text, ``{"hex": …}`` or a nested script, as the bytes that it stands for."""
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, list):
            return json.dumps(value, separators=(",", ":")).encode()
        if isinstance(value, dict) and isinstance(value.get("hex"), str):
            return bytes.fromhex(value["hex"])
    except (ValueError, RecursionError):
        return None
    return None


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
