"""Who collects the votes of Simplex: everyone, the next leaders alone, or aggregators. A prototype, no product.

Each variant is the engine of :mod:`consensus.simplex` with another way for its notarize and finalize votes; nullify
votes, proposals, requests and certificates go as they do today, and a vote that is repeated goes to everyone. The
network checks that no run breaks safety.

- ``everyone``: Simplex as it is. Everyone makes its own certificates.
- ``finalize to 3``: notarize votes to everyone, finalize votes to the leaders of the next three views.
- ``to 3 leaders``: both to the leaders of the next three views, which announce the certificates that they make.
- ``to 1 leader``: notarize votes to the next leader, finalize votes to the one after, as in HotStuff.
- ``tree to all``: about √n groups. Each member sends its vote to its group's aggregator of the view. That one waits for
  the whole group, :data:`HOLD_MS` at the most, and sends the signatures to everyone in one message.
- ``tree to 1``: the same, but aggregators send to the leader of ``to 1 leader``.

The first figures are of links of :data:`DELAY_MS` without faults, when nothing else takes time: messages and bytes a
block (a broadcast counts once a recipient), signatures that a validator checks a block, and link delays from one
proposal to the next, and from a proposal until all have the notarization and the finalization.

The others are final blocks in 100 virtual seconds, with delays that vary by a tenth and the default configuration. Each
variant runs the same views with the same seeds:

- ``good``: no faults;
- ``silent``: as many silent validators as a quorum withstands, drawn by the seed, when they can be skipped;
- ``withheld``: as many drop the votes that they are to collect, and are honest otherwise;
- ``forged``: as many put bad signatures into what they aggregate, and one into each certificate that they send;
- ``lossy``: each message is lost with a probability of 2 %.

Without options 4, 16 and 64 validators are measured, 64 without faults and with silent ones. ``--full`` adds the other
faults of 64, and 128.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import count, product
from operator import itemgetter
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

import msgspec
from blake3 import blake3
from reporting import Lane, Metric, Size, run_benchmark
from rich.table import Table

from consensus.interface import (
    BlockProposed,
    BlockVerified,
    Broadcast,
    Durable,
    Effect,
    Event,
    Finalized,
    Notarized,
    Nullified,
    Parent,
    Persist,
    Propose,
    Received,
    SendTo,
    Start,
    StartTimer,
    TimerExpired,
    Verify,
    VotingConfig,
)
from consensus.journal import Outgoing
from consensus.keys import KeyedHashScheme, ValidatorSet
from consensus.leader import ANNOUNCERS
from consensus.messages import SIGNATURE_BYTES, Certificate, Message, Proposal, Vote, VoteKind, encode
from consensus.simplex import Simplex
from consensus.types import (
    FIRST_VIEW,
    GENESIS_VIEW,
    Digest,
    PublicKey,
    Signature,
    ValidatorIndex,
    View,
    fault_bound,
)

GENESIS: Final = Digest(bytes(32))
DELAY_MS: Final = 100
JITTER_MS: Final = 10
HOLD_MS: Final = 50
"""An aggregator waits so long for the rest of its group, from the first vote that it hears."""
LOSS: Final = 0.02
SKIP_VIEWS: Final = 16
"""As by default: views after which a silent leader is skipped."""
MEASURED_VIEWS: Final = {4: 120, 16: 60, 64: 20, 128: 10}
SEEDS: Final = {4: 2, 16: 1, 64: 1, 128: 1}
"""How many seeds, from 1 on."""
WARM_UP: Final = View(3)
"""The first view that is measured, unless members are silent: then it is the first in which they are all skipped."""
VIEWS: Final = 12
MAX_MS: Final = 300_000
"""Virtual time after which a run that does not get on ends."""
TALLIED: Final = (VoteKind.NOTARIZE, VoteKind.FINALIZE)
"""Kinds of votes that have collectors. Nullify votes are rare, and are to work when leaders do not."""


# --- the variants ---------------------------------------------------------------------------------------------------


class ToLeaders(Simplex):
    """Votes for a block go to the leaders of the next views, at first."""

    kinds: tuple[VoteKind, ...] = TALLIED
    leaders: int = ANNOUNCERS
    _finality_lag = 2

    def collectors(self, vote: Vote) -> list[ValidatorIndex]:
        """Who is to have the vote, ourselves aside."""
        first = 2 if self.leaders == 1 and vote.kind == VoteKind.FINALIZE else 1
        leaders = {self.leader(View(vote.view + ahead)) for ahead in range(first, first + self.leaders)}
        return sorted(leaders - {self._member.index})

    def _send(self, outgoing: Outgoing) -> None:
        vote = outgoing.message
        if isinstance(vote, Vote) and vote.kind in self.kinds:
            self._effects.extend(SendTo(collector, vote) for collector in self.collectors(vote))
        else:
            super()._send(outgoing)


class FinalizeToLeaders(ToLeaders):
    kinds = (VoteKind.FINALIZE,)


class ToOneLeader(ToLeaders):
    leaders = 1


class TreeToAll(ToLeaders):
    """Votes for a block go to the aggregator of the member's group."""

    def _send(self, outgoing: Outgoing) -> None:
        vote = outgoing.message
        if isinstance(vote, Vote) and vote.kind in self.kinds:
            self._effects.append(SendTo(self.aggregator(vote), vote))
        else:
            super()._send(outgoing)

    def group(self, vote: Vote) -> range:
        """The group of the vote's signer: the members of one remainder by the number of groups."""
        members = len(self._member.validators)
        groups = round(members**0.5)
        return range(vote.signer % groups, members, groups)

    def awaited(self, vote: Vote) -> int:
        """How many of the group vote alike; a leader's notarize vote is in its proposal, which everyone gets."""
        is_in_proposal = vote.kind == VoteKind.NOTARIZE and self.leader(vote.view) in self.group(vote)
        return len(self.group(vote)) - is_in_proposal

    def aggregator(self, vote: Vote) -> ValidatorIndex:
        """The members of a group take turns."""
        group = self.group(vote)
        return ValidatorIndex(group[vote.view % len(group)])

    def roots(self, vote: Vote) -> list[ValidatorIndex]:
        """Who gets what the aggregators collected, ourselves aside."""
        return [index for index in self._member.validators.indices() if index != self._member.index]


