"""The maximum size of one block's receipts, by the parameters: a bound for files and messages.

Every effect is paid for. The densest is an event: it costs :data:`~validator.primitives.costs.EMIT_CYCLES` at least,
its name is bounded (:func:`~validator.primitives.types.is_name`) and its data costs one cell per byte; every other call
leaves fewer bytes per cycle. The rest of a receipt is bounded, and each receipt costs its lane a base. So the cycles
and cells of the lanes bound the receipts; the bound is far above the size that any paying sender will reach.

``docs/protocol.md`` describes the same. The archive's frames hold many times the defaults' bound
(:mod:`validator.storage.frames`); a chain whose parameters allow more than a frame holds is refused before it starts.
"""

from __future__ import annotations

from typing import Final

from validator.chain.block import (
    MAX_BLOCK_BYTES,
    CallbackReceipt,
    DestroyedReceipt,
    Effects,
    Event,
    FireReceipt,
    QueryReceipt,
    TransactionReceipt,
)
from validator.chain.genesis import GenesisError
from validator.primitives import costs
from validator.primitives.codec import encode
from validator.primitives.limits import MAX_ERROR_TEXT
from validator.primitives.params import Parameters
from validator.primitives.types import ADDRESS_BYTES, HASH_BYTES, MAX_NAME_BYTES
from validator.storage.frames import MAX_PAYLOAD_BYTES

_ADDRESS: Final = bytes(ADDRESS_BYTES)
_HASH: Final = bytes(HASH_BYTES)
_COUNT: Final = 2**64 - 1
_AMOUNT: Final = bytes(32)
_ERROR: Final = "ActorError: " + "\U0010ffff" * MAX_ERROR_TEXT
_NAME: Final = "n" * MAX_NAME_BYTES
_LONG_TEXT_HEAD: Final = 4
"""Additional bytes of the length prefix of a long text, compared with that of an empty text."""


def _size(receipt: object) -> int:
    return len(encode(receipt))


_INSOLVENCY: Final = Event(
    "TimerCancelledInsufficientFunds",
    _ADDRESS,
    (("timer_id", _HASH.hex()), ("fee_payer", "0x" + _ADDRESS.hex()), ("needed", "9" * 50), ("balance", "9" * 39)),
)
_UNSETTLED: Final = Event("JobNotConsumed", _ADDRESS, (("job_id", _HASH.hex()),))

EVENT_BYTES: Final = _size(Event(_NAME, _ADDRESS, (("data", ""),))) + _LONG_TEXT_HEAD
"""Maximum size of an actor's event without its data."""
TRANSACTION_BYTES: Final = _size(
    TransactionReceipt(_HASH, _ADDRESS, False, _ERROR, _COUNT, _COUNT, _AMOUNT, _AMOUNT, Effects(), _ADDRESS)
)
"""Maximum size of a transaction's receipt without effects. The constants below are those of other receipts."""
FIRE_BYTES: Final = _size(
    FireReceipt(
        _HASH, _ADDRESS, _COUNT, _COUNT, _ADDRESS, False, _ERROR, _COUNT, _COUNT, _AMOUNT, _AMOUNT, _AMOUNT, Effects()
    )
)
DESTROYED_BYTES: Final = _size(DestroyedReceipt(_HASH, "insufficient_funds", _INSOLVENCY))
QUERY_BYTES: Final = _size(QueryReceipt(_HASH, _ADDRESS, "failed", _COUNT, _AMOUNT, (_AMOUNT, _AMOUNT), _ADDRESS))
DEFERRED_BYTES: Final = _size(
    CallbackReceipt(_HASH, _ADDRESS, _NAME, False, _ERROR, _COUNT, _COUNT, Effects(), _UNSETTLED)
)
"""Maximum size of a callback's receipt without effects; a message's is smaller."""
LIST_HEADS_BYTES: Final = 20
"""Additional bytes of the length prefixes of a run's five lists of effects, if they are long instead of empty."""
HEADS_BYTES: Final = 1_024
"""Size of the data around the lists of receipts."""
MIN_TRANSACTION_BYTES: Final = 128
"""Least size of a transaction on the wire: its key and its signature alone have 96 bytes."""


def most_receipt_bytes(parameters: Parameters) -> int:
    """The maximum size of a block's encoded receipts, in bytes."""
    p = parameters
    by_cycles = (p.lane_user_cycles + p.lane_system_cycles) // p.tx_base_cycles
    transactions = min(by_cycles, MAX_BLOCK_BYTES // MIN_TRANSACTION_BYTES)
    fires = min(2 * p.scan_limit, p.lane_timer_cycles // min(p.fire_base_cycles, p.min_gas_limit_per_timer))
    deferred = p.lane_deferred_cycles // p.message_base_cycles
    effects = (p.lane_user_cycles + p.lane_timer_cycles + p.lane_deferred_cycles) // costs.EMIT_CYCLES * EVENT_BYTES
    data = p.lane_user_cells + p.lane_timer_cells + p.max_cells_per_fire + deferred * p.message_cells
    return (
        effects
        + data
        + transactions * TRANSACTION_BYTES
        + fires * FIRE_BYTES
        + p.timer_gc_cycles // p.gc_cycles_per_removal * DESTROYED_BYTES
        + p.gba_budget_cycles // costs.MIN_QUERY_CYCLES * QUERY_BYTES
        + deferred * DEFERRED_BYTES
        + (transactions + fires + deferred) * LIST_HEADS_BYTES
        + HEADS_BYTES
    )


def require_receipts_fit(parameters: Parameters) -> None:
    """Raise :class:`GenesisError` if a block's receipts might be too large for validators to store."""
    most = most_receipt_bytes(parameters) + 2 * MAX_BLOCK_BYTES  # for the block itself and its certificate
    if most > MAX_PAYLOAD_BYTES:
        raise GenesisError(
            f"parameters: a block and its receipts could come to {most:,} bytes, and validators keep at most "
            f"{MAX_PAYLOAD_BYTES:,} of one; lower the lanes' cycles and cells, or TIMER_GC_CYCLES, or raise what each "
            "run costs"
        )
