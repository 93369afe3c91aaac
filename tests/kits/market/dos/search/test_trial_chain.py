"""The trial chain: blocks of the real transition, the same for the same seed, with the planted bug if there is one."""

from __future__ import annotations

import pytest

from kits.market.dos.search.evaluation import Problem
from kits.market.dos.search.objectives import NOTHING
from kits.market.dos.search.space import Attack
from kits.market.dos.search.trial_chain import TrialChain
from tests.kits.market.dos.search.planted import WEAKNESSES
from validator.state.working_set import World

BLOCKS = 12
ATTACK: Attack = [{"count": 4, "timers": 2, "interval_ms": 500, "from_height": 1}]
BIDDERS: Attack = [{"timers": 8, "interval_ms": 500, "from_height": 1, "agent": "slow"}]


def small(name: str, is_planted: bool = True) -> Problem:
    problem = WEAKNESSES[name].problem(is_planted)
    return Problem(problem.scenario_json, problem.objective_name, problem.budget, problem.seed, BLOCKS)


def blocks(problem: Problem, seed: int) -> list[bytes]:
    chain = TrialChain(problem.attacked(ATTACK), seed)
    return [chain.block().receipts_root for _ in range(BLOCKS)]


def test_equal_seeds_give_equal_blocks() -> None:
    problem = small("ground-ties")
    assert blocks(problem, 1) == blocks(problem, 1) != blocks(problem, 2)


def test_honest_users_and_attackers_act_and_amounts_add_up() -> None:
    problem = small("ground-ties")
    scenario = problem.attacked(ATTACK)
    chain = TrialChain(scenario, 1)
    outcomes = [chain.block() for _ in range(BLOCKS)]
    attackers = scenario.load.attacking_addresses(1)
    senders = {each.sender in attackers for outcome in outcomes for each in outcome.receipts.transactions}
    actors = {fire.actor in attackers for outcome in outcomes for fire in outcome.receipts.fires}
    assert senders == actors == {True, False}
    world = World(outcomes[-1].view)
    accounts = [*chain.genesis.accounts, *chain.genesis.actors, outcomes[-1].receipts.proposer]
    assert sum(map(world.balance, accounts)) + world.globals.burned == world.globals.minted


@pytest.mark.parametrize("is_planted", [True, False])
def test_a_planted_bug_runs_only_if_the_scenario_plants_it(is_planted: bool) -> None:
    problem = small("free-queries", is_planted)
    chain = TrialChain(problem.attacked(BIDDERS), 1)
    queries = [query for _ in range(BLOCKS) for query in chain.block().receipts.queries]
    assert queries
    assert (chain.mutated.runs > 0) == is_planted


def test_an_attack_that_does_nothing_has_no_fitness() -> None:
    found = small("ground-ties").evaluate([{"above_backlog": 900}])
    assert found.fitness == NOTHING and not found.effect.acted
