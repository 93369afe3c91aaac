"""A vote that an engine counts without an event is one that it handles without effects, with the same result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from consensus.keys import Committee
from consensus.messages import Message, Vote
from consensus.tally import Rounds, VoteTally
from consensus.types import ValidatorIndex, View
from tests.consensus.bench import FINALIZE, NOTARIZE, NULLIFY, Bench, HotStuffBench
from tests.consensus.test_hostile import CONFIG, running
from tests.validator.rewriting import rewrite

BENCHES = (Bench, HotStuffBench)
SEEDS = range(4)


def contents(value: Any, above: tuple[int, ...] = ()) -> Any:
    """What an object of the consensus package holds, down to the values that can be compared."""
    if isinstance(value, dict):
        fields: Any = list(value.items())
        fields += list(vars(value).items()) if hasattr(value, "__dict__") else []
        return [(key, contents(field, above)) for key, field in fields]
    if isinstance(value, list):
        return [contents(each, above) for each in value]
    if not type(value).__module__.startswith("consensus.") or isinstance(value, msgspec.Struct) or id(value) in above:
        return value if isinstance(value, msgspec.Struct | int | bytes | tuple | set | range | None) else type(value)
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [
        (name, contents(getattr(value, name), (*above, id(value))))
        for name in [*names, *getattr(value, "__dict__", ())]
    ]


def said_around_view_6(bench: Bench, random: Random) -> Message:
    """A vote of one of few views, most often for the same block as others, or rarely a certificate or a timeout."""
    signer, view, kind = random.choice((0, 1, 1, 2, 2, 3, 3)), random.randint(2, 8), random.choice((NOTARIZE, FINALIZE))
    name, parent = (f"b{view}", view - 2) if random.random() < 0.9 else ("x", view - 1)
    what = random.random()
    if what < 0.05:
        return bench.certificate(kind, view, name, parent, signers=range(3))
    if what < 0.1:
        return bench.vote(signer, NULLIFY, view)
    if what < 0.15:
        return HotStuffBench().timeout(signer, view, high=parent)
    return bench.vote(signer, kind, view, name, parent)


def compare(bench_type: type[Bench], seed: int) -> int:
    """Give two engines the same messages. One counts the votes that it can, the other handles all. Returns how many
    were counted."""
    random, counted = Random(seed), 0
    for _ in range(10):
        counting, handling = running(bench_type), running(bench_type)
        for _ in range(50):
            message = said_around_view_6(handling, random)
            vote = message if isinstance(message, Vote) else getattr(message, "vote", None)
            sender = random.randrange(4) if vote is None or random.random() < 0.03 else vote.signer
            if isinstance(message, Vote):
                before = contents(counting.engine._rounds)
                if counting.engine.take_vote(sender, message):
                    counted += 1
                    assert handling.receive(sender, message) == []
                    continue
                assert contents(counting.engine._rounds) == before
            assert counting.receive(sender, message) == handling.receive(sender, message)
            assert contents(counting.engine._rounds) == contents(handling.engine._rounds)
        assert contents(counting.engine) == contents(handling.engine)
    return counted


@pytest.mark.parametrize("bench_type", BENCHES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_counted_vote_has_no_effect_and_leaves_the_engine_as_if_it_was_handled(
    bench_type: type[Bench], seed: int
) -> None:
    assert compare(bench_type, seed) > 20


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        (Rounds.take_vote, "vote.signer != sender", "False"),
        (Rounds.take_vote, "sender == self._member.index", "False"),
        (Rounds.take_vote, "view + 1 >= known.view", "True"),
        (Rounds.take_vote, "view not in known.skips", "True"),
        (Rounds.take_vote, "TIMEOUT not in known.by_kind", "True"),
        (Rounds.take_vote, "if certificate is not None and (certificate.digest", "if False and (certificate.digest"),
        (Rounds.take_vote, "(vote, certificate is not None)", "(vote, True)"),
        (Rounds.take_vote, "self.last_heard[sender] < view", "False"),
        (VoteTally.add_usual, "signer in kept[kind] or", ""),
        (VoteTally.add_usual, "or signer in kept[NULLIFY]", ""),
        (VoteTally.add_usual, "len(group) + 1 >= self._quorum", "len(group) >= self._quorum"),
        (VoteTally.add_usual, "kept[kind][signer] = group[signer] = vote", "group[signer] = vote"),
    ],
)
def test_a_vote_that_is_counted_though_it_has_an_effect_is_seen(
    function: Callable[..., Any], old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(monkeypatch, function, old, new)
    with pytest.raises(AssertionError):
        _ = [compare(bench_type, seed) for seed in SEEDS for bench_type in BENCHES]


def test_a_vote_from_outside_the_committee_is_not_counted() -> None:
    epochs = (Committee(View(1), tuple(map(ValidatorIndex, range(4)))),)
    bench = Bench(n=7, config=CONFIG, epochs=epochs)
    assert bench.engine.take_vote(3, bench.vote(3, NOTARIZE, 1, "x"))
    assert not bench.engine.take_vote(5, bench.vote(5, NOTARIZE, 1, "x"))


def test_a_vote_outside_the_window_is_not_counted_even_if_its_round_exists() -> None:
    bench = running(Bench)
    assert not bench.receive(1, bench.vote(1, NOTARIZE, 10, "x"))
    bench.engine.configure(replace(CONFIG, view_window=2))
    assert not bench.engine.take_vote(2, bench.vote(2, NOTARIZE, 10, "x"))
