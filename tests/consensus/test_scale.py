"""The delays and the cost of consensus among many validators: the figures of ``docs/consensus-reasons.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from consensus.hotstuff import HotStuff
from consensus.interface import Effect, SendTo, TimerKind, VotingConfig
from consensus.keys import Committee
from consensus.messages import MAX_REQUESTED_VIEWS, AnyCertificate, CertificateRequest, Message, Proposal, encode
from consensus.retransmission import BURST_CERTIFICATES, TICK_CERTIFICATES, certificate_bytes
from consensus.simplex import Simplex
from consensus.types import GENESIS_VIEW, ValidatorIndex, View, fault_bound
from tests.consensus.bench import FINALIZE, NOTARIZE, Bench, CountingScheme, of, resigned
from tests.consensus.network import Faults, Host, MakeEngine, Network

DISTRUSTED_VIEWS = VotingConfig().distrusted_views

# --- a leader that is stuck in its view -------------------------------------------------------------------------------

SLOW = VotingConfig(leader_timeout_ms=10_000, advance_timeout_ms=15_000, rebroadcast_ms=250)
MAX_DELAY_MS = 50


def view_of(host: Host) -> int:
    return 0 if host.engine is None else host.engine.view


def stuck_ms(make_engine: MakeEngine) -> int:
    """How long a leader of sixteen is stuck in its view after links to it are whole again.

    Meanwhile the others made nine more views final. Four are silent, and then one more stops: they need the leader.
    """
    faults = Faults(min_delay_ms=10, max_delay_ms=MAX_DELAY_MS, healed_at_ms=10**9)
    network = Network(16, 1, faults, config=SLOW, silent=(1, 2, 3, 4), make_engine=make_engine)
    led = View(6)
    leader, last = network.hosts[6], network.hosts[11]
    network.run(60_000, lambda: any(vote.view == led and vote.signer == 6 for vote in network.votes.values()))
    network.cut = {(host.place, leader.place) for host in network.hosts}
    network.run(600_000, lambda: network.hosts[0].engine is not None and network.hosts[0].engine.final_view > led + 8)
    network.crash(last)
    network.run(network.now_ms + 1_000)
    assert view_of(leader) == led, "what was on its way to it did not help it on"
    network.cut, healed_ms = set(), network.now_ms
    network.run(network.now_ms + 60_000, lambda: view_of(leader) > led)
    return network.now_ms - healed_ms


@pytest.mark.parametrize("make_engine", [Simplex, HotStuff])
def test_a_leader_that_is_far_behind_is_level_within_a_tick(make_engine: MakeEngine) -> None:
    assert stuck_ms(make_engine) <= SLOW.rebroadcast_ms + 2 * MAX_DELAY_MS


# --- who is asked, and who answers ------------------------------------------------------------------------------------


def asked_in(ticks: int) -> Counter[int]:
    """How often a validator outside of a committee of ten, of 64, asks each member for the certificates of its view."""
    members = tuple(ValidatorIndex(index) for index in range(10))
    bench = Bench(64, me=63, epochs=(Committee(View(2), members),))
    bench.advance_to(2)
    asked: Counter[int] = Counter()
    for _ in range(ticks):
        asked.update(effect.recipient for effect in of(SendTo, bench.expire(TimerKind.REBROADCAST)))
    return asked


def test_all_members_are_asked_equally_often() -> None:
    assert set(asked_in(10).values()) == {3}, "three a tick, of ten"
    often = asked_in(55).values()
    assert len(often) == 10
    assert max(often) - min(often) <= 3


def needless_bytes(count: int, ticks: int) -> int:
    """Bytes of the certificates that all validators send each other while they wait for the leader of view 2."""
    config = VotingConfig(leader_timeout_ms=60_000, advance_timeout_ms=60_000, rebroadcast_ms=500)
    network = Network(count, 1, config=config, silent=(2,))
    network.run(60_000, lambda: all(view_of(host) == 2 for host in network.hosts if host.index != 2))
    sent: list[int] = []

    def count_bytes(_: Host, effect: Effect) -> None:
        if isinstance(effect, SendTo) and isinstance(effect.message, AnyCertificate):
            sent.append(len(encode(effect.message)))

    network.on_effect = count_bytes
    network.run(network.now_ms + ticks * config.rebroadcast_ms + 50)
    return sum(sent)


def test_validators_that_wait_for_a_slow_leader_send_each_other_no_certificates() -> None:
    assert needless_bytes(16, 4) == 0


# --- forgers ----------------------------------------------------------------------------------------------------------


def checks_a_view(count: int, views: int) -> float:
    """Signatures that a validator checks in a view if each faulty peer sends it a certificate that is good but for the
    last signature, and an honest one a good certificate."""
    scheme = CountingScheme()
    bench = Bench(count, scheme=scheme)
    forgers = fault_bound(count)
    for view in range(1, views + 1):
        good = bench.certificate(NOTARIZE, view, f"b{view}")
        bad = resigned(good, {**good.signed, max(good.signed): b"\0" * 64})
        for forger in range(1, forgers + 1):
            bench.receive(forger, bad)
        bench.receive(forgers + 1, good)
    return scheme.checks / views


def test_a_forgery_is_checked_once_in_many_views() -> None:
    quorum, forgers = 11, 5
    assert checks_a_view(16, 10) == quorum + forgers * quorum / 10
    assert checks_a_view(16, 2 * DISTRUSTED_VIEWS) == quorum + forgers * quorum / DISTRUSTED_VIEWS


# --- who asks for much ------------------------------------------------------------------------------------------------


def given_bytes(count: int, views: int, views_a_tick: int) -> int:
    """Bytes of the certificates that a peer gets that asks for those of 64 views, in each of so many views."""
    bench, given = Bench(count), 0
    for view in range(1, MAX_REQUESTED_VIEWS + views + 1):
        bench.receive(1, bench.certificate(FINALIZE, view, f"b{view}"))
        if view > MAX_REQUESTED_VIEWS:
            asked = tuple(View(each) for each in range(view - MAX_REQUESTED_VIEWS + 1, view + 1))
            answers = of(SendTo, bench.receive(2, CertificateRequest(asked)))
            given += sum(len(encode(answer.message)) for answer in answers)
        if view % views_a_tick == 0:
            bench.expire(TimerKind.ALLOWANCE, GENESIS_VIEW)
    return given


def test_what_a_peer_gets_is_bounded_by_time_and_not_by_views() -> None:
    burst, tick = BURST_CERTIFICATES * certificate_bytes(16), TICK_CERTIFICATES * certificate_bytes(16)
    assert given_bytes(16, 40, 2) <= burst + 20 * tick + certificate_bytes(16)
    assert given_bytes(16, 40, 10) <= burst + 4 * tick + certificate_bytes(16)


# --- slow uplinks -----------------------------------------------------------------------------------------------------


class SlowUplinks(Network):
    """Four validators. A leader takes ``block_ms`` to send its block to the others; what it sends then waits."""

    def __init__(self, make_engine: MakeEngine, block_ms: int) -> None:
        super().__init__(4, 1, config=VotingConfig(), make_engine=make_engine)
        self.copy_ms = block_ms // 3
        self.free_at_ms = [0] * 4
        self.proposals = 0

    def send(self, sender: Host, recipients: Sequence[Host], message: Message) -> None:
        for recipient in recipients:
            takes_ms = self.copy_ms if isinstance(message, Proposal) else 0
            self.proposals += isinstance(message, Proposal)
            left_at_ms = max(self.free_at_ms[sender.place], self.now_ms) + takes_ms
            self.free_at_ms[sender.place] = left_at_ms
            arrives_ms = left_at_ms - self.now_ms + self.random.randint(10, MAX_DELAY_MS)
            self.at(arrives_ms, lambda recipient=recipient: self.deliver(sender, recipient, message))  # type: ignore[misc]

    def blocks_in(self, seconds: int) -> int:
        self.run(1_000 * seconds)
        return len(self.chain()) - 1


@pytest.mark.parametrize("make_engine", [Simplex, HotStuff])
def test_a_slow_uplink_is_not_choked_by_blocks_that_are_sent_again(make_engine: MakeEngine) -> None:
    assert SlowUplinks(make_engine, 1_200).blocks_in(120) > 60
