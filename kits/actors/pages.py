"""A session as JSON (``--json``): everything that the terminal shows, without truncation.

Cycles, cells and amounts are integers in the smallest unit; addresses are ``0x…``, timer IDs are hex; values have the
form of :mod:`kits.actors.values`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.local_chain.bare_chain import Execution, PlayedBlock, decoded
from kits.actors.profiler import LineProfile
from kits.actors.session import Session, handler_uses
from kits.actors.values import value_to_json
from validator.chain.block import Bidder, Cancelled, Event
from validator.primitives.types import address_text
from validator.pvm.runtime.machine import BID_FIELDS

Page = dict[str, Any]


def session_page(session: Session) -> Page:
    """The whole session as JSON."""
    chain = session.chain
    return {
        "actors": {
            actor.name: {
                "file": str(actor.file.path),
                "address": address_text(actor.address),
                "balance": chain.world.balance(actor.address),
                "storage": {key: _value(value) for key, value in chain.storage(actor.address).items()},
                "published": {key: _value(value) for key, value in chain.published(actor.address).items()},
            }
            for actor in session.actors
        },
        "blocks": [_block_page(session, block) for block in session.blocks],
        "timers": [
            {
                "timer_id": timer.timer_id.hex(),
                "actor": session.names[timer.actor],
                "handler": timer.handler,
                "payload": _value(chain.world.payload_of(timer)),
                "trigger_height": timer.trigger_height,
                "expires_at": timer.expires_at,
            }
            for timer in chain.timers()
        ],
        "handlers": [{**use._asdict(), "actor": use.actor.name} for use in handler_uses(session)],
        "failures": session.failures,
    }


def profile_page(session: Session, profiles: Mapping[str, LineProfile]) -> Page:
    """The session as JSON, with the cycles charged to each line of its programs."""
    lines = {
        actor.name: [_line_page(profiles[actor.file.source], line) for line in _lines(profiles[actor.file.source])]
        for actor in session.actors
        if actor.file.source in profiles
    }
    return {**session_page(session), "profile": {"cycles": session.cycles_charged, "lines": lines}}


def _lines(profile: LineProfile) -> list[int]:
    return sorted({*profile.pieces, *profile.sizes, *profile.host, *profile.runs})


def _line_page(profile: LineProfile, line: int) -> Page:
    return {
        "line": line,
        "cycles": profile.cycles(line),
        "host": profile.host[line],
        "sizes": profile.sizes[line],
        "runs": profile.runs[line],
    }


def _block_page(session: Session, block: PlayedBlock) -> Page:
    return {
        "height": block.height,
        "runs": [_execution_page(session, execution) for execution in block.executions],
        "events": [_event_page(event) for event in block.events],
        "waiting": dict(block.waiting),
    }


def _execution_page(session: Session, execution: Execution) -> Page:
    effects, run, names = execution.effects, execution.program, session.names
    page: Page = {
        "kind": execution.kind,
        "actor": names.get(execution.actor, address_text(execution.actor)),
        "handler": execution.handler or None,
        "payload": None if run is None else _value(run.payload),
        "error": execution.error or None,
        "cycles": execution.cycles,
        "cells": execution.cells,
        "fee": execution.fee,
        "movements": [
            {
                "from": address_text(movement.source),
                "to": address_text(movement.target),
                "amount": int.from_bytes(movement.amount),
            }
            for movement in effects.movements
        ],
        "scheduled": [
            {"timer_id": timer.timer_id.hex(), "trigger_height": timer.trigger_height} for timer in effects.scheduled
        ],
        "cancelled": [each.timer_id.hex() for each in effects.timer_changes if isinstance(each, Cancelled)],
        "agents": [
            {"timer_id": each.timer_id.hex() or None, "agent": address_text(each.agent) if each.agent else None}
            for each in effects.timer_changes
            if isinstance(each, Bidder)
        ],
        "events": [_event_page(event) for event in effects.events],
    }
    if execution.error and run is not None:
        page["failed_at"] = [{"method": place.method, "line": place.line} for place in run.places]
    if run is not None and run.bid is not None:
        page["bid"] = dict(zip(BID_FIELDS, run.bid, strict=True)) | {"owner": names.get(run.sender)}
    return page


def _event_page(event: Event) -> Page:
    return {"name": event.name, "actor": address_text(event.actor), "fields": dict(event.fields)}


def _value(encoded: bytes) -> Any:
    return value_to_json(decoded(encoded))
