"""The books kept while a run goes on: what is asked of whom, what is told, and what stays of those who go."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Self

import msgspec
import pytest

from cluster.audit.books import keep_books
from cluster.audit.proofs import ProofAudit
from cluster.checks.run import check_run
from cluster.common.outcome import Outcome
from cluster.record.archive import BlockRecord
from cluster.record.chain_store import block_digest
from cluster.record.run import RunRecord
from cluster.watches.live import collect as collecting
from cluster.watches.live import live_audit as module
from cluster.watches.live.collect import collect
from cluster.watches.live.live_audit import LEDGER_LAG, LiveAudit
from loadgen.client import ClientError, Gone
from tests.cluster.checks.cases import other_branch
from tests.cluster.records import OUTSIDER_KEY, edit_receipts, make_chain, make_record, make_scenario
from validator.primitives.codec import pack_uint


@dataclass
class Served:
    """A validator behind HTTP: what it serves, and how often it was asked for what."""

    blocks: list[BlockRecord]
    first: int = 1
    is_silent: bool = False
    asked: Counter[str] = field(default_factory=Counter)

    pruned: int = 0
    """Blocks up to this height are gone."""
    page: dict[str, Any] = field(default_factory=dict)
    """Other fields of its pages than a correct validator has."""

    def part(self, first: int, count: int) -> list[BlockRecord]:
        if first <= max(self.pruned, self.first - 1):
            raise Gone("url", 410, "gone")
        return self.blocks[first - self.first :][:count] if first >= self.first else []


class FakeClient:
    """Stands in for the client of all validators, by their addresses."""

    served: dict[str, Served]

    def __init__(self, url: str, timeout_s: float) -> None:
        self._served = self.served[url]
        self.endpoint = f"http://{url}"

    def __enter__(self) -> Self:
        if self._served.is_silent:
            raise ClientError("no answer")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def status(self) -> dict[str, Any]:
        snapshot = self._served.first - 1
        page = {"snapshot_height": snapshot, "height": snapshot + len(self._served.blocks), "diverged": None}
        return page | {"first_block": max(self._served.pruned, snapshot) + 1} | self._served.page

    def supply(self) -> dict[str, Any]:
        return {"balances": 1, "burned": 0} | self._served.page

    def blocks(self, first: int, count: int) -> list[tuple[bytes, bytes, bytes]]:
        self._served.asked["blocks"] += (found := len(self._served.part(first, count)))
        return [(b.block, b.receipts, b.computed_root) for b in self._served.part(first, count)][:found]

    def block_digests(self, first: int, count: int) -> list[bytes]:
        found = [block_digest(block) for block in self._served.part(first, count)]
        self._served.asked["digests"] += len(found)
        return found


@dataclass
class Network:
    """Four validators, and the audit of their run."""

    record: RunRecord
    served: list[Served]
    audit: LiveAudit

    @property
    def urls(self) -> dict[int, str]:
        return {index: str(index) for index in range(len(self.served))}

    def look(self, diverged: frozenset[int] = frozenset()) -> list[str]:
        """What is new after a round."""
        self.audit.look(self.urls, frozenset())
        self.audit.go_round()
        return self.audit.look(self.urls, diverged)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    maker = make_chain(12)
    whole = make_record(maker)
    record = RunRecord(make_scenario(), "live", 1, "0123456789ab", maker.genesis)
    record.finalizations, record.proposals = whole.finalizations, whole.proposals
    record.duration_ms = whole.duration_ms
    served = [Served(list(maker.blocks)) for _ in range(4)]
    client = type("Client", (FakeClient,), {"served": {str(index): each for index, each in enumerate(served)}})
    monkeypatch.setattr(module, "ValidatorClient", client)
    monkeypatch.setattr(collecting, "ValidatorClient", client)
    return Network(record, served, LiveAudit(record))


def test_each_block_is_fetched_once_and_compared_with_all(network: Network) -> None:
    assert network.look() == []
    assert sorted(each.asked["blocks"] for each in network.served) == [0, 0, 0, 12]
    assert sorted(each.asked["digests"] for each in network.served) == [0, 12, 12, 12]
    assert {found.tip for found in network.audit.known.values()} == {12}
    assert not any(found.blocks.differing for found in network.audit.known.values())  # type: ignore[attr-defined]
    page = network.audit.page
    assert (page["blocks"], page["compared"], page["ledger"]) == (12, 12, 12)
    assert page["violations"] == dict.fromkeys(module.WATCHED, 0)
    assert network.look() == [], "nothing is asked twice"
    assert sum((each.asked for each in network.served), Counter()) == {"blocks": 12, "digests": 36}


def test_pending_timers_are_counted_by_tier_if_they_are_wanted(network: Network) -> None:
    network.look()
    assert network.audit.tiers is None
    network.audit.wants_tiers = True
    network.look()
    tiers, ledger = network.audit.tiers, network.audit.kept.ledger
    assert tiers is not None and sum(tiers.values()) == len(ledger.world.timers) and tiers["due"] == ledger.backlog
    network.audit.wants_tiers = False
    network.look()
    assert network.audit.tiers is None


def test_another_block_is_told_and_kept(network: Network) -> None:
    network.served[3].blocks[8:] = other_branch(9).blocks[8:]
    told = network.look()
    assert told[0] == "agreement: validator-3 has another block at height 9 than others"
    assert network.audit.page["violations"]["agreement"] == 4
    assert list(network.audit.known[3].blocks) == network.served[3].blocks
    assert network.served[3].asked["blocks"] == 4, "only what differs is fetched"


def test_a_root_of_its_own_is_told(network: Network) -> None:
    network.served[2].blocks[6] = replace(network.served[2].blocks[6], computed_root=b"\xee" * 32)
    told = network.look()
    assert [text.split(":")[0] for text in told] == ["state_roots"]
    assert "height 7" in told[0]


def test_receipts_of_its_own_are_told(network: Network) -> None:
    changed = edit_receipts(
        network.served[1].blocks[3], lambda receipts: msgspec.structs.replace(receipts, p50_tip=pack_uint(99))
    )
    for each in (network.served[1],):
        each.blocks[3] = replace(each.blocks[3], receipts=changed)
    network.served[1].blocks[12:] = []
    network.look()
    assert network.audit.counts["chain"] >= 1


def test_a_block_that_breaks_a_rule_is_told_by_the_ledger(network: Network) -> None:
    changed = edit_receipts(
        network.served[0].blocks[3], lambda receipts: msgspec.structs.replace(receipts, p50_tip=pack_uint(99))
    )
    for each in network.served:
        each.blocks[3] = replace(each.blocks[3], receipts=changed)
    told = network.look()
    assert any(text.startswith("conservation: height 4: receipts.p50_tip is 99,") for text in told)


def test_who_says_that_it_diverged_is_told_once(network: Network) -> None:
    (told,) = network.look(frozenset({1}))
    assert told.startswith("state_roots: validator-1 executed a final block to another result")
    assert network.look(frozenset({1})) == []


def test_the_record_has_the_first_violations_of_each_check_once(network: Network) -> None:
    for number in range(30):
        network.audit._tell("chain", f"problem {number % 15}")
    network.look(frozenset({1}))
    assert network.audit.counts["chain"] == 30
    seen = network.record.seen_violations
    assert seen["chain"] == [f"problem {number}" for number in range(module.MAX_SEEN)]
    assert len(seen["state_roots"]) == 1


def test_the_ledger_waits_for_those_who_are_behind(network: Network) -> None:
    network.served[2].blocks[7:] = []
    network.look()
    assert (network.audit.page["ledger"], network.audit.page["compared"]) == (7, 7)
    assert LEDGER_LAG > 12


def test_who_does_not_answer_is_left_alone_for_some_rounds(network: Network) -> None:
    network.served[2].is_silent = True
    network.look()
    network.served[2].is_silent = False
    for _ in range(module.ROUNDS_SKIPPED):
        network.look()
        assert network.audit.known[2].tip == 0
    network.look()
    assert network.audit.known[2].tip == 12


def test_what_a_lost_disk_had_stays_though_nobody_answers(network: Network) -> None:
    network.look()
    network.served[3].is_silent = True
    found, serves = network.audit.lose(3, "3")
    assert (found.tip, serves) == (12, False)
    assert network.audit.known[3].tip == 0


def test_who_joined_by_a_snapshot_begins_above_it(network: Network) -> None:
    network.served[3].first, network.served[3].blocks = 7, network.served[3].blocks[6:]
    network.look()
    network.look()
    found = network.audit.known[3]
    assert (found.first_height, found.tip, len(found.blocks)) == (7, 12, 6)


def test_nobody_prunes_what_somebody_lacks(network: Network) -> None:
    assert network.audit.prunable_height() == 0
    network.served[2].blocks[7:] = []
    network.look()
    assert network.audit.prunable_height() == 7
    assert network.audit.prunable_height({2}) == 12, "it was given up"
    network.audit.known[2].byzantine = ("equivocator",)
    assert network.audit.prunable_height() == 12


def test_what_was_taken_before_it_was_pruned_is_known(network: Network) -> None:
    blocks = [list(each.blocks) for each in network.served]
    for each in network.served:
        each.blocks[8:] = []
    network.look()
    for each, whole in zip(network.served, blocks, strict=True):
        each.blocks[:], each.pruned = whole, 8
    assert network.look() == []
    assert {found.tip for found in network.audit.known.values()} == {12}
    assert network.record.problems == []


def test_what_was_pruned_before_it_was_taken_is_told(network: Network) -> None:
    network.served[1].pruned = 4
    (told,) = network.look()
    problem = "validator-1 pruned blocks above height 0, the last one of its that was audited"
    assert told == f"chain: {problem}"
    network.look()
    assert network.record.problems == [problem], "once"
    assert network.audit.known[1].tip == 0


def test_byzantine_validators_are_not_asked_meanwhile(network: Network) -> None:
    network.audit.known[0].byzantine = ("equivocator",)
    network.served[0].blocks[:] = other_branch(2).blocks
    assert network.look() == []
    assert network.served[0].asked.total() == 0


def test_at_the_end_only_the_rest_is_asked(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [list(each.blocks) for each in network.served]
    for each in network.served:
        each.blocks[8:] = []
    network.look()
    for each, whole in zip(network.served, blocks, strict=True):
        each.blocks[:] = whole
        each.asked.clear()
    network.served[3].is_silent = True
    monkeypatch.setattr(collecting, "_take_answers", lambda client, found, asked: iter(()))
    monkeypatch.setattr(ProofAudit, "ask", lambda self, found, server, answers: iter(()))
    urls = {index: url for index, url in network.urls.items() if index != 3}
    collect(network.record, urls, lambda: None, network.audit)
    assert sum((each.asked for each in network.served), Counter()) == {"blocks": 4, "digests": 8}
    assert [found.tip for found in network.record.validators] == [12, 12, 12, 8], "what it served before is known"
    books = keep_books(network.record)
    assert books.ledger is network.audit.kept.ledger, "the books are not kept a second time"
    assert not books.findings
    agreement = check_run(network.record, books).check("agreement")
    assert agreement.verdict is Outcome.INCONCLUSIVE, "ten heights are needed of all"
    assert "the same block at all 8 heights of 4 validators" in agreement.detail


EXTERNAL = {"external": {"public_key": OUTSIDER_KEY, "address": "192.0.2.7:7000"}}


def test_an_external_validator_is_asked_only_for_heights_that_ours_served(network: Network) -> None:
    """It could serve blocks without end."""
    network.record.scenario = make_scenario(validators=[{}, {}, {}, EXTERNAL])
    blocks = network.served[0].blocks
    for each in network.served[:3]:
        each.blocks = blocks[:8]
    assert network.look() == []
    assert [network.audit.known[index].tip for index in (0, 3)] == [8, 8]
    assert (network.served[3].asked, len(network.record.store)) == ({"digests": 8}, 8)
    for each in network.served[:3]:
        each.blocks = blocks
    network.look()
    assert network.audit.known[3].tip == 12


@pytest.mark.parametrize(
    "page",
    [
        {"first_block": "9"},
        {"snapshot_height": 2**64},
        {"final_view": -1},
        {"starts": 1.5},
        {"disk_bytes": {"state": "many"}},
        {"transactions_refused": []},
        {"evidence": [{}] * 2_000},
        {"diverged": 3},
        {"balances": "all"},
        {"burned": None},
    ],
)
def test_a_page_of_other_types_is_one_that_is_not_answered(network: Network, page: dict[str, Any]) -> None:
    network.record.scenario = make_scenario(validators=[{}, {}, {}, EXTERNAL])
    network.served[3].page = page
    network.look()
    network.look()
    collect(network.record, {3: "3"}, lambda: None, network.audit)
    (problem,) = network.record.problems
    assert problem.startswith("validator-3 did not answer at the end: ") and next(iter(page)) in problem


def test_the_thread_ends_and_tells_what_ended_it(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    network.audit.start()
    network.audit.close()
    network.audit.close()
    broken = LiveAudit(network.record)

    def fail() -> None:
        raise OSError("no space left")

    monkeypatch.setattr(broken, "go_round", fail)
    broken.start()
    broken._pool.shutdown()
    with pytest.raises(OSError, match="no space left"):
        broken.look({}, frozenset())
    broken.close()
