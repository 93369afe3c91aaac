"""A chain: its genesis, and how a block is processed (``docs/protocol.md``). Read this module first.

A block's steps are :func:`begin`, :func:`execute` for each transaction, and :func:`finish`. Under ``gba_auction`` the
timers come before the transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spec import governance, jobs, messages, watches
from spec.encoding import (
    NO_HASH,
    PARAMETERS_ADDRESS,
    RUNNER_CONTRACT,
    SCRIPT,
    Address,
    Call,
    CallbackReceipt,
    Deploy,
    Hash,
    MessageReceipt,
    Receipts,
    System,
    Transaction,
    TransactionReceipt,
    deployed_address,
    encode,
    is_reserved,
    receipts_root,
    tagged,
    uint,
)
from spec.fees import CYCLE_SLOPE, next_basefee
from spec.host import Host
from spec.parameters import DEFAULTS, GOVERNED, stored_key, stored_text
from spec.phase import Phase
from spec.policies.bias_auction import BiasAuction
from spec.policies.cip1 import Cip1
from spec.policies.fifo import Fifo
from spec.policies.gba_auction import GbaAuction
from spec.programs import Language, code_of, run_charged, run_handler
from spec.runs import MESSAGES_PER_TRANSACTION, Ended, Meter, perform
from spec.world import Actor, Agent, Genesis, World

POLICIES: dict[str, type[Fifo]] = {
    "cip1": Cip1,
    "fifo": Fifo,
    "gba_auction": GbaAuction,
    "bias_auction": BiasAuction,
}
LATER_PARAMETERS = (
    "WEIGHT_PARTY",
    "MEDIAN_SMOOTHING_MILLI",
    "WEIGHT_CLIP_MIN_MILLI",
    "WEIGHT_CLIP_MAX_MILLI",
    "MAX_WATCHERS_PER_KEY",
)
"""What the genesis block covers only where it is not the default."""


class NotAdmitted(Exception):
    """A block must not hold this transaction. ``name`` is the error's name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


# --- the genesis ------------------------------------------------------------------------------------------------------


def new_chain(genesis: Genesis, language: Language | None = None) -> World:
    """The state at height 0."""
    world = World(genesis, language)
    world.balance.update(genesis.accounts)
    for address, given in genesis.actors.items():
        world.balance[address] = given.balance
        deploy(world, address, given.code, given.deployer)
        if given.agent is not None:
            world.actors[address] = world.actors[address]._replace(agent=given.agent)
    for name in GOVERNED:
        world.storage[PARAMETERS_ADDRESS, stored_key(name)] = stored_text(genesis.parameters[name]).encode()
    world.runners.update(dict.fromkeys(genesis.runners, True))
    for name in ("cycle", "cell", "lane"):
        world.counters[f"basefee of the {name}"] = genesis.parameters["INITIAL_BASEFEE"]
    world.counters["minted"] = sum(world.balance.values())
    world.counters["p50"] = world.counters["last block's cycles"] = 0
    world.keep()
    world.rules.clear()
    world.reached("R-22", 0 in genesis.accounts.values())
    return world


def genesis_hash(genesis: Genesis, state_root: Hash) -> Hash:
    """The hash of the genesis block, which is the parent of the first block. ``state_root`` is that of height 0."""
    p = genesis.parameters
    covered = [name for name in sorted(p) if name not in LATER_PARAMETERS or p[name] != DEFAULTS[name]]
    content = [
        genesis.chain_id,
        genesis.policy,
        genesis.validators,
        [[name, stored_text(p[name])] for name in covered],
        [[address, uint(balance)] for address, balance in sorted(genesis.accounts.items())],
        [
            [address, actor.code, actor.deployer, uint(actor.balance), _agent_content(actor.agent)]
            for address, actor in sorted(genesis.actors.items())
        ],
        sorted(genesis.system_deployers),
    ]
    if genesis.policy_file is not None:
        content.append(["policy file", *genesis.policy_file])
    if genesis.epochs:
        content.append(genesis.epochs)
    if genesis.runners:
        content.append(["runners", sorted(genesis.runners)])
    roots = tagged(b"genesis", encode(content)), receipts_root(Receipts(0, bytes(20), [], [], [], [], [], 0, b""))
    prices = [uint(p["INITIAL_BASEFEE"])] * 3
    return tagged(b"header", encode([genesis.chain_id, 0, 0, NO_HASH, 0, *roots, state_root, *prices, 0, 0, 0, 0]))


def _agent_content(agent: Agent | None) -> list[Any] | None:
    return None if agent is None else [agent.code, uint(agent.max_fee), uint(agent.priority)]


