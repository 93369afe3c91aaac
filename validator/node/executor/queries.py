"""The pages of ``docs/http.md``, as plain data: a validator's final state and blocks.

The live host serves them over HTTP; the simulator passes the same data to the same checks. Pages are read between the
executor's jobs, on their thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from consensus.messages import Certificate
from consensus.messages import decode as decode_message
from validator.chain.block import Block, BlockReceipts, Event, Header, TransactionReceipt, header_hash
from validator.chain.genesis import Genesis
from validator.chain.receipts import Source, TimerEnd, events_of, unpack
from validator.chain.records import (
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
from validator.chain.transactions import address_of, transaction_hash
from validator.execution.governance import GOVERNED_NAMES, parameters_in_force
from validator.execution.watching import watch_page
from validator.primitives.codec import decode, encode
from validator.primitives.types import Hash, TimerId, ValidatorError, address_text
from validator.state import View
from validator.state.proof import verify
from validator.state.working_set import World
from validator.storage.archive import BlockArchive
from validator.storage.finality_proof import find_proof

Page = dict[str, Any]

MAX_BLOCKS_BYTES: Final = 32 * 1024 * 1024
"""Size limit of blocks and receipts in one answer; the first block is always included."""
PENDING: Final = "pending"
"""State of a timer that has not ended."""
MAX_EVENTS: Final = 1_000
MAX_EVENTS_BYTES: Final = 1024 * 1024
"""Size limit of the text of events in one answer; the first event is always included."""
MAX_EVENT_BLOCKS: Final = 64
"""Maximum number of blocks that are searched for one answer."""
AMOUNT_FIELDS: Final = frozenset(
    {
        "balance",
        "balances",
        "basefee_cell",
        "basefee_cycle",
        "basefee_lane_timer",
        "burned",
        "burned_since_genesis",
        "DEFAULT_TIP_CAP",
        "fee",
        "INITIAL_BASEFEE",
        "MAX_BASEFEE",
        "max_fee_per_cycle",
        "max_priority_fee_per_cycle",
        "MIN_BASEFEE",
        "PRIORITY_FLOOR",
        "tip",
    }
)
"""Fields with amounts and prices, which may be too large for a client that reads JSON numbers as floats."""


class Cursor(NamedTuple):
    """A position in the sequence of all events: the block, and the event's number in it."""

    height: int
    number: int = 0

    def __str__(self) -> str:
        return f"{self.height}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Parse ``height`` or ``height.index``. Raises :class:`ValueError`."""
        height, _, number = text.partition(".")
        return cls(int(height), int(number or 0))


class EventFilter(NamedTuple):
    """Filter of events; ``None`` matches all."""

    actor: bytes | None = None
    name: str | None = None

    def takes(self, event: Event) -> bool:
        """Whether an event matches."""
        return self.actor in (None, event.actor) and self.name in (None, event.name)


class PlacedEvent(NamedTuple):
    """An event, with its position and the receipt that contains it."""

    cursor: Cursor
    source: Source
    event: Event

    @property
    def page(self) -> Page:
        """The event as pages show it."""
        return {
            "height": self.cursor.height,
            "index": self.cursor.number,
            "receipt": _source_page(self.source),
            "event": _event_page(self.event),
        }


class FinalityPage(NamedTuple):
    """The proof that a block is final (:mod:`validator.storage.finality_proof`), each part encoded."""

    header: bytes
    links: list[bytes]
    """Headers up to the block of the certificate; empty if the certificate is the block's own."""
    certificate: bytes

    @property
    def page(self) -> Page:
        """The proof as JSON."""
        header = decode(self.header, Header)
        certificate = decode_message(self.certificate)
        assert isinstance(certificate, Certificate), "the archive keeps finalizations"
        return {
            "height": header.height,
            "hash": header_hash(header).hex(),
            "header": self.header.hex(),
            "links": [link.hex() for link in self.links],
            "certificate": self.certificate.hex(),
            "certified_view": certificate.view,
            "certified_hash": certificate.digest.hex(),
            "signers": list(certificate.signed),
        }


