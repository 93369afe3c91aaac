"""``stampede policy``: what it writes runs, what it checks is caught, and what it times adds up."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from cluster.audit.chains import longest_chain
from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.watches.watched_simulation import simulate
from kits.market.policy.drawn import drawn_scenario
from kits.market.policy.profiler import profile
from kits.market.policy.template import template
from tests.validator.chains import ACTOR, OTHER, Chain, schedule
from tests.validator.policies.own_policies import DEADLINES, HASHED, NEVER_ODD, STATED, chain_of
from validator.chain.genesis import Policy
from validator.policies.auction import AuctionPhase
from validator.policies.interface import AuctionPolicyPhase, PolicyPhase, PolicyRules
from validator.policies.own import phase_of_file, read_policy
from validator.policies.registry import PHASES

ITERATES_A_SET = """
from validator.policies.fifo import FifoPhase


class OfASet(FifoPhase):
    replaces = {"order"}
    passes_over = True

    def candidates(self):
        timers = {timer.timer_id: timer for timer in self.eligible()}
        ids = {timer_id.hex() for timer_id in timers}
        return (self.turn(timers[bytes.fromhex(each)]) for each in ids)
"""
"""The order is that of a set of texts. No line iterates what is written as a set."""
SLOW = """
from validator.policies.fifo import FifoPhase


class Slow(FifoPhase):
    def leave_out(self, candidate):
        return None

    def available(self, timer):
        self.wait()
        return super().available(timer)

    def wait(self):
        for each in range(50):
            each = each + 1
"""


def hooks(*interfaces: type) -> set[str]:
    return {name for each in interfaces for name in vars(each) if callable(vars(each)[name]) and name[0] != "_"}


def competing(chain: Chain) -> Chain:
    """Timers of two actors, more than fit into the lane, and the blocks in which they fire."""
    for number in range(5):
        offers = [
            schedule(1 + each % 2, gas_limit=2_000, max_fee_per_cycle=2**60, max_priority_fee_per_cycle=each)
            for each in range(4)
        ]
        chain.run(*offers, actor=(ACTOR, OTHER)[number % 2])
    for _ in range(6):
        chain.block()
    return chain


@pytest.mark.parametrize("policy", list(Policy))
def test_a_new_policy_has_every_hook_and_behaves_as_the_shipped_one(policy: Policy) -> None:
    text = template("my-own", policy)
    base, policy_file = read_policy("my-own", text)
    assert (base, policy_file.replaces) == (policy, frozenset())
    phase = phase_of_file(policy_file)
    kind = [each for each in phase.__mro__ if each.__name__ == "MyOwn"][-1]
    of_auction = [AuctionPolicyPhase] if issubclass(PHASES[policy], AuctionPhase) else []
    wanted = hooks(PolicyPhase, *of_auction)
    assert wanted <= vars(kind).keys() and hooks(PolicyRules) <= vars(type(phase.rules)).keys()
    assert all(vars(kind)[name].__doc__ for name in wanted)
    params = {"LANE_TIMER_CYCLES": 8_000}
    own = competing(chain_of(text, params))
    shipped = competing(Chain(replace(own.genesis, policy_file=None)))
    assert sum(len(outcome.receipts.fires) for outcome in own.blocks) > 10
    assert [outcome.state_root for outcome in own.blocks] == [outcome.state_root for outcome in shipped.blocks]


def test_new_writes_a_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["policy", "new", "mine", "--base", "cip1"]) == ExitCode.PASS
    assert (tmp_path / "mine.py").read_text(encoding="utf-8") == template("mine", Policy.CIP1)
    assert main(["policy", "check", "mine.py"]) == ExitCode.PASS
    capsys.readouterr()
    assert main(["policy", "new", "mine"]) == ExitCode.BAD_INPUT
    assert "mine.py: is there already" in capsys.readouterr().err
    assert main(["policy", "new", "My Own"]) == ExitCode.BAD_INPUT
    assert "NAME: expected lower-case letters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (DEADLINES, ExitCode.PASS, "the same under 3 hash seeds"),
        (HASHED, ExitCode.FAIL, "file own.py, line 11: hash() depends on the hash seed of the process"),
        (HASHED, ExitCode.FAIL, "state_roots: two executions of block"),
        (ITERATES_A_SET, ExitCode.FAIL, "state_roots: two executions of block"),
        (NEVER_ODD, ExitCode.FAIL, "its fire: the lane has room for its"),
        (STATED.replace('self.own["lane_price"]', "3"), ExitCode.FAIL, "no line reads self.own['lane_price']"),
    ],
)
def test_check_finds_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, code: ExitCode, said: str
) -> None:
    path = tmp_path / "own.py"
    path.write_text(text, encoding="utf-8")
    assert main(["policy", "check", str(path)]) == code
    assert said in capsys.readouterr().out


def test_a_drawn_run_has_the_parameters_and_follows_from_its_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.py"
    path.write_text(STATED, encoding="utf-8")
    one, again, other = (drawn_scenario(path, seed, ["most_fires=3"]) for seed in (1, 1, 2))
    assert one == again and one.load != other.load
    assert one.chain.policy_parameters == {"most_fires": 3}
    assert main(["policy", "check", str(path), "--param", "most_fires=0"]) == ExitCode.BAD_INPUT
    assert "chain.policy_parameters.most_fires: 0 is out of range, expected 1 to 9" in capsys.readouterr().err
    assert main(["policy", "check", str(path), "--param", "most_fires"]) == ExitCode.BAD_INPUT
    assert "--param most_fires: expected NAME=VALUE" in capsys.readouterr().err


def test_a_profile_has_the_time_of_each_line_and_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slow.py"
    path.write_text(SLOW, encoding="utf-8")
    record = simulate(drawn_scenario(path, 1, []), 1)
    blocks = longest_chain(record.lives)
    ticks = count()
    found = profile(record.genesis, blocks, lambda: next(ticks))
    assert found.blocks_ns == [1] * len(blocks), "nothing but the profiler looks at the clock"
    runs, times = found.lines.runs, found.lines.times_ns
    calling, loop, inner = (
        next(number for number, line in enumerate(SLOW.splitlines(), 1) if text in line)
        for text in ("self.wait()", "for each", "each = each")
    )
    assert runs[calling] > 0 and (runs[inner], runs[loop]) == (50 * runs[calling], 51 * runs[calling])
    assert times[inner] == runs[inner], "a line has the time until the next one"
    assert times[calling] > times[loop] + times[inner], "and that of what it calls"
    out = tmp_path / "profile.json"
    assert main(["policy", "profile", str(path), "--json", str(out)]) == ExitCode.PASS
    page = json.loads(out.read_text(encoding="utf-8"))
    assert {each["line"]: each["runs"] for each in page["lines"]} == dict(runs)
    assert len(page["blocks_ns"]) == len(blocks)
    assert "self.wait()" in capsys.readouterr().out
