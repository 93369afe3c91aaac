"""The exploration finds each planted bug of the consensus engines that shows in its worlds. The rest have a reason."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cluster.misbehaviour.planted import bugs_of_engines
from kits.explore.schedule import realise, replay
from kits.explore.scope import Scope
from kits.explore.search import Search

CRASH: Final = {"crashes": 1}
FORGER: Final = {"forges": True}

FOUND: Final[dict[str, tuple[str, int, dict[str, Any], str]]] = {
    "votes-before-journal": ("simplex", 1, {}, "durable_votes"),
    "quorum-of-2f": ("simplex", 1, {}, "certificates"),
    "finalizes-after-nullify": ("simplex", 1, {}, "own_votes"),
    "forgets-votes": ("simplex", 1, CRASH, "own_votes"),
    "forgets-nullify": ("simplex", 1, CRASH, "own_votes"),
    "proposes-again-after-restart": ("simplex", 1, CRASH, "own_votes"),
    "any-sync-releases-all": ("simplex", 1, {"slow_disks": True}, "durable_votes"),
    "wrong-view-certificate": ("simplex", 2, {"byzantine": 2}, "certificates"),
    "unchecked-certificates": ("simplex", 1, FORGER, "certificates"),
    "one-signature-short": ("simplex", 1, FORGER, "certificates"),
    "counts-names": ("simplex", 1, FORGER, "certificates"),
    "any-kind-of-vote": ("simplex", 1, FORGER, "certificates"),
    "any-chain": ("simplex", 1, FORGER, "certificates"),
    "skips-without-nullification": ("simplex", 2, {}, "ancestry"),
    "finalizes-after-timeout": ("hotstuff", 1, {}, "own_votes"),
    "finalizes-in-one-phase": ("hotstuff", 1, {}, "proved_final"),
    "lock-not-journaled": ("hotstuff", 1, {}, "lock"),
    "forgets-timeouts": ("hotstuff", 1, CRASH, "own_votes"),
    "timeout-without-lock": ("hotstuff", 2, {}, "lock"),
    "forgets-lock": ("hotstuff", 2, CRASH, "lock"),
    "votes-without-lock": ("hotstuff", 2, {"byzantine": 2}, "ancestry"),
    "unsigned-timeouts": ("hotstuff", 1, FORGER, "certificates"),
    "trusts-high-certificates": ("hotstuff", 2, FORGER, "certificates"),
    "no-high-certificate": ("hotstuff", 2, FORGER, "certificates"),
    "any-high-view": ("hotstuff", 2, FORGER, "certificates"),
    "any-parent-justified": ("hotstuff", 3, {"byzantine": 3, "give_ups": 2}, "ancestry"),
}
"""For each bug a world in which it is found: protocol, views, faults, and the rule that it breaks."""

ELSEWHERE: Final = {
    "time, of which the exploration has none": (
        "constant-timeouts",
        "counts-old-views",
        "steps-back-as-soon",
        "forgets-factor",
        "repeats-at-each-tick",
        "never-patient",
        "waits-for-who-gave-up",
        "gives-up-on-unverified",
        "gives-up-on-notarized",
    ),
    "retransmission, which the exploration takes for granted": (
        "helps-nobody",
        "ignores-late-proposals",
        "asks-by-index",
        "tells-who-is-not-behind",
        "forgives-forgers",
        "spares-forgers",
        "allowance-each-view",
        "proposes-at-each-tick",
    ),
    "memory over many views": ("keeps-certificates", "keeps-rounds"),
    "committees": ("counts-outsiders", "outsiders-in-certificates"),
    "lost disks": ("times-out-too-soon",),
}
"""The bugs that cannot show, by what they need."""

QUICK: Final = {name for name, (_, views, *_) in FOUND.items() if views == 1}


def test_each_bug_is_found_or_has_a_reason() -> None:
    engines = bugs_of_engines()
    named = [*FOUND, *(name for names in ELSEWHERE.values() for name in names)]
    assert sorted(named) == sorted(engines)


def check(name: str) -> None:
    protocol, views, faults, rule = FOUND[name]
    scope = Scope(protocol, views=views, mutant=name, **faults)
    found = Search(scope).run(100_000).found
    assert found is not None
    assert found.problem.split(":")[0] == rule
    schedule = realise(scope, found)
    assert replay(schedule).problem is not None


@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_bug_of_one_view_is_found(name: str) -> None:
    check(name)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.soak if views > 2 else pytest.mark.slow)
        for name, (_, views, *_) in sorted(FOUND.items())
        if views > 1
    ],
)
def test_a_bug_of_several_views_is_found(name: str) -> None:
    check(name)