def deploy(world: World, address: Address, code: str, deployer: Address) -> None:
    """Make an actor. Raises ``ActorExists`` or ``ProgramInvalid``."""
    if address in world.actors:
        raise world.failure("D-07", "ActorExists")
    agent = None
    if code != SCRIPT:
        if not world.language.accepts(code):
            raise world.failure("D-06", "ProgramInvalid")
        source, code = code, code_of(code)
        world.reached("D-10", code in world.programs)
        world.put(world.programs, code, source)
        if world.language.bids(source):
            world.reached("D-11")
            agent = Agent("python")
    world.reached("D-12")
    world.put(world.actors, address, Actor(code, deployer, agent))


# --- a block ----------------------------------------------------------------------------------------------------------


class BlockRun:
    """A block that is being processed: what its transactions have used, and what it is to say in the end."""

    def __init__(self, world: World, proposer: Address) -> None:
        self.world, self.proposer = world, proposer
        self.phase = Phase(world)
        self.transactions: list[TransactionReceipt] = []
        self.callbacks: list[CallbackReceipt] = []
        self.messages: list[MessageReceipt] = []
        self.user_cycles = self.system_cycles = self.cells = 0
        """What user's and system transactions have used of their lanes, and both of the cells."""
        self.burned = self.tips = 0
        """What transactions have burned and tipped."""
        self.deferred_cycles = 0
        self.deferred_is_full = False

    @property
    def cycles(self) -> int:
        """What transactions have used."""
        return self.user_cycles + self.system_cycles


def begin(world: World, proposer: Address) -> BlockRun:
    """Step 1: freeze parameters, prices and the window of fires for the block."""
    world.keep()
    world.height += 1
    world.events, world.loaded = [], {}
    before, world.parameters = world.parameters, governance.parameters_in_force(world)
    world.reached("B-06", before != world.parameters)
    is_active = world.height > world.genesis.parameters["ACTIVATION_HEIGHT"]
    wanted = (world.genesis.own_policy or POLICIES[world.genesis.policy]) if is_active else Fifo
    if type(world.policy) is not wanted:
        world.reached("B-09", world.policy is not None)
        world.policy = wanted()
    counters = world.counters
    world.basefee_cycle, world.basefee_cell = counters["basefee of the cycle"], counters["basefee of the cell"]
    world.basefee_lane, world.p50 = counters["basefee of the lane"], counters["p50"]
    world.lane_price, world.fee_floor = world.policy.lane_price(world), world.policy.fee_floor(world)
    world.policy.begin(world)
    block = BlockRun(world, proposer)
    if world.policy.timers_first:
        _run_timers(block)
    return block


def execute(block: BlockRun, transaction: Transaction) -> TransactionReceipt:
    """Step 3: admit, charge, run and settle one transaction. Raises :class:`NotAdmitted`, and then changes nothing."""
    world, sender = block.world, transaction.sender
    tip = admit(block, transaction)
    price = world.basefee_cycle + tip
    upfront = transaction.gas_limit * price + transaction.cells_limit * world.basefee_cell
    world.put(world.nonce, sender, transaction.nonce + 1)
    world.debit(sender, upfront)
    meter = Meter(world, transaction.gas_limit, transaction.cells_limit)
    ended, created = _perform(block, transaction, meter)
    world.reached("A-14", not ended.ok)
    burned = meter.cycles * world.basefee_cycle + meter.cells * world.basefee_cell
    tips = meter.cycles * tip
    world.reached("A-10", upfront > burned + tips)
    world.credit(sender, upfront - burned - tips)
    if isinstance(transaction.action, System):
        block.system_cycles += meter.cycles
    else:
        block.user_cycles += meter.cycles
    block.cells += meter.cells
    block.burned += burned
    block.tips += tips
    paid = uint(burned), uint(tips)
    receipt = TransactionReceipt(
        transaction.hash, sender, *ended[:4], *paid, ended.effects, created if ended.ok else b""
    )
    block.transactions.append(receipt)
    return receipt


def finish(block: BlockRun) -> Receipts:
    """All steps after the last transaction."""
    world, phase = block.world, block.phase
    world.reached("B-03", block.tips)
    world.credit(block.proposer, block.tips)
    if not world.policy.timers_first:
        watches.look(world, world.height)
        _run_timers(block)
    _run_callbacks(block)
    _run_messages(block)
    world.reached("R-10", world.messages)
    watches.look(world, world.height + 1)
    world.policy.count_fires(phase)
    jobs.end_jobs(world)
    _close(block)
    return Receipts(
        world.height,
        block.proposer,
        block.transactions,
        phase.fires,
        phase.destroyed,
        phase.bidding.receipts,
        block.messages,
        phase.gc_cycles,
        uint(world.p50),
        block.callbacks,
    )


