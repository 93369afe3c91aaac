"""The content of state: records, their keys and their encodings.

=========================================  ====================================================================
key                                        record
=========================================  ====================================================================
``a`` ‖ address[20]                        :class:`Account`
``c`` ‖ address[20]                        :class:`Actor`
``s`` ‖ address[20] ‖ key                  a storage value; keys over 256 bytes go by ``S`` ‖ address ‖ hash, and the
                                           record then holds the key too
``v`` ‖ address[20] ‖ key                  a value that an actor published; ``V`` ‖ address ‖ hash likewise
``t`` ‖ timer id[32]                       :class:`Timer`
``T`` ‖ timer id[32]                       its payload, if that is long
``b`` ‖ address[20]                        :class:`BidMemory` of an actor whose gas bidding agent was asked
``B`` ‖ address[20] ‖ agent[20]            :class:`KeptAnswer` that a contract gave for an actor's timers
``W`` ‖ address[20]                        :class:`ActorWeight` of an actor whose timers fired under ``gba_auction``
``P`` ‖ hash[32]                           a Python program's source, once for all actors that run it
``m`` ‖ number[8]                          :class:`QueuedMessage`, in the order of sending
``p`` ‖ height[8]                          the ``max_fee`` that the default agent supplied to timers first due in that
                                           block, for as long as one of them is live
``o``                                      the overflow tree's root, while the tree is not empty
``f`` ‖ height[8]                          :class:`Fires` of that block, while it is in the fairness window
``j`` ‖ job id[32]                         :class:`Job`
``J`` ‖ job id[32]                         a job's payload, until its results are complete
``r`` ‖ job id[32] ‖ runner[20]            that runner's result, until the job is consumed or gone
``q`` ‖ number[8]                          :class:`Completion`: a callback that waits, in the order of completion
``e`` ‖ number[8]                          :class:`JobEnd`: when a job ends, in the order of the requests
``k`` ‖ address[20]                        :class:`ActorJobs` of an actor that ever requested a job
``n``                                      :class:`JobCounters`, once there was a job
``w`` ‖ address[20]                        a registered runner; the value is empty
``M``                                      the smoothed median of fires under ``cip1``, in units of 1 / 65,536, from the
                                           first window with fires on; only if ``MEDIAN_SMOOTHING_MILLI`` is below 1,000
``x`` ‖ address[20] ‖ key                  :class:`Watchable`: a storage key that timers may watch
``l``                                      :class:`BiasRate` under ``bias_auction``, from the first fire on
``g``                                      :class:`Globals`
=========================================  ====================================================================

Integers in keys are big-endian, so that keys sort as their numbers do. Everything that influences a later block is a
record here, and so under ``state_root``; all indexes elsewhere are derived from the records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import astuple, replace

from validator.primitives.codec import encode, pack_uint, tagged_hash
from validator.primitives.types import ADDRESS_BYTES, ZERO_HASH, Address, Hash, TimerId

ACCOUNT: Final = b"a"
ACTOR: Final = b"c"
STORAGE: Final = b"s"
LONG_STORAGE: Final = b"S"
PUBLISHED: Final = b"v"
LONG_PUBLISHED: Final = b"V"
TIMER: Final = b"t"
TIMER_PAYLOAD: Final = b"T"
BID_MEMORY: Final = b"b"
KEPT_ANSWER: Final = b"B"
ACTOR_WEIGHT: Final = b"W"
CODE: Final = b"P"
MESSAGE: Final = b"m"
SUPPLY: Final = b"p"
OVERFLOW: Final = b"o"
FIRES: Final = b"f"
JOB: Final = b"j"
JOB_PAYLOAD: Final = b"J"
JOB_RESULT: Final = b"r"
COMPLETION: Final = b"q"
JOB_END: Final = b"e"
ACTOR_JOBS: Final = b"k"
JOB_COUNTERS: Final = b"n"
RUNNER: Final = b"w"
MEDIAN_FIRES: Final = b"M"
WATCHABLE: Final = b"x"
BIAS_RATE: Final = b"l"
GLOBALS: Final = b"g"

LONGEST_PLAIN_STORAGE_KEY: Final = 256
LONGEST_INLINE_PAYLOAD: Final = 1_024
"""Maximum size, in bytes, of a payload that is stored inside the timer's record. A longer payload has a separate
record, because the timer's record is read and written at each change of the timer, at a price that does not depend on
its length."""
REMEMBERED_TIMERS: Final = 4_096
"""Number of the last read timers whose records are kept decoded. A timer takes at most some 2 KiB."""
PYTHON_CODE: Final = "python:"
PYTHON_AGENT: Final = "python"
DEFAULT_HANDLER: Final = "handle_timer"
"""The handler of a fire if the timer names none (SPEC §4)."""


class RecordStruct(msgspec.Struct, frozen=True):
    """Base of the records that blocks change most often: a struct is copied with changes faster than a tuple."""


class Account(RecordStruct, frozen=True):
    """Balance and nonce of an account or actor."""

    balance: int = 0
    nonce: int = 0


class BiddingAgent(NamedTuple):
    """An actor's own gas bidding agent (SPEC §9).

    The code ``builtin:fixed`` always gives the same bid. The code ``python`` calls the actor's ``get_gas_bid``.
    """

    code: str
    max_fee_per_cycle: int
    max_priority_fee_per_cycle: int


class Naming(NamedTuple):
    """The gas bidding agent that an actor named for its timers (SPEC §9, ``set_bidding_agent``)."""

    agent: Address | None
    """Address of a contract; ``None`` if the actor reverted to its own agent."""
    answered_since: int = 0
    """Height of the block since which agents' kept answers have set the max fee of the actor's timers without a break,
    as of the last block with an auction; 0 if no kept answer sets it."""


class Actor(RecordStruct, frozen=True):
    """An account with code."""

    code: str
    """``builtin:script``, or ``python:`` and the hash of the source in hex (:func:`python_code`)."""
    deployer: Address
    schedule_nonce: int = 0
    live_timers: int = 0
    mailbox_bytes: int = 0
    """Total size of the payloads of the actor's queued messages."""
    agent: BiddingAgent | None = None
    """The actor's own gas bidding agent; ``None`` if it has none."""
    naming: Naming | None = None
    """The gas bidding agent that the actor named; ``None`` if it never called ``set_bidding_agent``."""


