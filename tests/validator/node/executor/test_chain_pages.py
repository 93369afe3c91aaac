"""Pages over a chain that was executed: how timers ended, events, proofs, parameters, and what was burned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from consensus.certificates import verify_finalization
from consensus.keys import Ed25519Scheme, ValidatorSet
from consensus.messages import Certificate, VoteKind, encode, vote_signing_bytes
from consensus.types import Digest, PublicKey, Signature, ValidatorIndex, View
from tests.validator.chains import ACTOR, ALICE, CHAIN_ID, OTHER, RICH, VALIDATOR_KEYS, make_genesis, schedule, script
from tests.validator.executors import Author, wire
from validator.chain.block import Block, Header, header_hash
from validator.chain.receipts import NOTHING_BURNED, Burned
from validator.chain.records import GLOBALS, account_key, decode_record
from validator.chain.transactions import Call
from validator.node.executor import queries as pages
from validator.node.executor.executor import Executor
from validator.node.executor.jobs import Finalized
from validator.node.executor.queries import Cursor, EventFilter, StatePages
from validator.primitives.codec import decode
from validator.primitives.types import Hash, address_text
from validator.state import HistoryError
from validator.state.proof import verify
from validator.storage import archive, places

LAST = 6
SMALL_LANE = {"LANE_TIMER_CYCLES": 20_000, "MAX_CYCLES_PER_FIRE": 8_000, "MAX_CYCLES_PER_FIRE_AUCTION_PHASE": 8_000}
"""Two timers fill it: a third one waits, and expires."""


class Line:
    """A short chain in which a timer ends in every way there is."""

    def __init__(self) -> None:
        genesis = make_genesis(SMALL_LANE, "hardened", actors={ACTOR: RICH, OTHER: 5})
        self.author = Author(genesis)
        poor = Call(OTHER, "run", script(schedule(2, ["burn", 1], max_priority_fee_per_cycle=20)))
        self.finals: list[Finalized] = []
        self.names = ("fired", "reverted", "expired", "insufficient_funds", "cancelled", "pending")
        self.block(
            wire(0, schedule(2, ["emit", "ring", "x"], ["burn", 6_500], max_priority_fee_per_cycle=9)),
            wire(1, schedule(2, ["emit", "lost", "y"], ["burn", 6_000], ["fail", "no"], max_priority_fee_per_cycle=8)),
            wire(2, schedule(2, ["burn", 1], expires_at=3, max_priority_fee_per_cycle=1)),
            wire(3, action=poor),
            wire(4, schedule(20, ["burn", 1], save_as="c")),
            wire(5, schedule(1_000, ["burn", 1])),
        )
        self.block(wire(6, ["emit", "ring", "y"], ["cancel", {"saved": "c"}]))
        for _ in range(LAST - 2):
            self.block()
        first = self.pages.block(1)
        assert first is not None
        receipts = [self.pages.receipt(bytes.fromhex(each)) for each in first["transactions"]]  # type: ignore[arg-type]
        self.timers = {
            name: bytes.fromhex(receipt["scheduled"][0])
            for name, receipt in zip(self.names, receipts, strict=True)
            if receipt is not None
        }

    @property
    def executor(self) -> Executor:
        return self.author.executor

    @property
    def pages(self) -> StatePages:
        return self.executor.pages

    def block(self, *wires: bytes) -> None:
        built = self.author.build(None, *wires)
        assert len(built.block.transactions) == len(wires)
        final = self.author.finalize(
            built.digest, certificate_of(built.block) if built.block.header.height == 4 else b""
        )
        assert isinstance(final, Finalized)
        self.finals.append(final)


def certificate_of(block: Block) -> bytes:
    """A finalization by all validators."""
    view, digest = View(block.header.view), Digest(header_hash(block.header))
    signed = vote_signing_bytes(CHAIN_ID.encode(), VoteKind.FINALIZE, view, View(view - 1), digest)
    votes = {ValidatorIndex(index): Signature(key.sign(signed).signature) for index, key in enumerate(VALIDATOR_KEYS)}
    return encode(Certificate.of(VoteKind.FINALIZE, view, View(view - 1), digest, votes))


@pytest.fixture(scope="module")
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.executor.close()


# --- timers -----------------------------------------------------------------------------------------------------------

ENDS: dict[str, dict[str, Any]] = {
    "fired": {"height": 3, "error": None, "fee_payer": address_text(ACTOR), "trigger_height": 3},
    "reverted": {"height": 3, "error": "ScriptFailed", "events": []},
    "expired": {"height": 4, "fee": 0, "actor": address_text(ACTOR)},
    "insufficient_funds": {"height": 3, "fee": 0, "actor": address_text(OTHER)},
    "cancelled": {"height": 2, "fee": 0, "events": []},
    "pending": {"trigger_height": 1_001, "due_height": 1_001},
}


@pytest.mark.parametrize("name", ENDS)
def test_what_happened_to_a_timer_is_told_after_its_end(line: Line, name: str) -> None:
    page = line.pages.timer(line.timers[name])
    assert page is not None
    assert (page["timer_id"], page["state"]) == (line.timers[name].hex(), name)
    assert {field: page[field] for field in ENDS[name]} == ENDS[name]
    assert line.pages.is_pending(line.timers[name]) == (name == "pending")


def test_a_fire_says_what_it_cost_and_left_behind(line: Line) -> None:
    page = line.pages.timer(line.timers["fired"])
    assert page is not None
    assert page["fee"] == page["burned"] + page["tip"] > 0
    assert page["events"] == [{"name": "ring", "actor": address_text(ACTOR), "data": "x"}]
    assert page["receipt"] == {"kind": "fire", "id": line.timers["fired"].hex()}


def test_who_cancelled_a_timer_is_told(line: Line) -> None:
    page, block = line.pages.timer(line.timers["cancelled"]), line.pages.block(2)
    assert page is not None and block is not None
    assert page["receipt"] == {"kind": "transaction", "id": block["transactions"][0]}


def test_the_ends_that_came_last_are_known_after_a_restart_too(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    again = Executor(line.author.disk, line.author.genesis)
    assert all(again.pages.timer(timer) == line.pages.timer(timer) for timer in line.timers.values())
    again.close()
    monkeypatch.setattr(archive, "MAX_ENDED_TIMERS", 2)
    monkeypatch.setattr(places, "MAX_RECENT", 1)
    few = Executor(line.author.disk, line.author.genesis)
    known = {name for name, timer in line.timers.items() if few.pages.timer(timer) is not None}
    assert known == {"reverted", "expired", "pending"}
    few.close()


# --- events -----------------------------------------------------------------------------------------------------------


def names(page: dict[str, Any] | None) -> list[str]:
    assert page is not None
    return [item["event"]["name"] for item in page["events"]]


ALL = ["ring", "TimerCancelledInsufficientFunds", "ring", "TimerExpired"]


def test_events_from_the_first_block_on(line: Line) -> None:
    page = line.pages.events(None, EventFilter())
    assert names(page) == ALL
    assert page is not None and (page["next"], page["height"]) == (f"{LAST + 1}.0", LAST)
    first = page["events"][0]
    assert (first["height"], first["index"], first["receipt"]["kind"]) == (2, 0, "transaction")
    assert first["event"] == {"name": "ring", "actor": address_text(ACTOR), "data": "y"}


@pytest.mark.parametrize(
    ("start", "wanted", "expected"),
    [
        (Cursor(3), EventFilter(), ALL[1:]),
        (Cursor(3, 1), EventFilter(), ALL[2:]),
        (Cursor(3, 9), EventFilter(), ALL[3:]),
        (Cursor(99), EventFilter(), []),
        (None, EventFilter(name="ring"), ["ring", "ring"]),
        (None, EventFilter(name="Ring"), []),
        (None, EventFilter(actor=OTHER), ["TimerCancelledInsufficientFunds"]),
        (None, EventFilter(actor=ACTOR, name="TimerExpired"), ["TimerExpired"]),
    ],
)
def test_events_that_are_wanted(line: Line, start: Cursor | None, wanted: EventFilter, expected: list[str]) -> None:
    assert names(line.pages.events(start, wanted)) == expected


@pytest.mark.parametrize(("limit", "most"), [("MAX_EVENTS", 1), ("MAX_EVENTS_BYTES", 1), ("MAX_EVENT_BLOCKS", 1)])
def test_pages_of_events_are_bounded_and_lose_nothing(
    line: Line, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(pages, limit, most)
    found, start, count = [], None, 0
    while start is None or start.height <= LAST:
        page = line.pages.events(start, EventFilter())
        assert page is not None
        if limit != "MAX_EVENT_BLOCKS":
            assert len(page["events"]) <= 1
        found += names(page)
        assert start is None or Cursor.parse(page["next"]) > start
        start, count = Cursor.parse(page["next"]), count + 1
    assert found == ALL and count >= 4


# --- proofs -----------------------------------------------------------------------------------------------------------


def test_a_block_is_proved_final_by_the_next_certificate(line: Line) -> None:
    proof = line.pages.finality(2)
    assert proof is not None
    headers = [decode(each, Header) for each in (proof.header, *proof.links)]
    assert [header.height for header in headers] == [2, 3, 4]
    assert all(header_hash(one) == other.parent_hash for one, other in pairwise(headers))
    keys = ValidatorSet(tuple(PublicKey(bytes(key.verify_key)) for key in VALIDATOR_KEYS), Ed25519Scheme())
    assert verify_finalization(proof.certificate, Digest(header_hash(headers[-1])), keys, CHAIN_ID.encode())
    page = proof.page
    assert (page["height"], page["signers"], len(page["links"])) == (2, [0, 1, 2, 3], 2)
    assert page["certified_hash"] == header_hash(headers[-1]).hex()
    own = line.pages.finality(4)
    assert own is not None and own.links == []
    assert json.loads(json.dumps(page)) == page


@pytest.mark.parametrize("height", [0, 5, LAST + 1])
def test_what_is_not_proved_final(line: Line, height: int) -> None:
    assert line.pages.finality(height) is None


def test_state_is_proved_at_the_final_height_and_at_kept_ones(line: Line) -> None:
    key = account_key(ALICE)
    values = []
    for height in (None, 1, 2):
        page = line.pages.proof(key, height)
        root = Hash(bytes.fromhex(page["state_root"]))
        header = line.pages.block(page["height"])
        assert header is not None and header["state_root"] == page["state_root"]
        assert verify(root, key, bytes.fromhex(page["proof"])) == bytes.fromhex(page["value"])
        values.append(page["value"])
    assert page["height"] == 2 and values[1] != values[2]
    assert line.pages.proof(b"nothing", None)["value"] is None
    with pytest.raises(HistoryError, match=f"height {LAST + 1} is not retained"):
        line.pages.proof(key, LAST + 1)


# --- the chain --------------------------------------------------------------------------------------------------------


def test_parameters_with_policy_and_preset(line: Line) -> None:
    page = line.pages.parameters()
    assert (page["policy"], page["preset"], page["height"], page["changed"]) == ("cip1", "hardened", LAST + 1, [])
    assert page["parameters"]["PRIORITY_FLOOR"] == 1
    assert page["parameters"] == json.loads(json.dumps(line.author.genesis.parameters.to_names()))
    assert "PRIORITY_FLOOR" in page["governed"]


def test_the_validators_keys(line: Line) -> None:
    page = line.pages.validators()
    assert page["chain_id"] == CHAIN_ID and page["epochs"] == []
    assert [each["public_key"] for each in page["validators"]] == [
        bytes(key.verify_key).hex() for key in VALIDATOR_KEYS
    ]


def test_what_was_burned_is_told_by_price(line: Line) -> None:
    total = NOTHING_BURNED
    for final in line.finals:
        total = total.plus(final.burned)
    kept = decode_record(GLOBALS, line.executor.final_view.get(GLOBALS) or b"")
    assert sum(total) == kept.burned == sum(line.pages.burned().values())
    assert min(total) > 0
    assert total.lane_timer == kept.burned_timer_lane == line.pages.burned()["timer_lane"]
    assert Burned(1, 2, 3).plus(Burned(10, 20, 30)) == (11, 22, 33)
