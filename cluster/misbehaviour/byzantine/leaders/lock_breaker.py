"""``lock-breaker``: with HotStuff, skips a certified block that a timeout certificate names.

This needs a block that is certified and not final, timeouts that name it, and the lead of the next view. The behaviour
brings about the first two: in a view that it leads, it withholds the certificate of the previous view's block and
proposes nothing. So the others give up both views; the validators that would have finalized that block have timed out
by then, and the timeouts of the second view name it. If the behaviour also leads the next view, it builds below, on the
newest final block.
"""

from __future__ import annotations

from collections.abc import Iterator

from cluster.misbehaviour.byzantine.base import BehaviourContext, Heard, forget_old
from cluster.misbehaviour.byzantine.leaders.forgetful_leader import ForgetfulLeader
from consensus.messages import Certificate, Message, Proposal, Timeout, TimeoutCertificate, VoteKind
from consensus.types import View
from validator.node.events import Effect, Send


class LockBreaker(ForgetfulLeader):
    name = "lock-breaker"
    description = "HotStuff: as leader, builds below the block that the timeouts before it name"
    protocol = "hotstuff"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._named: dict[int, View] = {}
        """The high view that each view's timeout certificate names, keyed by the timed-out view."""

    def hear(self, heard: Heard) -> list[Effect]:
        self._note(heard.message)
        return []

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        self._note(message)
        match message:
            case Certificate(kind=VoteKind.NOTARIZE) | Timeout():
                pass
            case Proposal() if self.is_ours(message.vote) and not self._breaks_a_lock(message.view):
                pass
            case _:
                yield from super().say(send, message)

    def _breaks_a_lock(self, view: View) -> bool:
        """Whether the behaviour's block of a view skips the certified block that the previous view's timeouts name."""
        return view in self._own and self._own[view][0] < self._named.get(view - 1, 0)

    def _note(self, message: Message) -> None:
        if isinstance(message, TimeoutCertificate):
            self._named[message.view] = message.high_view
            forget_old(self._named)