class KeptAnswer(NamedTuple):
    """The last valid answer of a gas bidding agent for one actor's timers.

    A fee is ``None`` if the agent left it open. Both fees are ``None`` if there was no answer.
    """

    max_fee_per_cycle: int | None = None
    max_priority_fee_per_cycle: int | None = None
    since: int = 0
    """Height of the block since which every answer has had a max fee; 0 if the last answer had none."""


class BidMemory(NamedTuple):
    """The record of the past queries of an actor's gas bidding agent.

    It has the heights of the last query and of the last unpaid query, each 0 if there was none, and the last answer.
    """

    queried_height: int = 0
    unpaid_height: int = 0
    answered_since: int = 0
    """The field ``since`` of the kept answer of the actor's own agent. The next two fields are the fees of that answer
    (:class:`KeptAnswer`)."""
    max_fee_per_cycle: int | None = None
    max_priority_fee_per_cycle: int | None = None

    @property
    def kept(self) -> KeptAnswer:
        """The last valid answer of the actor's own agent."""
        return KeptAnswer(self.max_fee_per_cycle, self.max_priority_fee_per_cycle, self.answered_since)

    def keeping(self, answer: KeptAnswer) -> BidMemory:
        """A copy in which ``answer`` is the last answer of the actor's own agent."""
        return BidMemory(
            self.queried_height,
            self.unpaid_height,
            answer.since,
            answer.max_fee_per_cycle,
            answer.max_priority_fee_per_cycle,
        )


class ActorWeight(NamedTuple):
    """The priority weight of an actor under ``gba_auction``, and its fires in the newest epoch with any (SPEC §13).

    Weights and scores are fixed-point numbers, in units of 1 / 65,536.
    """

    epoch: int
    """Number of the newest epoch in which a timer of the actor fired."""
    weight: int
    """The weight in that epoch."""
    scores: int
    """Sum of the scores of that epoch's fires."""
    fires: int
    """Number of that epoch's fires."""