class TreeToOne(TreeToAll):
    leaders = 1

    def roots(self, vote: Vote) -> list[ValidatorIndex]:
        return self.collectors(vote)


EVERYONE: Final = "everyone"
VARIANTS: Final[dict[str, type[Simplex]]] = {
    EVERYONE: Simplex,
    "finalize to 3": FinalizeToLeaders,
    "to 3 leaders": ToLeaders,
    "to 1 leader": ToOneLeader,
    "tree to all": TreeToAll,
    "tree to 1": TreeToOne,
}


# --- the network ----------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """What is wrong in a run."""

    silent: bool = False
    withholding: bool = False
    forging: bool = False
    loss: float = 0.0
    jitter_ms: int = JITTER_MS


STEADY: Final = Case(jitter_ms=0)
CASES: Final = {
    "good": Case(),
    "silent": Case(silent=True),
    "withheld": Case(withholding=True),
    "forged": Case(forging=True),
    "lossy": Case(loss=LOSS),
}
USUAL_CASES: Final = ("good", "silent")
"""Cases of 64 validators without ``--full``."""


class CountingScheme(KeyedHashScheme):
    """Counts the signatures that are checked."""

    def __init__(self) -> None:
        self.checks = 0

    def verify(self, public_key: PublicKey, message: bytes, signature: Signature) -> bool:
        self.checks += 1
        return super().verify(public_key, message, signature)


class Unsafe(Exception):
    """Two validators hold what may not be held together."""