class FinalChain(Protocol):
    """The data source of the pages: the final blocks and their state. The executor implements it."""

    @property
    def genesis(self) -> Genesis:
        """The genesis of the chain."""

    @property
    def archive(self) -> BlockArchive:
        """The final blocks with their receipts."""

    @property
    def final_header(self) -> Header:
        """Header of the last final block."""

    @property
    def final_view(self) -> View:
        """The state after the last final block."""

    def root_at(self, height: int) -> Hash:
        """The state root of a retained height."""

    def prove(self, key: bytes, height: int) -> bytes:
        """The encoded proof of a key's value in the state of a retained height."""


class BlockGone(ValidatorError):
    """A final block is not available: it was pruned, or the validator joined above it."""


class StatePages:
    """Read-only pages over the final state and the archive."""

    def __init__(self, chain: FinalChain) -> None:
        self._chain = chain
        self._open_jobs: tuple[tuple[int, bytes], dict[bytes, list[str]]] = ((0, b""), {})
        """The open jobs by actor, with the height and root of their state."""

    @property
    def first_block(self) -> int:
        """Height of the first available block: earlier ones were pruned, or final before the validator joined."""
        return self._chain.archive.first_height + 1

    def blocks(self, first: int, most: int) -> list[tuple[bytes, bytes, bytes]]:
        """``(block, receipts, computed_root)`` from a height on: as many as exist, up to ``most``, that fit into
        :data:`MAX_BLOCKS_BYTES`, but at least one, if any. Raises :class:`BlockGone`."""
        found: list[tuple[bytes, bytes, bytes]] = []
        room = MAX_BLOCKS_BYTES
        for height in range(max(first, 1), max(first, 1) + most):
            archived = self._chain.archive.get(height)
            if archived is None:
                break
            room -= len(archived.block) + len(archived.receipts)
            if found and room < 0:
                break
            found.append((archived.block, archived.receipts, archived.computed_root))
        self._require_here(max(first, 1), bool(found))
        return found

    def block(self, height: int) -> Page | None:
        """The final block at a height. Raises :class:`BlockGone`."""
        archived = self._chain.archive.get(height)
        self._require_here(height, archived is not None)
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
            "basefee_cycle": unpack(header.basefee_cycle),
            "basefee_cell": unpack(header.basefee_cell),
            "basefee_lane_timer": unpack(header.basefee_lane_timer),
            "lane_cycles": header.lane_cycles,
            "lane_cells": header.lane_cells,
            "user_cycles": header.user_cycles,
            "user_cells": header.user_cells,
            "transactions": [transaction_hash(wire).hex() for wire in block.transactions],
            "fires": [fire.timer_id.hex() for fire in receipts.fires],
            "destroyed": [{"timer_id": end.timer_id.hex(), "reason": end.reason} for end in receipts.destroyed],
        }

    def receipt(self, digest: Hash) -> Page | None:
        """The receipt of a transaction in an available block, if it is among the newest
        (:data:`validator.storage.archive.MAX_TRANSACTIONS`)."""
        found = self._chain.archive.find_receipt(digest)
        return None if found is None else _receipt_page(found.receipt, *found.place)

    def supply(self) -> Page:
        """The sum of all balances, and the amount burned. Reads every account."""
        view = self._chain.final_view
        balances = [decode_record(key, value).balance for key, value in view.scan(ACCOUNT)]
        return {
            "height": self._chain.archive.height,
            "accounts": len(balances),
            "balances": sum(balances),
            "burned": World(view).globals.burned,
        }

    def burned(self) -> Page:
        """The amounts burned since the genesis, by the chain's own counters."""
        chain = World(self._chain.final_view).globals
        return {
            "transactions": chain.burned_user,
            "fires": chain.burned_timer_cycle,
            "timer_lane": chain.burned_timer_lane,
            "queries": chain.burned_bidding,
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

    def accounts(self, addresses: Sequence[bytes]) -> Page:
        """Several accounts as of one block, in order, without the actors' code."""
        pages = [self.account(address) for address in addresses]
        for page in pages:
            del page["code"]
        return {"height": self._chain.final_header.height, "accounts": pages}

    def _open_jobs_of(self, actor: bytes) -> list[str]:
        """The jobs of an actor that still take results, ids ascending."""
        jobs: ActorJobs | None = self._record(actor_jobs_key(actor))
        if jobs is None or not jobs.unsettled:
            return []
        header = self._chain.final_header
        place = (header.height, header.state_root)
        if self._open_jobs[0] != place:
            self._open_jobs = (place, self._all_open_jobs(header.height))
        return self._open_jobs[1].get(actor, [])

    def _all_open_jobs(self, height: int) -> dict[bytes, list[str]]:
        """Open jobs by actor. Reads every job, but only once per final block."""
        found: dict[bytes, list[str]] = {}
        for key, data in self._chain.final_view.scan(JOB):
            job: Job = decode_record(key, data)
            if not job.is_complete and not job.consumed and job.ends_at > height:
                found.setdefault(bytes(job.actor), []).append(key[len(JOB) :].hex())
        return found

    def timer(self, timer_id: bytes) -> Page | None:
        """A timer that is pending, or among the newest ended ones
        (:data:`validator.storage.archive.MAX_ENDED_TIMERS`)."""
        timer: Timer | None = self._record(timer_key(timer_id))
        return self._ended_timer(TimerId(timer_id)) if timer is None else self._pending_timer(timer)

    def is_pending(self, timer_id: bytes) -> bool:
        """Whether a timer is pending."""
        return self._record(timer_key(timer_id)) is not None

    def _pending_timer(self, timer: Timer) -> Page:
        due = timer.due_height(self._chain.final_header.height)
        return {
            "timer_id": timer.timer_id.hex(),
            "state": PENDING,
            "actor": address_text(timer.actor),
            "trigger_height": timer.trigger_height,
            "due_height": due,
            "deferrals": due - timer.trigger_height,
            "expires_at": timer.expires_at,
            "fee_payer": address_text(timer.fee_payer),
            "handler": timer.handler,
            **watch_page(timer),
        }

    def _ended_timer(self, timer_id: TimerId) -> Page | None:
        found = self._chain.archive.find_end(timer_id)
        if found is None:
            return None
        height, end = found
        return {"timer_id": timer_id.hex(), "state": end.state, "height": height, **_end_page(end)}

    # --- events -------------------------------------------------------------------------------------------------------

    def events(self, start: Cursor | None, wanted: EventFilter) -> Page | None:
        """Events from a position on, by default the first available one, and the position where the next page begins.

        Bounded by :data:`MAX_EVENTS`, :data:`MAX_EVENTS_BYTES` and :data:`MAX_EVENT_BLOCKS`. ``None`` if the position
        is below the first available block.
        """
        archive = self._chain.archive
        first = archive.first_height + 1
        if start is not None and start.height < first and archive.first_height:
            return None
        begin = max(start or Cursor(first), Cursor(first))
        found: list[PlacedEvent] = []
        size, following = 0, begin
        for height in range(begin.height, min(begin.height + MAX_EVENT_BLOCKS, archive.height + 1)):
            for placed in self.events_at(height):
                if placed.cursor < begin or not wanted.takes(placed.event):
                    continue
                size += _text_bytes(placed.event)
                if found and (len(found) == MAX_EVENTS or size > MAX_EVENTS_BYTES):
                    return _events_page(found, placed.cursor, archive.height)
                found.append(placed)
            following = Cursor(height + 1)
        return _events_page(found, following, archive.height)

    def events_at(self, height: int) -> list[PlacedEvent]:
        """All events of a final block; empty if there is no such block."""
        receipts = self._chain.archive.receipts(height)
        if receipts is None:
            return []
        return [PlacedEvent(Cursor(height, i), *found) for i, found in enumerate(events_of(receipts))]

    # --- proofs -------------------------------------------------------------------------------------------------------

    def finality(self, height: int) -> FinalityPage | None:
        """The proof that the block at a height is final; ``None`` if there is no such block, or no proof of it.

        Raises :class:`BlockGone`.
        """
        archive = self._chain.archive
        self._require_here(height, height == archive.joined_height)
        block = archive.block(height)
        proof = None if block is None else find_proof(archive, height)
        if block is None or proof is None:
            return None
        return FinalityPage(encode(block.header), [encode(link) for link in proof.links], proof.certificate)

    def proof(self, key: bytes, height: int | None) -> Page:
        """A key's value in the state of a retained height, by default the final one, with its proof.

        Raises :class:`~validator.state.HistoryError` if the height is not retained.
        """
        at = self._chain.final_header.height if height is None else height
        proof, root = self._chain.prove(key, at), self._chain.root_at(at)
        value = verify(root, key, proof)
        return {
            "height": at,
            "state_root": root.hex(),
            "key": key.hex(),
            "value": None if value is None else value.hex(),
            "proof": proof.hex(),
        }

    # --- the chain ----------------------------------------------------------------------------------------------------

    def parameters(self) -> Page:
        """The parameters of the next block."""
        genesis, height = self._chain.genesis, self._chain.final_header.height
        now = parameters_in_force(World(self._chain.final_view), genesis.parameters).to_names()
        first = genesis.parameters.to_names()
        return {
            "chain_id": genesis.chain_id,
            "height": height + 1,
            "policy": genesis.policy_name,
            "runs_auction": genesis.runs_auction(height + 1),
            "preset": genesis.preset,
            "parameters": now,
            "governed": list(GOVERNED_NAMES),
            "changed": [name for name in sorted(now) if now[name] != first[name]],
        }

    def validators(self) -> Page:
        """The validators: all that is needed to verify a certificate."""
        genesis = self._chain.genesis
        return {
            "chain_id": genesis.chain_id,
            "validators": [
                {"index": index, "public_key": key.hex(), "address": address_text(address_of(key))}
                for index, key in enumerate(genesis.validators)
            ],
            "epochs": [{"first_view": epoch.first_view, "members": list(epoch.members)} for epoch in genesis.epochs],
        }

    def _require_here(self, height: int, is_here: bool = False) -> None:
        if not is_here and 0 < height < self.first_block:
            raise BlockGone(
                f"block {height} is not here: the blocks of this validator begin at height {self.first_block}"
            )

    def _record(self, key: bytes) -> Any:
        data = self._chain.final_view.get(key)
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
        "fee": unpack(receipt.burned) + unpack(receipt.tip),
        "created": address_text(receipt.created) if receipt.created else None,
        "scheduled": [timer.timer_id.hex() for timer in receipt.effects.scheduled],
        "events": [_event_page(event) for event in receipt.effects.events],
    }


