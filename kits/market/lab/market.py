"""A market: agents with private values on a chain in one process, block by block, with the real transition.

Agents schedule a timer for each job by a transaction, and hear of its fire. There is no consensus, no network and no
signature. What a scheduling transaction costs is the same under all policies, and is not counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, Final

from cluster.local_chain.bare_chain import PROPOSER, BareChain
from kits.market.lab.population import FLOOR_PRICE, Group, Job, draw_jobs
from kits.market.lab.strategies import Seen
from validator.chain.genesis import Genesis, GenesisActor, Policy, PolicyFile
from validator.chain.records import BIAS_RATE, decode_record
from validator.chain.transactions import SCRIPT_CODE, Call, Transaction, unsigned_hash
from validator.policies.own import phase_of_file, read_policy
from validator.policies.registry import PHASES
from validator.primitives import script_json
from validator.primitives.codec import tagged_hash
from validator.primitives.params import Parameters, WeightParty
from validator.primitives.types import ADDRESS_BYTES, PRICE_LIMIT, Address
from validator.pvm.runtime.machine import PythonVm
from validator.pvm.runtime.values import encode_value
from validator.scheduler.fairness import ONE, FairnessWeights
from validator.state import TreelessStore
from validator.transition.transition import Outcome, PreparedTransaction

FUNDS: Final = 10**36
LANE_CYCLES: Final = 400_000
"""The timer lane of a market: some nine fires of a mean job in a block."""
MILLI: Final = 1_000
MICRO: Final = 1_000_000
FIRE_OVERHEAD: Final = 1_010
"""Cycles of a script's fire without its work."""
PROGRAM_OVERHEAD: Final = 1_500
"""Cycles of a program's fire without its work, at most."""
SCHEDULING_CYCLES: Final = 6_000
"""Gas limit of a transaction that schedules one timer."""
SCHEDULING_CELLS: Final = 1_024
FULL_SHARE: Final = 0.8
"""A lane of which at least this share was used counts as full if timers wait: the next one did not fit."""
BIDDER: Final = '''
class Bidder(Actor):
    """Bids a share of what a fire is worth in the block in which it would happen."""

    def plan(self, payload):
        assert self.sender == self.deployer, "only the owner"
        terms = [payload["worth"], payload["cost"], payload["life"], payload["share"]]
        self.set("worth:" + str(payload["height"]), terms)
        self.schedule(
            payload["height"], payload["work"], "work", gas_limit=payload["gas_limit"], expires_at=payload["expires_at"]
        )

    def work(self, payload):
        assert self.sender == self.address, "only the timer"
        self.burn(payload)

    def get_gas_bid(self, context):
        worth, cost, life, share = self.get("worth:" + str(context["trigger_block_height"]))
        late = context["current_block_height"] - context["trigger_block_height"]
        most = max(0, worth * (life - late) // life - cost)
        room = max(0, most - context["basefee_lane_timer"])
        priority = room * share // 1000
        return {"max_fee_per_cycle": most, "max_priority_fee_per_cycle": priority}
'''
"""The program of an actor that bids for its timers itself."""
BASE: Final[Mapping[str, Any]] = {
    "LANE_TIMER_CYCLES": LANE_CYCLES,
    "MAX_CYCLES_PER_FIRE": 100_000,
    "MAX_CELLS_PER_FIRE": 10_000,
    "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 100_000,
    "INITIAL_BASEFEE": FLOOR_PRICE,
    "MIN_BASEFEE": FLOOR_PRICE,
    "TIE_BREAK": "aged",
}
"""Parameters of all markets: a small lane, a cycle's basefee that rests at its least value, few cells."""


@dataclass(slots=True)
class Trade:
    """What became of a job."""

    job: Job
    is_priced_out: bool = False
    """Whether no timer was scheduled: a fire cost more than the job's value as long as it had one, or the bid was more
    than the purse."""
    offer: int = 0
    """What its agent offered above the floor, in wei."""
    fired_at: int | None = None
    burned: int = 0
    """What the fire and the queries for its price burned, in wei."""
    tip: int = 0
    """What the fire paid to the proposer, in wei; under ``bias_auction`` from its bid."""

    @property
    def value(self) -> int:
        """The value of the fire to its agent; 0 without a fire."""
        return 0 if self.fired_at is None else self.job.value_at(self.fired_at)

    @property
    def utility(self) -> int:
        return self.value - self.burned - self.tip