class VoteNetwork:
    """Engines in virtual time, and links with delays and losses; disks and blocks take no time.

    An aggregator's message is a certificate of fewer signatures than a quorum, which is as long as such a message needs
    to be; who receives it takes each vote as if its signer had sent it.
    """

    def __init__(self, engine: type[Simplex], validators: int, seed: int, case: Case) -> None:
        self.case = case
        self.random = Random(seed)
        bad = self.random.sample(range(validators), fault_bound(validators))
        self.withholding = bad if case.withholding else ()
        self.forging = bad if case.forging else ()
        self.scheme = CountingScheme()
        signers = [self.scheme.signer(index.to_bytes(32, "big")) for index in range(validators)]
        members = ValidatorSet(tuple(signer.public_key for signer in signers), self.scheme)
        self.quorum = members.committee(FIRST_VIEW).quorum
        config = VotingConfig(skip_views=SKIP_VIEWS)
        self.engines = {
            index: engine(config, members, index, signers[index], b"votes", GENESIS)
            for index in members.indices()
            if not (case.silent and index in bad)
        }
        self.everyone = members.indices()
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = count()
        self.now_ms = self.messages = self.bytes = 0
        self.held: dict[tuple[int, VoteKind, View, bytes], dict[ValidatorIndex, Vote]] = {}
        """Votes that an aggregator has not passed on."""
        self.collected: set[tuple[int, Vote]] = set()
        """Votes that an aggregator took; the same ones come again when they are repeated."""
        self.on_effect: Callable[[ValidatorIndex, Effect], None] = lambda index, effect: None
        self.parents: dict[Digest, Parent] = {}
        self.notarized: dict[View, Digest] = {}
        self.nullified: set[View] = set()
        self.final: dict[View, Digest] = {}
        for index in self.engines:
            self.at(0, partial(self.feed, index, Start()))

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.now_ms + delay_ms, next(self.serial), action))

    def run(self, until_ms: int, stop: Callable[[], bool]) -> None:
        while self.queue and self.queue[0][0] <= until_ms and not stop():
            self.now_ms, _, action = heapq.heappop(self.queue)
            action()

    def feed(self, index: ValidatorIndex, event: Event) -> None:
        for effect in self.engines[index].handle(event):
            self.on_effect(index, effect)
            self.perform(index, effect)

    def perform(self, index: ValidatorIndex, effect: Effect) -> None:
        """Votes that are sent to one member alone are for it to collect."""
        answer: Event | None = None
        match effect:
            case Broadcast(message):
                self.send(index, [other for other in self.everyone if other != index], message)
            case SendTo(recipient, Vote() as vote) if recipient == index:
                self.collect(index, vote)
            case SendTo(recipient, message):
                is_dropped = recipient in self.withholding and isinstance(message, Vote)
                self.send(index, [recipient], message, is_dropped=is_dropped)
            case StartTimer(kind, view, delay_ms):
                self.at(delay_ms, partial(self.feed, index, TimerExpired(kind, view)))
            case Propose(view, parent):
                body = b"%d " % view + parent.digest
                digest = Digest(blake3(body).digest())
                self.parents[digest] = parent
                answer = BlockProposed(view, parent, digest, body)
            case Verify(view, _, digest):
                answer = BlockVerified(view, digest, valid=True)
            case Persist(token):
                answer = Durable(token)
            case Notarized() | Nullified() | Finalized():
                self.check(effect)
        if answer is not None:
            self.at(0, partial(self.feed, index, answer))

    def send(
        self, sender: ValidatorIndex, recipients: Sequence[ValidatorIndex], message: Message, is_dropped: bool = False
    ) -> None:
        if isinstance(message, Certificate) and sender in self.forging:
            message = forged(message, 1 if self.is_whole(message) else len(message.signed))
        self.messages += len(recipients)
        self.bytes += len(encode(message)) * len(recipients)
        jitter_ms, loss = self.case.jitter_ms, self.case.loss
        for recipient in recipients:
            delay_ms = DELAY_MS + self.random.randint(-jitter_ms, jitter_ms)
            is_lost = self.random.random() < loss
            if recipient in self.engines and not is_lost and not is_dropped:
                self.at(delay_ms, partial(self.deliver, sender, recipient, message))

    def deliver(self, sender: ValidatorIndex, recipient: ValidatorIndex, message: Message) -> None:
        if isinstance(message, Certificate) and not self.is_whole(message):
            for vote in votes_in(message):
                if vote.signer != recipient:
                    self.feed(recipient, Received(vote.signer, vote))
            return
        self.feed(recipient, Received(sender, message))
        if isinstance(message, Vote):
            self.collect(recipient, message)

    def check(self, effect: Notarized | Nullified | Finalized) -> None:
        """Raise :class:`Unsafe` for two blocks of a view, or a final block in a view that was given up."""
        view = effect.certificate.view
        if isinstance(effect, Nullified):
            self.nullified.add(view)
        elif isinstance(effect.certificate, Certificate):
            for held in (self.notarized, self.final) if isinstance(effect, Finalized) else (self.notarized,):
                if held.setdefault(view, effect.certificate.digest) != effect.certificate.digest:
                    raise Unsafe(f"two blocks in view {view}")
        if view in self.final and view in self.nullified:
            raise Unsafe(f"view {view} is final and nullified")

    def chain(self) -> list[View]:
        """The views of the final chain, ascending. Raises :class:`Unsafe` unless it has all final blocks."""
        newest = max(self.final)
        chain = {newest: self.final[newest]}
        while (parent := self.parents[next(reversed(chain.values()))]).view > GENESIS_VIEW:
            chain[parent.view] = parent.digest
        if not self.final.items() <= chain.items():
            raise Unsafe("a final block is not in the chain of the newest")
        return sorted(chain)

    def is_whole(self, certificate: Certificate) -> bool:
        """It has a quorum."""
        return len(certificate.signatures) >= self.quorum * SIGNATURE_BYTES

    def collect(self, index: ValidatorIndex, vote: Vote) -> None:
        """An aggregator takes a vote, and waits for the rest of its group."""
        engine = self.engines[index]
        if not isinstance(engine, TreeToAll) or vote.kind not in TALLIED or engine.aggregator(vote) != index:
            return
        if index in self.withholding or (index, vote) in self.collected:
            return
        self.collected.add((index, vote))
        held = self.held.setdefault((index, vote.kind, vote.view, vote.digest), {})
        held[vote.signer] = vote

        def pass_on() -> None:
            if held:
                signed = {signer: each.signature for signer, each in held.items()}
                message = Certificate.of(vote.kind, vote.view, vote.parent_view, vote.digest, signed)
                self.send(index, engine.roots(vote), message)
                held.clear()

        if len(held) == engine.awaited(vote):
            pass_on()
        else:  # votes of the others left when ours did
            self.at(HOLD_MS + DELAY_MS * (vote.signer == index), pass_on)


