"""The stream between a validator and a foreign executor: a program that does the state transition for it.

Each message is a frame: its length in bytes (4 bytes, big-endian), then a MessagePack array with the message's name
first. The validator sends a request, the executor answers it, and no side sends anything else. ``docs/executor.md``
describes each message for the author of an executor.

An executor keeps a tree of states. Block 0 is the state that it was opened at; each ``apply`` or ``build`` adds the
state after one more block, under the number that the request gives it. ``commit`` makes a block final, ``roll_back``
forgets one.

Rules: the validator keeps the chain. It checks headers, hashes and signatures, keeps the state tree, and computes roots
from the changes that the executor answers. So an executor needs neither a tree nor a hash function for plain transfers.
An executor that has a tree gets the nodes of the opened state's tree, because positions in the tree depend on history.
"""

from __future__ import annotations

import json
from typing import Final, TypeVar

import msgspec

from validator.chain.genesis import Genesis, Policy, PolicyFile, Replaces
from validator.primitives.params import Parameters
from validator.primitives.types import Address, ValidatorError

T = TypeVar("T")

VERSION: Final = 1
"""Version of the stream."""
LENGTH_BYTES: Final = 4
"""Size of a frame's length."""
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""Maximum length of a frame's content."""
MAX_LOADED_BYTES: Final = 1024 * 1024
"""Keys and values in one ``load`` of an opening, unless a single entry is larger, and data in one ``tree``."""
MAX_STEPS: Final = 65_536
"""Maximum number of steps in an answer."""
MAX_STEPS_BYTES: Final = 16 * 1024 * 1024
"""Keys, values and receipts in the steps of an answer; an executor that has more gives no steps."""
MAX_CANDIDATE_BYTES: Final = 16 * 1024 * 1024
"""Transaction bytes in one ``build``; further candidates are left out."""


class ExecutorError(ValidatorError):
    """A foreign executor cannot be used any more. The message is one line."""


# --- requests ---------------------------------------------------------------------------------------------------------


class Chain(msgspec.Struct, frozen=True, array_like=True):
    """The settings of the chain that a transition depends on."""

    chain_id: str
    policy: str
    """The scheduling policy's name. With a policy file, that of the policy from which its class is derived."""
    parameters: str
    """Every parameter at genesis, as a JSON object of ``LIKE_THIS`` names."""
    system_deployers: tuple[bytes, ...]
    policy_file: tuple[str, str, tuple[str, ...], dict[str, str]] | None = None
    """Name, text and replaced families of rules of a user's policy, and the values of its parameters in decimal."""


class Open(msgspec.Struct, frozen=True, array_like=True, tag="open"):
    """Begin again at a state, whose entries follow. The answer is :class:`Done`, or :class:`WantsTree`."""

    version: int
    chain: Chain
    height: int
    """Height of the block after which the state is."""
    state_root: bytes


class Tree(msgspec.Struct, frozen=True, array_like=True, tag="tree"):
    """A piece of the opened state's tree, which comes before the entries. The answer is :class:`Done`.

    The parts are those of the state's snapshot (``docs/state.md``): its manifest, then its chunks.
    """

    part: int
    """0 for the manifest, then the chunks from 1 on."""
    data: bytes
    is_last: bool
    """Whether this is the last piece of the part."""


class Load(msgspec.Struct, frozen=True, array_like=True, tag="load"):
    """Some entries of the state, keys ascending. The answer is :class:`Done`."""

    entries: tuple[tuple[bytes, bytes], ...]
    is_last: bool


class Given(msgspec.Struct, frozen=True, array_like=True):
    """A signed transaction, whose signature and form were checked."""

    hash: bytes
    sender: bytes
    """The address of its public key."""
    wire: bytes


class Apply(msgspec.Struct, frozen=True, array_like=True, tag="apply"):
    """Execute a block on a block. The answer is :class:`Applied`, or :class:`Refused`."""

    parent: int
    block: int
    """The new block's number, which no block had before."""
    height: int
    proposer: bytes
    """The account that gets the tips."""
    transactions: tuple[Given, ...]
    wants_steps: bool = False
    """Whether the answer should have the steps of the execution, if the executor can give them."""


class Build(msgspec.Struct, frozen=True, array_like=True, tag="build"):
    """Build a block from candidates, and execute it. The answer is :class:`Built`."""

    parent: int
    block: int
    height: int
    proposer: bytes
    most: int
    """Maximum number of transactions."""
    most_bytes: int
    """Maximum size of all transactions."""
    candidates: tuple[Given, ...]


class Commit(msgspec.Struct, frozen=True, array_like=True, tag="commit"):
    """A block is final, with the blocks below it; those that do not descend from it are gone. The answer is
    :class:`Done`."""

    block: int


class RollBack(msgspec.Struct, frozen=True, array_like=True, tag="roll_back"):
    """A block is gone, with its descendants. The answer is :class:`Done`."""

    block: int


Request = Open | Tree | Load | Apply | Build | Commit | RollBack

# --- answers ----------------------------------------------------------------------------------------------------------


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """The request was carried out."""


