"""Summaries of receipts."""

from __future__ import annotations

from validator.chain.block import (
    BlockReceipts,
    CallbackReceipt,
    Cancelled,
    DestroyedReceipt,
    Effects,
    Event,
    Extended,
    FireReceipt,
    MessageReceipt,
    TransactionReceipt,
)
from validator.chain.receipts import ended_timer_ids, ended_timers


def cancelling(*names: bytes) -> Effects:
    return Effects(timer_changes=(*map(Cancelled, names), Extended(b"extended", 9)))


def test_ids_of_ended_timers_come_in_the_order_of_their_ends() -> None:
    """Timers are cancelled in every kind of run; a fire, a destruction and an extension are among the receipts too."""
    one = b""
    receipts = BlockReceipts(
        height=1,
        proposer=one,
        transactions=(TransactionReceipt(one, one, True, "", 0, 0, one, one, cancelling(b"1", b"2")),),
        fires=(FireReceipt(b"7", one, 1, 1, one, True, "", 0, 0, one, one, one, cancelling(b"3")),),
        destroyed=(DestroyedReceipt(b"6", "expired", Event("TimerExpired", one, ())),),
        queries=(),
        messages=(MessageReceipt(one, one, "run", True, "", 0, 0, cancelling(b"5")),),
        gc_cycles=0,
        p50_tip=one,
        callbacks=(CallbackReceipt(one, one, "done", True, "", 0, 0, cancelling(b"4"), None),),
    )
    ids = [timer_id for timer_id, _ in ended_timers(receipts)]
    assert ids == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
    assert ended_timer_ids(receipts) == ids
