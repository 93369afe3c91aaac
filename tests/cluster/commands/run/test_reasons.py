"""Why runs of programs failed, which no receipt says: blocks that are as recorded are executed once more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.audit.books import Books, keep_books
from cluster.checks.run import judge_run
from cluster.commands.run import reasons
from cluster.commands.run.reasons import note_reasons
from cluster.report.tables import failed_run_pages
from cluster.scenario.model import Scenario
from cluster.watches.watched_simulation import simulate

FAILS = """class Auction(Actor):
    def start(self, payload):
        self.schedule(self.height + 2, payload, "close")
        self.schedule(self.height + 2, payload, "tell")
        self.send(self.address, "rank", 5)
        self.schedule(self.height + 2, {"all": 1}, "start", tier="Fast")

    def begin(self, payload):
        self.schedule(self.height + 2, payload, "close")
        self.schedule(self.height + 2, payload, "tell")
        self.send(self.address, "rank", 5, 9000)

    def close(self, payload):
        self.schedule(self.height + 2, payload, "close", tier=4)

    def tell(self, payload):
        assert payload == "never", "no bids"

    def rank(self, payload):
        return sorted([payload, "a"])
"""
EXPECTED = {
    (
        "transaction",
        "ValueError",
    ): "tier: expected one of economy, standard, fast, urgent, got 'Fast'; line 6, in start",
    ("fire", "TypeError"): "expected a text, got an integer; line 14, in close",
    ("fire", "ActorError: no bids"): "line 17, in tell",
    (
        "message",
        "TypeError",
    ): "only values of one kind can be sorted together: numbers, texts, bytes or tuples of these; line 20, in rank",
}


CALLS = [{"handler": "start", "payload": {"turn": "t"}}, {"handler": "begin", "payload": {"turn": "t"}}]
USERS = [
    {"workload": "program", "count": 1, "options": {"program": {"name": "auction", "source": FAILS}, "calls": CALLS}},
    {"workload": "heartbeat", "count": 1},
]
FAILING = {"name": "failing", "validators": 1, "load": {"users": USERS}, "stop": {"height": 24}}


@pytest.fixture(scope="module")
def kept() -> Books:
    return keep_books(simulate(Scenario.model_validate(FAILING), 5))


def found(books: Books) -> dict[tuple[str, str], str | None]:
    return {(page["kind"], page["error"]): page["reason"] for page in failed_run_pages(books, {})}


def test_each_failed_run_of_a_program_has_its_words_and_its_line(kept: Books) -> None:
    books = replace(kept, reasons={})
    assert set(found(books).values()) == {None}
    note_reasons(books)
    assert found(books) == EXPECTED
    warnings = judge_run(books.record, books).verdict.warnings
    assert any("failed always" in each and each.endswith("(line 17, in tell)") for each in warnings)


def test_blocks_that_do_not_execute_as_recorded_give_no_reasons(kept: Books) -> None:
    first = min(each.first_height for each in kept.ledger.outcomes.failures)
    chain = [*kept.chain]
    chain[first - 1] = replace(chain[first - 1], receipts=chain[0].receipts)
    books = replace(kept, chain=chain, reasons={})
    note_reasons(books)
    assert books.reasons == {}


@pytest.mark.parametrize("bound", ["MAX_BLOCKS", "MAX_RUNS"])
def test_no_more_blocks_than_the_bounds_allow_are_executed(
    kept: Books, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = min(each.first_height for each in kept.ledger.outcomes.failures)
    monkeypatch.setattr(reasons, bound, first - 1 if bound == "MAX_BLOCKS" else 0)
    books = replace(kept, reasons={})
    note_reasons(books)
    assert books.reasons == {}
