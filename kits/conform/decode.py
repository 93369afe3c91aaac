"""Requests about bytes: a list of encodings, each of which is either accepted, with what it says, or refused.

``{"decode": [request, …]}`` has the answer ``{"decoded": [{"accepted": {…}} or {"refused": why}, …]}``. Transactions,
blocks and genesis blocks are judged by the validator and by the specification, which has no signatures, certificates
and proofs: the core's code judges these.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from cluster.audit.specified.chain import StateRoots, spec_chain
from cluster.common import strict_json as json_input
from cluster.common.errors import BadInput
from cluster.common.strict_json import Wrong
from cluster.disks.memory import MemoryDisk
from cluster.record import genesis_file
from cluster.scenario.code.gate import code_of_genesis, pass_gate
from consensus.certificates import verify_certificate, verify_timeout_certificate
from consensus.keys import Ed25519Scheme, ValidatorSet
from consensus.messages import Certificate, MessageError, TimeoutCertificate, VoteKind
from consensus.messages import decode as decode_message
from consensus.types import GENESIS_VIEW, ConsensusError, PublicKey, Signature
from kits.conform.case import Page
from spec import encoding
from spec.block import genesis_hash
from spec.encoding import Unreadable, read_block, read_transaction
from validator.chain.block import Header, decode_block, header_hash, transaction_hashes
from validator.chain.transactions import SIGNING_DOMAIN, parse, transaction_hash
from validator.primitives.codec import encode
from validator.primitives.types import Hash, Height, ValidatorError
from validator.state import LogStateStore
from validator.state.proof import verify
from validator.transition.genesis_block import genesis_batch, genesis_header

FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "transaction": ("chain_id",),
    "signature": ("public_key", "message"),
    "block": (),
    "genesis": (),
    "certificate": ("chain_id", "validators"),
    "proof": ("key", "state_root"),
}
"""The kinds of encodings, and what else a request about one has."""
NUMBERS: Final = encoding.Transaction._fields[:8]
TAGS: Final = {
    encoding.Transfer: "transfer",
    encoding.Deploy: "deploy",
    encoding.Call: "call",
    encoding.System: "system",
    encoding.CancelTimer: 48,
    encoding.UpdateTimerConfig: 49,
    encoding.ExtendTimer: 50,
}


class Refused(Exception):
    """Bytes are refused. The message says why."""


def decoded(given: Any) -> Page:
    """The answer to a list of requests. Raises :class:`~cluster.common.strict_json.Wrong` for a malformed one."""
    return _answers(given, _JUDGES)


def decoded_by_spec(given: Any) -> Page:
    """The answer by the specification, as far as it has what is asked for."""
    return _answers(given, _JUDGES | _SPECIFIED)


def _answers(given: Any, judges: dict[str, Callable[[Page], Page]]) -> Page:
    answers: list[Page] = []
    for number, item in enumerate(json_input.sequence(given, "decode")):
        path = f"decode[{number}]"
        kind = next((name for name in FIELDS if isinstance(item, dict) and name in item), None)
        if kind is None:
            raise Wrong(f"{path}: expected one of {', '.join(FIELDS)}")
        names = {kind, *FIELDS[kind]}
        try:
            answers.append({"accepted": judges[kind](_read(json_input.mapping(item, path, names, names), path))})
        except (Refused, ValidatorError, ConsensusError, Unreadable) as why:
            answers.append({"refused": str(why)})
    return {"decoded": answers}


def _read(fields: Page, path: str) -> Page:
    """The fields of a request: bytes, the chain's id as text, keys of validators as a list of bytes."""
    found: Page = {}
    for name, value in fields.items():
        where = f"{path}.{name}"
        if name == "chain_id":
            found[name] = json_input.text(value, where)
        elif name == "validators":
            listed = json_input.sequence(value, where)
            found[name] = [json_input.hex_bytes(key, f"{where}[{i}]") for i, key in enumerate(listed)]
        else:
            found[name] = value if name == "genesis" else json_input.hex_bytes(value, where)
    return found


def shown(value: Any) -> Any:
    """Plain data as JSON data: bytes in hex."""
    if isinstance(value, bytes):
        return value.hex()
    return [shown(item) for item in value] if isinstance(value, list | tuple) else value


# --- transactions and signatures --------------------------------------------------------------------------------------


def _transaction(given: Page) -> Page:
    transaction = parse(given["transaction"], given["chain_id"])
    numbers = {name: getattr(transaction, name) for name in NUMBERS}
    action = shown(msgspec.msgpack.decode(encode(transaction.action)))
    digest = transaction_hash(given["transaction"])
    return {"hash": digest.hex(), "sender": transaction.sender.hex(), **numbers, "action": action}


