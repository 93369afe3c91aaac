"""The input of ``stampede t8n`` (SPEC §17): a genesis ``G`` and a list of blocks ``B``.

Malformed input is reported as one line with its JSON path. A well-formed transaction that is not admissible is
rejected by the transition, not here.

It deviates from §17 in one point: a ``deploy`` is no malformed transaction. Otherwise the rules of deployment could not
be tested.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from cluster.common import strict_json as json_input
from cluster.common.errors import BadInput
from cluster.common.files import ENCODING
from cluster.common.strict_json import Wrong
from cluster.record.genesis_file import CHAIN_FIELDS, chain_fields
from cluster.scenario.code.gate import code_of_genesis, pass_gate
from validator.chain.genesis import Genesis
from validator.chain.transactions import (
    U64_LIMIT,
    Action,
    Call,
    CancelTimer,
    Deploy,
    ExtendTimer,
    Instruction,
    System,
    Transaction,
    Transfer,
    UpdateTimerConfig,
    code_problem,
)
from validator.primitives.types import (
    AMOUNT_LIMIT,
    HASH_BYTES,
    MAX_NAME_BYTES,
    PRICE_LIMIT,
    Address,
    is_name,
    is_reserved,
)

T = TypeVar("T")

CHAIN_ID: Final = "t8n"
NO_VALIDATOR: Final = bytes(32)
"""A placeholder for the validator key of the genesis; a pure transition involves no validators."""
MAX_BLOCKS: Final = 10_000_000

_LIMITS: Final = {
    "nonce": U64_LIMIT,
    "gas_limit": U64_LIMIT,
    "cells_limit": U64_LIMIT,
    "max_fee_per_cycle": PRICE_LIMIT,
    "max_priority_fee_per_cycle": PRICE_LIMIT,
    "max_fee_per_cell": PRICE_LIMIT,
}
_OPTIONAL_LIMITS: Final = {"value": AMOUNT_LIMIT, "timer_allowance": AMOUNT_LIMIT}
_COMMON: Final = frozenset({"kind", "sender", *_LIMITS})
_OWN_FIELDS: Final = {
    "call": frozenset({"to", "handler", "payload"}),
    "deploy": frozenset({"code"}),
    "transfer": frozenset({"to"}),
    "system": frozenset({"opcode", "args"}),
}
_ARGUMENTS: Final = {48: {"timer_id"}, 49: {"config"}, 50: {"timer_id", "new_expires_at"}}


@dataclass(frozen=True, slots=True)
class InputBlock:
    """A block of the input, which is processed ``times`` times in a row. Only an empty block may be repeated."""

    proposer: Address
    transactions: tuple[Transaction, ...] = ()
    times: int = 1


def read_genesis(path: Path) -> Genesis:
    """Read a genesis from a file; its code has to pass the gate. Raises :class:`BadInput`."""
    genesis = _read(path, genesis_of)
    pass_gate(code_of_genesis(genesis), str(path))
    return genesis


def read_blocks(path: Path, genesis: Genesis) -> list[InputBlock]:
    """Read a list of blocks from a file. Raises :class:`BadInput`."""
    return _read(path, lambda given: blocks_of(given, genesis))


def read_request(line: bytes) -> tuple[Genesis, list[InputBlock], bool]:
    """Read genesis, blocks, and whether steps are wanted, from one line of JSON.

    Code of the genesis has to pass the gate. Raises :class:`~cluster.common.strict_json.Wrong`, and :class:`BadInput`.
    """
    return request_of(parse_line(line))


def parse_line(line: bytes) -> Any:
    """The value of a line of JSON. Raises :class:`~cluster.common.strict_json.Wrong`."""
    try:
        return json_input.parse(line.decode(ENCODING))
    except UnicodeDecodeError as error:
        raise Wrong(f"$: no UTF-8: {error}") from None


def request_of(given: Any) -> tuple[Genesis, list[InputBlock], bool]:
    """What :func:`read_request` reads, from its parsed line."""
    parts = {"genesis", "blocks"}
    fields = json_input.mapping(given, "$", {*parts, "steps"}, parts)
    found: list[Any] = []
    for name, check in (("genesis", genesis_of), ("blocks", lambda given: blocks_of(given, found[0]))):
        try:
            found.append(check(fields[name]))
        except Wrong as error:
            raise Wrong(f"{name}: {error}") from None
    genesis, blocks = found
    pass_gate(code_of_genesis(genesis), "standard input")
    wants_steps = fields.get("steps", False)
    if not isinstance(wants_steps, bool):
        raise Wrong(f"steps: expected true or false, got {wants_steps!r:.80}")
    return genesis, blocks, wants_steps


def _read(path: Path, check: Callable[[Any], T]) -> T:
    try:
        text = path.read_text(encoding=ENCODING)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        return check(json_input.parse(text))
    except Wrong as error:
        raise BadInput(f"{path}: {error}") from None


def genesis_of(given: Any) -> Genesis:
    """The genesis in a parsed document. Raises :class:`~cluster.common.strict_json.Wrong`."""
    fields = json_input.mapping(given, "$", CHAIN_FIELDS, ())
    return Genesis(chain_id=CHAIN_ID, validators=(NO_VALIDATOR,), **chain_fields(fields))


def blocks_of(given: Any, genesis: Genesis) -> list[InputBlock]:
    """The blocks in a parsed document. Raises :class:`~cluster.common.strict_json.Wrong`."""
    listed = json_input.sequence(given, "$")
    blocks = [_block(item, f"[{i}]", genesis) for i, item in enumerate(listed)]
    if sum(entry.times for entry in blocks) > MAX_BLOCKS:
        raise Wrong(f"$: more than {MAX_BLOCKS} blocks in all")
    return blocks


def _block(given: Any, path: str, genesis: Genesis) -> InputBlock:
    fields = json_input.mapping(given, path, {"proposer", "txs", "empty"}, {"proposer"})
    proposer = json_input.address(fields["proposer"], f"{path}.proposer")
    if ("txs" in fields) == ("empty" in fields):
        raise Wrong(f"{path}: expected exactly one of 'txs' and 'empty'")
    if "empty" in fields:
        times = json_input.integer(fields["empty"], f"{path}.empty", MAX_BLOCKS + 1)
        return InputBlock(proposer, times=times)
    listed = json_input.sequence(fields["txs"], f"{path}.txs")
    transactions = (_transaction(item, f"{path}.txs[{i}]", genesis) for i, item in enumerate(listed))
    return InputBlock(proposer, tuple(transactions))


def _transaction(given: Any, path: str, genesis: Genesis) -> Transaction:
    kind = given.get("kind") if isinstance(given, dict) else None
    if not isinstance(kind, str) or kind not in _OWN_FIELDS:
        known = ", ".join(sorted(_OWN_FIELDS))
        raise Wrong(f"{path}.kind: expected one of {known}, got {json.dumps(kind)[:64]}")
    needed = _COMMON | _OWN_FIELDS[kind]
    fields = json_input.mapping(given, path, needed | set(_OPTIONAL_LIMITS), needed)
    sender = json_input.address(fields["sender"], f"{path}.sender")
    if is_reserved(sender):
        raise Wrong(f"{path}.sender: reserved address")
    if sender in genesis.actors:
        raise Wrong(f"{path}.sender: an actor sends no transactions")
    numbers = {name: json_input.integer(fields[name], f"{path}.{name}", limit) for name, limit in _LIMITS.items()}
    for name, limit in _OPTIONAL_LIMITS.items():
        numbers[name] = json_input.integer(fields.get(name, 0), f"{path}.{name}", limit)
    return Transaction(sender=sender, action=_action(kind, fields, path), **numbers)


def _action(kind: str, fields: dict[str, Any], path: str) -> Action:
    if kind == "system":
        return System(_instruction(fields, path))
    if kind == "deploy":
        return Deploy(_code(fields["code"], f"{path}.code"))
    to = json_input.address(fields["to"], f"{path}.to")
    if kind == "transfer":
        return Transfer(to)
    handler = json_input.text(fields["handler"], f"{path}.handler")
    if not is_name(handler):
        raise Wrong(f"{path}.handler: expected 1 to {MAX_NAME_BYTES} bytes")
    return Call(to, handler, _payload(fields["payload"], f"{path}.payload"))


def _code(given: Any, path: str) -> str:
    """The code of a ``deploy``, as its signed form may have it: a program is not parsed here."""
    code = json_input.text(given, path)
    if (problem := code_problem(code)) is not None:
        raise Wrong(f"{path}: {problem}")
    return code


def _payload(given: Any, path: str) -> bytes:
    """The bytes of a payload. It is given as text, ``{"hex": …}``, or a list, which means its JSON text (SPEC §2)."""
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, list):
        return json.dumps(given, separators=(",", ":")).encode("ascii")
    if isinstance(given, dict):
        fields = json_input.mapping(given, path, {"hex"}, {"hex"})
        return json_input.hex_bytes(fields["hex"], f"{path}.hex")
    raise Wrong(f"{path}: expected a text, a list or {{'hex': …}}, got {json_input.kind(given)}")


def _instruction(fields: dict[str, Any], path: str) -> Instruction:
    opcode = json_input.integer(fields["opcode"], f"{path}.opcode", U64_LIMIT)
    if opcode not in _ARGUMENTS:
        known = ", ".join(map(str, _ARGUMENTS))
        raise Wrong(f"{path}.opcode: {opcode} is unknown; known: {known}")
    args = json_input.mapping(fields["args"], f"{path}.args", _ARGUMENTS[opcode], _ARGUMENTS[opcode])
    if opcode == 49:
        json_input.items(args["config"], f"{path}.args.config")
        return UpdateTimerConfig(json.dumps(args["config"], separators=(",", ":")))
    timer_id = json_input.hex_bytes(args["timer_id"], f"{path}.args.timer_id", HASH_BYTES)
    if opcode == 48:
        return CancelTimer(timer_id)
    expires_at = json_input.integer(args["new_expires_at"], f"{path}.args.new_expires_at", U64_LIMIT)
    return ExtendTimer(timer_id, expires_at)
