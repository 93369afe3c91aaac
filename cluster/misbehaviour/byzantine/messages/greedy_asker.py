"""``greedy-asker``: asks every peer for the certificates of many views, again in each view."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.misbehaviour.byzantine.base import EachView, send_consensus
from consensus.messages import MAX_REQUESTED_VIEWS, CertificateRequest
from consensus.types import FIRST_VIEW, View
from validator.node.events import Effect


class GreedyAsker(EachView):
    name = "greedy-asker"
    description = "asks all validators for the certificates of many views, in each view again"

    def lie(self, view: View) -> Iterator[Effect]:
        views = range(max(FIRST_VIEW, view - MAX_REQUESTED_VIEWS), view)
        if views:
            yield send_consensus(None, CertificateRequest(tuple(map(View, views))))
            self.count_effect()
