"""System instructions and governed parameters (SPEC §12).

The parameters marked † are in the storage of the system account ``0x…09``, as decimal text, tiers as a JSON list. A
block runs with the values at its beginning; a change made in block ``H`` is in force from ``H + 1``. A change is
atomic: if a value is out of range, or inconsistent with the rest, nothing changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from validator.chain.records import Timer, storage_key
from validator.execution.escrow import end_unfired
from validator.primitives import script_json
from validator.primitives.errors import BadScript, Rejection
from validator.primitives.params import GOVERNED, ParameterError, Parameters, parse_value
from validator.primitives.types import SYSTEM_PARAMETERS_ADDRESS
from validator.state.interface import View
from validator.state.working_set import World

GOVERNED_NAMES: Final = tuple(sorted(GOVERNED))


def storage_name(name: str) -> str:
    """The storage key of a governed parameter."""
    return f"system:cip1:{name.lower()}"


def storage_text(value: object) -> str:
    """A parameter's value as it is stored: decimal text; a list has no spaces."""
    if isinstance(value, list | tuple):
        return json.dumps(list(value), separators=(",", ":"))
    return str(value)


_STORED_KEYS: Final = tuple(storage_key(SYSTEM_PARAMETERS_ADDRESS, storage_name(name)) for name in GOVERNED_NAMES)
"""The storage keys of the governed parameters. All names are short, so the records are the values themselves."""


def parameters_in_force(state: World | View, genesis: Parameters) -> Parameters:
    """The genesis parameters, with the governed ones as they are in state."""
    return _with_governed(genesis, tuple([_stored(state, key) for key in _STORED_KEYS]))


def update_config(world: World, genesis: Parameters, text: str) -> None:
    """Change governed parameters from the next block on. ``text`` is a JSON object of names and values.

    Raises ``ConfigInvalid`` and then changes nothing. The values are checked together with earlier changes of the
    same block.
    """
    current = parameters_in_force(world, genesis)
    config = _parse(text)
    try:
        changed = {name: parse_value(name, value) for name, value in config.items()}
        replace(current, **{name.lower(): value for name, value in changed.items()})
    except ParameterError:
        raise Rejection("ConfigInvalid") from None
    for name in sorted(changed):
        world.storage_set(SYSTEM_PARAMETERS_ADDRESS, storage_name(name), storage_text(changed[name]).encode())


def cancel_timer(world: World, timer_id: bytes) -> Timer | None:
    """Remove and return a timer of any actor. Returns ``None`` for an unknown id, and changes nothing."""
    timer = world.timer(timer_id)
    if timer is not None:
        end_unfired(world, [timer])
    return timer


def _parse(text: str) -> Mapping[str, Any]:
    try:
        config = script_json.parse(text.encode())
    except (BadScript, UnicodeEncodeError):
        raise Rejection("ConfigInvalid") from None
    if not isinstance(config, dict) or not GOVERNED.issuperset(config):
        raise Rejection("ConfigInvalid")
    return config


def _stored(state: World | View, key: bytes) -> bytes:
    """A governed parameter. Its record in a world is its value in a view."""
    stored: bytes | None = state.get(key)
    assert stored is not None, "the genesis stores every governed parameter"
    return stored


@lru_cache(maxsize=64)
def _with_governed(genesis: Parameters, stored: tuple[bytes, ...]) -> Parameters:
    values = {
        name.lower(): parse_value(name, json.loads(text)) for name, text in zip(GOVERNED_NAMES, stored, strict=True)
    }
    return replace(genesis, **values)
