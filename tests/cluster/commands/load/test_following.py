"""A chain that is followed over HTTP: what is final and when, and validators that do not answer."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.checks.metrics.load_latency import keys_in
from cluster.commands.load import following
from cluster.commands.load.following import ChainFollower
from loadgen.workloads.measures import is_chosen
from tests.cluster.records import ChainMaker, make_chain
from tests.loadgen.fake_validator import FakeChain, FakePages, ServerThread

HEIGHTS = 12


class ServedChain(FakePages):
    """A chain that grows when it is told to."""

    def __init__(self, made: ChainMaker) -> None:
        super().__init__(FakeChain(), 0)
        self.made, self.height, self.lies = made, 0, False

    async def status(self) -> dict[str, Any]:
        self._check_ready()
        return {"height": self.height, "backlog": 3, "pending_transactions": 2}

    def blocks(self, first: int, count: int) -> list[tuple[bytes, bytes, bytes]]:
        if self.lies:
            return [(b"no block", b"", bytes(32))]
        found = self.made.blocks[first - 1 : min(first - 1 + count, self.height)]
        return [(block.block, block.receipts, bytes(32)) for block in found]


def keys_of(made: ChainMaker, first: int, last: int) -> set[str]:
    return {key for each in made.blocks[first - 1 : last] for key in keys_in(each.block)}


def test_only_what_becomes_final_from_now_on_is_seen() -> None:
    pages = ServedChain(make_chain(HEIGHTS))
    with ServerThread(pages) as server:
        pages.height = 4
        follower = ChainFollower([server.url])
        look = follower.look()
        assert look is not None and (look.height, look.transactions, look.backlog, look.pending) == (4, 0, 3, 2)
        pages.height = 9
        look = follower.look()
        assert look is not None and look.height == 9
        assert set(follower.final) == keys_of(pages.made, 5, 9) and len(follower.final) == look.transactions
        before = dict(follower.final)
        pages.height = HEIGHTS
        follower.look()
        assert before.items() <= follower.final.items(), "the first time counts"


def test_another_validator_is_asked_if_one_does_not_answer() -> None:
    pages, silent = ServedChain(make_chain(HEIGHTS)), ServedChain(make_chain(HEIGHTS))
    pages.height, silent.ready = 5, False
    with ServerThread(pages) as server, ServerThread(silent) as other:
        follower = ChainFollower([other.url, server.url])
        assert follower.look() is None
        look = follower.look()
        assert look is not None and look.height == 5


def test_blocks_that_are_none_change_nothing() -> None:
    pages = ServedChain(make_chain(HEIGHTS))
    with ServerThread(pages) as server:
        follower = ChainFollower([server.url])
        assert follower.look() is not None
        pages.height, pages.lies = 3, True
        assert follower.look() is None
        pages.lies = False
        look = follower.look()
        assert look is not None and set(follower.final) == keys_of(pages.made, 1, 3)


def test_times_are_bounded_and_chosen_by_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_KEPT", 8)
    pages = ServedChain(make_chain(HEIGHTS))
    with ServerThread(pages) as server:
        follower = ChainFollower([server.url])
        follower.look()
        pages.height = HEIGHTS
        follower.look()
        assert 0 < len(follower.final) <= 8 and follower.chosen_bits > 0
        everything = keys_of(pages.made, 1, HEIGHTS)
        assert set(follower.final) == {key for key in everything if is_chosen(key, follower.chosen_bits)}
