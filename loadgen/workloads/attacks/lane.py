"""Attacks on the timer lane: the distribution of its cycles and cells."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from loadgen.workloads.attacks.base import (
    SLACK_BLOCKS,
    Burst,
    BurstOptions,
    Programmed,
    fees,
    invoke,
    largest_work,
    next_multiple,
)
from loadgen.workloads.base import Intent, Observation, Options
from loadgen.workloads.script import Script, burn

CHAIN_REACTION_PROGRAM: Final = '''
class ChainReaction(Actor):
    """Each fire schedules further ones."""

    def start(self, payload):
        assert self.sender == self.deployer, "only the owner"
        self.react(payload)

    def fire(self, payload):
        assert self.sender == self.address, "only the timer"
        self.burn(payload["burn"])
        self.react(payload)

    def react(self, payload):
        for number in range(payload["fan_out"]):
            self.schedule(self.height + payload["every"], payload, "fire", gas_limit=payload["gas"])
'''
CHAIN_REACTION_SCHEDULE_CYCLES: Final = 3_000
"""Maximum cycles for scheduling one timer."""
CHAIN_REACTION_FIRE_CYCLES: Final = 5_000
"""Cycles of a fire, without its work and the timers that it schedules."""
TIMER_CELLS: Final = 200
"""Cells of a timer's payload, at most."""


class ChainReactionOptions(Options):
    """Options of :class:`ChainReaction`."""

    fan_out: Annotated[int, Field(ge=1, le=16)] = 2
    """Timers that a fire schedules."""
    every: Annotated[int, Field(ge=1, le=1_000)] = 1
    """Blocks from a fire to the timers that it schedules."""
    burn: Annotated[int, Field(ge=0, le=150_000)] = 5_000
    """Cycles of work per fire."""
    starts: Annotated[int, Field(ge=1, le=1_000_000)] = 4
    """Number of turns that start a reaction; then the user is idle."""


class ChainReaction(Programmed[ChainReactionOptions]):
    """An attack that starts a reaction in each of its first turns: timers whose fires schedule further such timers."""

    name: ClassVar[str] = "chain-reaction"
    options_type: ClassVar[type[Options]] = ChainReactionOptions
    program: ClassVar[str] = CHAIN_REACTION_PROGRAM
    goal: ClassVar[str] = "timers multiply without further transactions until they fill the lane for good"
    defence: ClassVar[str] = (
        "no timer fires in the block that scheduled it; `MAX_TIMERS_PER_ACTOR` bounds the reaction; each fire is paid"
    )
    _started = 0

    def intents(self, observation: Observation) -> list[Intent]:
        if self._started == self.options.starts:
            return []
        self._started += 1
        fan_out, cells = self.options.fan_out, TIMER_CELLS * self.options.fan_out
        cycles = CHAIN_REACTION_FIRE_CYCLES + CHAIN_REACTION_SCHEDULE_CYCLES * fan_out
        payload = {
            "fan_out": fan_out,
            "every": self.options.every,
            "burn": self.options.burn,
            "gas": cycles + self.options.burn,
        }
        return [invoke(self.member, "start", payload, cycles, cells)]

    def dropped(self, intent: Intent) -> None:
        self._started -= 1


class GasExhaustionOptions(BurstOptions):
    """Options of :class:`GasExhaustion`."""

    gas_limit: Annotated[int, Field(ge=1_000, le=250_000)] = 50_000
    """Cycles of a fire; its work needs more."""


class GasExhaustion(Burst[GasExhaustionOptions]):
    """Schedules timers whose work takes one cycle more than they have."""

    name: ClassVar[str] = "gas-exhaustion"
    options_type: ClassVar[type[Options]] = GasExhaustionOptions
    goal: ClassVar[str] = "the lane is spent on fires that fail, and that the attacker hopes to get back"
    defence: ClassVar[str] = "a fire that runs out of cycles pays for all of its `gas_limit` and is not retried"

    def payload(self) -> Script:
        parameters = self.member.parameters
        return [burn(max(0, self.options.gas_limit - parameters.fire_base_cycles) + 1)]

    def gas_limit(self, payload: Script) -> int:
        return self.options.gas_limit


LANE_CELLS_PROGRAM: Final = '''
class CellHog(Actor):
    """Writes much to its storage when a timer fires, over and over the same."""

    def plan(self, payload):
        assert self.sender == self.deployer, "only the owner"
        for number in range(payload["timers"]):
            self.schedule(payload["height"], payload["bytes"], "write", gas_limit=payload["gas"],
                          max_fee_per_cycle=payload["max_fee"], max_priority_fee_per_cycle=payload["tip"])

    def write(self, payload):
        assert self.sender == self.address, "only the timer"
        self.set("text", "x" * payload)
'''
LANE_CELLS_SCHEDULE_CYCLES: Final = 3_000
"""Maximum cycles for scheduling one timer in a call of the handler ``plan``."""
LANE_CELLS_FIRE_CYCLES: Final = 5_000
"""Cycles of a fire, without the text that it writes."""
BYTES_PER_CYCLE: Final = 8
"""Minimum bytes of the text that an actor makes, copies and packs per cycle."""
KEY_CELLS: Final = 100
"""Maximum cells that writing the text takes in addition to the text: those of the key and of the encoding."""