class QueuedMessage(RecordStruct, frozen=True):
    """A message in its receiver's mailbox (SPEC §14); its run is paid for."""

    to: Address
    sender: Address
    handler: str
    payload: bytes
    cycles: int
    cells: int
    origin: Hash = ZERO_HASH
    """The hash of the transaction that started the sender's run."""


class Watch(NamedTuple):
    """A key of an actor's storage that a timer watches (SPEC §13)."""

    actor: Address
    key: str


class Watchable(NamedTuple):
    """A storage key that timers may watch (SPEC §13)."""

    digest: bytes
    """The digest of the key's value when a block was last checked for changes; empty if the key had none."""
    watchers: tuple[TimerId, ...] = ()
    """The timers that watch the key, in the order of scheduling."""


class Timer(RecordStruct, frozen=True):
    """The record of a pending timer (SPEC §4). A price or limit is ``None`` if the caller left it open."""

    timer_id: TimerId
    actor: Address
    trigger_height: int
    sequence: int
    handler: str
    payload: bytes | None
    """The payload; ``None`` if it is longer than :data:`LONGEST_INLINE_PAYLOAD` and has a separate record."""
    fee_payer: Address
    gas_limit: int | None
    expires_at: int
    max_fee_per_cycle: int | None
    max_priority_fee_per_cycle: int | None
    payer_cap: int | None
    default_max_fee: int | None
    scheduled_at: int
    bidding_agent: Address | None = None
    """The contract that bids for this timer. It overrides the agent that the actor named."""
    bid: int | None = None
    """The amount that is locked for the timer under ``bias_auction``; ``None`` if it was scheduled under another
    policy."""
    watch: Watch | None = None
    """The key whose change makes the timer due; ``None`` if a height does. Until then, its trigger height is the first
    one after its expiry."""

    @property
    def is_watching(self) -> bool:
        """Whether the timer waits for a change of the key that it watches."""
        return self.watch is not None and self.trigger_height > self.expires_at

    @property
    def key(self) -> bytes:
        """The state key of this timer."""
        return TIMER + self.timer_id

    def due_height(self, height: int) -> int:
        """The height at which the timer is next due, as of the end of block ``height``."""
        return max(self.trigger_height, height + 1)


class Fires(NamedTuple):
    """Number of fires in one block, by the account for which they are counted (``WEIGHT_PARTY``), ascending."""

    counts: tuple[tuple[Address, int], ...]


class Job(NamedTuple):
    """A job that was requested (SPEC §14). Its payload and its results have separate records."""

    actor: Address
    handler: str
    """Handler of the callback."""
    results_needed: int
    ends_at: int
    """The last block that accepts a result."""
    runners: tuple[Address, ...] = ()
    """Runners that submitted a result, in the order of submission."""
    consumed: bool = False

    @property
    def is_complete(self) -> bool:
        return len(self.runners) == self.results_needed

    @property
    def awaits_callback(self) -> bool:
        return self.is_complete and not self.consumed


class Completion(NamedTuple):
    """A queued callback of a job whose results are complete."""

    job_id: Hash
    height: int
    """Height of the block that completed the job's results."""


class JobEnd(NamedTuple):
    """A queue entry: the height at which a job's lifetime ends."""

    job_id: Hash
    height: int


class ActorJobs(NamedTuple):
    """Counters of the jobs that an actor requested."""

    nonce: int = 0
    """Number of jobs that the actor has requested so far."""
    unsettled: int = 0
    """Number of the actor's jobs that are neither consumed nor removed."""


class JobCounters(NamedTuple):
    """The first and the next item number of two queues: waiting callbacks, and ends of jobs.

    Items with lower numbers than the first one were removed.
    """

    first_completion: int = 0
    next_completion: int = 0
    first_end: int = 0
    next_end: int = 0


class BiasRate(RecordStruct, frozen=True):
    """The rate λ of the bias under ``bias_auction``, and sums over the fires since it last changed (SPEC §13)."""

    micro: int
    """λ in millionths."""
    fires: int = 0
    waits: int = 0
    """Sum of the blocks that the fires were late."""
    bids: int = 0
    """Sum of the fires' bids."""


