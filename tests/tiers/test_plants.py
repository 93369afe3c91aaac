"""Planted bugs are there for a whole session, and what they replace can be watched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kits.mutation.detection import all_bugs
from tests.tiers.plants import CONTROL, places_of

ROOT = Path(__file__).resolve().parents[2]
PLANT = """
import sys
from tests.tiers.plants import plant
kept = plant(sys.argv[1])
from validator.policies.registry import PHASES
from validator.node.assembly import PRODUCTION, Parts, open_validator
from validator.transition.transition import Transition
assert Parts().transition is PRODUCTION.transition is open_validator.__defaults__[0].transition is Transition
print(Transition.__qualname__, Transition.phases is PHASES, *(phase.__qualname__ for phase in PHASES.values()))
"""


@pytest.mark.parametrize("name", all_bugs())
def test_each_replaces_something_that_a_test_can_reach(name: str) -> None:
    assert places_of(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("double-fire", "DoubleFire False DoubleFire DoubleFire DoubleFire DoubleFire"),
        ("wrong-balance", "WrongBalance True Cip1Phase FifoPhase GbaAuctionPhase BiasAuctionPhase"),
        (CONTROL, "Transition True Cip1Phase FifoPhase GbaAuctionPhase BiasAuctionPhase"),
    ],
)
def test_a_planted_bug_stands_wherever_the_original_did(name: str, expected: str) -> None:
    done = subprocess.run([sys.executable, "-c", PLANT, name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (expected, "")
