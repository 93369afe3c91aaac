"""A scenario's chain without consensus: its users, one mempool, and the transition, block by block.

Blocks are built as a leader builds them: from the candidates of the mempool, by
:meth:`~validator.transition.transition.Transition.select`. Each block is final at once, and the users see it before the
next one; the block interval is ``consensus.block_interval_ms``. Transactions are checked, but not signed. The state
has no tree: nothing asks for its root. A planted bug of the first validator is planted here, too. Nothing else of the
scenario's validators, links and faults has an effect.
"""

from __future__ import annotations

import heapq
from typing import Any, Final

from cluster.local_chain.bare_chain import PROPOSER, BareChain
from cluster.misbehaviour.planted import RunCounter
from cluster.scenario import Scenario
from cluster.scenario.genesis import build_genesis, validator_set
from cluster.scenario.node_setup import parts_of
from consensus.keys import KeyedHashScheme
from loadgen.workloads import LoadUser, Observation
from validator.chain.block import Header, transactions_root
from validator.chain.records import ACCOUNT, Account, Actor, Globals
from validator.node.blocks.proposals import MAX_CANDIDATES
from validator.node.executor.executor import MAX_BLOCK_PAYLOAD_BYTES, MAX_BLOCK_TRANSACTIONS
from validator.node.mempool import Mempool, Refused
from validator.primitives.types import Address
from validator.pvm.runtime.machine import PythonVm
from validator.state import TreelessStore
from validator.state.working_set import World
from validator.transition.transition import Outcome

NO_SIGNATURE: Final = bytes(64)
"""Has the size of a signature. All transactions come from the users of the same process."""


class TrialChain(BareChain):
    """One run of a scenario on a chain without consensus. Equal scenarios and seeds give equal blocks."""

    explains = False

    def __init__(self, scenario: Scenario, seed: int) -> None:
        genesis = build_genesis(scenario, seed, validator_set(KeyedHashScheme(), scenario, seed))
        super().__init__(genesis, PythonVm(), TreelessStore())
        self.mutated = RunCounter()
        """Number of times that a mutated line ran."""
        self._transition = parts_of(scenario, 0, self.mutated).transition
        self._mempool = Mempool(self.genesis)
        self._interval_ms = max(1, scenario.consensus.block_interval_ms)
        self._users = scenario.load.build_users(seed, self.genesis.chain_id, self.genesis.parameters)
        self._turns = [(user.first_delay_ms, user.number) for user in self._users]
        heapq.heapify(self._turns)
        self._backlog = 0

    @property
    def height(self) -> int:
        return self.view.height

    def block(self) -> Outcome:
        """Let users take their turns until the next block is due, and execute that block."""
        self._take_turns((self.height + 1) * self._interval_ms)
        return self._build()

    # --- users --------------------------------------------------------------------------------------------------------

    def _take_turns(self, until_ms: int) -> None:
        """Let users take all turns that are due before ``until_ms``, in milliseconds since the load began."""
        world = World(self.view)
        while self._turns[0][0] < until_ms:
            now_ms, number = heapq.heappop(self._turns)
            user = self._users[number]
            if user.is_open:
                self._act(user, now_ms, world)
                delay_ms = user.next_delay_ms(now_ms)
            else:
                delay_ms = user.next_delay_ms(now_ms)
                self._act(user, now_ms, world)
            heapq.heappush(self._turns, (now_ms + max(1, delay_ms), number))

    def _act(self, user: LoadUser, now_ms: int, world: World) -> None:
        for outgoing in user.next_outgoing(self._observation(user, world), now_ms):
            if not outgoing.wire:
                outgoing.accept(NO_SIGNATURE)
            try:
                prepared = self._mempool.check(outgoing.wire, is_signed=False)
                self._mempool.add(prepared, world.account(prepared.transaction.sender))
            except Refused:
                user.rejected(outgoing.wire)

    def _observation(self, user: LoadUser, world: World) -> Observation:
        chain: Globals = world.globals
        account: Account = world.account(user.address)
        watched: Actor | None = world.actor(user.actor)
        return Observation(
            height=self.height,
            confirmed_nonce=account.nonce,
            basefee_cycle=chain.basefee_cycle,
            basefee_cell=chain.basefee_cell,
            basefee_lane_timer=chain.basefee_lane_timer,
            live_timers=0 if watched is None else watched.live_timers,
            balance=account.balance,
            actor_balance=world.balance(user.actor),
            backlog=self._backlog,
        )

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _build(self) -> Outcome:
        transition = self.begin(PROPOSER, self._transition)
        candidates = self._mempool.candidates(MAX_CANDIDATES)
        taken, refused, outcome = transition.select(candidates, MAX_BLOCK_TRANSACTIONS, MAX_BLOCK_PAYLOAD_BYTES)
        self._mempool.refuse(refused)
        self.commit(outcome)
        self._backlog = outcome.backlog
        hashes = [prepared.hash for prepared in taken]
        accounts = {
            Address(change.key[1:]): change.after or Account()
            for change in outcome.changes
            if change.key[:1] == ACCOUNT
        }
        header = _header(self.genesis.chain_id, outcome, transactions_root(hashes))
        self._mempool.settle(header, hashes, accounts)
        return outcome


def _header(chain_id: str, outcome: Outcome, root: bytes) -> Header:
    """A block's header without the fields from consensus."""
    fields: dict[str, Any] = outcome.header_fields()
    return Header(
        chain_id=chain_id, view=fields["height"], parent_hash=bytes(32), proposer=0, transactions_root=root, **fields
    )