class LaneCellsOptions(BurstOptions):
    """Options of :class:`LaneCells`."""

    timers: Annotated[int, Field(ge=1, le=100)] = 12
    """Timers per turn."""
    cells: Annotated[int, Field(ge=1_000, le=1_000_000)] = 540_000
    """Cells per fire; no more than a fire may use."""


class LaneCells(Programmed[LaneCellsOptions]):
    """Lets a Python actor schedule fires that each write a long text."""

    name: ClassVar[str] = "lane-cells"
    options_type: ClassVar[type[Options]] = LaneCellsOptions
    program: ClassVar[str] = LANE_CELLS_PROGRAM
    goal: ClassVar[str] = "few cheap fires take all cells of the lane, whose basefee follows cycles alone"
    defence: ClassVar[str] = (
        "`MAX_CELLS_PER_FIRE` and `LANE_TIMER_CELLS` bound a fire and a block; the cell basefee rises"
    )

    def intents(self, observation: Observation) -> list[Intent]:
        options, member = self.options, self.member
        size = min(options.timers, member.timer_room(observation))
        if not size:
            return []
        cells = max(1, min(options.cells, member.parameters.max_cells_per_fire) - KEY_CELLS)
        max_fee, tip = fees(options, member.lane_price(observation))
        plan = {
            "timers": size,
            "height": next_multiple(options.every_blocks, observation.height + SLACK_BLOCKS),
            "bytes": cells,
            "gas": LANE_CELLS_FIRE_CYCLES + cells // BYTES_PER_CYCLE,
            "max_fee": max_fee,
            "tip": tip,
        }
        return [invoke(member, "plan", plan, LANE_CELLS_SCHEDULE_CYCLES * (1 + size))]


class LaneCycles(Burst[BurstOptions]):
    """An attack with timers that each burn all cycles that a fire may use."""

    name: ClassVar[str] = "lane-cycles"
    options_type: ClassVar[type[Options]] = BurstOptions
    goal: ClassVar[str] = "few fires take all cycles of the lane"
    defence: ClassVar[str] = "`MAX_CYCLES_PER_FIRE_AUCTION_PHASE` bounds a fire; a full lane raises the lane basefee"

    def payload(self) -> Script:
        return largest_work(self.member)


class SameBlockOptions(BurstOptions):
    """Options of :class:`SameBlock`."""

    burn: Annotated[int, Field(ge=0, le=200_000)] = 20_000
    """Cycles of work per fire."""


class SameBlock(Burst[SameBlockOptions]):
    """An attack that schedules each burst of timers for the next height at which all attackers' timers become due."""

    name: ClassVar[str] = "same-block"
    options_type: ClassVar[type[Options]] = SameBlockOptions
    goal: ClassVar[str] = "honest timers that become due in the same block wait until the burst has been worked off"
    defence: ClassVar[str] = "`LANE_TIMER_CYCLES` bounds a block; priority and fairness weight order the burst"

    def payload(self) -> Script:
        return [burn(self.options.burn)]


class SybilFragmentationOptions(BurstOptions):
    """Options of :class:`SybilFragmentation`."""

    timers: Annotated[int, Field(ge=1, le=100)] = 4
    """Timers per turn of each actor."""
    tip_percent: Annotated[int, Field(ge=0, le=100_000)] = 1
    """Tip of a timer, in percent of the lane price that its user knows; the weight multiplies it."""
    burn: Annotated[int, Field(ge=0, le=200_000)] = 50_000
    """Cycles of work per fire."""


class SybilFragmentation(Burst[SybilFragmentationOptions]):
    """An attack by many actors, each of which has few timers, due at the same heights as those of the others.

    The budget is the group's ``budget``, and the actors are its ``count`` users. An actor that has fired seldom has
    twice the weight of one that fires often (SPEC §8), so a budget that is spread over many actors bids with twice the
    weight.
    """

    name: ClassVar[str] = "sybil-fragmentation"
    options_type: ClassVar[type[Options]] = SybilFragmentationOptions
    goal: ClassVar[str] = "many actors of one purse have the fairness weight of newcomers, and outrank honest actors"
    defence: ClassVar[str] = "the weight multiplies a tip by two at most, and every fire pays the whole lane price"

    def payload(self) -> Script:
        return [burn(self.options.burn)]
