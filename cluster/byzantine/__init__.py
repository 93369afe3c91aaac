"""Validators that break the protocol on purpose, up to ``f`` of which it must withstand.

One file a behaviour. A behaviour is put around one honest validator by its driver
(:class:`~cluster.byzantine.validator.ByzantineValidator`), counts how often it bit, and is the same in the simulator
and on the live testnet.
"""

from __future__ import annotations

from cluster.byzantine.base import Behaviour, Position, Score
from cluster.byzantine.conflicting_voter import ConflictingVoter
from cluster.byzantine.equivocating_leader import EquivocatingLeader
from cluster.byzantine.false_certificates import DoubleSigner, Outsider, ShortCertificate
from cluster.byzantine.false_proposer import FalseProposer
from cluster.byzantine.false_snapshots import FalseManifest, FalseSnapshots
from cluster.byzantine.false_timeouts import FalseHighCertificate, TimeoutForger, UnderstatedTimeouts
from cluster.byzantine.forgetful_leader import ForgetfulLeader
from cluster.byzantine.garbage import Garbage
from cluster.byzantine.invalid_block import AnyField, BadHeader, BadRoot, BadTransaction, Oversized
from cluster.byzantine.lock_breaker import LockBreaker
from cluster.byzantine.nullify_and_finalize import NullifyAndFinalize
from cluster.byzantine.replayed_signatures import KindReplayer, SisterCertificates
from cluster.byzantine.selective_sender import SelectiveSender
from cluster.byzantine.signature_forger import SignatureForger
from cluster.byzantine.silent_leader import SilentLeader
from cluster.byzantine.stale_replayer import StaleReplayer
from cluster.byzantine.twins import Twins, TwinWatch
from cluster.byzantine.unproved import UnprovedBlocks, UnprovedSnapshot
from cluster.byzantine.validator import ByzantineValidator
from cluster.byzantine.vote_withholder import VoteWithholder
from cluster.byzantine.wrong_epoch import WrongEpoch

BEHAVIOURS: dict[str, type[Behaviour]] = {
    behaviour.name: behaviour
    for behaviour in (
        EquivocatingLeader,
        ForgetfulLeader,
        ConflictingVoter,
        NullifyAndFinalize,
        VoteWithholder,
        SilentLeader,
        BadRoot,
        BadTransaction,
        BadHeader,
        Oversized,
        WrongEpoch,
        SignatureForger,
        StaleReplayer,
        SelectiveSender,
        Twins,
        Garbage,
        FalseSnapshots,
        ShortCertificate,
        DoubleSigner,
        Outsider,
        KindReplayer,
        SisterCertificates,
        TimeoutForger,
        FalseHighCertificate,
        UnderstatedTimeouts,
        LockBreaker,
        AnyField,
        FalseProposer,
        UnprovedSnapshot,
        FalseManifest,
        UnprovedBlocks,
    )
}
"""Every behaviour, by the name that scenarios use."""

__all__ = ["BEHAVIOURS", "Behaviour", "ByzantineValidator", "Position", "Score", "TwinWatch", "Twins"]
