"""Behaviours that send certificates whose signatures are valid, but were made for another purpose.

- ``kind-replayer``: the votes that notarized a block, replayed as votes that finalize it.
- ``sister-chain``: certificates of another chain that the same validators run with the same keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cluster.misbehaviour.byzantine.base import Behaviour, BehaviourContext, EachView, Heard, forget_old, send_consensus
from consensus.certificates import verify_certificate
from consensus.messages import (
    NO_DIGEST,
    NO_PARENT,
    AnyCertificate,
    Certificate,
    Message,
    TimeoutCertificate,
    VoteKind,
)
from consensus.types import GENESIS_VIEW, View
from validator.node.events import Effect, Send


class KindReplayer(Behaviour):
    name = "kind-replayer"
    description = "says the votes that notarized a block again, as votes that finalize it"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._replayed: dict[int, None] = {}

    def hear(self, heard: Heard) -> Iterator[Effect]:
        return self._replay(heard.message)

    def say(self, send: Send, message: Message) -> Iterator[Effect]:
        yield from self._replay(message)
        yield send

    def _replay(self, message: Message) -> Iterator[Effect]:
        if not isinstance(message, Certificate) or message.kind != VoteKind.NOTARIZE or message.view in self._replayed:
            return
        if verify_certificate(message, self.context.validators, self.context.namespace):
            self._replayed[message.view] = None
            forget_old(self._replayed)
            self.count_effect()
            yield send_consensus(None, msgspec.structs.replace(message, kind=VoteKind.FINALIZE))


class SisterCertificates(EachView):
    name = "sister-chain"
    description = "certificates of another chain that the same validators run with the same keys"

    def __init__(self, context: BehaviourContext) -> None:
        super().__init__(context)
        self._kinds = (VoteKind.NOTARIZE, context.gives_up_by, VoteKind.FINALIZE)

    def lie(self, view: View) -> Iterator[Effect]:
        certificate = self._certificate(self._kinds[view % len(self._kinds)], view)
        if certificate is not None:
            self.count_effect()
            yield send_consensus(None, certificate)

    def _certificate(self, kind: VoteKind, view: View) -> AnyCertificate | None:
        """A certificate of this kind and view from the other chain; ``None`` if there is no other chain."""
        sister = self.context.sister
        if sister is None:
            return None
        is_of_block = kind in (VoteKind.NOTARIZE, VoteKind.FINALIZE)
        parent_view = View(view - 1) if is_of_block else NO_PARENT
        digest = self.context.random_digest() if is_of_block else NO_DIGEST
        committee = self.context.validators.committee(view)
        signed = {
            signer: sister.signature(signer, kind, view, parent_view, digest)
            for signer in committee.members[: committee.quorum]
        }
        if kind == VoteKind.TIMEOUT:
            timeouts = {signer: (GENESIS_VIEW, signature) for signer, signature in signed.items()}
            return TimeoutCertificate.of(view, None, timeouts)
        return Certificate.of(kind, view, parent_view, digest, signed)