class Globals(RecordStruct, frozen=True):
    """The chain's counters and prices for the next block."""

    next_sequence: int
    next_message: int
    first_message: int
    """Number of the queued message that runs next. Messages with lower numbers were removed."""
    basefee_cycle: int
    basefee_cell: int
    basefee_lane_timer: int
    p50_tip: int
    last_block_cycle_usage: int
    live_timers: int
    minted: int
    burned_user: int
    """Amount burned by transactions since genesis."""
    burned_timer_cycle: int
    """Amount burned by fires at ``basefee_cycle``, and for their cells."""
    burned_timer_lane: int
    """Amount burned by fires at the lane price."""
    burned_bidding: int
    """Amount burned for queries of gas bidding agents."""

    @property
    def burned(self) -> int:
        return self.burned_user + self.burned_timer_cycle + self.burned_timer_lane + self.burned_bidding


# --- keys -----------------------------------------------------------------------------------------------------------


def account_key(address: bytes) -> bytes:
    return ACCOUNT + address


def actor_key(address: bytes) -> bytes:
    return ACTOR + address


def storage_key(address: bytes, key: str) -> bytes:
    return _named_key(STORAGE, LONG_STORAGE, address, key)


def published_key(address: bytes, key: str) -> bytes:
    return _named_key(PUBLISHED, LONG_PUBLISHED, address, key)


def _named_key(plain: bytes, hashed: bytes, address: bytes, key: str) -> bytes:
    raw = key.encode()
    if len(raw) <= LONGEST_PLAIN_STORAGE_KEY:
        return plain + address + raw
    return hashed + address + tagged_hash(b"storage key", raw)


def long_storage_value(key: str, value: bytes) -> bytes:
    """The state value of a storage entry whose key is hashed: the key's length, the key, the entry's value."""
    raw = key.encode()
    return len(raw).to_bytes(4, "big") + raw + value


def long_storage_entry(stored: bytes) -> tuple[bytes, bytes]:
    """The key and the value of a storage entry that :func:`long_storage_value` encoded."""
    end = 4 + int.from_bytes(stored[:4], "big")
    return stored[4:end], stored[end:]


def timer_key(timer_id: bytes) -> bytes:
    return TIMER + timer_id


def timer_payload_key(timer_id: bytes) -> bytes:
    return TIMER_PAYLOAD + timer_id


def bid_memory_key(address: bytes) -> bytes:
    return BID_MEMORY + address


def kept_answer_key(address: bytes, agent: bytes) -> bytes:
    return KEPT_ANSWER + address + agent


def kept_answer_parties(key: bytes) -> tuple[Address, Address]:
    """The actor and the agent in a key of :func:`kept_answer_key`."""
    return Address(key[1 : 1 + ADDRESS_BYTES]), Address(key[1 + ADDRESS_BYTES :])


def actor_weight_key(address: bytes) -> bytes:
    return ACTOR_WEIGHT + address


def supply_key(height: int) -> bytes:
    return SUPPLY + height.to_bytes(8, "big")


def code_key(digest: bytes) -> bytes:
    return CODE + digest


def python_code(source: str) -> tuple[str, bytes]:
    """The ``code`` of an actor that runs a Python program, and the state key of the program's source."""
    digest = tagged_hash(b"program", source.encode())
    return PYTHON_CODE + digest.hex(), code_key(digest)


def message_key(number: int) -> bytes:
    return MESSAGE + number.to_bytes(8, "big")


def fires_key(height: int) -> bytes:
    return FIRES + height.to_bytes(8, "big")


def job_key(job_id: bytes) -> bytes:
    return JOB + job_id


def job_payload_key(job_id: bytes) -> bytes:
    return JOB_PAYLOAD + job_id


def job_result_key(job_id: bytes, runner: bytes) -> bytes:
    return JOB_RESULT + job_id + runner


def completion_key(number: int) -> bytes:
    return COMPLETION + number.to_bytes(8, "big")


def job_end_key(number: int) -> bytes:
    return JOB_END + number.to_bytes(8, "big")


def actor_jobs_key(address: bytes) -> bytes:
    return ACTOR_JOBS + address


