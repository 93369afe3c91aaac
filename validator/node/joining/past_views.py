"""The views in which a validator may have voted before it lost its journal.

It must not vote twice, so it abstains in every view that it may have entered. It learns these views from peers, each of
which proves its current view by the certificate that opened it (``docs/consensus.md``, *Lost journals*).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from consensus.certificates import verify_signed
from consensus.keys import ValidatorSet
from consensus.messages import AnyCertificate, MessageError, decode
from consensus.types import FIRST_VIEW, View
from validator.chain.messages import ViewReport


@dataclass(slots=True)
class PastViews:
    """The views that peers reported during one join, and the views that follow in which the validator must abstain."""

    validators: ValidatorSet
    namespace: bytes
    nonce: bytes
    """Differs for each join, so that reports for an earlier one, before the journal was lost, do not count."""
    reported: dict[int, int] = field(default_factory=dict)
    """A view that each peer had reached when it was asked."""

    @property
    def abstain_through(self) -> int:
        """The last view that this validator can have entered before it lost its journal. Valid if :attr:`are_known`."""
        return max(self.reported.values(), default=0) + 1

    @property
    def are_known(self) -> bool:
        """Whether enough peers reported for :attr:`abstain_through` to be valid.

        These are more than ``2 f`` members of the highest reported view's committee, and of the next view's.
        """
        highest = max(self.reported.values(), default=0)
        active = {self.validators.committee(View(view)) for view in (max(highest, FIRST_VIEW), highest + 1)}
        return all(
            sum(member in self.reported for member in committee.members) > 2 * committee.faults_withstood
            for committee in active
        )

    def take(self, sender: int, report: ViewReport) -> bool:
        """Take a peer's first report. Returns whether its certificate is valid."""
        if not report.certificate:
            self.reported[sender] = FIRST_VIEW
            return True
        try:
            opening = decode(report.certificate)
        except MessageError:
            return False
        if not isinstance(opening, AnyCertificate) or not verify_signed(opening, self.validators, self.namespace):
            return False
        self.reported[sender] = opening.view + 1
        return True
