"""The kinds of events and effects are those that watches choose by."""

from __future__ import annotations

from cluster.scenario.sections.consensus import ConsensusSection
from cluster.simulation.watches.models.kinds import Broadcast, Handled, kinds_of, subject_of
from tests.validator.network import Network
from validator.chain.messages import BlocksPruned, encode_message, read_message
from validator.node.events import CancelTimer, Completed, Effect, Event, Message, Run, Send, Started, Timeout, TimerName
from validator.node.executor.jobs import BlocksRead, ReadBlocks


def test_an_event_is_about_what_it_brings_and_an_effect_about_its_job() -> None:
    timeout = Timeout(TimerName("sync"))
    read = Completed(BlocksRead(1, (), (), b""))
    events: list[Event] = [Started(), Message(0, b"", BlocksPruned(7)), timeout, read]
    assert list(map(subject_of, events)) == [Started, BlocksPruned, "sync", BlocksRead]
    effects: list[Effect] = [Send(None, b""), Run(ReadBlocks(0, 1, 1)), CancelTimer(TimerName("sync"))]
    assert kinds_of(effects) == {Broadcast, ReadBlocks, CancelTimer}
    assert kinds_of([Send(1, b"")]) == {Send}
    assert kinds_of([CancelTimer(TimerName("sync"))]) == {CancelTimer}
    assert kinds_of([]) == frozenset()


def test_a_handled_event_has_the_messages_to_all_peers() -> None:
    messages = [BlocksPruned(height) for height in range(3)]
    effects: list[Effect] = [
        Send(None, encode_message(messages[0])),
        CancelTimer(TimerName("sync")),
        Send(1, encode_message(messages[1])),
        Send(None, encode_message(messages[2])),
    ]
    network = Network().start()
    handled = Handled(network.machines[0], network.validator(0), Started(), effects, read_message, ConsensusSection())
    assert handled.broadcast == [messages[0], messages[2]]