@dataclass(frozen=True, slots=True)
class BlockUse:
    """The use of the timer lane by a block, with the prices of its fires in wei for each cycle."""

    height: int
    cycles: int
    price: int
    """What the block's fires paid on average; 0 without fires."""
    marginal: int
    """The least premium that a fire of the block paid; 0 if the lane was not full."""
    is_full: bool
    weights: Mapping[str, Sequence[float]]
    """The fairness weights of the actors in this block, by group, in the order of agents; empty but for ``cip1``."""
    rate: float
    """λ of the block under ``bias_auction``; else 0."""


class Market:
    """One run of a market. :meth:`run` performs it; :attr:`trades` and :attr:`uses` are its results."""

    def __init__(
        self,
        policy: Policy | PolicyFile,
        groups: Sequence[Group],
        seed: int,
        blocks: int,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """``policy``: a shipped one, or a user's. Raises :class:`~validator.policies.own.PolicyError`."""
        self.policy_file = None if isinstance(policy, Policy) else policy
        self.policy = policy if isinstance(policy, Policy) else read_policy(policy.name, policy.source)[0]
        """The shipped policy. If the policy is a user's, the one from which that is derived."""
        self._rules = (PHASES[self.policy] if isinstance(policy, Policy) else phase_of_file(policy)).rules
        self.groups, self.blocks = {group.name: group for group in groups}, blocks
        self.parameters = Parameters.from_names({**BASE, **(params or {})})
        jobs = draw_jobs(groups, seed, blocks, self.parameters.lane_timer_cycles)
        self.trades = [Trade(job) for job in jobs]
        self.uses: list[BlockUse] = []
        self.strategies = {
            (group.name, agent): group.strategy(Random(f"{seed} {group.name} {agent} strategy"))
            for group in groups
            for agent in range(group.agents)
        }
        self._chain = BareChain(self._genesis(), PythonVm(), TreelessStore())
        self._chain.explains = False
        self._nonces: Counter[Address] = Counter()
        self._asked: dict[int, list[Trade]] = defaultdict(list)
        """The trades by the height at which their timers are to be scheduled."""
        self._held_back: list[Trade] = []
        """The trades whose agents wait for a lower price."""
        self._programmed: set[tuple[Address, int]] = set()
        """The heights for which programs have a timer: a program knows its jobs by height."""
        for trade in self.trades:
            group = self.groups[trade.job.group]
            self._asked[trade.job.due - group.early - group.notice].append(trade)
        self._open: dict[bytes, Trade] = {}
        """The trades whose timers live, by timer id."""
        self._seen = Seen(0, self._floor(), 0)

    def run(self) -> None:
        """Run all blocks, and further ones until no timer is left."""
        height = 0
        while height < self.blocks or self._open or self._held_back:
            height += 1
            self._block(height)

    def of_group(self, name: str) -> list[Trade]:
        """The trades of a group's agents."""
        return [trade for trade in self.trades if trade.job.group == name]

    def _block(self, height: int) -> None:
        self._seen = Seen(height, self._floor(), self.uses[-1].marginal if self.uses else 0)
        asking = self._asking(height)
        prepared = [self._scheduling(trade) for trade in asking]
        chain = self._chain
        rate = self._rate()
        transition = chain.begin(PROPOSER)
        outcome = transition.apply(prepared)
        weights = self._weights(transition.fairness) if self.policy is Policy.CIP1 else {}
        chain.commit(outcome)
        self._read(asking, outcome, weights, rate)

    def _asking(self, height: int) -> list[Trade]:
        """The trades whose timers are scheduled in a block. The others wait until a fire is worth its least price."""
        asking, held_back = [], []
        for trade in (*self._held_back, *self._asked.get(height, ())):
            if self._trigger(trade) > trade.job.last_height:
                trade.is_priced_out = True
            elif self._is_time(trade) and self._takes_place(trade):
                asking.append(trade)
            else:
                held_back.append(trade)
        self._held_back = held_back
        return asking

    def _is_time(self, trade: Trade) -> bool:
        """Whether a fire is worth its least price, and the agent does not wait for a better time."""
        job, most, floor = trade.job, self._most(trade), self._seen.floor
        strategy = self.strategies[job.group, job.agent]
        return most > 0 and most >= floor and strategy.bids_now(job.number, most - floor, self._seen, job.due)

    def _takes_place(self, trade: Trade) -> bool:
        """Take the timer's place among those of its actor, if it is free: a program can have one for a height."""
        if not self.groups[trade.job.group].bids_by_program:
            return True
        place = actor_of(trade.job), self._trigger(trade)
        is_free = place not in self._programmed
        self._programmed.add(place)
        return is_free

    # --- offers -----------------------------------------------------------------------------------------------------

    def _floor(self) -> int:
        """The least fee limit with which a timer fires in the next block, for each cycle."""
        return self._rules.fee_floor(self._chain.globals.basefee_lane_timer, self.parameters)

    def _trigger(self, trade: Trade) -> int:
        """The trigger height of a timer that is scheduled in this block."""
        return max(trade.job.due - self.groups[trade.job.group].early, self._seen.height + 1)

    def _most(self, trade: Trade) -> int:
        """The highest fee limit for each cycle at which a fire at its trigger is worth its price."""
        return self._worth(trade) - self._cost

    def _worth(self, trade: Trade) -> int:
        """What a fire at its trigger is worth for each cycle."""
        return trade.job.value_at(max(trade.job.due, self._trigger(trade))) // trade.job.cycles

    @property
    def _cost(self) -> int:
        """What each fire pays for a cycle and no fee limit covers."""
        return 0 if self.policy is Policy.GBA_AUCTION else FLOOR_PRICE

    def _scheduling(self, trade: Trade) -> PreparedTransaction:
        """The transaction that schedules a job's timer."""
        job, group = trade.job, self.groups[trade.job.group]
        strategy = self.strategies[job.group, job.agent]
        most, trigger = self._most(trade), self._trigger(trade)
        premium = strategy.premium(job.number, most - self._seen.floor, self._seen)
        trade.offer = premium * job.cycles
        request: dict[str, Any] = {"height": trigger, "gas_limit": job.cycles, "expires_at": job.last_height}
        if strategy.tier is not None:
            request["tier"] = strategy.tier
        elif not strategy.leaves_open:
            if self.policy is Policy.BIAS_AUCTION:
                request["bid"] = trade.offer
            elif self.policy is not Policy.FIFO:
                request |= {"max_fee_per_cycle": most, "max_priority_fee_per_cycle": premium}
        actor = actor_of(job)
        work = job.cycles - (PROGRAM_OVERHEAD if group.bids_by_program else FIRE_OVERHEAD)
        if group.bids_by_program:
            share = premium * MILLI // max(1, most - self._seen.floor)
            life = job.last_height + 1 - trigger
            worth = {"worth": self._worth(trade), "cost": self._cost, "life": life, "share": share}
            payload = encode_value({**request, **worth, "work": work})
        else:
            request["payload"] = [["burn", work]]
            payload = script_json.canonical_text([["schedule", request]])
        sender = address_of_agent(group.name, job.agent)
        transaction = Transaction(
            sender=sender,
            nonce=self._nonces[sender],
            gas_limit=SCHEDULING_CYCLES,
            cells_limit=SCHEDULING_CELLS,
            max_fee_per_cycle=PRICE_LIMIT - 1,
            max_priority_fee_per_cycle=0,
            max_fee_per_cell=PRICE_LIMIT - 1,
            action=Call(actor, "plan", payload),
        )
        self._nonces[sender] += 1
        return PreparedTransaction(unsigned_hash(transaction), b"", transaction)

    # --- results ----------------------------------------------------------------------------------------------------

    def _read(
        self, asking: Sequence[Trade], outcome: Outcome, weights: Mapping[str, Sequence[float]], rate: float
    ) -> None:
        """Enter what a block did for the trades."""
        receipts = outcome.receipts
        for query in receipts.queries:
            self._open[query.timer_id].burned += int.from_bytes(query.burned)
        premiums, paid, used = [], 0, 0
        for fire in receipts.fires:
            trade = self._open.pop(fire.timer_id)
            assert fire.ok, fire.error
            trade.fired_at, trade.tip = receipts.height, int.from_bytes(fire.tip)
            trade.burned += int.from_bytes(fire.burned)
            premiums.append(trade.tip // fire.cycles)
            paid, used = paid + trade.tip + int.from_bytes(fire.burned), used + fire.cycles
            self._tell(trade)
        for destroyed in receipts.destroyed:
            self._tell(self._open.pop(destroyed.timer_id))
        for trade, receipt in zip(asking, receipts.transactions, strict=True):
            if receipt.ok:
                self._open[receipt.effects.scheduled[0].timer_id] = trade
            else:
                has_budget = self.groups[trade.job.group].budget_milli is not None
                assert has_budget and receipt.error == "InsufficientBalance", receipt.error
                trade.is_priced_out = True
                self._tell(trade)
        is_full = outcome.backlog > 0 and outcome.lane_cycles > self.parameters.lane_timer_cycles * FULL_SHARE
        price, marginal = paid // used if used else 0, min(premiums, default=0) if is_full else 0
        self.uses.append(BlockUse(receipts.height, outcome.lane_cycles, price, marginal, is_full, weights, rate))

    def _weights(self, fairness: FairnessWeights) -> dict[str, list[float]]:
        """The fairness weights of a block, by group."""
        one = fairness.divisor if fairness.rounding is None else ONE
        is_by_actor = self.parameters.weight_party is WeightParty.ACTOR
        return {
            group.name: [
                fairness.weight(
                    address_of_actor(group.name, agent, number) if is_by_actor else address_of_agent(group.name, agent)
                )
                / one
                for agent in range(group.agents)
                for number in range(group.actors)
            ]
            for group in self.groups.values()
        }

    def _rate(self) -> float:
        """λ of ``bias_auction`` in the next block."""
        if self.policy is not Policy.BIAS_AUCTION:
            return 0.0
        data = self._chain.view.get(BIAS_RATE)
        micro = self.parameters.bias_lambda_micro if data is None else decode_record(BIAS_RATE, data).micro
        return int(micro) / MICRO

    def _tell(self, trade: Trade) -> None:
        """Tell an agent what a job gained."""
        self.strategies[trade.job.group, trade.job.agent].learn(trade.job.number, trade.utility / trade.job.value)

    # --- the beginning ----------------------------------------------------------------------------------------------

    def _genesis(self) -> Genesis:
        accounts, actors = {}, {}
        worth: Counter[tuple[str, int]] = Counter()
        for trade in self.trades:
            worth[trade.job.group, trade.job.agent] += trade.job.value
        for group in self.groups.values():
            code = BIDDER if group.bids_by_program else SCRIPT_CODE
            for agent in range(group.agents):
                owner = address_of_agent(group.name, agent)
                accounts[owner] = funds = FUNDS
                if group.budget_milli is not None:
                    funds = worth[group.name, agent] * group.budget_milli // MILLI // group.actors
                for number in range(group.actors):
                    actors[address_of_actor(group.name, agent, number)] = GenesisActor(code, owner, funds)
        return Genesis(
            "lab",
            (bytes(32),),
            policy=self.policy,
            parameters=self.parameters,
            accounts=accounts,
            actors=actors,
            policy_file=self.policy_file,
        )


@lru_cache(maxsize=4_096)
def address_of_agent(group: str, agent: int) -> Address:
    return Address(tagged_hash(b"lab", f"{group} {agent}".encode())[:ADDRESS_BYTES])


@lru_cache(maxsize=4_096)
def address_of_actor(group: str, agent: int, number: int) -> Address:
    return Address(tagged_hash(b"lab", f"{group} {agent} {number}".encode())[:ADDRESS_BYTES])


def actor_of(job: Job) -> Address:
    """The actor that has a job."""
    return address_of_actor(job.group, job.agent, job.actor)