@lru_cache(maxsize=4096)
def votes_in(message: Certificate) -> tuple[Vote, ...]:
    """The votes that an aggregator's message carries."""
    return message.votes()


def forged(certificate: Certificate, bad: int) -> Certificate:
    """A certificate whose last signatures do not hold."""
    good = certificate.signatures[: len(certificate.signatures) - bad * SIGNATURE_BYTES]
    signatures = good + bytes(bad * SIGNATURE_BYTES)
    return msgspec.structs.replace(certificate, signatures=signatures)


# --- what is measured -----------------------------------------------------------------------------------------------


class Counted(NamedTuple):
    """Totals up to some moment."""

    at_ms: int
    messages: int
    bytes: int
    checks: int


class Watch:
    """Runs a network and notes when blocks were proposed, notarized and final."""

    def __init__(self, engine: type[Simplex], validators: int, seed: int, case: Case) -> None:
        self.network = VoteNetwork(engine, validators, seed, case)
        self.network.on_effect = self.note
        self.running = list(self.network.engines)
        self.proposed: dict[View, Counted] = {}
        self.notarized: dict[View, int] = {}
        """When the last validator had it."""
        self.finalized: list[list[tuple[View, int]]] = [[] for _ in range(validators)]
        """The views of each validator's finalizations, and when it had them."""
        self.first_final: list[tuple[View, Counted]] = []
        """The views that are final for anyone, ascending."""

    def run_until_final(self, view: View) -> None:
        """Until all have the block of ``view`` final, or :data:`MAX_MS` passed."""
        last_seen = [self.finalized[index] for index in self.running]
        self.network.run(MAX_MS, stop=lambda: all(seen and seen[-1][0] >= view for seen in last_seen))

    def note(self, index: ValidatorIndex, effect: Effect) -> None:
        match effect:
            case Broadcast(Proposal() as proposal):
                self.proposed.setdefault(proposal.view, self.counted())
            case Notarized(certificate):
                self.notarized[certificate.view] = self.network.now_ms
            case Finalized(certificate):
                self.finalized[index].append((certificate.view, self.network.now_ms))
                if not self.first_final or self.first_final[-1][0] < certificate.view:
                    self.first_final.append((certificate.view, self.counted()))

    def counted(self) -> Counted:
        network = self.network
        return Counted(network.now_ms, network.messages, network.bytes, network.scheme.checks)

    def final_ms(self, validator: int, view: View) -> int:
        """When a validator had the block of ``view`` final; the end of the run if it had not."""
        seen = self.finalized[validator]
        first = bisect_left(seen, view, key=itemgetter(0))
        return seen[first][1] if first < len(seen) else self.network.now_ms


class Steady(NamedTuple):
    """A block's cost without faults. ``checks`` are a validator's; the last three are in link delays."""

    messages: float
    bytes: float
    checks: float
    block: float
    notarization: float
    finality: float


class Outcome(NamedTuple):
    """Of a run with faults."""

    blocks: float
    """Final ones in 100 s."""
    messages: float
    """A final block."""
    checks: float
    """A final block, by a validator that is not silent."""
    finality: float
    """Link delays from a proposal to its finality, the mean over blocks and validators."""


def steady(engine: type[Simplex], validators: int) -> Steady:
    """Measure some blocks without faults."""
    watch = Watch(engine, validators, 1, STEADY)
    end = View(WARM_UP + VIEWS)
    watch.run_until_final(end)
    proposed = watch.proposed
    views = [View(view) for view in range(WARM_UP, end)]
    cost = [(after - before) / VIEWS for before, after in zip(proposed[views[0]], proposed[end], strict=True)]

    def mean_delays(ends_ms: Iterable[int]) -> float:
        return fmean(at_ms - proposed[view].at_ms for view, at_ms in zip(views, ends_ms, strict=True)) / DELAY_MS

    block = mean_delays(proposed[View(view + 1)].at_ms for view in views)
    notarization = mean_delays(watch.notarized[view] for view in views)
    finality = mean_delays(max(watch.final_ms(index, view) for index in watch.running) for view in views)
    return Steady(cost[1], cost[2], cost[3] / validators, block, notarization, finality)


