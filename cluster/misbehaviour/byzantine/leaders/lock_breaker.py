"""``lock-breaker``: with HotStuff, has a certified block passed over that a timeout certificate names.

It needs a block that is certified and not final, timeouts that name it, and the lead right after them. The first two it
brings about: in a view that it leads it keeps what certifies the block of the view before to itself and proposes
nothing. So the others give up both views; those who would have finalized that block have timed out by then, and the
timeouts of the second view name it. Where the lead is its own once more, it builds on the newest final block, below.
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
        """By view, the high view of its timeout certificate."""

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
        """Whether what was built for us in a view is below what the timeouts of the view before name."""
        return view in self._own and self._own[view][0] < self._named.get(view - 1, 0)

    def _note(self, message: Message) -> None:
        if isinstance(message, TimeoutCertificate):
            self._named[message.view] = message.high_view
            forget_old(self._named)