def run_block(world: World, proposer: Address, transactions: Sequence[Transaction]) -> tuple[BlockRun, Receipts]:
    """Process a whole block. Raises :class:`NotAdmitted` if it holds a transaction that it must not."""
    block = begin(world, proposer)
    for transaction in transactions:
        execute(block, transaction)
    return block, finish(block)


# --- transactions -----------------------------------------------------------------------------------------------------


def admit(block: BlockRun, transaction: Transaction) -> int:
    """The tip a cycle of an admissible transaction. Raises :class:`NotAdmitted`, with the first error that applies."""
    world, p = block.world, block.world.parameters
    is_system = isinstance(transaction.action, System)
    used = block.system_cycles if is_system else block.user_cycles
    limit = p["LANE_SYSTEM_CYCLES"] if is_system else p["LANE_USER_CYCLES"]
    room = transaction.max_fee_per_cycle - world.basefee_cycle
    tip = min(transaction.max_priority_fee_per_cycle, room)
    upfront = transaction.gas_limit * (world.basefee_cycle + tip) + transaction.cells_limit * world.basefee_cell
    for rule, error, is_wrong in (
        ("A-01", "BadNonce", transaction.nonce != world.nonce.get(transaction.sender, 0)),
        ("A-02", "FeeTooLow", room < 0),
        ("A-03", "FeeTooLow", transaction.max_fee_per_cell < world.basefee_cell),
        ("A-04", "GasTooLow", transaction.gas_limit < p["TX_BASE_CYCLES"]),
        ("A-06" if is_system else "A-05", "LaneFull", used + transaction.gas_limit > limit),
        ("A-07", "LaneFull", block.cells + transaction.cells_limit > p["LANE_USER_CELLS"]),
        ("A-08", "InsufficientFunds", world.balance.get(transaction.sender, 0) < transaction.value + upfront),
    ):
        if is_wrong:
            world.reached(rule)
            raise NotAdmitted(error)
    world.reached("A-09", tip < transaction.max_priority_fee_per_cycle)
    return tip


def _perform(block: BlockRun, transaction: Transaction, meter: Meter) -> tuple[Ended, Address]:
    """The action of a transaction; returns how it ended, and the address of the actor that it was to deploy."""
    world, sender, action = block.world, transaction.sender, transaction.action
    if isinstance(action, Deploy):
        target = deployed_address(sender, transaction.nonce)
    else:
        target = PARAMETERS_ADDRESS if isinstance(action, System) else action.to
    run = Host(world, meter, target, sender)
    run.allowance, run.messages_left = transaction.timer_allowance, MESSAGES_PER_TRANSACTION
    run.value, run.origin = transaction.value, transaction.hash  # [P-07]

    def body() -> None:
        meter.charge(world.parameters["TX_BASE_CYCLES"])
        if isinstance(action, System):
            governance.instruct(run, action.instruction)
            return
        if isinstance(action, Deploy):
            world.reached("D-02" if action.code == SCRIPT else "D-03")
            meter.charge(0 if action.code == SCRIPT else 300 * len(action.code), len(action.code))
            if action.code != SCRIPT:
                surplus = world.language.token_cycles(action.code)
                world.reached("D-04", surplus)
                meter.charge(surplus)  # all of it before the program is examined
        elif isinstance(action, Call):
            meter.charge(0, len(action.payload))
            world.reached("A-11", action.payload)
        world.reached("A-15", transaction.value)
        world.reached("A-18", transaction.value and is_reserved(target))
        run.move(sender, target, transaction.value)
        if isinstance(action, Deploy):
            deploy(world, target, action.code, sender)
            world.reached("D-01")
            world.reached("D-08", transaction.value)
        elif isinstance(action, Call):
            _call(run, action)

    ended = perform(run, body)
    world.reached("D-09" if isinstance(action, Deploy) else "A-16", not ended.ok and transaction.value)
    world.reached("D-05", isinstance(action, Deploy) and ended.error == "OutOfCycles")
    return ended, target if isinstance(action, Deploy) else b""


def _call(run: Host, action: Call) -> None:
    if run.actor == RUNNER_CONTRACT:
        jobs.call_contract(run, action.handler, action.payload)
        return
    if run.actor not in run.world.actors:
        raise run.world.refusal("A-17", "UnknownActor")
    run_handler(run, action.handler, action.payload)


# --- timers, callbacks, messages --------------------------------------------------------------------------------------


