"""The registry of byzantine behaviours. A chain must tolerate up to ``f`` validators that have any of them.

Behaviours are in the file of what they lie with: votes, other messages, or as leaders. The driver wraps an honest
validator in the behaviour (:class:`~cluster.misbehaviour.byzantine.wrapper.ByzantineValidator`). A behaviour counts its
effects, and is the same in the simulator and on the live testnet.
"""

from __future__ import annotations

from cluster.misbehaviour.byzantine.base import Behaviour, BehaviourContext, Score
from cluster.misbehaviour.byzantine.leaders import (
    AnyField,
    BadHeader,
    BadRoot,
    BadTransaction,
    EquivocatingLeader,
    FalseProposer,
    ForgetfulLeader,
    LockBreaker,
    Oversized,
    SilentLeader,
)
from cluster.misbehaviour.byzantine.messages import (
    FalseManifest,
    FalseSnapshots,
    Garbage,
    GreedyAsker,
    OldNullifications,
    SelectiveSender,
    StaleReplayer,
    UnprovedBlocks,
    UnprovedSnapshot,
    UnprovedView,
)
from cluster.misbehaviour.byzantine.votes import (
    ConflictingVoter,
    DoubleSigner,
    FalseHighCertificate,
    KindReplayer,
    NullifyAndFinalize,
    Outsider,
    ShortCertificate,
    SignatureForger,
    SisterCertificates,
    TimeoutForger,
    Twins,
    TwinWatch,
    UnderstatedTimeouts,
    VoteWithholder,
    WrongEpoch,
)
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
