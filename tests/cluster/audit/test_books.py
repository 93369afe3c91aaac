"""The longest chain of a run, and the final queries to validators."""

from __future__ import annotations

import pytest

from cluster.audit.books import MAX_PENDING_ASKED, KeptLedger, final_queries, keep_books
from cluster.audit.chains import longest_chain
from cluster.audit.ledger import Ledger
from tests.cluster.checks.cases import other_branch
from tests.cluster.records import ACTOR, USER_ADDRESS, ChainMaker, ledger_of, make_record, with_late
from validator.chain.transactions import address_of
from validator.primitives.types import address_text


def test_the_longest_chain_is_an_unmutated_one_where_there_is_a_choice() -> None:
    record = make_record()
    record.validators[0].mutant, record.validators[0].blocks = "planted", other_branch(9).blocks
    assert longest_chain(record.validators) == record.validators[1].blocks
    assert longest_chain([]) == []


def test_the_longest_chain_goes_on_with_what_a_late_validator_has_on_top_of_it() -> None:
    record = with_late(make_record(), snapshot=4)
    whole = list(record.validators[0].blocks)
    for validator in record.validators[:3]:
        validator.blocks = validator.blocks[:10]
    assert longest_chain(record.validators) == whole
    record.validators[3].blocks = other_branch(8).blocks[4:]
    assert longest_chain(record.validators) == whole[:10], "it is not the same chain"
    assert longest_chain(record.validators[3:]) == [], "no validator has what lies below"


def test_questions_are_bounded_and_begin_with_the_proposers() -> None:
    maker = ChainMaker()
    for _ in range(10):
        for _ in range(40):
            maker.schedule(1_000)
        maker.seal()
    asked = final_queries(ledger_of(maker.genesis, maker.blocks))
    assert len(asked.timers) == MAX_PENDING_ASKED
    assert asked.accounts[:4] == tuple(address_text(address_of(key)) for key in maker.genesis.validators)
    assert asked.accounts[4:] == (*sorted(map(address_text, (USER_ADDRESS, ACTOR))),)


def test_a_ledger_of_other_blocks_or_above_a_tip_is_built_again() -> None:
    record = make_record()
    record.kept_ledger = KeptLedger(other_branch(9).blocks, Ledger(record.genesis)).advance()
    assert keep_books(record).ledger is not record.kept_ledger.ledger
    chain = record.validators[0].blocks
    record.kept_ledger = kept = KeptLedger([*chain[:5], chain[6]], Ledger(record.genesis)).advance()
    assert kept.ledger.broken and not keep_books(record).ledger.broken, "a block of another chain has ended it"
    record.kept_ledger = KeptLedger(chain, Ledger(record.genesis)).advance()
    record.validators[3].blocks = chain[:10]
    books = keep_books(record)
    assert books.ledger is not record.kept_ledger.ledger
    assert (books.tips["validator-3"].height, books.tips["validator-0"].height) == (10, 12)


def test_a_ledger_that_followed_the_run_is_not_fed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    record = make_record()
    chain = record.validators[0].blocks
    record.validators[3].blocks = chain[:10]
    built = keep_books(record)
    kept = KeptLedger(chain[:10], Ledger(record.genesis)).advance()
    record.kept_ledger = kept = KeptLedger.of_run(record, chain, kept)
    assert kept.tips.keys() == {0, 10, 12}
    assert kept.advance({12}).ledger.height == 12
    monkeypatch.setattr(Ledger, "apply", None)
    books = keep_books(record)
    assert books.ledger is kept.ledger
    assert books.tips == built.tips and len(books.tips) == 4
    assert (books.tips["validator-3"].height, books.tips["validator-0"].height) == (10, 12)
    assert books.findings == built.findings == []
