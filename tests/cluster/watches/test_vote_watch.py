"""The watch on votes names each promise that is broken, and says nothing of one that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import msgspec
import pytest

from cluster.disks.memory import MemoryDisk
from cluster.watches.vote_watch import VoteWatch
from consensus.journal import Record, encode_record
from consensus.keys import Committee
from consensus.messages import Certificate, TimeoutCertificate, Vote, VoteKind, encode
from consensus.types import Digest, ValidatorIndex, View
from tests.cluster.records import make_chain
from tests.cluster.watches.seen import make_machine
from tests.consensus.bench import FINALIZE, NAMESPACE, NOTARIZE, NULLIFY, TIMEOUT, HotStuffBench
from validator.chain.block import Block, header_hash
from validator.chain.messages import ViewReport
from validator.node.events import Joined
from validator.primitives.codec import decode
from validator.primitives.types import Height
from validator.storage.journal import JOURNAL_FILE, encode_batch, encode_journal, open_journal

BENCH = HotStuffBench(n=7)
ME = 2
BODY = make_chain(1).blocks[0].block
DIGEST = Digest(header_hash(decode(BODY, Block).header))
NONCE = b"this join"


def vote(kind: VoteKind, view: int, parent: int | None = None, name: str = "b") -> Vote:
    """A vote of the validator that is watched; notarize votes are for the block that has a body."""
    made = BENCH.vote(ME, kind, view, name, parent)
    return msgspec.structs.replace(made, digest=DIGEST) if kind == NOTARIZE else made


class Watched:
    """A watch, and the disk of the one validator that it is about."""

    def __init__(self, epochs: tuple[Committee, ...] = ()) -> None:
        bench = HotStuffBench(n=7, epochs=epochs)
        names = [f"validator-{index}" for index in range(7)]
        self.looks: list[str] = []
        self.violations: list[str] = []
        self.disk = MemoryDisk()
        self.watch = VoteWatch(names, self.look, bench.validators, NAMESPACE)

    def look(self, rule: str, holds: bool, what: str) -> None:
        self.looks.append(rule)
        if not holds:
            self.violations.append(f"{rule}: {what}")

    def write(self, *records: Record, bodies: tuple[bytes, ...] = (BODY,), is_synced: bool = True) -> None:
        self.disk.append(JOURNAL_FILE, encode_batch(map(encode_record, records), bodies))
        if is_synced:
            self.disk.sync(JOURNAL_FILE)

    def send(self, *votes: Vote) -> None:
        for each in votes:
            self.watch.votes(make_machine(ME, disk=self.disk), each)

    def say(self, *records: Record) -> None:
        """Journal each record, and send it where it is a vote."""
        for record in records:
            self.write(record)
            if isinstance(record, Vote):
                self.send(record)


# --- durable_votes ----------------------------------------------------------------------------------------------------


def test_a_vote_is_sent_once_its_own_append_is_synced() -> None:
    watched = Watched()
    watched.write(vote(NOTARIZE, 1), is_synced=False)
    first = watched.disk.written(JOURNAL_FILE)
    watched.write(vote(NULLIFY, 1), is_synced=False)
    watched.disk.sync(JOURNAL_FILE, first)
    watched.send(vote(NOTARIZE, 1))
    assert watched.violations == []
    watched.send(vote(NULLIFY, 1))
    assert watched.violations == ["durable_votes: validator-2 nullifies view 1, and its vote is not durable"]
    watched.disk.sync(JOURNAL_FILE)
    watched.send(vote(NULLIFY, 1))
    assert len(watched.violations) == 1
    assert watched.looks.count("durable_votes") == 3


def test_a_notarize_vote_takes_the_blocks_body() -> None:
    watched = Watched()
    watched.write(vote(NOTARIZE, 1), bodies=(b"no block",))
    watched.send(vote(NOTARIZE, 1))
    assert watched.violations == ["durable_votes: validator-2 notarizes view 1, and the block's body is not durable"]


def test_what_a_restart_reads_is_repeated_once_it_is_durable() -> None:
    watched = Watched()
    watched.write(vote(NULLIFY, 1), is_synced=False)
    assert watched.disk.read(JOURNAL_FILE), "a process that ended in good order left it"
    watched.send(vote(NULLIFY, 1))
    assert len(watched.violations) == 1
    open_journal(watched.disk)
    watched.send(vote(NULLIFY, 1))
    assert len(watched.violations) == 1


def test_a_journal_that_was_replaced_holds_what_it_holds_now() -> None:
    watched = Watched()
    watched.say(vote(NULLIFY, 1), vote(NULLIFY, 2))
    watched.disk.replace(JOURNAL_FILE, encode_journal([encode_record(vote(NULLIFY, 2))], ()))
    watched.send(vote(NULLIFY, 2))
    assert watched.violations == []
    watched.send(vote(NULLIFY, 1))
    assert [text.split(":")[0] for text in watched.violations] == ["durable_votes"]


# --- own_votes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_another_life", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (vote(TIMEOUT, 5, 3), vote(TIMEOUT, 5, 4), "times out of view 5, and did so before with another vote"),
        (vote(FINALIZE, 5), vote(FINALIZE, 5, name="x"), "finalizes view 5, and did so before with another vote"),
        (vote(NULLIFY, 5), vote(NOTARIZE, 5), "notarizes view 5, which it gave up"),
        (vote(NULLIFY, 5), vote(FINALIZE, 5), "finalizes view 5, which it gave up"),
        (vote(FINALIZE, 5), vote(NULLIFY, 5), "nullifies view 5, which it voted to finalize"),
        (vote(FINALIZE, 5), vote(TIMEOUT, 5, 4), "times out of view 5, which it voted to finalize"),
        (vote(FINALIZE, 5), vote(TIMEOUT, 8, 4), "times out of view 8, naming view 4, and it voted to finalize view 5"),
        (vote(TIMEOUT, 8, 7), vote(FINALIZE, 6), "finalizes view 6, and it timed out of view 8"),
    ],
)
def test_a_promise_that_is_broken_is_named(before: Vote, after: Vote, what: str, is_another_life: bool) -> None:
    watched = Watched()
    watched.say(BENCH.certificate(NOTARIZE, 5, "b"), BENCH.certificate(NOTARIZE, 6, "b"), BENCH.high(7) or before)
    watched.say(before)
    if is_another_life:
        watched.disk = MemoryDisk()
    watched.say(after)
    assert f"own_votes: validator-2 {what}" in watched.violations


def test_votes_that_go_together_are_no_fault() -> None:
    watched = Watched()
    watched.say(vote(NOTARIZE, 1), BENCH.certificate(NOTARIZE, 1, "b"), vote(FINALIZE, 1), vote(TIMEOUT, 2, 1))
    watched.say(BENCH.certificate(NOTARIZE, 3, "b"), vote(FINALIZE, 3), vote(NOTARIZE, 4), vote(TIMEOUT, 4, 3))
    watched.send(vote(FINALIZE, 1), vote(TIMEOUT, 4, 3))
    assert watched.violations == []
    assert watched.looks.count("own_votes") == 6


# --- lock -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("journal", "what"),
    [
        ([vote(FINALIZE, 3)], "finalizes view 3, with no certificate of its block in the journal"),
        ([BENCH.certificate(NULLIFY, 3), vote(FINALIZE, 3)], "finalizes view 3, with no certificate of its block"),
        ([BENCH.high(3), vote(TIMEOUT, 4, 2)], "times out of view 4, naming view 2, and its journal certifies 3"),
        ([BENCH.high(3), vote(TIMEOUT, 4, 3)], None),
        ([vote(TIMEOUT, 4, 2), BENCH.high(3)], None),
        ([BENCH.timeouts(3, 2), vote(TIMEOUT, 4, 2)], None),
    ],
)
def test_a_vote_below_what_the_journal_certifies_is_named(
    journal: list[Vote | Certificate | TimeoutCertificate], what: str | None
) -> None:
    watched = Watched()
    watched.say(*journal)
    assert [what is not None and f"lock: validator-2 {what}" in text for text in watched.violations] == [True] * (
        what is not None
    )


def test_the_lock_outlives_a_restart() -> None:
    watched = Watched()
    watched.write(vote(NOTARIZE, 3), BENCH.high(3) or vote(NOTARIZE, 3))
    watched.send(vote(NOTARIZE, 3))
    open_journal(watched.disk)
    watched.say(vote(TIMEOUT, 4, 1))
    assert watched.violations == [
        "lock: validator-2 times out of view 4, naming view 1, and its journal certifies 3",
    ]


def test_a_snapshot_of_the_journal_is_not_ordered_by_time() -> None:
    """A certificate that came after a timeout stands before it there."""
    watched = Watched()
    records: list[Record] = [BENCH.certificate(NOTARIZE, 3, "b"), vote(TIMEOUT, 4, 1)]
    watched.disk.replace(JOURNAL_FILE, encode_journal(map(encode_record, records), ()))
    watched.send(vote(TIMEOUT, 4, 1))
    assert watched.violations == []


# --- abstention -------------------------------------------------------------------------------------------------------


def report(opened_by: int, nonce: bytes = NONCE, signers: Sequence[int] = range(5)) -> ViewReport:
    certificate = BENCH.certificate(NULLIFY, opened_by, signers=signers)
    return ViewReport(nonce, encode(certificate))


def join(
    watched: Watched, reports: dict[int, ViewReport], entered: int = 0, abstains_through: int | None = None
) -> None:
    """By default it abstains up to one view above the highest that was proved."""
    watched.disk = MemoryDisk()
    machine = make_machine(ME, name=f"validator-{ME}", view=entered, joining=SimpleNamespace())
    watched.watch.begins_to_join(machine, NONCE)
    for sender, each in reports.items():
        watched.watch.hears(machine, make_machine(sender), each)
    highest = max(watched.watch._memories[ME].proved.values(), default=0)
    machine.joining.abstain_through = highest + 1 if abstains_through is None else abstains_through
    watched.watch.performs(machine, Joined(Height(1)))


ENOUGH = {0: report(6), 1: report(9), 3: report(8), 4: report(9), 5: ViewReport(NONCE, b"")}


def test_who_joins_abstains_through_one_above_the_highest_view_told() -> None:
    watched = Watched()
    join(watched, ENOUGH)
    assert watched.violations == []
    watched.say(vote(NULLIFY, 12))
    assert watched.violations == []
    assert watched.looks.count("abstention") == 3
    watched.say(vote(NULLIFY, 11))
    assert watched.violations == ["abstention: validator-2 nullifies view 11, and must abstain through view 11"]


@pytest.mark.parametrize("through", [10, 12, 1_010])
def test_who_joins_abstains_neither_shorter_nor_longer(through: int) -> None:
    watched = Watched()
    join(watched, ENOUGH, abstains_through=through)
    told = f"abstention: validator-2 ends its join and abstains up to view {through}, and was proved view 10"
    assert watched.violations == [told]


def test_who_joins_abstains_through_what_it_entered_before_and_names_no_lower_view() -> None:
    watched = Watched()
    join(watched, ENOUGH, entered=20)
    watched.say(vote(NULLIFY, 20), vote(TIMEOUT, 22, 19), vote(TIMEOUT, 23, 20))
    assert watched.violations == [
        "abstention: validator-2 nullifies view 20, and must abstain through view 20",
        "abstention: validator-2 times out of view 22, naming view 19, and may have finalized view 20",
    ]


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({}, 0),
        ({5: report(9, signers=range(4))}, 1),
        ({5: ViewReport(NONCE, b"noise")}, 1),
        ({4: report(9, nonce=b"another join"), 5: ViewReport(b"another join", b"")}, 2),
    ],
)
def test_a_join_takes_the_proved_views_of_enough_peers(changes: dict[int, ViewReport], missing: int) -> None:
    watched = Watched()
    join(watched, ENOUGH | changes)
    expected = f"abstention: validator-2 ends its join, and {missing} more peers had to prove their views"
    assert watched.violations == ([expected] if missing else [])


def test_outsiders_of_the_committee_do_not_make_up_for_members() -> None:
    members = tuple(map(ValidatorIndex, (2, 3, 4, 5, 6)))
    watched = Watched(epochs=(Committee(View(5), members),))
    proof = report(9, signers=members)
    told = {each: ViewReport(NONCE, b"") for each in (0, 1)} | dict.fromkeys((3, 4), proof)
    join(watched, told)
    assert watched.violations == [
        "abstention: validator-2 ends its join, and 1 more peers had to prove their views",
    ]
    again = Watched(epochs=(Committee(View(5), members),))
    join(again, told | {5: proof})
    assert again.violations == []