def outcome(engine: type[Simplex], validators: int, seed: int, case: Case, views: int) -> Outcome:
    """Run this many views with faults. Raises :class:`Unsafe`."""
    watch = Watch(engine, validators, seed, case)
    first = View(SKIP_VIEWS + 1) if case.silent else WARM_UP
    end = View(first + views)
    watch.run_until_final(end)
    reached = bisect_left(watch.first_final, end, key=itemgetter(0)) + 1
    measured = [seen for seen in watch.first_final[:reached] if seen[0] >= first]
    if len(measured) < 2:
        return Outcome(0.0, math.inf, math.inf, math.inf)
    (first_view, before), (last_view, after) = measured[0], measured[-1]
    if last_view < end:
        after = watch.counted()
    ours = [view for view in watch.network.chain() if first_view < view <= last_view]
    took_ms = [watch.final_ms(index, view) - watch.proposed[view].at_ms for view in ours for index in watch.running]
    return Outcome(
        100_000 * len(ours) / (after.at_ms - before.at_ms),
        (after.messages - before.messages) / len(ours),
        (after.checks - before.checks) / len(ours) / len(watch.running),
        fmean(took_ms) / DELAY_MS,
    )


UNITS: Final = {
    "messages": "a block",
    "bytes": "a block",
    "checks": "a block and validator",
    "block": "delays",
    "notarization": "delays",
    "finality": "delays",
    "blocks": "in 100 s",
}


# --- the table --------------------------------------------------------------------------------------------------------


def main() -> None:
    full = "all faults of 64 validators, and 128 validators, too; about a quarter of an hour"
    run_benchmark(__doc__, lanes, minutes=3, full=full, table=table_of)


def lanes(size: Size) -> list[Lane]:
    least = {4: Size.QUICK, 16: Size.USUAL, 64: Size.USUAL, 128: Size.FULL}
    found = []
    for n in MEASURED_VIEWS:
        for variant, engine in VARIANTS.items():
            steadily = metrics_of(f"{variant} {n}", Steady)
            found.append(Lane(partial(steady, engine, n), steadily, least[n]))
        for case, (variant, engine) in product(CASES, VARIANTS.items()):
            metrics = metrics_of(f"{variant} {n} {case}", Outcome)
            measured_from = Size.FULL if n == 64 and case not in USUAL_CASES else least[n]
            found.append(Lane(partial(mean_outcome, engine, n, CASES[case], size), metrics, measured_from))
    return found


def mean_outcome(engine: type[Simplex], validators: int, case: Case, size: Size) -> Outcome:
    """The means over the seeds."""
    views = size.of(8, MEASURED_VIEWS[validators])
    seeds = range(1, size.of(1, SEEDS[validators]) + 1)
    runs = [outcome(engine, validators, seed, case, views) for seed in seeds]
    return Outcome(*map(fmean, zip(*runs, strict=True)))


def metrics_of(name: str, figures: type[Steady] | type[Outcome]) -> list[Metric]:
    """One metric a figure."""
    return [Metric(named(f"{name} {key}"), UNITS[key]) for key in figures._fields]


def named(text: str) -> str:
    """The name of the metric of a variant, a number of validators, perhaps a case, and a figure."""
    return text.replace(" ", "_")


def table_of(values: dict[str, float]) -> Table:
    """A row for each variant; of runs with faults it has blocks in 100 s, and delays until they are final."""
    table = Table("n", "votes to", *Steady._fields, *CASES, box=None, pad_edge=False)
    counts = [n for n in MEASURED_VIEWS if named(f"{EVERYONE} {n} block") in values]
    for validators, variant in product(counts, VARIANTS):
        name = f"{variant} {validators}"
        without_faults = [f"{values[named(f'{name} {key}')]:,.1f}" for key in Steady._fields]
        runs = [
            f"{values[key]:.0f}, {values.get(named(f'{name} {case} finality'), math.inf):.1f}"
            if (key := named(f"{name} {case} blocks")) in values
            else "–"
            for case in CASES
        ]
        table.add_row(str(validators), variant, *without_faults, *runs)
    return table


if __name__ == "__main__":
    main()
