"""The registry of byzantine behaviours. A chain must tolerate up to ``f`` validators that have any of them.

Each behaviour or group of variants has one file. The driver wraps an honest validator in the behaviour
(:class:`~cluster.misbehaviour.byzantine.wrapper.ByzantineValidator`). A behaviour counts its effects, and is the same
in the simulator and on the live testnet.
"""

from __future__ import annotations

from cluster.misbehaviour.byzantine.base import Behaviour, BehaviourContext, Score
from cluster.misbehaviour.byzantine.leaders.equivocating_leader import EquivocatingLeader
from cluster.misbehaviour.byzantine.leaders.false_proposer import FalseProposer
from cluster.misbehaviour.byzantine.leaders.forgetful_leader import ForgetfulLeader
from cluster.misbehaviour.byzantine.leaders.invalid_block import AnyField, BadHeader, BadRoot, BadTransaction, Oversized
from cluster.misbehaviour.byzantine.leaders.lock_breaker import LockBreaker
from cluster.misbehaviour.byzantine.leaders.silent_leader import SilentLeader
from cluster.misbehaviour.byzantine.messages.false_snapshots import FalseManifest, FalseSnapshots
from cluster.misbehaviour.byzantine.messages.garbage import Garbage
from cluster.misbehaviour.byzantine.messages.greedy_asker import GreedyAsker
from cluster.misbehaviour.byzantine.messages.old_nullifications import OldNullifications
from cluster.misbehaviour.byzantine.messages.selective_sender import SelectiveSender
from cluster.misbehaviour.byzantine.messages.stale_replayer import StaleReplayer
from cluster.misbehaviour.byzantine.messages.unproved import UnprovedBlocks, UnprovedSnapshot, UnprovedView
from cluster.misbehaviour.byzantine.votes.conflicting_voter import ConflictingVoter
from cluster.misbehaviour.byzantine.votes.false_certificates import DoubleSigner, Outsider, ShortCertificate
from cluster.misbehaviour.byzantine.votes.false_timeouts import FalseHighCertificate, TimeoutForger, UnderstatedTimeouts
from cluster.misbehaviour.byzantine.votes.nullify_and_finalize import NullifyAndFinalize
from cluster.misbehaviour.byzantine.votes.replayed_signatures import KindReplayer, SisterCertificates
from cluster.misbehaviour.byzantine.votes.signature_forger import SignatureForger
from cluster.misbehaviour.byzantine.votes.twins import Twins, TwinWatch
from cluster.misbehaviour.byzantine.votes.vote_withholder import VoteWithholder
from cluster.misbehaviour.byzantine.votes.wrong_epoch import WrongEpoch
from cluster.misbehaviour.byzantine.wrapper import ByzantineValidator

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
        UnprovedView,
        GreedyAsker,
        OldNullifications,
    )
}
"""Every behaviour, keyed by the name that scenarios use."""

__all__ = ["BEHAVIOURS", "Behaviour", "BehaviourContext", "ByzantineValidator", "Score", "TwinWatch", "Twins"]
