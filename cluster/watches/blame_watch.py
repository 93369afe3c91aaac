"""The watch of blames: it checks what a validator says of its peers' misbehaviour.

- It says of no honest peer with the same code that it sent what no honest peer sends.
- It blames the sender of an invalid certificate of its view or of a later one, unless it ignores that sender for an
  earlier one (:mod:`cluster.watches.restraint_watch`).
- It blames the peers of whose misbehaviour it has proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.audit.safety.rule_log import Look
from cluster.record.rules import SafetyRule
from cluster.simulation.machine import Machine
from cluster.watches.watch import Watch
from consensus.messages import Certificate
from validator.node.events import Effect, Event, EvidenceFound, Message, PeerFault


class BlameWatch(Watch):
    """Checks in one run whom honest validators blame."""

    effects = frozenset({PeerFault})
    SUBJECTS = frozenset({Certificate})
    JUDGED = frozenset({EvidenceFound})

    def __init__(
        self,
        names: Sequence[str],
        look: Look,
        machines: Sequence[Machine],
        is_signed: Callable[[Certificate], bool],
        distrusts: Callable[[Machine, int, int], bool],
    ) -> None:
        """``distrusts(machine, view, peer)`` says whether a validator in this view ignores a peer's certificates."""
        super().__init__(names, look)
        self._machines = machines
        self._is_signed = is_signed
        self._distrusts = distrusts

    def performs(self, machine: Machine, effect: PeerFault) -> None:
        """Check that a validator does not blame an honest peer."""
        peer = self._machines[effect.peer]
        if machine.deviation == peer.deviation:
            what = f"{machine.name} says {effect.reason} of {peer.name}, which is honest"
            self._look(SafetyRule.BLAMES, peer.byzantine is not None, what)

    def judge(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """Check that a validator blames whom it must."""
        blamed = {(effect.peer, effect.reason) for effect in effects if type(effect) is PeerFault}
        if type(event) is Message and type(event.content) is Certificate:
            self._look_at_forgery(machine, event.sender, event.content, event.sender in {peer for peer, _ in blamed})
        proved = {(effect.culprit, f"evidence_{effect.kind}") for effect in effects if type(effect) is EvidenceFound}
        if proved:
            unsaid = proved - blamed
            what = f"{machine.name} has proof of what it does not blame its peers for: {sorted(unsaid)}"
            self._look(SafetyRule.BLAMES, not unsaid, what)

    def _look_at_forgery(self, machine: Machine, sender: int, certificate: Certificate, is_blamed: bool) -> None:
        validator = machine.validator
        if certificate.view < machine.view or validator is None or validator.node.diverged is not None:
            return
        if not self._is_signed(certificate):
            what = f"{machine.name} does not blame {self._names[sender]} for a certificate that does not hold"
            is_distrusted = self._distrusts(machine, machine.view, sender)
            self._look(SafetyRule.BLAMES, is_blamed or is_distrusted, what)
