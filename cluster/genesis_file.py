"""Genesis files: SPEC §17's ``G`` with a chain id and the validators' keys, as JSON.

``{"chain_id", "validators": [hex key], "preset"?, "params": {NAME: value}, "system_deployers": [address], "accounts":
{address: {"balance": n}}, "actors": {address: {"balance": n, "code", "deployer": address}}}``. Written files name every
parameter; ``preset`` is for files written by hand. Integers may be decimal strings. A file that is wrong in any way is
refused whole, in one line that names the JSON path and what would be right.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from cluster.errors import BadInput
from validator.genesis import Genesis, GenesisActor
from validator.params import ParameterError, Parameters
from validator.transactions import ALLOWED_CODE
from validator.types import AMOUNT_LIMIT, Address, address_text, is_reserved, parse_address

KEY_BYTES: Final = 32
FIELDS: Final = frozenset({"chain_id", "validators", "preset", "params", "system_deployers", "accounts", "actors"})
NEEDED_FIELDS: Final = frozenset({"chain_id", "validators"})


def to_json(genesis: Genesis) -> str:
    """The genesis as JSON text, addresses in ascending order."""
    accounts = {address_text(at): {"balance": balance} for at, balance in sorted(genesis.accounts.items())}
    actors = {
        address_text(at): {"balance": actor.balance, "code": actor.code, "deployer": address_text(actor.deployer)}
        for at, actor in sorted(genesis.actors.items())
    }
    whole = {
        "chain_id": genesis.chain_id,
        "validators": [key.hex() for key in genesis.validators],
        "params": genesis.parameters.to_names(),
        "system_deployers": [address_text(address) for address in genesis.system_deployers],
        "accounts": accounts,
        "actors": actors,
    }
    return json.dumps(whole, indent=1) + "\n"


def from_json(text: str, source: str = "genesis") -> Genesis:
    """The genesis that a JSON text describes. Raises :class:`BadInput`; ``source`` names the text in its message."""
    try:
        return _genesis(_parse(text))
    except _Wrong as error:
        raise BadInput(f"{source}: {error}") from None


def read_genesis(path: Path) -> Genesis:
    """The genesis in a file. Raises :class:`BadInput`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return from_json(text, str(path))


class _Wrong(Exception):
    """``path: what is wrong``, without the file."""


def _parse(text: str) -> dict[str, Any]:
    try:
        value = json.loads(
            text, object_pairs_hook=_unique_keys, parse_float=_refuse_float, parse_constant=_refuse_float
        )
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"no JSON: {error}") from None
    return _mapping(value, "$", FIELDS, NEEDED_FIELDS)


def _genesis(given: dict[str, Any]) -> Genesis:
    chain_id = _text(given["chain_id"], "chain_id")
    if not chain_id:
        raise _Wrong("chain_id: expected a name, got an empty text")
    accounts = _accounts(given.get("accounts", {}))
    return Genesis(
        chain_id=chain_id,
        validators=_validators(given["validators"]),
        parameters=_parameters(given.get("params", {}), given.get("preset")),
        accounts=accounts,
        actors=_actors(given.get("actors", {}), accounts),
        system_deployers=tuple(
            _address(item, f"system_deployers[{i}]")
            for i, item in enumerate(_list(given.get("system_deployers", []), "system_deployers"))
        ),
    )


def _validators(given: Any) -> tuple[bytes, ...]:
    keys = []
    for i, item in enumerate(_list(given, "validators")):
        text = _text(item, f"validators[{i}]")
        try:
            key = bytes.fromhex(text)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES or text != key.hex():
            raise _Wrong(f"validators[{i}]: expected a key of {2 * KEY_BYTES} lower-case hex digits, got {text[:80]!r}")
        keys.append(key)
    if not keys:
        raise _Wrong("validators: expected at least one key")
    if len(set(keys)) != len(keys):
        raise _Wrong("validators: the same key is given twice")
    return tuple(keys)


def _parameters(given: Any, preset: Any) -> Parameters:
    if not isinstance(given, dict):
        raise _Wrong(f"params: expected an object, got {_kind(given)}")
    if preset is not None and not isinstance(preset, str):
        raise _Wrong(f"preset: expected a name or null, got {_kind(preset)}")
    try:
        return Parameters.from_names(given, preset)
    except ParameterError as error:
        raise _Wrong(
            f"params.{error}" if preset is None or not str(error).startswith("preset") else str(error)
        ) from None


def _accounts(given: Any) -> dict[Address, int]:
    accounts: dict[Address, int] = {}
    for text, entry in _items(given, "accounts"):
        path = f"accounts.{text}"
        address = _owner(text, path, accounts)
        accounts[address] = _balance(_mapping(entry, path, {"balance"}, {"balance"})["balance"], f"{path}.balance")
    return accounts


def _actors(given: Any, accounts: dict[Address, int]) -> dict[Address, GenesisActor]:
    actors: dict[Address, GenesisActor] = {}
    for text, entry in _items(given, "actors"):
        path = f"actors.{text}"
        address = _owner(text, path, {*accounts, *actors})
        fields = _mapping(entry, path, {"balance", "code", "deployer"}, {"code", "deployer"})
        code = _text(fields["code"], f"{path}.code")
        if code not in ALLOWED_CODE:
            known = ", ".join(sorted(ALLOWED_CODE))
            raise _Wrong(f"{path}.code: {code[:64]!r} is unknown; known: {known}")
        deployer = _address(fields["deployer"], f"{path}.deployer")
        actors[address] = GenesisActor(code, deployer, _balance(fields.get("balance", 0), f"{path}.balance"))
    return actors


# --- values ---------------------------------------------------------------------------------------------------------


def _owner(text: str, path: str, taken: Iterable[Address]) -> Address:
    address = _address(text, path)
    if is_reserved(address):
        raise _Wrong(f"{path}: reserved address")
    if address in taken:
        raise _Wrong(f"{path}: this address is given twice")
    return address


def _address(value: Any, path: str) -> Address:
    try:
        return parse_address(_text(value, path))
    except ValueError as error:
        raise _Wrong(f"{path}: {error}") from None


def _balance(value: Any, path: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= len(str(AMOUNT_LIMIT)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Wrong(f"{path}: expected an integer, got {_kind(value)}")
    if not 0 <= value < AMOUNT_LIMIT:
        raise _Wrong(f"{path}: out of range, expected 0 to 2**128 - 1")
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"{path}: expected a text, got {_kind(value)}")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise _Wrong(f"{path}: expected a list, got {_kind(value)}")
    return value


def _items(value: Any, path: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise _Wrong(f"{path}: expected an object, got {_kind(value)}")
    return list(value.items())


def _mapping(value: Any, path: str, allowed: Iterable[str], needed: Iterable[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(f"{path}: expected an object, got {_kind(value)}")
    unknown = sorted(set(value) - set(allowed))
    if unknown:
        raise _Wrong(f"{path}: unknown field {unknown[0][:64]!r}; known: {', '.join(sorted(allowed))}")
    missing = sorted(set(needed) - set(value))
    if missing:
        raise _Wrong(f"{path}: field {missing[0]!r} is missing")
    return value


def _kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        type(None): "null",
        int: "a number",
    }
    return names.get(type(value), type(value).__name__)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in {earlier for earlier, _ in pairs[:i]})
        raise _Wrong(f"field {twice[:64]!r} is given twice in one object")
    return found


def _refuse_float(text: str) -> Any:
    raise _Wrong(f"{text[:40]}: numbers are integers here")
