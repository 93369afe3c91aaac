"""The state of a chain, and the block that runs.

The state is a dictionary a kind of record, in the order of the table in ``docs/protocol.md`` (*State*). A run that
fails takes its changes back: each change is noted with the value before, and :meth:`World.back` goes through the notes
backwards. A block is never taken back.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spec.encoding import NO_HASH, Address, Event, Hash
from spec.parameters import Parameters

ABSENT: Any = object()
"""What was there before the first value of a key."""


class Failure(Exception):
    """A run ends and takes its changes back. ``name`` is the error in its receipt."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Refusal(Failure):
    """A host call is refused. A script's ``try`` catches it."""


# --- records ----------------------------------------------------------------------------------------------------------


class Agent(NamedTuple):
    """An actor's own bidding agent: ``builtin:fixed``, which always bids the same, or ``python``, its program."""

    code: str
    max_fee: int = 0
    priority: int = 0


class Actor(NamedTuple):
    code: str
    """``builtin:script``, or ``python:`` and the hash of the program's source in hex."""
    deployer: Address
    agent: Agent | None = None


class Naming(NamedTuple):
    """The agent that an actor named last; null if it went back to its own one."""

    agent: Address | None
    since: int = 0
    """The block since which a kept answer has priced the max fees of the actor's timers; 0 if none does."""


class Answer(NamedTuple):
    """The last good answer of an agent about an actor's timers."""

    max_fee: int | None = None
    priority: int | None = None
    since: int = 0
    """The block since which every answer has had a max fee; 0 if the last one had none."""


class Asked(NamedTuple):
    """When an actor's timers were last asked about, and when it could not pay for that; 0 if never."""

    at: int = 0
    unpaid_at: int = 0


class Watch(NamedTuple):
    """A key of an actor's storage that a timer watches."""

    actor: Address
    key: str


class Timer(NamedTuple):
    timer_id: Hash
    actor: Address
    trigger_height: int
    sequence: int
    handler: str
    payload: bytes
    fee_payer: Address
    gas_limit: int | None
    expires_at: int
    max_fee: int | None
    priority: int | None
    payer_cap: int | None
    scheduled_at: int
    bidding_agent: Address | None = None
    bid: int | None = None
    """The locked amount under ``bias_auction``."""
    watch: Watch | None = None
    default_max_fee: int | None = None
    """What the default agent supplied when it first priced the timer."""
    in_turn: bool = False
    """Whether it did so in the block's common supply, which has a separate record in state."""

    @property
    def age(self) -> tuple[int, int]:
        """What timers are sorted by where nothing else decides."""
        return self.trigger_height, self.sequence

    @property
    def is_watching(self) -> bool:
        """Whether it waits for a change. Until then its height is the one after its expiry."""
        return self.watch is not None and self.trigger_height > self.expires_at


class Message(NamedTuple):
    to: Address
    sender: Address
    handler: str
    payload: bytes
    cycles: int
    cells: int
    origin: Hash = NO_HASH


class Job(NamedTuple):
    actor: Address
    handler: str
    results_needed: int
    ends_at: int
    """The last block that accepts a result."""
    runners: tuple[Address, ...] = ()
    """Who submitted results, in order."""
    is_consumed: bool = False

    @property
    def is_complete(self) -> bool:
        return len(self.runners) == self.results_needed


class ActorJobs(NamedTuple):
    requested: int = 0
    unsettled: int = 0


class EarnedWeight(NamedTuple):
    """An actor's weight under ``gba_auction`` in the epoch of its newest fires, and these fires' scores."""

    epoch: int
    weight: int
    scores: int
    fires: int


class BiasRate(NamedTuple):
    """λ in millionths, and sums over the fires since it moved."""

    micro: int
    fires: int = 0
    waits: int = 0
    bids: int = 0


# --- the genesis ------------------------------------------------------------------------------------------------------


@dataclass
class GenesisActor:
    code: str
    deployer: Address
    balance: int = 0
    agent: Agent | None = None


@dataclass
class Genesis:
    """What a chain begins with. Balances are in the smallest unit."""

    parameters: Parameters
    policy: str = "cip1"
    own_policy: Any = None
    """A class in place of the named policy's: a chain may have one of its users' (:mod:`spec.policies.fifo`)."""
    accounts: Mapping[Address, int] = field(default_factory=dict)
    actors: Mapping[Address, GenesisActor] = field(default_factory=dict)
    system_deployers: tuple[Address, ...] = ()
    runners: tuple[Address, ...] = ()
    chain_id: str = ""
    validators: Sequence[bytes] = ()
    """The keys."""
    policy_file: Sequence[Any] | None = None
    """The name and the text of a user's policy, then the name and value of each parameter if it states some."""
    epochs: Sequence[tuple[int, Sequence[int]]] = ()
    """The first view and the members of each committee, ascending."""