def _event_page(event: Event) -> Page:
    return {"name": event.name, "actor": address_text(event.actor), **dict(event.fields)}


def _end_page(end: TimerEnd) -> Page:
    """How a timer ended, the fee paid, and the events and timers it produced."""
    page: Page = {"receipt": _source_page(end.source)}
    if end.event is not None:
        page |= {"actor": address_text(end.event.actor), "fee": 0, "events": [_event_page(end.event)]}
    elif end.fire is None:
        page |= {"fee": 0, "events": []}
    else:
        fire = end.fire
        page |= {
            "actor": address_text(fire.actor),
            "trigger_height": fire.trigger_height,
            "error": fire.error or None,
            "cycles": fire.cycles,
            "cells": fire.cells,
            "fee_payer": address_text(fire.fee_payer),
            "fee": unpack(fire.burned) + unpack(fire.tip),
            "burned": unpack(fire.burned),
            "tip": unpack(fire.tip),
            "scheduled": [timer.timer_id.hex() for timer in fire.effects.scheduled],
            "events": [_event_page(event) for event in fire.effects.events],
        }
    return page


def _source_page(source: Source) -> Page:
    subject = address_text(source.subject) if source.kind == "message" else source.subject.hex()
    return {"kind": source.kind, "id": subject}


def _events_page(found: list[PlacedEvent], following: Cursor, height: int) -> Page:
    return {"events": [placed.page for placed in found], "next": str(following), "height": height}


def _text_bytes(event: Event) -> int:
    return len(event.name) + sum(len(name) + len(text) for name, text in event.fields)
