"""What a hostile peer sends stays in bounds, whatever it is and however much."""

from __future__ import annotations

from random import Random

from cluster.misbehaviour.byzantine.base import VIEWS_REMEMBERED, consensus_content, heard_in, send_consensus
from cluster.misbehaviour.byzantine.leaders import EquivocatingLeader
from cluster.misbehaviour.byzantine.messages import Garbage
from cluster.misbehaviour.byzantine.registry import BEHAVIOURS, Behaviour, BehaviourContext, Score
from cluster.misbehaviour.byzantine.votes import ConflictingVoter
from cluster.scenario.genesis import validator_signer
from cluster.watches.watched_simulation import WatchedSimulation
from consensus.keys import KeyedHashScheme
from consensus.messages import NO_DIGEST, NO_PARENT, VoteKind
from tests.cluster.misbehaviour.byzantine.runs import SEED, scenario
from validator.node.events import Message, PeerFault, Send

HOSTILE = 3
ROUNDS = 400


def finished() -> WatchedSimulation:
    simulation = WatchedSimulation(scenario(4, {}, height=6), SEED, "test", scheme=KeyedHashScheme())
    simulation.run()
    return simulation


def context_of(simulation: WatchedSimulation, index: int) -> BehaviourContext:
    signer = validator_signer(simulation.record.scheme, SEED, index)
    return BehaviourContext(index, signer, simulation.keys, simulation.record.genesis.chain_id, Random(1), Score())


def test_a_node_keeps_little_of_what_garbage_it_gets_and_blames_its_sender_alone() -> None:
    simulation = finished()
    machine = simulation.machines[0]
    assert machine.validator is not None
    node, at = machine.validator.node, context_of(simulation, HOSTILE)
    garbage = Garbage(at)
    view = node.view
    before = len(list(node._tree.held())), len(node.mempool)
    for step in range(ROUNDS):
        honest = send_consensus(None, at.vote(VoteKind.NOTARIZE, view + step, view - 1, at.random_digest()))
        for effect in garbage.alter(honest):
            assert isinstance(effect, Send)
            faults = [one for one in node.handle(Message(HOSTILE, effect.payload)) if isinstance(one, PeerFault)]
            assert {fault.peer for fault in faults} <= {HOSTILE}
    config = node._config.voting
    assert all(kept <= node.view + config.view_window for kept in node._engine._rounds)
    assert (len(list(node._tree.held())), len(node.mempool)) == before
    assert len(node._peer_service._reading_for) <= 1
    assert node.view == view


def test_a_behaviour_itself_remembers_few_views() -> None:
    simulation = finished()
    at = context_of(simulation, HOSTILE)
    voter, leader = ConflictingVoter(at), EquivocatingLeader(at)
    for view in range(1, 500):
        payload = send_consensus(None, context_of(simulation, 1).vote(VoteKind.NOTARIZE, view, 0, bytes(32))).payload
        said = heard_in(Message(1, payload))
        assert said is not None
        voter.hear(said)
    assert len(voter._said) <= VIEWS_REMEMBERED
    assert leader._second == {}


def test_every_behaviour_leaves_alone_what_it_is_not_about() -> None:
    """Nothing but a consensus message is changed, save by those who choose whom to speak to."""
    simulation = finished()
    other = Send(2, b"no consensus message")
    for name, behaviour in BEHAVIOURS.items():
        made: Behaviour = behaviour(context_of(simulation, HOSTILE))
        assert made.alter(other) in ([other], []), name
        assert consensus_content(other.payload) is None
        assert not made.swallows(Message(1, b""))
    nullify = send_consensus(None, context_of(simulation, HOSTILE).vote(VoteKind.NULLIFY, 9, NO_PARENT, NO_DIGEST))
    assert BEHAVIOURS["silent-leader"](context_of(simulation, HOSTILE)).alter(nullify) == [nullify]