# --- the world --------------------------------------------------------------------------------------------------------


@dataclass
class State:
    """The state of a chain. In brackets: the first byte of a record's key."""

    balance: dict[Address, int] = field(default_factory=dict)
    """[a] An account is there once it has an entry here."""
    nonce: dict[Address, int] = field(default_factory=dict)
    """[a]"""
    actors: dict[Address, Actor] = field(default_factory=dict)
    """[c] What never changes of an actor; the next four are the rest."""
    schedule_nonce: dict[Address, int] = field(default_factory=dict)
    live_timers: dict[Address, int] = field(default_factory=dict)
    mailbox_bytes: dict[Address, int] = field(default_factory=dict)
    namings: dict[Address, Naming] = field(default_factory=dict)
    storage: dict[tuple[Address, str], bytes] = field(default_factory=dict)
    """[s, S]"""
    published: dict[tuple[Address, str], bytes] = field(default_factory=dict)
    """[v, V]"""
    programs: dict[str, str] = field(default_factory=dict)
    """[P] Sources by the code of the actors that run them."""
    timers: dict[Hash, Timer] = field(default_factory=dict)
    """[t, T, p]"""
    asked: dict[Address, Asked] = field(default_factory=dict)
    """[b]"""
    answers: dict[tuple[Address, Address], Answer] = field(default_factory=dict)
    """[b, B] By actor and agent; the agent is empty for the actor's own one."""
    weights: dict[Address, EarnedWeight] = field(default_factory=dict)
    """[W]"""
    watchable: dict[Watch, tuple[bytes, tuple[Hash, ...]]] = field(default_factory=dict)
    """[x] The digest of the key's value at the last look, and the timers that watch it."""
    bias_rate: dict[str, BiasRate] = field(default_factory=dict)
    """[l] Under ``""``, once there was a fire."""
    messages: dict[int, Message] = field(default_factory=dict)
    """[m]"""
    fires: dict[int, list[tuple[Address, int]]] = field(default_factory=dict)
    """[f]"""
    median: dict[str, int] = field(default_factory=dict)
    """[M] Under ``""``, in units of 1 / 65,536."""
    jobs: dict[Hash, Job] = field(default_factory=dict)
    """[j]"""
    job_payloads: dict[Hash, bytes] = field(default_factory=dict)
    """[J]"""
    results: dict[tuple[Hash, Address], bytes] = field(default_factory=dict)
    """[r]"""
    callbacks: dict[int, tuple[Hash, int]] = field(default_factory=dict)
    """[q]"""
    job_ends: dict[int, tuple[Hash, int]] = field(default_factory=dict)
    """[e]"""
    actor_jobs: dict[Address, ActorJobs] = field(default_factory=dict)
    """[k]"""
    runners: dict[Address, bool] = field(default_factory=dict)
    """[w]"""
    counters: dict[str, int] = field(default_factory=dict)
    """[g, n]"""