def _run_timers(block: BlockRun) -> None:
    """Step 4: the timer phase. Its tips go to the proposer."""
    block.phase.run()
    block.world.reached("B-04", block.tips and any(fire.fee_payer == block.proposer for fire in block.phase.fires))
    block.world.reached("B-05", block.phase.tips)
    block.world.credit(block.proposer, block.phase.tips)


def _has_room(block: BlockRun, cycles: int) -> bool:
    """Whether the next callback or message may run. After the first that does not fit, none does."""
    limit = block.world.parameters["LANE_DEFERRED_CYCLES"]
    if block.deferred_cycles + cycles > limit:
        block.world.reached("B-10")
        block.deferred_is_full = True
    return not block.deferred_is_full


def _run_callbacks(block: BlockRun) -> None:
    """Step 5, first part: the callbacks of jobs that earlier blocks completed."""
    world, p = block.world, block.world.parameters
    while (job_id := jobs.first_waiting(world)) is not None:
        if len(block.callbacks) == jobs.CALLBACKS_PER_BLOCK:
            block.deferred_is_full = True
        if not _has_room(block, p["MESSAGE_CYCLES"]):
            return
        job, payload = jobs.take_callback(world)
        run = Host(world, Meter(world, p["MESSAGE_CYCLES"], p["MESSAGE_CELLS"]), job.actor, RUNNER_CONTRACT)
        run.callback_of = job_id
        ended = _run_deferred(block, run, job.handler, payload)
        unsettled = jobs.end_callback(world, job_id)
        block.callbacks.append(CallbackReceipt(job_id, job.actor, job.handler, *ended, unsettled))


def _run_messages(block: BlockRun) -> None:
    """Step 5, second part: the messages that wait now, in the order of sending."""
    world = block.world
    end = world.counters.get("next message", 0)
    while (number := world.counters.get("first message", 0)) < end:
        if not _has_room(block, world.messages[number].cycles):
            return
        message = messages.take(world)
        run = Host(world, Meter(world, message.cycles, message.cells), message.to, message.sender)
        run.origin = message.origin
        ended = _run_deferred(block, run, message.handler, message.payload)
        world.reached("M-01")
        world.reached("M-02", not ended.ok)
        world.reached("M-08", ended.error == "OutOfCycles")
        world.reached("M-09", ended.error == "OutOfCells")
        world.reached("M-11", run.reserved)
        block.messages.append(MessageReceipt(message.to, message.sender, message.handler, *ended))


def _run_deferred(block: BlockRun, run: Host, handler: str, payload: bytes) -> Ended:
    """A run that is paid for already. It takes from the lane what it used, less what it reserved for others."""
    ended = run_charged(run, block.world.parameters["MESSAGE_BASE_CYCLES"], handler, payload)
    block.deferred_cycles += ended.cycles - run.reserved
    return ended


# --- the end ----------------------------------------------------------------------------------------------------------


def _close(block: BlockRun) -> None:
    """Step 6: the prices of the next block, and what this one burned."""
    world, phase, p = block.world, block.phase, block.world.parameters
    cycles, cells = block.cycles + phase.cycles, block.cells + phase.cells
    world.reached("W-01" if world.policy.timers_first else "B-02", block.transactions and phase.fires)
    world.reached("B-01", not (block.transactions or phase.fires or block.messages or phase.destroyed or phase.waits))
    fires = [(int.from_bytes(fire.tip_per_cycle, "big"), fire.cycles) for fire in phase.fires]
    world.reached("F-01" if cycles > p["BLOCK_CYCLES_TARGET"] else "F-02", cycles != p["BLOCK_CYCLES_TARGET"])
    world.reached("F-03" if cells > p["BLOCK_CELLS_TARGET"] else "F-04", cells != p["BLOCK_CELLS_TARGET"])
    of_cycle = next_basefee(world, world.basefee_cycle, cycles, p["BLOCK_CYCLES_TARGET"], CYCLE_SLOPE)
    of_cell = next_basefee(world, world.basefee_cell, cells, p["BLOCK_CELLS_TARGET"], CYCLE_SLOPE)
    counters = world.counters
    counters["basefee of the cycle"], counters["basefee of the cell"] = of_cycle, of_cell
    counters["basefee of the lane"] = world.policy.next_basefee_lane(world, of_cycle, phase.cycles)
    counters["p50"] = world.policy.next_p50(world, fires)
    counters["last block's cycles"] = cycles
    for name, amount in (
        ("burned by transactions", block.burned),
        ("burned by fires", phase.burned_cycle),
        ("burned by fires at the lane price", phase.burned_lane),
        ("burned by queries", phase.bidding.burned),
    ):
        counters[name] = counters.get(name, 0) + amount