def runner_key(address: bytes) -> bytes:
    return RUNNER + address


def watchable_key(address: bytes, key: str) -> bytes:
    return WATCHABLE + address + key.encode()


def height_in(key: bytes) -> int:
    """The height in a key of :func:`fires_key` or :func:`supply_key`."""
    return int.from_bytes(key[1:], "big")


# --- encodings ------------------------------------------------------------------------------------------------------


def _pack_optional(value: int | None) -> bytes | None:
    return None if value is None else pack_uint(value)


def _written(last: Any) -> tuple[Any, ...]:
    """The last item of a record's encoding, as a tuple; an empty tuple for ``None``.

    So the encoding of a record without the item is the one from before the item was added.
    """
    return () if last is None else (last,)


def _unpack(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _unpack_optional(data: bytes | None) -> int | None:
    return None if data is None else int.from_bytes(data, "big")


def _encode_account(record: Account) -> bytes:
    return encode((pack_uint(record.balance), record.nonce))


def _decode_account(data: bytes) -> Account:
    balance, nonce = msgspec.msgpack.decode(data)
    return Account(_unpack(balance), nonce)


def _encode_actor(record: Actor) -> bytes:
    agent = record.agent
    packed = None if agent is None else (agent.code, pack_uint(agent[1]), pack_uint(agent[2]))
    counts = record.schedule_nonce, record.live_timers, record.mailbox_bytes
    return encode((record.code, record.deployer, *counts, packed, *_written(record.naming)))


def _decode_actor(data: bytes) -> Actor:
    code, deployer, nonce, live, mailbox, packed, *named = msgspec.msgpack.decode(data)
    agent = None if packed is None else BiddingAgent(packed[0], _unpack(packed[1]), _unpack(packed[2]))
    return Actor(code, deployer, nonce, live, mailbox, agent, Naming(*named[0]) if named else None)


def _encode_bid_memory(record: BidMemory) -> bytes:
    *heights, max_fee, priority = record
    return encode((*heights, _pack_optional(max_fee), _pack_optional(priority)))


def _decode_bid_memory(data: bytes) -> BidMemory:
    *heights, max_fee, priority = msgspec.msgpack.decode(data)
    return BidMemory._make((*heights, _unpack_optional(max_fee), _unpack_optional(priority)))


def _encode_kept_answer(record: KeptAnswer) -> bytes:
    max_fee, priority, since = record
    return encode((_pack_optional(max_fee), _pack_optional(priority), since))


def _decode_kept_answer(data: bytes) -> KeptAnswer:
    max_fee, priority, since = msgspec.msgpack.decode(data)
    return KeptAnswer(_unpack_optional(max_fee), _unpack_optional(priority), since)


def _encode_message(record: QueuedMessage) -> bytes:
    return encode((*astuple(record)[:-1], *_written(None if record.origin == ZERO_HASH else record.origin)))


def _decode_message(data: bytes) -> QueuedMessage:
    return QueuedMessage(*msgspec.msgpack.decode(data))


def _encode_timer(record: Timer) -> bytes:
    """Encode a timer without its id, which is in the key, and without a payer or handler that is the default."""
    plain = (
        record.actor,
        record.trigger_height,
        record.sequence,
        None if record.handler == DEFAULT_HANDLER else record.handler,
        record.payload,
        None if record.fee_payer == record.actor else record.fee_payer,
        record.gas_limit,
        record.expires_at,
        _pack_optional(record.max_fee_per_cycle),
        _pack_optional(record.max_priority_fee_per_cycle),
        _pack_optional(record.payer_cap),
        _pack_optional(record.default_max_fee),
        record.scheduled_at,
    )
    if record.bid is None:
        return encode((*plain, *_written(record.bidding_agent)))
    return encode((*plain, record.bidding_agent, pack_uint(record.bid), *_written(record.watch)))


def _decode_timer(data: bytes) -> Timer:
    """Decode a timer from a record's value. Its id stays empty, since only the key has it."""
    (actor, trigger, sequence, named, payload, paying, gas_limit, expires_at, *packed) = msgspec.msgpack.decode(data)
    handler, payer = DEFAULT_HANDLER if named is None else named, actor if paying is None else paying
    fees: Any = map(_unpack_optional, packed[:4])
    if len(packed) > 6:
        packed[6] = _unpack(packed[6])
    if len(packed) > 7:
        packed[7] = Watch(*packed[7])
    return Timer(
        TimerId(b""), actor, trigger, sequence, handler, payload, payer, gas_limit, expires_at, *fees, *packed[4:]
    )


def _decode_watchable(data: bytes) -> Watchable:
    digest, watchers = msgspec.msgpack.decode(data)
    return Watchable(digest, tuple(map(TimerId, watchers)))


def _decode_fires(data: bytes) -> Fires:
    (counts,) = msgspec.msgpack.decode(data)
    return Fires(tuple((Address(account), count) for account, count in counts))


def _decode_job(data: bytes) -> Job:
    actor, handler, results_needed, ends_at, runners, consumed = msgspec.msgpack.decode(data)
    return Job(actor, handler, results_needed, ends_at, tuple(runners), consumed)


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    """Make the decoder of a record class whose fields need no conversion."""
    return lambda data: kind._make(msgspec.msgpack.decode(data))


def _encode_wide(record: Any) -> bytes:
    """Encode a record of integers that may exceed 64 bits."""
    return encode([pack_uint(value) for value in astuple(record)])


def _wide_decoder(kind: Any) -> Callable[[bytes], Any]:
    """Make the decoder of a record class that :func:`_encode_wide` encodes."""
    return lambda data: kind(*map(_unpack, msgspec.msgpack.decode(data)))


def _identity(data: bytes) -> bytes:
    return data


_CODECS: Final[dict[bytes, tuple[Callable[[Any], bytes], Callable[[bytes], Any]]]] = {
    ACCOUNT: (_encode_account, _decode_account),
    ACTOR: (_encode_actor, _decode_actor),
    STORAGE: (_identity, _identity),
    LONG_STORAGE: (_identity, _identity),
    PUBLISHED: (_identity, _identity),
    LONG_PUBLISHED: (_identity, _identity),
    TIMER: (_encode_timer, _decode_timer),
    TIMER_PAYLOAD: (_identity, _identity),
    BID_MEMORY: (_encode_bid_memory, _decode_bid_memory),
    KEPT_ANSWER: (_encode_kept_answer, _decode_kept_answer),
    ACTOR_WEIGHT: (encode, _decoder(ActorWeight)),
    CODE: (str.encode, bytes.decode),
    MESSAGE: (_encode_message, _decode_message),
    SUPPLY: (pack_uint, _unpack),
    OVERFLOW: (_identity, _identity),
    FIRES: (encode, _decode_fires),
    JOB: (encode, _decode_job),
    JOB_PAYLOAD: (_identity, _identity),
    JOB_RESULT: (_identity, _identity),
    COMPLETION: (encode, _decoder(Completion)),
    JOB_END: (encode, _decoder(JobEnd)),
    ACTOR_JOBS: (encode, _decoder(ActorJobs)),
    JOB_COUNTERS: (encode, _decoder(JobCounters)),
    RUNNER: (_identity, _identity),
    MEDIAN_FIRES: (pack_uint, _unpack),
    WATCHABLE: (encode, _decode_watchable),
    BIAS_RATE: (_encode_wide, _wide_decoder(BiasRate)),
    GLOBALS: (_encode_wide, _wide_decoder(Globals)),
}


def encode_record(key: bytes, record: Any) -> bytes:
    """Encode a record as the state value under a key. The key's first byte determines the kind of record."""
    return _CODECS[key[:1]][0](record)


def decode_record(key: bytes, value: bytes) -> Any:
    """Decode the record from the state value under a key. The key's first byte determines the kind of record."""
    return _read_timer(key, value) if key[:1] == TIMER else _CODECS[key[:1]][1](value)


@lru_cache(REMEMBERED_TIMERS)
def _read_timer(key: bytes, value: bytes) -> Timer:
    """Decode the timer from the state value under a key. The validators of a process read each timer about once."""
    return replace(_decode_timer(value), timer_id=TimerId(key[1:]))
