"""The ledger on blocks of ``gba_auction``: contended real ones pass in silence, and each broken rule is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from cluster.audit.ledger.ledger import Ledger
from tests.cluster.audit.ledger.test_lanes import require_agreement
from tests.validator.chains import ACTOR, ACTORS, OTHER, RICH, SMALL, USERS, make_genesis, schedule, script
from tests.validator.executors import Author, wire
from validator.chain.genesis import Policy, PolicyFile
from validator.chain.transactions import Call, Transfer
from validator.execution.timer_phase import TimerPhase
from validator.node.executor.jobs import Finalized
from validator.policies import gba_auction
from validator.policies.auction import AuctionPhase
from validator.policies.gba_auction import GbaAuctionPhase, GbaAuctionRules
from validator.primitives.types import Address

POOR = ACTORS[2]
HEIGHTS = 30
PARAMETERS = {**SMALL, "SCAN_LIMIT": 40, "TIMER_GC_CYCLES": 16_000, "EPOCH_LENGTH": 4, "RING_BUFFER_SIZE": 8}

Plant = Callable[[pytest.MonkeyPatch], None]


def timers(random: Random, count: int, bids: Sequence[int] = ()) -> list[Any]:
    """Timers of few tips, so that weights decide, and of three sizes, so that not all fit. Most bid one of ``bids``."""
    found = []
    for _ in range(count):
        burn = random.choice((0, 0, 2_000, 6_000))
        fields: dict[str, Any] = {"gas_limit": 1_000 + burn, "max_priority_fee_per_cycle": random.choice((0, 3, 3, 9))}
        if bids and random.random() < 0.8:
            fields["bid"] = random.choice(bids)
        if random.random() < 0.3:
            fields["save_as"] = "s"
        ends = random.choice(([["fail", ""]], [["try", ["cancel", {"saved": "s"}]]]))
        operations = [["burn", burn]] if random.random() < 0.8 else ends
        due = random.choice((1, 1, 2, 5))
        found.append(schedule(due, *operations, max_fee_per_cycle=2**60, expires_at=99, **fields))
    return [*found, ["try", ["cancel", {"saved": "s"}]]] if random.random() < 0.2 else found


def walk(
    seed: int,
    policy: Policy = Policy.GBA_AUCTION,
    bids: Sequence[int] = (),
    deployers: Mapping[Address, Address] | None = None,
    policy_file: PolicyFile | None = None,
    **params: Any,
) -> Ledger:
    """Build contended blocks, and enter each into the books; they agree with the state as long as nothing is found."""
    genesis = make_genesis(
        {**PARAMETERS, "TIE_BREAK": "aged", **params},
        actors={ACTOR: RICH, OTHER: RICH, POOR: 10**9},
        policy=policy,
        deployers=deployers,
    )
    genesis = replace(genesis, policy_file=policy_file)
    author, random, ledger = Author(genesis), Random(seed), Ledger(genesis)
    for height in range(1, HEIGHTS + 1):
        nonce = author.executor.pages.account(USERS[0])["nonce"]
        actions: list[Any] = [
            Call(actor, "run", script(*timers(random, random.choice((0, 2, 5)), bids)))
            for actor in (ACTOR, OTHER, POOR)
        ]
        if height % 6 == 0:
            actions.append(Transfer(POOR))
        wires = [
            wire(nonce + number, action=action, value=5 * 10**9 if isinstance(action, Transfer) else 0)
            for number, action in enumerate(actions)
        ]
        final = author.finalize(author.build(None, *wires).digest)
        assert isinstance(final, Finalized)
        archived = author.executor.archive.get(height)
        assert archived is not None
        ledger.apply(archived.block, archived.receipts)
        if not ledger.log.violations:
            require_agreement(ledger, author.executor.final_view)
    return ledger


def told(ledger: Ledger) -> str:
    return "\n".join(violation.what for violation in ledger.log.violations)


def require_silence(ledger: Ledger) -> None:
    """Nothing is found in blocks in which many timers fired and many waited."""
    assert told(ledger) == ""
    assert ledger.timers.fires > 60
    assert sum(ledger.blocks.column("backlog")) > 30, "timers wait"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("params", [{}, {"SCAN_LIMIT": 3}, {"BUDGET_SLICES": 1}, {"TIE_BREAK": "id"}], ids=str)
def test_contended_blocks_pass_in_silence(seed: int, params: dict[str, Any]) -> None:
    require_silence(walk(seed, **params))


def without_slices(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(GbaAuctionPhase, "slice_of", lambda *_: 10**9)


def one_pass(patched: pytest.MonkeyPatch) -> None:
    def scan(self: GbaAuctionPhase, candidates: Any) -> None:
        AuctionPhase.scan(self, self._of_actors(candidates, is_closed=False))
        self.index.parties.reopen()

    patched.setattr(GbaAuctionPhase, "scan", scan)


def leaves_one_within_its_slice(patched: pytest.MonkeyPatch) -> None:
    of_actors = GbaAuctionPhase._of_actors

    def without_the_second(self: GbaAuctionPhase, candidates: Any, is_closed: bool) -> Any:
        found = enumerate(of_actors(self, candidates, is_closed))
        yield from (each for at, each in found if is_closed or at != 1)

    patched.setattr(GbaAuctionPhase, "_of_actors", without_the_second)


def second_pass_backwards(patched: pytest.MonkeyPatch) -> None:
    of_actors = GbaAuctionPhase._of_actors

    def turned(self: GbaAuctionPhase, candidates: Any, is_closed: bool) -> Any:
        found = of_actors(self, candidates, is_closed)
        return reversed(list(found)) if is_closed else found

    patched.setattr(GbaAuctionPhase, "_of_actors", turned)


def destroys_who_cannot_pay(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(GbaAuctionPhase, "turn_away", TimerPhase.turn_away)


def ignores_weights(patched: pytest.MonkeyPatch) -> None:
    prices = GbaAuctionPhase._kernel_prices

    def without(self: GbaAuctionPhase) -> Any:
        found = prices(self)
        found["most_weight"] = found["starvation_weight"] = found["least_weight"]
        return found

    patched.setattr(GbaAuctionPhase, "_kernel_prices", without)


def scores_by_tip_alone(patched: pytest.MonkeyPatch) -> None:
    score = gba_auction.fire_score
    patched.setattr(gba_auction, "fire_score", lambda fire, *rest: score(fire, *rest) * (not fire.ok) // 2)


def pays_for_the_lane(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(GbaAuctionRules, "lane_price", lambda _self, basefee_lane, _parameters: basefee_lane)


def timers_last(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(GbaAuctionRules, "timers_first", False)


def keeps_the_lanes_basefee(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(GbaAuctionRules, "next_basefee_lane", lambda _self, basefee_lane, *_: basefee_lane)


@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (without_slices, "came after timers whose actors had used their slices, though its own actor had not"),
        (one_pass, "cycles fitted when its turn came"),
        (leaves_one_within_its_slice, "cycles fitted when its turn came"),
        (second_pass_backwards, "came out of turn of the auction"),
        (destroys_who_cannot_pay, "was destroyed for insufficient funds, where the policy carries it over"),
        (ignores_weights, "came out of turn of the auction"),
        (scores_by_tip_alone, "came out of turn of the auction"),
        (pays_for_the_lane, "burned"),
        (timers_last, "which its payer did not have"),
        (keeps_the_lanes_basefee, "basefee_lane_timer is "),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_broken_rule_is_named(monkeypatch: pytest.MonkeyPatch, plant: Plant, named: str) -> None:
    plant(monkeypatch)
    assert any(named in told(walk(seed)) for seed in range(3))
