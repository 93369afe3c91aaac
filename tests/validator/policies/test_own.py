"""Policies of users' files: what they may replace, in which blocks, and what of them is refused."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from tests.validator.chains import ACTOR, OTHER, Chain, fired, schedule
from tests.validator.policies.own_policies import DEADLINES, STATED, chain_of, derived, example, genesis_of
from validator.chain.genesis import Genesis, GenesisError, Policy, PolicyFile, Replaces
from validator.execution.timer_phase import Candidate, TimerPhase
from validator.policies.cip1 import Cip1Phase
from validator.policies.fifo import FifoPhase
from validator.policies.own import PolicyError, phase_of, phase_of_file, read_policy, with_parameters
from validator.policies.registry import PHASES, phases_with
from validator.primitives.params import ParameterError, TieBreak
from validator.storage.disk import DiskError
from validator.transition.genesis_block import genesis_batch, genesis_header

FULL = {"LANE_TIMER_CYCLES": 8_000, "TIE_BREAK": "aged"}


def crowd(chain: Chain, blocks: int = 6) -> Chain:
    """Timers of different tips and sizes, more than fit into the lane, and the blocks in which they fire."""
    for number in range(8):
        chain.run(
            *(
                schedule(
                    1 + (number + each) % 3,
                    ["burn", 2_000 * (each % 3)],
                    gas_limit=1_000 + 2_000 * (each % 3),
                    max_fee_per_cycle=2**60,
                    max_priority_fee_per_cycle=(7 * number + 3 * each) % 5,
                    expires_at=12 + (number + each) % 9,
                )
                for each in range(4)
            ),
            actor=(ACTOR, OTHER)[number % 2],
        )
    for _ in range(blocks):
        chain.block()
    return chain


def fires(chain: Chain) -> list[list[bytes]]:
    return [[fire.timer_id for fire in outcome.receipts.fires] for outcome in chain.blocks]


# --- what a file may replace ------------------------------------------------------------------------------------------


def test_a_file_has_an_order_of_its_own() -> None:
    chain = chain_of(DEADLINES, FULL)
    chain.run(*(schedule(2, gas_limit=1_000, expires_at=end) for end in (90, 50, 70)))
    ends: dict[bytes, int] = {timer.timer_id: timer.expires_at for timer in chain.timers()}
    while not fired(outcome := chain.block()):
        pass
    assert [ends[fire.timer_id] for fire in outcome.receipts.fires] == [50, 70, 90]
    own = crowd(chain_of(DEADLINES, FULL))
    assert sum(map(len, fires(own))) > 20
    assert fires(own) != fires(crowd(Chain(replace(own.genesis, policy_file=None))))


@pytest.mark.parametrize("policy", [Policy.CIP1, Policy.GBA_AUCTION])
@pytest.mark.parametrize("tie_break", list(TieBreak))
def test_timers_that_are_scored_one_by_one_fire_as_those_that_the_compiled_loops_score(
    policy: Policy, tie_break: TieBreak
) -> None:
    params = {**FULL, "TIE_BREAK": tie_break.value, "SCAN_LIMIT": 4}
    own = crowd(chain_of(derived(policy, "formula = None"), params), 12)
    shipped = crowd(Chain(replace(own.genesis, policy_file=None)), 12)
    assert sum(map(len, fires(own))) > 20
    assert any(outcome.carried for outcome in own.blocks)
    assert [outcome.state_root for outcome in own.blocks] == [outcome.state_root for outcome in shipped.blocks]


@pytest.mark.parametrize("policy", list(Policy))
def test_a_file_that_replaces_nothing_is_the_policy_that_it_is_derived_from(policy: Policy) -> None:
    own = crowd(chain_of(derived(policy), FULL))
    shipped = crowd(Chain(replace(own.genesis, policy_file=None)))
    assert [outcome.state_root for outcome in own.blocks] == [outcome.state_root for outcome in shipped.blocks]
    assert genesis_header(own.genesis, bytes(32)) != genesis_header(shipped.genesis, bytes(32)), "the text is covered"


def test_the_example_of_the_page_prices_orders_selects_and_settles() -> None:
    chain = chain_of(example("python"), {**FULL, "PRIORITY_FLOOR": 1})
    policy_file = chain.genesis.policy_file
    assert policy_file is not None and policy_file.replaces == {*Replaces}
    refused = chain.run(schedule(1, gas_limit=1_000, max_fee_per_cycle=1))
    assert refused.error == "TimerRejectedBelowBasefee", "the floor is the file's price, 2"
    basefee = chain.globals.basefee_lane_timer
    crowd(chain)
    assert chain.globals.basefee_lane_timer == basefee, "the price never changes"
    found = [fire for outcome in chain.blocks for fire in outcome.receipts.fires]
    assert found and any(fire.tip_per_cycle for fire in found)
    for fire in found:
        tipped = fire.cycles * int.from_bytes(fire.tip_per_cycle)
        assert int.from_bytes(fire.tip) == tipped - tipped // 2, "half of a tip is burned"
    chain.require_conservation()


def test_an_actor_has_a_few_fires_a_block_by_the_example() -> None:
    chain = chain_of(example("python"), {"SCAN_LIMIT": 40, "TIMER_GC_CYCLES": 16_000})
    for actor, count, due in ((ACTOR, 7, 5), (OTHER, 2, 4)):
        chain.run(*(schedule(due, gas_limit=1_000) for _ in range(count)), actor=actor)
    while not fired(outcome := chain.block()):
        pass
    assert len(outcome.receipts.fires) == 6, "four of the first actor"
    assert len(fired(chain.block())) == 3


def test_blocks_up_to_the_activation_height_are_fifos() -> None:
    source = derived(Policy.CIP1, "def candidates(self):", "    raise RuntimeError(self.terms.height)")
    chain = chain_of(source, {"ACTIVATION_HEIGHT": 4})
    chain.run(schedule(2))
    while chain.view.height < 4:
        chain.block()
    with pytest.raises(PolicyError, match="RuntimeError: 5"):
        chain.block()


def test_planted_bugs_act_on_a_users_phase() -> None:
    class Planted(Cip1Phase):
        def candidates(self) -> Iterator[Candidate]:
            yield from list(super().candidates())[1:]

    class OfAll(TimerPhase):
        def count_fires(self) -> None:
            """Counts nothing."""

    policy, policy_file = read_policy("own", derived(Policy.CIP1, "asks_agents = False"))
    phase = phase_of(policy_file, phases_with(OfAll, phases_with(Planted))[policy])
    assert phase.candidates is Planted.candidates
    assert phase.count_fires is OfAll.count_fires
    assert phase.asks_agents is False, "the rest is the user's"


def test_a_phase_may_be_a_dataclass_with_fields_of_a_block() -> None:
    source = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass, field\n"
        "from typing import ClassVar\n"
        "from validator.policies.fifo import FifoPhase\n\n\n"
        "@dataclass(slots=True)\n"
        "class Own(FifoPhase):\n"
        "    most: ClassVar[int] = 1\n"
        "    fired: set[bytes] = field(default_factory=set)\n\n"
        "    def candidates(self):\n"
        "        for candidate in FifoPhase.candidates(self):\n"
        "            if len(self.fired) < self.most:\n"
        "                self.fired.add(candidate.timer_id)\n"
        "                yield candidate\n"
    )
    chain = crowd(chain_of(source))
    assert {len(each) for each in fires(chain)} == {0, 1}


def test_an_exception_is_one_line_with_file_and_line() -> None:
    for source, line in (
        (derived(Policy.FIFO, "def candidates(self):", "    return 1 / 0"), "file own.py, line 6: ZeroDivisionError"),
        (derived(Policy.CIP1, "formula = None", "def score(self, timer, tip):", "    return 1 / 0"), "line 7: ZeroDi"),
        (derived(Policy.CIP1, "def count_fires(self):", "    raise KeyError('a')"), "line 6: KeyError: 'a'"),
        (
            derived(Policy.GBA_AUCTION, "def scan(self, candidates):", "    self.terms.missing"),
            "line 6: AttributeError",
        ),
    ):
        chain = chain_of(source)
        with pytest.raises(PolicyError, match=line):  # noqa: PT012
            chain.run(schedule(1))
            chain.block()


@pytest.mark.parametrize("hook", ["admit(self, offer, fee_floor)", "lane_price(self, basefee_lane, parameters)"])
def test_an_exception_of_the_rules_is_one_line(hook: str) -> None:
    rules = f"class Mine(Cip1Rules):\n    def {hook}:\n        return 1 / 0\n\n\n"
    source = f"from validator.policies.cip1 import Cip1Rules\n\n\n{rules}" + derived(Policy.CIP1, "rules = Mine()")
    with pytest.raises(PolicyError, match=r"^file own\.py, line 6: ZeroDivisionError"):
        chain_of(source).run(schedule(1))


def test_an_error_of_the_validator_is_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: TimerPhase) -> None:
        raise DiskError("log: offset 0: damaged")

    monkeypatch.setattr(TimerPhase, "expire", fails)
    with pytest.raises(DiskError, match=r"^log: "):
        chain_of(DEADLINES).block()


def test_the_genesis_names_the_policy_that_the_file_is_derived_from() -> None:
    genesis = genesis_of(DEADLINES)
    assert (genesis.policy, genesis.policy_name) == (Policy.FIFO, "own")
    assert genesis.policy_file == PolicyFile("own", DEADLINES, frozenset({Replaces.ORDER}))
    for wrong in (
        replace(genesis, policy=Policy.CIP1),
        replace(genesis, policy_file=PolicyFile("own", DEADLINES)),
    ):
        with pytest.raises(GenesisError, match="policy file own"):
            genesis_batch(wrong)


# --- parameters -------------------------------------------------------------------------------------------------------


def stated(**given: object) -> Genesis:
    genesis = genesis_of(STATED)
    return replace(genesis, policy_file=with_parameters(file_of(genesis), given))


def file_of(genesis: Genesis) -> PolicyFile:
    assert genesis.policy_file is not None
    return genesis.policy_file


def test_hooks_of_phase_and_rules_read_the_parameters_of_the_chain() -> None:
    for given, most, price in (({}, 2, 3), ({"most_fires": 4, "lane_price": "5"}, 4, 5), ({"most_fires": 1}, 1, 3)):
        chain = Chain(stated(**given))
        chain.run(*(schedule(1, gas_limit=1_000) for _ in range(6)))
        while not fired(outcome := chain.block()):
            pass
        fires = outcome.receipts.fires
        assert len(fires) == most
        for fire in fires:
            assert int.from_bytes(fire.burned) == (
                fire.cycles * (outcome.prices.basefee_cycle + price) + fire.cells * outcome.prices.basefee_cell
            )
        chain.require_conservation()


def test_the_genesis_block_covers_the_parameters_that_a_class_states() -> None:
    heads = {genesis_header(stated(**given), bytes(32)) for given in ({}, {"most_fires": 3}, {"lane_price": -1})}
    assert len(heads) == 3
    assert genesis_header(stated(most_fires=2), bytes(32)) in heads, "a default that is written out is no other chain"
    genesis_batch(stated(most_fires=9))
    wrong = replace(stated(), policy_file=replace(file_of(stated()), parameters=(("most_fires", 10),)))
    with pytest.raises(GenesisError, match="policy: most_fires: 10 is out of range, expected 1 to 9"):
        genesis_batch(wrong)
    missing = replace(stated(), policy_file=replace(file_of(stated()), parameters=()))
    with pytest.raises(GenesisError, match="has not the parameters that own"):
        genesis_batch(missing)


def test_two_chains_of_one_text_have_their_own_parameters() -> None:
    one, other = (phase_of_file(file_of(stated(most_fires=most))) for most in (3, 4))
    assert (one.own["most_fires"], other.own["most_fires"]) == (3, 4)
    assert one.rules.own == one.own and other.rules.own == other.own
    assert FifoPhase.own == {} and FifoPhase.rules.own == {}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"most": 1}, "most: unknown parameter; own.py states most_fires, lane_price"),
        ({"most_fires": 0}, "most_fires: 0 is out of range, expected 1 to 9"),
        ({"most_fires": 1.5}, "most_fires: expected an integer, got 1.5"),
        ({"most_fires": True}, "most_fires: expected an integer, got True"),
    ],
)
def test_a_wrong_value_is_one_line(given: dict[str, object], line: str) -> None:
    with pytest.raises(ParameterError, match=line):
        stated(**given)


# --- what is refused --------------------------------------------------------------------------------------------------

RULES = "from validator.policies.fifo import FifoRules\n\n\nclass Mine(FifoRules):\n    {}\n\n\n"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = (", "file own.py, line 1: '(' was never closed"),
        (
            "import nothing_such\n" + DEADLINES,
            "file own.py, line 1: ModuleNotFoundError: No module named 'nothing_such'",
        ),
        (DEADLINES + "raise SystemExit(3)", "file own.py, line 11: SystemExit: 3"),
        (
            "x = 1",
            "file own.py: expected one class that is derived from the timer phase of a shipped policy, such as"
            " validator.policies.fifo.FifoPhase; got none",
        ),
        (f"{derived(Policy.CIP1)}\n\nclass Other(Own):\n    pass\n", "; got Own, Other"),
        (
            "from validator.execution.timer_phase import TimerPhase\n\n\nclass Own(TimerPhase):\n"
            "    def candidates(self): ...\n    def is_priced_out(self, timer): ...\n    def count_fires(self): ...\n",
            "file own.py: Own: expected a class derived from one of Cip1Phase, FifoPhase, GbaAuctionPhase,"
            " BiasAuctionPhase",
        ),
        (
            derived(Policy.FIFO, "replaces = {'oder'}"),
            "replaces: expected a set with some of 'order', 'prices', 'waiting', got frozenset({'oder'})",
        ),
        (
            derived(Policy.FIFO, "replaces = 'order'"),
            "replaces: expected a set with some of 'order', 'prices', 'waiting', got 'order'",
        ),
        (
            derived(Policy.FIFO, "def candidates(self):", "    return self.elegible()"),
            "file own.py, line 6: Own has no elegible",
        ),
        (derived(Policy.FIFO, "rules = 1"), "Own.rules: expected LaneRules, got 1"),
        (
            derived(Policy.CIP1, "def score(self, timer, tip):", "    return tip"),
            "file own.py: Own.formula: expected None, since the class has a score",
        ),
        (
            "from validator.execution.lane_rules import LaneRules\n\n\nclass Mine(LaneRules):\n"
            "    fire_cap = next_p50_tip = None\n\n\n" + derived(Policy.FIFO, "rules = Mine()"),
            "file own.py: AttributeError: 'Mine' object has no attribute 'bids'",
        ),
        (
            RULES.format("timers_first = True") + derived(Policy.FIFO, "rules = Mine()"),
            "Own.rules.timers_first: expected False as in fifo, got True",
        ),
        (
            RULES.format("pass") + derived(Policy.BIAS_AUCTION, "rules = Mine()"),
            "Own.rules.bids: expected Bids.LOCKED as in bias_auction, got Bids.IGNORED",
        ),
    ],
)
def test_a_text_that_is_no_policy_is_one_line(source: str, line: str) -> None:
    with pytest.raises(PolicyError) as raised:
        phase_of_file(read_policy("own", source)[1])
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


IS_RUN = "import builtins\nbuiltins.own_policy_has_run = True\n"


@pytest.mark.parametrize(
    ("source", "policy", "replaces"),
    [
        (DEADLINES, Policy.FIFO, {"order"}),
        (derived(Policy.CIP1), Policy.CIP1, set()),
        (
            "import validator.policies.cip1 as c\n\n\nclass Own(c.Cip1Phase):\n    replaces = set()\n",
            Policy.CIP1,
            set(),
        ),
        (
            "from abc import ABC, abstractmethod\nfrom validator.chain.genesis import Replaces\n"
            "from validator.policies.fifo import FifoPhase as F\n\n\nclass Half(ABC):\n    @abstractmethod\n"
            "    def most(self): ...\n\n\nclass Base(Half, F):\n    replaces = {Replaces.ORDER, 'prices'}\n\n\n"
            "class Own(Base):\n    def most(self):\n        return self.index\n",
            Policy.FIFO,
            {"order", "prices"},
        ),
        (derived(Policy.FIFO, "replaces: set[str] = frozenset(['waiting'])"), Policy.FIFO, {"waiting"}),
    ],
)
def test_a_policy_is_read_without_executing_it(source: str, policy: Policy, replaces: set[str]) -> None:
    base, policy_file = read_policy("own", IS_RUN + source)
    assert (base, {*policy_file.replaces}) == (policy, replaces)
    genesis_batch(genesis_of(IS_RUN + source))
    assert not hasattr(builtins, "own_policy_has_run")
    try:
        assert phase_of_file(policy_file).replaces == replaces
        assert hasattr(builtins, "own_policy_has_run"), "the file that a run executes"
    finally:
        vars(builtins).pop("own_policy_has_run", None)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (
            derived(Policy.FIFO, "replaces = FifoPhase.replaces | {'order'}"),
            "file own.py, line 5: Own.replaces: expected a set written out, such as {'order'}, since it is read",
        ),
        ("import nothing_such\n\n\nclass Own(nothing_such.Phase): ...\n", "shipped policy, such as"),
        (
            derived(Policy.FIFO, "longest_wait_blocks = 60 * 2"),
            "file own.py, line 5: Own.longest_wait_blocks: expected a positive integer, or None, written out",
        ),
        (derived(Policy.FIFO, "longest_wait_blocks = '64'"), "expected a positive integer, or None, written out; got"),
        (
            derived(Policy.FIFO, "policy_parameters = dict(most=1)"),
            "file own.py, line 5: Own.policy_parameters: expected names with their bounds written out, such as {'most_",
        ),
        (derived(Policy.FIFO, "policy_parameters = {'Most': {}}"), "expected names of lower-case letters, digits and"),
        (
            derived(Policy.FIFO, "policy_parameters = {'most': {'default': 1, 'max': 2}}"),
            "file own.py: Own.policy_parameters.most: expected 'default', 'min' and 'max', got {'default'",
        ),
        *(
            (
                derived(
                    Policy.FIFO, f"policy_parameters = {{'most': {{'default': {default}, 'min': 1, 'max': {most}}}}}"
                ),
                "Own.policy_parameters.most: expected integers of at most 128 bits, min <= default <= max, got",
            )
            for default, most in (("0", "2"), ("3", "2"), ("1.0", "2"), ("True", "2"), ("1", f"{2**128}"))
        ),
        (
            derived(Policy.FIFO, "def candidates(self):", "    return self.own['most']"),
            "file own.py, line 6: policy_parameters has no 'most'",
        ),
    ],
)
def test_what_cannot_be_read_without_executing_it_is_refused(source: str, line: str) -> None:
    with pytest.raises(PolicyError) as raised:
        read_policy("own", source)
    assert line in str(raised.value)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (
            "Own.replaces = {'order'}\n",
            "file own.py: Own: is derived from fifo and replaces order when it runs, but from fifo and nothing as it",
        ),
        (
            "Own.policy_parameters = {'most': {'default': 1, 'min': 1, 'max': 1}}\n",
            "file own.py: Own.policy_parameters: when it runs it is not what is written",
        ),
        (
            "from validator.policies import cip1\nOwn = type('Own', (cip1.Cip1Phase,), {})\n",
            "file own.py: Own: is derived from cip1 and replaces nothing when it runs, but from fifo and nothing as",
        ),
    ],
)
def test_a_policy_that_runs_as_another_than_it_reads_is_one_line(more: str, line: str) -> None:
    _, policy_file = read_policy("own", derived(Policy.FIFO) + more)
    with pytest.raises(PolicyError) as raised:
        phase_of_file(policy_file)
    assert line in str(raised.value)


INVENTED = (
    "def candidates(self):",
    "    for timer in self.eligible():",
    "        yield self.turn(timer)._replace(timer_id=bytes(32))",
)
TWICE = (
    "def candidates(self):",
    "    for timer in [*self.eligible(), *self.eligible()]:",
    "        yield self.turn(timer)",
)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (INVENTED, rf"^file own\.py, line 8: Own\.candidates: timer {'00' * 32} is none that is due; take those of"),
        (TWICE, r"^file own\.py, line 8: Own\.candidates: timer [0-9a-f]{64} came twice$"),
    ],
)
def test_candidates_that_do_not_wait_or_come_twice_are_one_line(lines: Sequence[str], problem: str) -> None:
    chain = chain_of(derived(Policy.FIFO, 'replaces = {"order"}', *lines), FULL)
    chain.run(schedule(2, gas_limit=1_000, expires_at=90))
    chain.block()
    with pytest.raises(PolicyError, match=problem):
        chain.block()


def test_methods_of_a_policy_may_use_what_they_set_themselves() -> None:
    lines = ("def candidates(self):", "    self.mine = [*super().candidates()]", "    return iter(self.mine)")
    assert fired(crowd(chain_of(derived(Policy.FIFO, *lines))).blocks[-1]) is not None


@pytest.mark.parametrize("name", ["", "Own", "a\nb", "../own", "a" * 65])
def test_a_name_that_no_file_may_have_is_one_line(name: str) -> None:
    with pytest.raises(PolicyError, match=r"^a file's name: expected lower-case letters, .* got ") as raised:
        read_policy(name, DEADLINES)
    assert "\n" not in str(raised.value)


def test_every_shipped_phase_may_be_derived_from() -> None:
    for policy, phase in PHASES.items():
        base, policy_file = read_policy("own", derived(policy))
        assert base is policy
        assert issubclass(phase_of(policy_file, phase), phase)
    assert phase_of(policy_file, phase) is phase_of(policy_file, phase), "a text is executed once"
