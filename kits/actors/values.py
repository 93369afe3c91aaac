"""Values of actors in JSON and as text.

A handler's payload is given as JSON: texts, integers of up to 256 bits, true, false, null, lists, and dicts with text
keys. Two objects mean bytes: ``{"hex": "00ff"}``, and ``{"address_of": "Name"}``, an actor's address on the local
chain. In the other direction, bytes are ``{"hex": …}``, and a dict with other keys is ``{"pairs": [[key, value], …]}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from cluster.common import strict_json as json_input
from cluster.common.strict_json import Wrong, field
from cluster.common.wording import printable
from validator.primitives.errors import HandlerFailure
from validator.primitives.limits import INTEGER_BITS, INTEGER_LIMIT
from validator.primitives.types import ADDRESS_BYTES, Address
from validator.pvm.runtime.operations import Value
from validator.pvm.runtime.values import encode_value

HEX: Final = "hex"
ADDRESS_OF: Final = "address_of"
SHOWN_CHARACTERS: Final = 160
"""Maximum number of characters of a value on the terminal."""


# --- from JSON --------------------------------------------------------------------------------------------------------


def value_from_json(text: str, actors: Mapping[str, Address]) -> Value:
    """The value of a JSON text. Raises :class:`~cluster.common.strict_json.Wrong`."""
    value = _value(json_input.parse(text), "$", actors)
    try:
        encode_value(value)
    except HandlerFailure as failure:
        raise Wrong(f"$: too large or too deep to be passed ({failure.name})") from None
    return value


def _value(raw: Any, path: str, actors: Mapping[str, Address]) -> Value:
    if isinstance(raw, int) and abs(raw) >= INTEGER_LIMIT:
        raise Wrong(f"{path}: an integer of more than {INTEGER_BITS} bits")
    if isinstance(raw, list):
        return [_value(part, f"{path}[{i}]", actors) for i, part in enumerate(raw)]
    if isinstance(raw, dict):
        match list(raw.items()):
            case [(name, str(digits))] if name == HEX:
                return json_input.hex_bytes(digits.removeprefix("0x"), field(path, HEX))
            case [(name, str(actor))] if name == ADDRESS_OF:
                if actor not in actors:
                    where = field(path, ADDRESS_OF)
                    raise Wrong(f"{where}: no actor {actor!r} on this chain; there are {', '.join(actors)}")
                return bytes(actors[actor])
        return {key: _value(part, field(path, key), actors) for key, part in raw.items()}
    return raw


# --- to JSON ----------------------------------------------------------------------------------------------------------


def value_to_json(value: Value) -> Any:
    """Convert a value to its JSON form."""
    if isinstance(value, bytes):
        return {HEX: value.hex()}
    if isinstance(value, list | tuple):
        return [value_to_json(part) for part in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: value_to_json(part) for key, part in value.items()}
        return {"pairs": [[value_to_json(key), value_to_json(part)] for key, part in value.items()]}
    return value


# --- to the terminal --------------------------------------------------------------------------------------------------


def show(value: Value, names: Mapping[bytes, str], most: int = SHOWN_CHARACTERS) -> str:
    """A value in a program's syntax, with bytes in hex and known addresses with their names; a long one is cut."""
    text = _shown(value, names)
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _shown(value: Value, names: Mapping[bytes, str]) -> str:
    if isinstance(value, bytes):
        is_known = len(value) == ADDRESS_BYTES and value in names
        return f"0x{value.hex()}" + (f" ({names[value]})" if is_known else "")
    if isinstance(value, str):
        return printable(json.dumps(value, ensure_ascii=False))
    if isinstance(value, list | tuple):
        return f"[{', '.join(_shown(part, names) for part in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_shown(key, names)}: {_shown(part, names)}" for key, part in value.items()) + "}"
    return str(value)