def _specified_transaction(given: Page) -> Page:
    read = read_transaction(given["transaction"], given["chain_id"])
    public_key, signature, body = encoding.decode(given["transaction"])
    _signature({"public_key": public_key, "message": SIGNING_DOMAIN + body, "signature": signature})
    numbers = {name: getattr(read, name) for name in NUMBERS}
    return {"hash": read.hash.hex(), "sender": read.sender.hex(), **numbers, "action": shown(_tagged(read.action))}


def _tagged(struct: Any) -> Any:
    return [TAGS[type(struct)], *map(_tagged, struct)] if type(struct) in TAGS else struct


def _signature(given: Page) -> Page:
    key, signature = PublicKey(given["public_key"]), Signature(given["signature"])
    if not Ed25519Scheme().verify(key, given["message"], signature):
        raise Refused("bad signature")
    return {}


# --- blocks -----------------------------------------------------------------------------------------------------------


def _block(given: Page) -> Page:
    """A body that the validator reads. That the header's fields are in range is what it finds later, when it compares
    them with its own execution; here the specification checks it."""
    block = decode_block(given["block"])
    if block is None:
        raise Refused("no canonical block whose transactions have the root in its header")
    read_block(given["block"])
    header = dict(zip(Header.__struct_fields__, map(_as_number, msgspec.structs.astuple(block.header)), strict=True))
    return _block_page(header_hash(block.header), header, transaction_hashes(block))


def _as_number(value: Any) -> Any:
    """A price as a number; hashes as they are, which are longer."""
    return int.from_bytes(value) if isinstance(value, bytes) and len(value) < len(encoding.NO_HASH) else value


def _specified_block(given: Page) -> Page:
    block = read_block(given["block"])
    if len(given["block"]) > MAX_BLOCK_BYTES:
        raise Refused("a block has 4 MiB at most")
    if encoding.transactions_root(block.transactions) != block.header.transactions_root:
        raise Refused("transactions of another root")
    return _block_page(block.hash, block.header._asdict(), list(map(encoding.transaction_hash, block.transactions)))


MAX_BLOCK_BYTES: Final = 4 * 2**20


def _block_page(digest: bytes, header: Page, transactions: list[Any]) -> Page:
    fields = {name: shown(value) for name, value in header.items()}
    return {"hash": digest.hex(), "header": fields, "transactions": shown(transactions)}


def _genesis(given: Page) -> Page:
    try:
        genesis = genesis_file.from_json(json.dumps(given["genesis"]))
    except BadInput as error:
        raise Refused(str(error)) from None
    pass_gate(code_of_genesis(genesis), "a request")
    store = LogStateStore.open(MemoryDisk(), "state")
    store.commit(store.final.derive(Height(0), genesis_batch(genesis)))
    root = store.final.root
    return {"hash": header_hash(genesis_header(genesis, root)).hex(), "state_root": root.hex()}


def _specified_genesis(given: Page) -> Page:
    page = _genesis(given)
    world = spec_chain(genesis_file.from_json(json.dumps(given["genesis"])))
    root = StateRoots().root(world)
    if root is None:
        return page
    return {"hash": genesis_hash(world.genesis, root).hex(), "state_root": root.hex()}


# --- certificates and proofs ------------------------------------------------------------------------------------------


def _certificate(given: Page) -> Page:
    certificate = decode_message(given["certificate"])
    if not isinstance(certificate, Certificate | TimeoutCertificate):
        raise MessageError("no certificate")
    validators = ValidatorSet(tuple(map(PublicKey, given["validators"])))
    namespace = given["chain_id"].encode()
    if isinstance(certificate, Certificate):
        holds, kind = verify_certificate(certificate, validators, namespace), certificate.kind
    else:
        holds = verify_timeout_certificate(certificate, validators, namespace, GENESIS_VIEW)
        kind = VoteKind.TIMEOUT
    if not holds:
        raise Refused("no valid signatures of a quorum")
    page = {"kind": int(kind), "view": certificate.view, "signers": list(certificate.signed)}
    if isinstance(certificate, TimeoutCertificate):
        return page | {"high_view": certificate.high_view}
    return page | {"parent_view": certificate.parent_view, "digest": certificate.digest.hex()}


def _proof(given: Page) -> Page:
    value = verify(Hash(given["state_root"]), given["key"], given["proof"])
    return {"value": None if value is None else value.hex()}


_JUDGES: Final[dict[str, Callable[[Page], Page]]] = {
    "transaction": _transaction,
    "signature": _signature,
    "block": _block,
    "genesis": _genesis,
    "certificate": _certificate,
    "proof": _proof,
}
_SPECIFIED: Final[dict[str, Callable[[Page], Page]]] = {
    "transaction": _specified_transaction,
    "block": _specified_block,
    "genesis": _specified_genesis,
}
