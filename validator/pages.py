"""What a validator shows of its final state: the pages of ``docs/http.md`` as plain data.

The live host serves them over HTTP, the simulator hands the same data to the same checks. Pages are read between the
executor's jobs, by whoever runs those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from validator.block import Block, BlockReceipts, Event, TransactionReceipt, header_hash
from validator.codec import decode
from validator.records import (
    ACCOUNT,
    JOB,
    Account,
    Actor,
    ActorJobs,
    Job,
    Timer,
    account_key,
    actor_jobs_key,
    actor_key,
    decode_record,
    timer_key,
)
from validator.transactions import transaction_hash
from validator.types import Hash, address_text
from validator.world import World

if TYPE_CHECKING:
    from validator.executor import Executor

Page = dict[str, Any]

MAX_BLOCKS_BYTES: Final = 32 * 1024 * 1024
"""Of blocks and receipts in one answer; the first of them is there however large it is."""


class StatePages:
    """Read-only pages over an executor's final state and archive."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._open_jobs: tuple[tuple[int, bytes], dict[bytes, list[str]]] = ((0, b""), {})
        """The jobs that take results, by actor, and the height and root of the state that they stand in."""

    def blocks(self, first: int, most: int) -> list[tuple[bytes, bytes, bytes]]:
        """``(block, receipts, computed_root)`` from a height on, as many as there are up to ``most`` and fit into
        :data:`MAX_BLOCKS_BYTES`; one at least, where there is one."""
        found: list[tuple[bytes, bytes, bytes]] = []
        room = MAX_BLOCKS_BYTES
        for height in range(max(first, 1), max(first, 1) + most):
            archived = self._executor.archive.get(height)
            if archived is None:
                break
            room -= len(archived.block) + len(archived.receipts)
            if found and room < 0:
                break
            found.append((archived.block, archived.receipts, archived.computed_root))
        return found

    def block(self, height: int) -> Page | None:
        """The final block at a height."""
        archived = self._executor.archive.get(height)
        if archived is None:
            return None
        block, receipts = decode(archived.block, Block), decode(archived.receipts, BlockReceipts)
        header = block.header
        return {
            "height": header.height,
            "hash": header_hash(header).hex(),
            "view": header.view,
            "parent_hash": header.parent_hash.hex(),
            "proposer": header.proposer,
            "state_root": header.state_root.hex(),
            "transactions_root": header.transactions_root.hex(),
            "receipts_root": header.receipts_root.hex(),
            "basefee_cycle": _number(header.basefee_cycle),
            "basefee_cell": _number(header.basefee_cell),
            "basefee_lane_timer": _number(header.basefee_lane_timer),
            "lane_cycles": header.lane_cycles,
            "lane_cells": header.lane_cells,
            "user_cycles": header.user_cycles,
            "user_cells": header.user_cells,
            "transactions": [transaction_hash(wire).hex() for wire in block.transactions],
            "fires": [fire.timer_id.hex() for fire in receipts.fires],
            "destroyed": [{"timer_id": end.timer_id.hex(), "reason": end.reason} for end in receipts.destroyed],
        }

    def receipt(self, digest: Hash) -> Page | None:
        """The receipt of a final transaction."""
        place = self._executor.archive.place_of(digest)
        if place is None:
            return None
        archived = self._executor.archive.get(place.height)
        assert archived is not None
        receipt = decode(archived.receipts, BlockReceipts).transactions[place.position]
        return _receipt_page(receipt, place.height, place.position)

    def supply(self) -> Page:
        """What all accounts hold together, and what was burned. Costs a look at every account."""
        view = self._executor.final_view
        balances = [decode_record(key, value).balance for key, value in view.scan(ACCOUNT)]
        return {
            "height": self._executor.archive.height,
            "accounts": len(balances),
            "balances": sum(balances),
            "burned": World(view).globals.burned,
        }

    def account(self, address: bytes) -> Page:
        """An account or actor; one never seen has balance and nonce 0."""
        account: Account = self._record(account_key(address)) or Account()
        actor: Actor | None = self._record(actor_key(address))
        return {
            "address": address_text(address),
            "balance": account.balance,
            "nonce": account.nonce,
            "code": None if actor is None else actor.code,
            "live_timers": 0 if actor is None else actor.live_timers,
            "open_jobs": [] if actor is None else self._open_jobs_of(address),
        }

    def _open_jobs_of(self, actor: bytes) -> list[str]:
        """The jobs of an actor that still take results, ids ascending."""
        jobs: ActorJobs | None = self._record(actor_jobs_key(actor))
        if jobs is None or not jobs.unsettled:
            return []
        header = self._executor.final_header
        place = (header.height, header.state_root)
        if self._open_jobs[0] != place:
            self._open_jobs = (place, self._all_open_jobs(header.height))
        return self._open_jobs[1].get(actor, [])

    def _all_open_jobs(self, height: int) -> dict[bytes, list[str]]:
        """By actor. Looks at every job, once for a final block, however often and by however many it is asked about."""
        found: dict[bytes, list[str]] = {}
        for key, data in self._executor.final_view.scan(JOB):
            job: Job = decode_record(key, data)
            if not job.is_complete and not job.consumed and job.ends_at > height:
                found.setdefault(bytes(job.actor), []).append(key[len(JOB) :].hex())
        return found

    def timer(self, timer_id: bytes) -> Page | None:
        """A pending timer."""
        timer: Timer | None = self._record(timer_key(timer_id))
        if timer is None:
            return None
        due = timer.due_height(self._executor.final_header.height)
        return {
            "timer_id": timer.timer_id.hex(),
            "actor": address_text(timer.actor),
            "trigger_height": timer.trigger_height,
            "due_height": due,
            "deferrals": due - timer.trigger_height,
            "expires_at": timer.expires_at,
            "fee_payer": address_text(timer.fee_payer),
            "handler": timer.handler,
        }

    def _record(self, key: bytes) -> Any:
        data = self._executor.final_view.get(key)
        return None if data is None else decode_record(key, data)


def _receipt_page(receipt: TransactionReceipt, height: int, position: int) -> Page:
    return {
        "transaction_hash": receipt.transaction_hash.hex(),
        "height": height,
        "index": position,
        "status": "ok" if receipt.ok else "reverted",
        "error": receipt.error or None,
        "cycles": receipt.cycles,
        "cells": receipt.cells,
        "fee": _number(receipt.burned) + _number(receipt.tip),
        "created": address_text(receipt.created) if receipt.created else None,
        "scheduled": [timer.timer_id.hex() for timer in receipt.effects.scheduled],
        "events": [_event_page(event) for event in receipt.effects.events],
    }


def _event_page(event: Event) -> Page:
    return {"name": event.name, "actor": address_text(event.actor), **dict(event.fields)}


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")
