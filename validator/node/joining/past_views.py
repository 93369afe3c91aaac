"""The views that a validator may have voted in before it lost its journal.

It must not vote twice, so it abstains in every view that it may have been in. It learns which these are from peers,
each of which proves its current view by the certificate that opened it (:mod:`consensus.simplex`, *Lost journals*).
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
    """The reports of peers to one join."""

    validators: ValidatorSet
    namespace: bytes
    nonce: bytes
    """Another one for each join: reports to an earlier one, before the journal was lost, do not count for this one."""
    reported: dict[int, int] = field(default_factory=dict)
    """The view that each peer was in at least, when it was asked."""

    @property
    def abstain_through(self) -> int:
        """The last view that an earlier life of this validator can have entered, once enough peers reported theirs."""
        return max(self.reported.values(), default=0) + 1

    @property
    def are_known(self) -> bool:
        """Whether enough members reported of each committee that can have let it vote above all reported views."""
        highest = max(self.reported.values(), default=0)
        active = {self.validators.committee(View(view)) for view in (max(highest, FIRST_VIEW), highest + 1)}
        return all(
            sum(member in self.reported for member in committee.members) > 2 * committee.faults_withstood
            for committee in active
        )

    def take(self, sender: int, report: ViewReport) -> bool:
        """Take a peer's first report. Returns whether its certificate is good."""
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