class WantsTree(msgspec.Struct, frozen=True, array_like=True, tag="wants_tree"):
    """The executor begins, and has a tree whose roots it answers: the opened state's tree must be sent to it."""


class Result(msgspec.Struct, frozen=True, array_like=True):
    """The result of a block. Prices are big-endian bytes without leading zeros, as in a header."""

    basefee_cycle: bytes
    basefee_cell: bytes
    basefee_lane_timer: bytes
    lane_cycles: int
    lane_cells: int
    user_cycles: int
    user_cells: int
    receipts: bytes
    """The canonical encoding of the block's receipts."""
    changes: tuple[tuple[bytes, bytes | None], ...]
    """The new values by key, ``None`` for a removed key; keys strictly ascending."""
    state_root: bytes | None = None
    """The root of the executor's own state tree; ``None`` if it has no tree."""
    backlog: int = 0
    """Number of due timers that are live after the block: a figure for observers."""


class GivenStep(msgspec.Struct, frozen=True, array_like=True):
    """One step of a block's execution (:class:`validator.transition.trace.Step`)."""

    kind: str
    subject: bytes
    """A transaction's hash, a timer's or job's id, or a message's receiver; empty if the step has none."""
    changes: tuple[tuple[bytes, bytes | None], ...]
    """The values after the step of the keys that it changed, ``None`` for a removed key; keys strictly ascending."""
    receipts: tuple[bytes, ...]
    """Canonical encodings of the receipts that the step left."""


def step_bytes(step: GivenStep) -> int:
    """Size of a step's keys, values and receipts, which :data:`MAX_STEPS_BYTES` bounds for all steps together."""
    return sum(len(key) + len(value or b"") for key, value in step.changes) + sum(map(len, step.receipts))


class Applied(msgspec.Struct, frozen=True, array_like=True, tag="applied"):
    result: Result
    steps: tuple[GivenStep, ...] | None = None
    """All steps, in order of execution, if they were asked for; ``None`` if the executor gives none."""


class Built(msgspec.Struct, frozen=True, array_like=True, tag="built"):
    taken: tuple[int, ...]
    """Positions of the candidates in the block, ascending."""
    refused: tuple[bytes, ...]
    """Senders of whom no candidate was taken, for another reason than lack of room."""
    result: Result


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """A transaction is not allowed in the block, which is invalid. The block's number stays unused."""

    error: str
    """The error's name (SPEC §17)."""
    steps: tuple[GivenStep, ...] | None = None
    """The steps up to the refused transaction, as in :class:`Applied`."""


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """The executor cannot answer; the validator stops with this line."""

    reason: str


Answer = Done | WantsTree | Applied | Built | Refused | Failed

_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_answers: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)
_encoder: Final = msgspec.msgpack.Encoder()


def encode_message(message: Request | Answer) -> bytes:
    """The content of a frame."""
    return _encoder.encode(message)


def decode_request(content: bytes) -> Request:
    """The request in a frame. Raises :class:`ExecutorError`."""
    return _decoded(_requests, content)


def decode_answer(content: bytes) -> Answer:
    """The answer in a frame. Raises :class:`ExecutorError`."""
    return _decoded(_answers, content)


def _decoded(decoder: msgspec.msgpack.Decoder[T], content: bytes) -> T:
    try:
        return decoder.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ExecutorError(f"a malformed message of {len(content):,} bytes: {' '.join(str(error).split())}") from None


def framed(content: bytes) -> bytes:
    """A frame with this content. Raises :class:`ExecutorError` if it is too long."""
    return require_length(len(content)).to_bytes(LENGTH_BYTES, "big") + content


def require_length(length: int) -> int:
    """The length of a frame, if that is allowed. Raises :class:`ExecutorError`."""
    if length > MAX_FRAME_BYTES:
        raise ExecutorError(f"a message of {length:,} bytes, expected at most {MAX_FRAME_BYTES:,}")
    return length


# --- the chain --------------------------------------------------------------------------------------------------------


def chain_of(genesis: Genesis) -> Chain:
    """The settings of a chain for an executor."""
    own = genesis.policy_file
    values = {name: str(value) for name, value in genesis.policy_parameters.items()}
    return Chain(
        chain_id=genesis.chain_id,
        policy=genesis.policy.value,
        parameters=json.dumps(genesis.parameters.to_names()),
        system_deployers=genesis.system_deployers,
        policy_file=None if own is None else (own.name, own.source, tuple(sorted(own.replaces)), values),
    )


def genesis_of(chain: Chain) -> Genesis:
    """A genesis with these settings, and without validators and accounts. Raises :class:`ValueError`, or
    :class:`~validator.primitives.params.ParameterError`."""
    own = chain.policy_file
    values = () if own is None else tuple((name, int(value)) for name, value in own[3].items())
    return Genesis(
        chain_id=chain.chain_id,
        validators=(),
        policy=Policy(chain.policy),
        parameters=Parameters.from_names(json.loads(chain.parameters)),
        system_deployers=tuple(map(Address, chain.system_deployers)),
        policy_file=None if own is None else PolicyFile(own[0], own[1], frozenset(map(Replaces, own[2])), values),
    )
