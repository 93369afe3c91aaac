"""Which worlds are the same: in both, the same votes may be cast from now on, and complete the same certificates.

This holds for an engine that follows the rules. With one that does not, a world that is taken for another may differ in
what breaks a rule. So each step from it is checked all the same (:mod:`kits.explore.search`).

The reductions 1 to 5 are in :mod:`kits.explore.moves`, 6 is in the offers. A world's key has what is
offered, the votes that may still complete a certificate, and for each validator its future: all on which its next votes
depend.

7. **Voters are counted, not named.** The offers do not differ by the signers of a certificate, nor the open votes of a
   block by theirs.
8. **Validators of one role are interchangeable.** The futures are sorted. A future has the views that its validator is
   to lead, so the validators that are to lead views are not confused with each other, nor with the rest.
9. **Dead votes are not counted.** A vote of which fewer can still be cast than lack to a quorum completes no
   certificate, however many were cast. What a validator can still cast follows from its own state, and only shrinks, in
   a restart too. Whether a validator may finalize a view does not matter once no further vote makes its block final.
10. **What can be learned at no cost is not told apart.** A certificate that is offered and forbids no vote is as good
    as known. In Simplex only a nullification forbids one, to finalize its view, which the future has; in HotStuff a
    certificate forbids what the lock does. What leaders build on is known by what they choose it by. In a view in which
    a validator has voted, only whether it gave the view up counts: it neither proposes nor notarizes any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from consensus.messages import VoteKind
from consensus.types import FIRST_VIEW, GENESIS_VIEW, ValidatorIndex, View
from kits.explore.locals import Local, Locals
from kits.explore.moves import Moves
from kits.explore.offers import Offers
from kits.explore.scope import Scope

COUNT_BITS: Final = 4
"""Bits of a number of validators."""
NUMBER_BITS: Final = 32
"""Bits of a number of offers or of a future in a key."""
LIMIT_BITS: Final = 16
"""Bits of a number of restarts, or of votes that give views up."""


class Chances(NamedTuple):
    """What may still come about in a world."""

    number: int
    """Equal numbers: the same offers, and as many votes of each certificate that may still come about."""
    final: tuple[View, ...]
    """The views in which a further vote may make a block final."""


class Sameness:
    """The keys of one exploration's worlds."""

    def __init__(self, scope: Scope, moves: Moves, validators: Sequence[Locals]) -> None:
        assert len(validators) < 1 << COUNT_BITS, "a count of validators fits its bits"
        self._scope = scope
        self._moves = moves
        self._locals = validators
        self._views = tuple(map(View, range(FIRST_VIEW, scope.views + 1)))
        self._kinds = (VoteKind.NOTARIZE, VoteKind.FINALIZE, scope.gives_up)
        self._abilities: list[dict[int, int]] = [{} for _ in validators]
        self._chances: dict[tuple[int, int], Chances] = {}
        self._futures: dict[tuple[int, int, tuple[View, ...]], int] = {}
        self._numbers: dict[object, int] = {}

    def key(self, world: tuple[int, ...], offers: Offers, lives: int) -> object:
        """Equal keys: the same may happen from now on. ``lives`` is the number of restarts so far."""
        if not self._scope.reduced or self._scope.slow_disks:
            return world
        chances = self.chances(world, offers)
        key = chances.number << LIMIT_BITS | lives
        if self._scope.give_ups is not None:
            key = key << LIMIT_BITS | offers.given_up
        for future in sorted(self.futures(world, chances)):
            key = key << NUMBER_BITS | future
        return key

    # --- votes that may still be cast ---------------------------------------------------------------------------------

    def chances(self, world: tuple[int, ...], offers: Offers) -> Chances:
        """What may still come about, given how many validators can still cast each vote."""
        able = 0
        for place, number in enumerate(world):
            ability = self._abilities[place].get(number)
            if ability is None:
                ability = self._abilities[place][number] = self._ability(self._locals[place].all[number])
            able += ability
        chances = self._chances.get((offers.open, able))
        if chances is None:
            chances = self._chances[offers.open, able] = self._chances_of(offers, able)
        return chances

    def _ability(self, local: Local) -> int:
        """The votes that a validator can still cast, as counts of one for each kind and view."""
        ability = 0
        for kind in self._kinds:
            for view in self._views:
                if self.can_cast(local, kind, view):
                    ability += 1 << self._shift(kind, view)
        return ability

    def _shift(self, kind: VoteKind, view: View) -> int:
        return COUNT_BITS * (self._kinds.index(kind) * len(self._views) + view - FIRST_VIEW)

    def can_cast(self, local: Local, kind: VoteKind, view: View) -> bool:
        """Whether a validator may ever cast a vote of this kind and view again."""
        if kind == VoteKind.FINALIZE:
            return self._moves.may_finalize(local, view)
        if kind == VoteKind.NOTARIZE:
            return local.view < view or (local.view == view and not any(at == view for at, _ in local.own))
        return local.view <= view and not local.has_cast(kind, view)

    def _chances_of(self, offers: Offers, able: int) -> Chances:
        quorum, gives_up = self._scope.quorum, self._scope.gives_up
        is_shared = self._scope.byzantine is not None  # the byzantine validator votes for what is proposed later

        def able_to(kind: VoteKind, view: View) -> int:
            return able >> self._shift(kind, view) & (1 << COUNT_BITS) - 1

        def most_cast(kind: VoteKind, view: View) -> int:
            cast = (len(votes) for what, votes in offers.votes.items() if (what.kind, what.view) == (kind, view))
            return max(cast, default=int(is_shared))

        def is_open(view: View) -> bool:
            kinds = VoteKind.NOTARIZE, VoteKind.FINALIZE
            is_possible = all(most_cast(kind, view) + able_to(kind, view) >= quorum for kind in kinds)
            return is_possible and most_cast(VoteKind.FINALIZE, view) < quorum

        final = tuple(filter(is_open, self._views))
        lacking = frozenset(
            (what, len(votes))
            for what, votes in offers.votes.items()
            if len(votes) < quorum <= len(votes) + able_to(what.kind, what.view)
            and (what.kind != VoteKind.FINALIZE or what.view in final)
        )
        highs = frozenset(
            (view, highs)
            for view, highs in offers.highs.items()
            if (able_now := able_to(gives_up, view)) and len(highs) + able_now >= quorum
        )
        return Chances(self._number(("open", offers.number, lacking, highs)), final)

    # --- what each validator may do -----------------------------------------------------------------------------------

    def futures(self, world: tuple[int, ...], chances: Chances) -> list[int]:
        """A number for each validator; equal numbers, also of different validators: they may do the same."""
        futures, final = [], chances.final
        for place, number in enumerate(world):
            future = self._futures.get((place, number, final))
            if future is None:
                key = self.future(self._scope.honest[place], self._locals[place].all[number], final)
                future = self._futures[place, number, final] = self._number(key)
            futures.append(future)
        return futures

    def future(self, index: ValidatorIndex, local: Local, final: tuple[View, ...]) -> object:
        """All on which the next votes of a validator depend. ``final`` has the views whose blocks may become final.

        Which validator it is matters only while it is to lead a view.
        """
        view, last = local.view, self._scope.views
        heard = dict(local.heard)
        open_views = tuple((each, heard.get(each)) for each in final if self._moves.may_finalize(local, each))
        if view > last:
            return open_views
        now: object
        has_given_up = local.has_cast(self._scope.gives_up, view)
        if any(at == view for at, _ in local.own):
            now = has_given_up
        else:
            now = local.proposal, local.is_verifying, local.building_on
        leads = tuple(self._moves.to_lead(index, local))
        known: object = None
        if self._scope.is_hotstuff:
            known = local.high if leads or view < last or not has_given_up else None
        elif leads:
            known = _parents(local)
        life = local.life if leads else 0  # the leader's block differs by life
        return open_views, view, now, known, leads, life

    def _number(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _parents(local: Local) -> tuple[object, ...]:
    """What decides about a Simplex leader's parent: the newest notarized block, and the views skipped since."""
    newest = local.notarized[-1:]
    since = newest[0][0] if newest else GENESIS_VIEW
    return newest, tuple(view for view, _ in local.skipped if view > since)
