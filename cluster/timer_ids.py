"""Timer ids, recomputed by an observer (SPEC §4).

An id hashes the timer's payload, which receipts do not carry. Where the payload follows from the chain itself, because
a ``builtin:script`` actor schedules what its own input says, the id can be recomputed; everywhere else the functions
here answer ``None`` and nothing is claimed.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final, NamedTuple

from validator.codec import keccak256
from validator.types import TimerId

ENVELOPE_KEYS: Final = frozenset({"_handler", "_payload"})


def timer_id(actor: bytes, trigger_height: int, payload: bytes, schedule_nonce: int) -> TimerId:
    """``keccak256(actor ‖ height ‖ payload ‖ schedule_nonce)``, integers as eight bytes big-endian."""
    return TimerId(keccak256(actor + trigger_height.to_bytes(8, "big") + payload + schedule_nonce.to_bytes(8, "big")))


class ScheduledTerms(NamedTuple):
    """What a script's ``schedule`` operation says of its timer; fields left out are ``None``."""

    payload: bytes
    gas_limit: int | None
    max_fee_per_cycle: int | None
    max_priority_fee_per_cycle: int | None = None
    payer_cap: int | None = None


def scheduled_terms(script: bytes) -> list[ScheduledTerms] | None:
    """The terms of a script's ``schedule`` operations, in order, or ``None`` where they cannot be told."""
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
        if not _is_mapping_operation(operation):
            return None
        payload = _payload_bytes(operation[1].get("payload"))
        figures = [operation[1].get(name) for name in ScheduledTerms._fields[1:]]
        if payload is None or not all(figure is None or type(figure) is int for figure in figures):
            return None
        terms.append(ScheduledTerms(payload, *figures))
    return terms


def handler_input(payload: bytes) -> bytes:
    """What a fire hands to its handler: the payload itself, or what its ``_handler``/``_payload`` envelope holds."""
    value = _json(payload)
    if not isinstance(value, dict) or frozenset(value) != ENVELOPE_KEYS or not isinstance(value["_payload"], str):
        return payload
    try:
        return base64.b64decode(value["_payload"], validate=True)
    except (binascii.Error, ValueError):
        return payload


def _is_mapping_operation(operation: list[Any]) -> bool:
    return len(operation) == 2 and isinstance(operation[1], dict)


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
