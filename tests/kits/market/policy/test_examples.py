"""The examples of ``scenarios/policies``: each runs, is audited, and does what the page of policies says."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from tests.validator.chains import Chain, fired, schedule
from tests.validator.policies.own_policies import PAGE, genesis_of
from validator.execution.timer_calls import LanePrices, SchedulingTerms
from validator.execution.timer_phase import LaneUse
from validator.policies.own import with_parameters
from validator.primitives.meter import Meter

FOLDER: Final = Path(__file__).parents[4] / "scenarios" / "policies"
NAMES: Final = ("ageing", "deadlines", "second_price")


def source(name: str) -> str:
    return (FOLDER / f"{name}.py").read_text(encoding="utf-8")


def chain_of(name: str, params: dict[str, Any] | None = None, **given: int) -> Chain:
    genesis = genesis_of(source(name), params)
    assert genesis.policy_file is not None
    return Chain(replace(genesis, policy_file=with_parameters(genesis.policy_file, given)))


def offer(tip: int, due: int = 2, **more: Any) -> Any:
    more = {"max_fee_per_cycle": 2**60, "max_priority_fee_per_cycle": tip, "gas_limit": 2_000, **more}
    return schedule(due, **more)


def tips_of(chain: Chain) -> list[int]:
    """The tips for each cycle that fires offered, in the order of the fires of the first block that has some."""
    while not fired(outcome := chain.block()):
        pass
    return [int.from_bytes(fire.tip_per_cycle) for fire in outcome.receipts.fires]


def test_the_folder_has_the_examples_of_the_page() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(NAMES)
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)\.py` \|", page, re.MULTILINE) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_and_is_audited(name: str) -> None:
    assert main(["policy", "check", str(FOLDER / f"{name}.py")]) == ExitCode.PASS


def test_with_ageing_a_timer_that_has_waited_comes_before_a_greater_tip() -> None:
    narrow = {"LANE_TIMER_CYCLES": 8_000, "MAX_FIRES_PER_BLOCK": 2}
    for growth, first in ((0, [9, 9]), (4_000, [3, 9])):
        chain = chain_of("ageing", narrow, growth_milli=growth)
        chain.run(offer(9), offer(9), offer(3), offer(9, due=3), offer(9, due=3))
        assert tips_of(chain) == [9, 9]
        assert tips_of(chain) == first
        chain.require_conservation()


def test_the_lane_costs_what_is_posted() -> None:
    chain = chain_of("ageing", lane_price=5)
    assert chain.run(offer(0, max_fee_per_cycle=4)).error == "TimerRejectedBelowBasefee"
    chain.run(offer(0, max_fee_per_cycle=5))
    while not fired(outcome := chain.block()):
        pass
    (fire,) = outcome.receipts.fires
    prices = outcome.prices
    assert int.from_bytes(fire.burned) == fire.cycles * (prices.basefee_cycle + 5) + fire.cells * prices.basefee_cell


def test_the_earliest_deadline_comes_first() -> None:
    chain = chain_of("deadlines")
    chain.run(*(schedule(2, gas_limit=1_000, expires_at=end) for end in (90, 50, 70)))
    ends: dict[bytes, int] = {timer.timer_id: timer.expires_at for timer in chain.timers()}
    while not fired(outcome := chain.block()):
        pass
    assert [ends[fire.timer_id] for fire in outcome.receipts.fires] == [50, 70, 90]


@pytest.mark.parametrize(("reserve", "paid"), [(0, [5, 2, 0]), (3, [5, 3, 2])])
def test_a_fire_tips_what_the_next_offers(reserve: int, paid: list[int]) -> None:
    chain = chain_of("second_price", reserve_tip=reserve)
    chain.run(offer(2), offer(9), offer(5))
    while not fired(outcome := chain.block()):
        pass
    fires = outcome.receipts.fires
    assert [int.from_bytes(fire.tip_per_cycle) for fire in fires] == [9, 5, 2]
    assert [int.from_bytes(fire.tip) // fire.cycles for fire in fires] == paid
    chain.require_conservation()


@pytest.mark.parametrize("lost", ["self.use.tips -= rebate", "self.world.credit(timer.fee_payer, rebate)"])
def test_a_charge_that_does_not_add_up_is_caught(tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: str) -> None:
    text = source("second_price")
    assert lost in text
    path = tmp_path / "broken.py"
    path.write_text(text.replace(lost, "pass"), encoding="utf-8")
    assert main(["policy", "check", str(path)]) == ExitCode.FAIL
    assert "seed 1: " in capsys.readouterr().out


def test_the_page_has_each_attribute_with_its_unit() -> None:
    rows = re.findall(r"^\| `([a-z_]+\.[a-z0-9_]+)` \| .+ \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    wanted = {
        "terms": [*(each.name for each in fields(SchedulingTerms)), "cap"],
        "prices": [each.name for each in fields(LanePrices)],
        "use": [each.name for each in fields(LaneUse)],
        "meter": Meter.__slots__,
    }
    assert {name for name, unit in rows if unit and not name.endswith(".py")} == {
        f"{of}.{name}" for of, names in wanted.items() for name in names
    }