class World(State):
    """The state, and the frozen figures of the block that runs."""

    def __init__(self, genesis: Genesis, language: Any = None) -> None:
        super().__init__()
        self.genesis = genesis
        self.language = language
        """What runs Python programs (:class:`spec.programs.Language`); ``None`` if there are none."""
        # What follows from the state, kept so that a block need not look at all of it.
        self.calendar: list[tuple[int, int, Hash]] = []
        """Heap of the timers by age. An entry whose timer is gone, or due at another height, means nothing."""
        self.waiting: list[Hash] = []
        """Timers that were due at the end of the last block, by age. Some may have ended since."""
        self.recent: dict[Address, int] = {}
        """The fires in the fairness window, by the account for which they count."""
        # The block.
        self.height = 0
        self.parameters = genesis.parameters
        """Those at the block's beginning."""
        self.policy: Any = None
        """The policy in force (:class:`spec.policies.fifo.Fifo` and its heirs)."""
        self.basefee_cycle = self.basefee_cell = self.basefee_lane = 0
        self.lane_price = 0
        """What a fire pays a cycle on top of the cycle's basefee, without its tip."""
        self.fee_floor = 0
        """The least max fee with which a timer may fire."""
        self.p50 = 0
        self.events: list[Event] = []
        self.loaded: dict[str, Any] = {}
        """What the language keeps for the block: the programs whose loading is paid for."""
        self.written_keys: set[Watch] = set()
        """Watchable keys that were written since the last look, undone or not."""
        self.rules: set[str] = set()
        """The numbered rules that were applied."""
        self._notes: list[tuple[dict[Any, Any], Any, Any]] = []

    # --- changes ------------------------------------------------------------------------------------------------------

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Set a record, so that it can be taken back."""
        self._notes.append((table, key, table.get(key, ABSENT)))
        table[key] = value

    def drop(self, table: dict[Any, Any], key: Any) -> None:
        """Remove a record, which need not be there."""
        if key in table:
            self._notes.append((table, key, table.pop(key)))

    def mark(self) -> int:
        """A place to which :meth:`back` can go."""
        return len(self._notes)

    def back(self, mark: int) -> None:
        """Take back all changes since the mark."""
        notes = self._notes
        while len(notes) > mark:
            table, key, before = notes.pop()
            if before is ABSENT:
                del table[key]
            else:
                table[key] = before

    def removed(self, table: dict[Any, Any]) -> dict[Any, Any]:
        """The records of a table that the block has removed, as they were, in the order of their removal."""
        found: dict[Any, Any] = {}
        for changed, key, before in reversed(self._notes):
            if changed is table and key not in table:
                found.setdefault(key, before)
        return dict(reversed(found.items()))

    def keep(self) -> None:
        """Nothing before this can be taken back."""
        self._notes.clear()

    def count(self, name: str, change: int = 1) -> int:
        """Change a counter; returns its value before."""
        before = self.counters.get(name, 0)
        self.put(self.counters, name, before + change)
        return before

    # --- rules --------------------------------------------------------------------------------------------------------

    def reached(self, rule: str, matters: object = True) -> None:
        """Say that a rule is applied here, if it matters."""
        if matters:
            self.rules.add(rule)

    def refuse(self, rule: str, name: str, when: object = True) -> None:
        """Refuse a call by a rule, if something holds."""
        if when:
            raise self.refusal(rule, name)

    def refusal(self, rule: str, name: str) -> Refusal:
        """The error with which a rule refuses a call."""
        self.rules.add(rule)
        return Refusal(name)

    def failure(self, rule: str, name: str) -> Failure:
        """The error with which a rule ends a run."""
        self.rules.add(rule)
        return Failure(name)

    # --- amounts ------------------------------------------------------------------------------------------------------

    def credit(self, address: Address, amount: int) -> None:
        if amount:  # receiving nothing makes no account
            self.put(self.balance, address, self.balance.get(address, 0) + amount)

    def debit(self, address: Address, amount: int) -> None:
        """Take an amount. Raises ``InsufficientBalance``."""
        if amount:
            balance = self.balance.get(address, 0)
            if balance < amount:
                raise Refusal("InsufficientBalance")
            self.reached("R-20", balance == amount and address not in self.nonce)
            self.put(self.balance, address, balance - amount)

    @property
    def burned(self) -> int:
        """What was burned since the genesis."""
        return sum(amount for name, amount in self.counters.items() if name.startswith("burned "))

    # --- timers -------------------------------------------------------------------------------------------------------

    def add_timer(self, timer: Timer) -> None:
        """Enter a new timer, and count it."""
        self.reached("R-05")
        self.put(self.live_timers, timer.actor, self.live_timers.get(timer.actor, 0) + 1)
        self.move_timer(timer)

    def move_timer(self, timer: Timer) -> None:
        """Set a timer that has another trigger height than before."""
        self.put(self.timers, timer.timer_id, timer)
        heapq.heappush(self.calendar, (timer.trigger_height, timer.sequence, timer.timer_id))

    def remove_timer(self, timer: Timer) -> None:
        self.reached("R-09", timer.in_turn)
        self.drop(self.timers, timer.timer_id)
        self.put(self.live_timers, timer.actor, self.live_timers[timer.actor] - 1)

    def due_timers(self) -> list[Timer]:
        """The timers that are due, by age."""
        calendar, timers = self.calendar, self.timers
        while calendar and calendar[0][0] <= self.height:
            *age, timer_id = heapq.heappop(calendar)
            timer = timers.get(timer_id)
            is_new = self.waiting[-1:] != [timer_id]  # a timer that was taken back and scheduled again has two entries
            if timer is not None and timer.age == tuple(age) and is_new:
                self.waiting.append(timer_id)
        self.waiting = [timer_id for timer_id in self.waiting if timer_id in timers]
        return [timers[timer_id] for timer_id in self.waiting]

    # --- events -------------------------------------------------------------------------------------------------------

    def event(self, name: str, actor: Address, **fields: str) -> Event:
        """Report an event outside of any run."""
        event = Event(name, actor, list(fields.items()))
        self.events.append(event)
        return event
