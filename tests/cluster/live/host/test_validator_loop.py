"""Whole validators in one process, over real sockets and real disks: they agree, crash, come back and come to rest."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import urllib3

from cluster.audit.chains import longest_chain
from cluster.audit.proofs import SERVED_FINALITY, SERVED_PROOFS, Answers, ProofAudit
from cluster.audit.safety.certified_chain import claim_of
from cluster.disks.directory import DirectoryDisk
from cluster.faults.kinds.leader_delay import LeaderDelayFault
from cluster.faults.kinds.partition import PartitionFault
from cluster.live.host import pages, threads
from cluster.live.host.host import ValidatorHost
from cluster.live.host.http import build_app
from cluster.live.host.join_inbox import MAX_JOIN_MESSAGES
from cluster.live.host.observations import CertificateSeen, CertificateTap, FinalSeen, FirstSeen, ViewSeen, VoteSent
from cluster.live.host.threads import MAX_PAGES_AT_ONCE
from cluster.live.host.validator_loop import ValidatorLoop, ValidatorSetup
from cluster.live.network.links import OutgoingLinks
from cluster.live.network.transport import PeerAddress
from cluster.live.web.event_stream import Subscription
from cluster.live.web.server import NotReady, serve
from cluster.misbehaviour.byzantine.registry import BEHAVIOURS, BehaviourContext, ByzantineValidator, Score
from cluster.misbehaviour.planted import RunCounter
from cluster.record.genesis_file import to_json
from cluster.record.message_trace import RING_MESSAGES, peek
from cluster.record.run import HAND_OVER, MESSAGE, SYNC, WARM_UP, RunRecord
from cluster.record.status import Counted, Tally
from cluster.scenario import Scenario
from cluster.scenario.genesis import build_genesis, validator_set, validator_signer
from cluster.scenario.network import Network
from cluster.scenario.node_setup import Pace, node_config
from cluster.scenario.sections.links import LinksSection
from cluster.watches.live.collect import ServedOverHttp, collect
from consensus.certificates import verify_finalization
from consensus.keys import Ed25519Scheme, ValidatorSet
from consensus.messages import VoteKind
from consensus.types import Digest, PublicKey
from loadgen.client import ValidatorClient
from loadgen.workloads import LoadUser, Observation
from tests.cluster.records import ledger_of
from tests.hangs import HANGS_AFTER_S, bounded
from validator.chain.block import Header
from validator.chain.messages import (
    ChunkRequest,
    FinalBlocksRequest,
    SnapshotRequest,
    TransactionsMessage,
    ViewReport,
    encode_message,
)
from validator.chain.records import GLOBALS
from validator.chain.transactions import Call, Transaction, sign
from validator.node.assembly import PRODUCTION
from validator.node.events import BlockFinal, Effect, Event, Message, TimerName
from validator.node.executor.executor import Executor, StorageConfig
from validator.node.executor.jobs import Job, JobResult
from validator.node.executor.queries import BlockGone, EventFilter, StatePages
from validator.node.snapshot_join import SnapshotJoin
from validator.primitives.codec import decode
from validator.primitives.types import Hash
from validator.state.proof import verify

SEED = 3
SCHEME = Ed25519Scheme()
SCENARIO = Scenario.model_validate(
    {
        "name": "in-one-process",
        "validators": 4,
        "consensus": {
            "block_interval_ms": 20,
            "leader_timeout_ms": 300,
            "advance_timeout_ms": 500,
            "rebroadcast_ms": 200,
        },
        "load": {"users": [{"workload": "flood", "count": 2, "options": {"timers": 5, "spread_blocks": 3}}]},
    }
)
VALIDATORS = validator_set(SCHEME, SCENARIO, SEED)
GENESIS = build_genesis(SCENARIO, SEED, VALIDATORS)


class WatchedTally(Tally):
    """Says when a block became final."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = asyncio.Event()

    def note(self, effect: Counted) -> None:
        Tally.note(self, effect)
        if isinstance(effect, BlockFinal):
            self.progress.set()


class Readers(set[int]):
    """The peers for which a validator reads; says when one leaves."""

    def __init__(self, peers: set[int]) -> None:
        super().__init__(peers)
        self.left = asyncio.Event()

    def discard(self, peer: object) -> None:
        super().discard(peer)
        self.left.set()


class Member:
    """One validator, its disk, and what crashed it."""

    def __init__(
        self,
        root: Path,
        index: int,
        joins: bool = False,
        behaviours: Sequence[str] = (),
        sleep: Callable[[float], None] = time.sleep,
        **setup_fields: Any,
    ) -> None:
        self.index = index
        self.disk = DirectoryDisk(root / str(index))
        self.crashes: list[BaseException] = []
        signer = validator_signer(SCHEME, SEED, index)
        self.tally = WatchedTally()
        setup = ValidatorSetup(
            str(index), index, GENESIS, signer, VALIDATORS, node_config(SCENARIO, index, RunCounter()), joins=joins
        )
        if behaviours:
            self.tally.byzantine = score = Score()
            context = BehaviourContext(index, signer, VALIDATORS, GENESIS.chain_id, Random(SEED), score)
            around = ByzantineValidator([BEHAVIOURS[name] for name in behaviours], context)
            setup = replace(setup, byzantine=around)
        setup = replace(setup, **setup_fields)
        self.loop = ValidatorLoop(setup, self.disk, self.crashes.append, self.tally, sleep)

    async def start(self) -> PeerAddress:
        self.address = await self.loop.transport.listen("127.0.0.1")
        await self.loop.recover()
        return self.address

    async def crash(self) -> None:
        """What a killed process leaves: streams that end and a disk that nobody writes to any more."""
        await self.loop.transport.close()
        self.disk.close()

    async def close(self) -> None:
        await self.loop.close()
        self.disk.close()

    async def roots(self, last: int) -> list[bytes]:
        """The state roots that it computed for heights 1 to ``last``."""
        return [root for _, _, root in await self.loop.pages.read(lambda pages: pages.blocks(1, last))]

    async def reaches(self, height: int) -> None:
        while self.loop.state().height < height:
            self.tally.progress.clear()
            await self.tally.progress.wait()


def introduce(members: Sequence[Member]) -> None:
    for member in members:
        member.loop.transport.set_addresses({other.index: other.address for other in members})


@asynccontextmanager
async def network(
    root: Path, count: int = 4, behaviours: Sequence[str] = (), links: LinksSection | None = None, **fields: Any
) -> AsyncIterator[list[Member]]:
    """``behaviours`` are the last one's; ``fields`` are of everybody's :class:`Member` and :class:`ValidatorSetup`."""
    members = []
    for index in range(count):
        if links is not None:
            fields["links"] = OutgoingLinks(Network(links, SCENARIO.validators.names, {}, SEED), index, SEED)
        members.append(Member(root, index, behaviours=behaviours if index == count - 1 else (), **fields))
    for member in members:
        await member.start()
    introduce(members)
    yield members
    for member in members:
        await member.close()
        assert member.crashes == []


async def turn() -> None:
    """Let the loop go round once."""
    gone_round = asyncio.Event()
    asyncio.get_running_loop().call_soon(gone_round.set)
    await gone_round.wait()


def users() -> list[LoadUser]:
    return SCENARIO.load.build_users(SEED, GENESIS.chain_id, GENESIS.parameters)


async def submit(member: Member) -> list[Hash]:
    """One turn of every user; the transactions' hashes."""
    prices = GENESIS.parameters.initial_basefee
    look = Observation(0, 0, prices, prices, prices, 0)
    wires = [wire for user in users() for wire in user.next_transactions(look)]
    results = await member.loop.pages.submit(wires)
    assert [result.error for result in results] == [None] * len(wires)
    return [result.transaction_hash for result in results]


@bounded
async def test_validators_agree_and_execute_what_was_submitted(tmp_path: Path) -> None:
    async with network(tmp_path) as members:
        hashes = await submit(members[1])
        for member in members:
            await member.reaches(8)
        roots = [await member.roots(8) for member in members]
        assert roots == [roots[0]] * 4
        for member in members:
            receipts = [await member.loop.pages.read(partial(StatePages.receipt, digest=each)) for each in hashes]
            assert [receipt and receipt["status"] for receipt in receipts] == ["ok"] * len(hashes)
        status = await members[2].loop.pages.status()
        assert (status["name"], status["peers"], status["faults"]) == ("2", [0, 1, 3], {})
        assert status["fires"] > 0
        assert members[0].loop.state().messages_sent > 0


@bounded
async def test_a_crashed_validator_recovers_from_its_disk_and_catches_up(tmp_path: Path) -> None:
    async with network(tmp_path) as members:
        await submit(members[0])
        await members[3].reaches(3)
        victim = members[3]
        await victim.crash()
        left_at = victim.loop.state().height
        await members[0].reaches(left_at + 3)
        members[3] = again = Member(tmp_path, 3)
        await again.start()
        status = await again.loop.pages.status()
        assert left_at <= status["recovered_height"] <= members[0].loop.state().height
        introduce(members)
        goal = members[0].loop.state().height + 5
        for member in members:
            await member.reaches(goal)
        roots = [await member.roots(goal) for member in members]
        assert roots == [roots[0]] * 4
        assert all("the disk was closed" in str(error) for error in victim.crashes)


@bounded
async def test_at_rest_the_final_state_stands_still(tmp_path: Path) -> None:
    async with network(tmp_path) as members:
        await submit(members[0])
        await members[0].reaches(4)
        member = members[0]
        with pytest.raises(NotReady, match="at the end of a run only"):
            await member.loop.pages.supply()
        await member.loop.freeze()
        supply = await member.loop.pages.supply()
        assert (supply["balances"] > 0, supply["burned"] > 0, supply["accounts"] > 1) == (True, True, True)
        before = await member.loop.pages.status()
        await members[1].reaches(before["height"] + 4)
        after = await member.loop.pages.status()
        assert {**after, "peers": 0} == {**before, "peers": 0}
        assert await member.loop.pages.supply() == supply
        assert len(await member.roots(1_000)) == before["height"]
        with pytest.raises(NotReady):
            await member.loop.pages.submit([b""])


def audited(url: str) -> Answers:
    """What the end of a live run verifies of a validator, over HTTP."""
    record = RunRecord(SCENARIO, "live", SEED, "test", GENESIS)
    collect(record, {0: url}, lambda: None)
    found, chain = record.validators[0], longest_chain(record.validators)
    answers = Answers(found.name)
    with ValidatorClient(url) as client:
        for _ in ProofAudit(record, chain, ledger_of(GENESIS, chain)).ask(found, ServedOverHttp(client), answers):
            pass
    assert record.monitor is not None and record.monitor.counts.items() >= answers.counts.items()
    assert record.monitor.violations == answers.violations
    return answers


@bounded
async def test_a_client_author_gets_all_that_checking_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events by stream while the chain runs; then pages whose hashes, certificates and proofs hold together."""
    async with network(tmp_path) as members:
        member = members[0]
        subscription = member.loop.pages.subscribe("", None, EventFilter())
        streamed = asyncio.create_task(read_all(subscription))
        user = users()[0]
        ring = Call(user.actor, "run", b'[["emit","ring","x"],["schedule",{"in":1,"payload":[["emit","late","y"]]}]]')
        body = Transaction(user.address, 0, 100_000, 1_000, 10**9, 1, 10**9, ring)
        assert (await member.loop.pages.submit([sign(user._key, GENESIS.chain_id, body)]))[0].error is None
        while member.tally.fires == 0 or member.loop.state().height < 6:
            await member.reaches(member.loop.state().height + 1)
        await member.loop.freeze()
        *events, end = await streamed
        assert b"event: end" in end and b"the validator is at rest" in end
        server = await serve(build_app(member.loop.pages))
        status, parameters, validators, genesis = await asyncio.gather(
            *(
                asyncio.to_thread(get, server.url + path)
                for path in ("/status", "/parameters", "/validators", "/genesis")
            )
        )
        page = await asyncio.to_thread(get, server.url + "/events?from=1")
        told = [json.loads(event.split(b"data: ")[1]) for event in events if b"data: " in event]
        assert told == page["events"]
        assert [each["event"]["name"] for each in told] == ["ring", "late"]
        assert parameters["policy"] == genesis["policy"] == "cip1" and parameters["preset"] is genesis["preset"] is None
        assert genesis == json.loads(to_json(GENESIS))
        assert sum(status["burned"].values()) == sum(status["burned_since_genesis"].values()) > 0
        height = status["height"] - 2
        proof = await asyncio.to_thread(get, f"{server.url}/blocks/{height}/finality")
        digest, keys = Digest(bytes.fromhex(proof["certified_hash"])), validators["validators"]
        known = ValidatorSet(tuple(PublicKey(bytes.fromhex(each["public_key"])) for each in keys), SCHEME)
        namespace = validators["chain_id"].encode()
        assert verify_finalization(bytes.fromhex(proof["certificate"]), digest, known, namespace)
        header = decode(bytes.fromhex(proof["header"]), Header)
        shown = await asyncio.to_thread(get, f"{server.url}/proofs/{GLOBALS.hex()}?height={height}")
        value = verify(Hash(header.state_root), GLOBALS, bytes.fromhex(shown["proof"]))
        assert value is not None and value.hex() == shown["value"]
        proved = await asyncio.to_thread(audited, server.url)
        assert proved.violations == []
        assert proved.counts[SERVED_FINALITY] > 1 and proved.counts[SERVED_PROOFS] > 1
        monkeypatch.setattr("cluster.audit.proofs.verify", lambda *_: b"another")
        assert len((await asyncio.to_thread(audited, server.url)).violations) == proved.counts[SERVED_PROOFS]
        await server.close()


async def read_all(subscription: Subscription) -> list[bytes]:
    return [message async for message in subscription.messages()]


def get(url: str) -> Any:
    answer = urllib3.request("GET", url, retries=False, timeout=HANGS_AFTER_S)
    assert answer.status == 200, answer.data
    return json.loads(answer.data)


@bounded
async def test_proofs_are_made_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_PROOFS_WAITING", 2)
    async with network(tmp_path, 1) as (member,):
        asked = [asyncio.create_task(member.loop.pages.proof(b"k", None)) for _ in range(3)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in found] == [dict, dict, NotReady]
        assert (await member.loop.pages.proof(b"k", None))["value"] is None


@bounded
async def test_a_validators_own_work_waits_for_few_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    entered, gate = threading.Event(), threading.Event()

    def held_page(_pages: StatePages, _address: bytes) -> dict[str, str]:
        entered.set()
        assert gate.wait(HANGS_AFTER_S)
        done.append("page")
        return {}

    def noted_run(executor: Executor, job: Job) -> JobResult:
        done.append("job")
        return run_job(executor, job)

    run_job = Executor.run
    monkeypatch.setattr(StatePages, "account", held_page)
    monkeypatch.setattr(Executor, "run", noted_run)
    async with network(tmp_path, 1) as (member,):
        asked = [asyncio.create_task(member.loop.pages.read(lambda pages: pages.account(bytes(20)))) for _ in range(9)]
        await asyncio.to_thread(entered.wait, HANGS_AFTER_S)
        done.clear()
        submitted = asyncio.create_task(submit(member))
        await turn()
        await turn()
        gate.set()
        await submitted
        assert done.index("job") <= MAX_PAGES_AT_ONCE
        assert await asyncio.gather(*asked) == [{}] * 9


@bounded
async def test_what_was_seen_is_told_once(tmp_path: Path) -> None:
    async with network(tmp_path) as members:
        await members[0].reaches(5)
        seen = members[0].loop.observations.drain()
        finals = [each for each in seen if isinstance(each, FinalSeen)]
        assert [final.block.height for final in finals] == list(range(1, len(finals) + 1))
        firsts = {each.height: each.at_ms for each in seen if isinstance(each, FirstSeen)}
        assert all(firsts[final.block.height] <= final.at_ms for final in finals)
        later = members[0].loop.observations.drain()
        assert not {final.block.height for final in finals} & {
            each.block.height for each in later if isinstance(each, FinalSeen)
        }


@bounded
async def test_messages_are_stamped_where_they_leave_and_where_they_come(tmp_path: Path) -> None:
    async with network(tmp_path) as members:
        await members[0].reaches(5)
        sent, came = (member.loop.observations.drain_stamps() for member in members[:2])
        assert 0 < len(sent) <= RING_MESSAGES
        towards = [stamp for stamp in sent if stamp.is_sent and stamp.peer in (None, 1)]
        left = {(each.size, each.mark): each.at_ms for each in reversed(towards)}  # first: it may be repeated
        arrived = [stamp for stamp in came if not stamp.is_sent and stamp.peer == 0]
        assert len(arrived) >= 5
        assert all(stamp.at_ms >= left[stamp.size, stamp.mark] for stamp in arrived)
        assert {peek(stamp.head)[0] for stamp in sent} >= {"proposal", "notarize", "finalize"}
        views = [seen.view for seen in members[0].loop.observations.drain() if isinstance(seen, ViewSeen)]
        assert len(views) >= 5
        assert views == sorted(set(views))


@bounded
async def test_work_is_timed(tmp_path: Path) -> None:
    async with network(tmp_path) as members:
        await asyncio.gather(*(submit(member) for member in members))
        await asyncio.gather(*(member.reaches(12) for member in members))
        work = members[0].loop.observations.drain_work()
    kinds = {each.kind for each in work}
    assert {WARM_UP, "execute", "finalize", SYNC, MESSAGE, HAND_OVER} <= kinds
    jobs = [each for each in work if each.core_us]
    assert all(0 < each.core_us <= 1.5 * each.wall_us + 1_000 and each.ended_ms > 0 for each in jobs)
    assert any(each.transactions for each in jobs)
    assert any(each.fires for each in jobs)
    warm_up = [each for each in work if each.kind == WARM_UP]
    assert 1 <= len(warm_up) <= 2
    assert warm_up[-1].fires
    assert all(each.core_us == each.ended_ms == 0 for each in work if each.kind in (SYNC, MESSAGE, HAND_OVER))


@bounded
async def test_metrics_are_those_that_are_documented(tmp_path: Path) -> None:
    async with network(tmp_path) as members:
        await members[0].reaches(2)
        text = members[0].loop.pages.metrics()
        names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
        documented = (Path(__file__).parents[4] / "docs" / "http.md").read_text(encoding="utf-8")
        assert names
        assert [name for name in names if f"`{name}" not in documented] == []
        for name in ("block_interval_seconds", "finality_latency_seconds", 'executor_job_seconds{kind="finalize"}'):
            metric, brace, labels = name.partition("{")
            (value,) = re.findall(rf"^stampede_{metric}_count{re.escape(brace + labels)} (\d+)$", text, re.M)
            assert int(value) >= 1, name


@bounded
async def test_jobs_take_as_long_as_they_are_told(tmp_path: Path) -> None:
    slept: list[float] = []
    async with network(tmp_path, sleep=slept.append) as members:
        await members[0].reaches(2)
        assert slept == []
        members[0].loop.impair(40, 1.0)
        await members[0].reaches(members[0].loop.state().height + 2)
        assert set(slept) == {0.04}
        assert len(slept) == members[0].loop.executor.slow_jobs > 0
        members[0].loop.impair(None, 1.0)
        await members[0].loop.pages.read(lambda pages: pages.account(bytes(20)))  # what was queued before it is done
        count = len(slept)
        await members[0].reaches(members[0].loop.state().height + 2)
        assert len(slept) == count


@bounded
async def test_what_is_left_of_a_timer_runs_at_the_clocks_new_speed(tmp_path: Path) -> None:
    loop, timer = Member(tmp_path, 0).loop, TimerName("test")
    now = asyncio.get_running_loop().time
    loop.impair(None, 0.01)
    loop.timers.set(timer, 10_000)
    assert loop.timers._running[timer].when() - now() == pytest.approx(1_000, abs=5)
    assert loop.timers.skewed == 1
    loop.impair(None, 1.0)
    assert loop.timers._running[timer].when() - now() == pytest.approx(10, abs=5)
    loop.impair(None, 100.0)
    assert loop.timers._running[timer].when() - now() < 1
    loop.timers.set(timer, 10_000)
    assert loop.timers._running[timer].when() - now() < 1
    await loop.close()


@bounded
async def test_a_validator_may_have_a_slow_machine_and_a_fast_clock_of_its_own(tmp_path: Path) -> None:
    """What it usually does is not the work of a fault, and a fault comes on top of it."""
    member, timer = Member(tmp_path, 0), TimerName("test")
    member.loop.setup = replace(member.loop.setup, pace=Pace(job_ms=30, clock_speed=2.0))
    loop = ValidatorLoop(member.loop.setup, member.disk, member.crashes.append, sleep=lambda seconds: None)
    now = asyncio.get_running_loop().time
    loop.timers.set(timer, 20_000)
    assert loop.timers._running[timer].when() - now() == pytest.approx(10, abs=5)
    assert loop.timers.skewed == 0
    loop.impair(10, 0.1)
    assert loop.executor._job_ms == 30, "no fault makes it faster"
    loop.timers.set(timer, 20_000)
    assert loop.timers._running[timer].when() - now() == pytest.approx(100, abs=5)
    await loop.close()


@bounded
async def test_votes_certificates_and_sizes_of_files_are_told(tmp_path: Path) -> None:
    async with network(tmp_path) as members:
        await members[0].reaches(5)
        assert members[0].loop.executor.old_file_sizes() == {}
        notes = members[0].loop.observations.drain()
        assert not any(isinstance(seen, CertificateSeen) for seen in notes), "its word does not count"
    async with network(tmp_path / "told", tap=CertificateTap(), watches_files=True) as members:
        await members[0].reaches(6)
        drained = [member.loop.observations.drain() for member in members]
        told = [seen for seen in drained[0] if isinstance(seen, VoteSent)]
        assert len(told) == len(set(told)), "a repeated vote is told once"
        assert {seen.kind for seen in told} >= {VoteKind.NOTARIZE, VoteKind.FINALIZE}
        assert max(seen.view for seen in told) >= 5
        seen_by_host = [seen for notes in drained for seen in notes if isinstance(seen, CertificateSeen)]
        claims = [claim_of(seen.certificate) for seen in seen_by_host]
        assert len(claims) == len(set(claims)), "a host tells each statement once"
        assert {kind for _, kind, *_ in claims} >= {VoteKind.NOTARIZE, VoteKind.FINALIZE}
        assert all(seen.looks_good for seen in seen_by_host)
        sizes = members[0].loop.executor.old_file_sizes()
        assert set(sizes) == {"journal", "blocks/archive", "state/log-000001"}
        assert all(0 < size < members[0].disk.size(name) for name, size in sizes.items())


@bounded
async def test_links_lie_between_validators_and_leaders_may_be_late(tmp_path: Path) -> None:
    latency = LinksSection(latency_ms=4.0, jitter_ms=0.0)
    async with network(tmp_path, links=latency) as members:
        await members[0].reaches(2)
        cut = PartitionFault(kind="partition", groups=[["validator-3"]], at_height=2, for_ms=1)
        late = LeaderDelayFault(kind="leader_delay", delay_ms=15, at_height=2, for_ms=1)
        names = [f"validator-{index}" for index in range(4)]
        for member in members:
            assert member.loop.setup.links is not None
            member.loop.setup.links.set_faults({1: cut.effect(names), 2: late.effect(names)})
        behind = members[3].loop.state().height
        await members[0].reaches(behind + 6)
        assert members[3].loop.state().height <= behind + 2, "what was under way may still arrive"
        counts = [member.loop.setup.links.faults.counts() for member in members if member.loop.setup.links is not None]
        assert all(each[1].dropped > 0 for each in counts)
        assert sum(each[2].delayed for each in counts) > 0
        for member in members:
            assert member.loop.setup.links is not None
            member.loop.setup.links.set_faults({})
        await members[3].reaches(behind + 8)
        lost = sum(each[1].dropped for each in counts)
        assert sum(member.loop.state().messages_lost for member in members) >= lost


@bounded
async def test_a_validator_that_has_not_recovered_says_so(tmp_path: Path) -> None:
    member = Member(tmp_path, 0)
    with pytest.raises(NotReady):
        await member.loop.pages.status()
    with pytest.raises(NotReady):
        await member.loop.pages.submit([b""])
    assert not member.loop.state().ready
    await member.close()


@bounded
async def test_a_bug_is_a_crash(tmp_path: Path) -> None:
    member = Member(tmp_path, 0)
    await member.start()
    with pytest.raises(TypeError):
        await member.loop.pages.submit([None])  # type: ignore[list-item]
    assert [type(error) for error in member.crashes] == [TypeError]
    await member.close()


@bounded
async def test_a_validator_prunes_what_the_auditor_has(tmp_path: Path) -> None:
    storage = StorageConfig(segment_bytes=1, retained_heights=8, keep_blocks=8)
    async with network(tmp_path, parts=replace(PRODUCTION, storage=storage)) as members:
        await members[0].reaches(12)
        members[0].loop.allow_pruning(9)
        height = members[0].loop.state().height
        for member in members:
            await member.reaches(max(height, 17) + 2)
        told, other = [await member.loop.pages.status() for member in members[:2]]
        assert (told["prunable_height"], told["first_block"]) == (9, 10)
        assert (other["prunable_height"], other["first_block"]) == (0, 1)
        assert 0 < told["disk_bytes"]["blocks"] < other["disk_bytes"]["blocks"]
        metrics = members[0].loop.pages.metrics()
        assert "stampede_first_block 10" in metrics
        assert 'stampede_disk_bytes{file="journal"}' in metrics


def test_a_host_tells_each_of_its_validators_what_the_auditor_has() -> None:
    told: list[tuple[int, int]] = []
    host = object.__new__(ValidatorHost)
    host._validators = [
        cast(Any, SimpleNamespace(address=SimpleNamespace(index=index), allow_pruning=note))
        for index, note in ((1, lambda height: told.append((1, height))), (4, lambda height: told.append((4, height))))
    ]
    asyncio.run(host._allow_pruning({4: 30, 5: 7}))
    assert told == [(1, 0), (4, 30)]


@bounded
async def test_a_validator_without_state_joins_by_a_snapshot(tmp_path: Path) -> None:
    async with network(tmp_path, 3) as members:
        await submit(members[0])
        await members[0].reaches(12)
        late = Member(tmp_path, 3, joins=True)
        late.address = await late.loop.transport.listen("127.0.0.1")
        members.append(late)
        introduce(members)
        with pytest.raises(NotReady):
            await late.loop.pages.status()
        await late.loop.recover()
        status, state = await late.loop.pages.status(), late.loop.state()
        assert status["snapshot_height"] == state.snapshot_height >= 8
        assert sum(state.snapshot_chunks.values()) > 0
        goal = members[0].loop.state().height + 8
        for member in members:
            await member.reaches(goal)
        with pytest.raises(BlockGone):
            await late.loop.pages.read(lambda pages: pages.block(1))
        read = partial(StatePages.blocks, first=state.snapshot_height + 1, most=goal - state.snapshot_height)
        ours = await late.loop.pages.read(read)
        assert ours == await members[0].loop.pages.read(read)
        assert len(ours) == goal - state.snapshot_height


@pytest.mark.parametrize("has_begun", [False, True])
@bounded
async def test_a_join_can_be_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_begun: bool) -> None:
    alone = Member(tmp_path, 3, joins=True)
    await alone.loop.transport.listen("127.0.0.1")
    has_asked = asyncio.Event()
    monkeypatch.setattr(alone.loop.transport, "send", lambda *_: has_asked.set())
    recovery = asyncio.create_task(alone.loop.recover())
    if has_begun:
        await has_asked.wait()
        with pytest.raises(NotReady, match="still joining by a snapshot"):
            await alone.loop.pages.status()
    alone.loop.join.give_up()
    await recovery
    assert not alone.loop.state().ready
    await alone.close()
    assert alone.crashes == []


@bounded
async def test_no_peer_crowds_out_what_others_answer_to_a_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Member(tmp_path, 3, joins=True)
    await alone.loop.transport.listen("127.0.0.1")
    taken: list[Message] = []
    has_asked, has_taken, has_more = asyncio.Event(), asyncio.Event(), asyncio.Event()
    main = asyncio.get_running_loop()

    def handle(join: SnapshotJoin, event: Event) -> list[Effect]:
        if isinstance(event, Message):
            taken.append(event)
        seen = has_more if len(taken) > MAX_JOIN_MESSAGES + 1 else has_taken
        main.call_soon_threadsafe((seen if len(taken) > MAX_JOIN_MESSAGES else has_asked).set)
        return []

    monkeypatch.setattr(SnapshotJoin, "handle", handle)
    recovery = asyncio.create_task(alone.loop.recover())
    await has_asked.wait()
    answer, gossip = encode_message(ViewReport(b"", b"")), encode_message(TransactionsMessage((b"one",)))
    for _ in range(1_000):
        alone.loop.transport._on_message(0, answer)
    for payload in (gossip, answer):
        alone.loop.transport._on_message(1, payload)
    await has_taken.wait()
    senders = [(message.sender, message.payload) for message in taken]
    assert senders == [(0, answer)] * MAX_JOIN_MESSAGES + [(1, answer)]
    alone.loop.transport._on_message(0, answer)
    await has_more.wait()
    alone.loop.join.give_up()
    await recovery
    await alone.close()


@pytest.mark.parametrize(
    "question",
    [FinalBlocksRequest(1, 1), SnapshotRequest(), ChunkRequest(8, 0)],
    ids=["blocks", "offer", "chunk"],
)
@bounded
async def test_a_read_that_is_dropped_is_not_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: FinalBlocksRequest | SnapshotRequest | ChunkRequest
) -> None:
    async with network(tmp_path) as members:
        await members[0].reaches(9)
        loop, peer = members[0].loop, 1
        assert loop._validator is not None
        service = loop._validator.node._peer_service
        reading = service._reading_for = Readers(service._reading_for)
        while reading:
            reading.left.clear()
            await reading.left.wait()
        with monkeypatch.context() as patch:
            patch.setattr(threads, "MAX_READS_WAITING", 0)
            loop.transport._on_message(peer, encode_message(question))
            assert reading == {peer}
            await turn()
            assert reading == set()


@pytest.mark.parametrize("behaviours", [("equivocating-leader", "nullify-and-finalize"), ("garbage", "stale-replayer")])
@bounded
async def test_a_byzantine_validator_misbehaves_over_real_streams(tmp_path: Path, behaviours: tuple[str, ...]) -> None:
    async with network(tmp_path, behaviours=behaviours) as members:
        honest, byzantine = members[:3], members[3]
        target = 4
        while not all(byzantine.tally.byzantine.effects[name] for name in behaviours):  # type: ignore[union-attr]
            target += 3  # so that it is not always the same leader that has something to propose
            await asyncio.gather(submit_anew(members[0]), *(member.reaches(target) for member in honest))
        roots = [await member.roots(target) for member in honest]
        assert roots[0] == roots[1] == roots[2]
        blamed = {peer for member in honest for peer in member.tally.faults_by_peer}
        assert blamed <= {byzantine.index}
        page = json.loads(json.dumps(await byzantine.loop.pages.status()))
        assert set(page["byzantine"]["took_effect"]) == set(behaviours)


async def submit_anew(member: Member) -> None:
    """One turn of every user, from the nonces that are final."""
    accounts = [await member.loop.pages.read(partial(StatePages.account, address=user.address)) for user in users()]
    nonces = [account["nonce"] for account in accounts]
    prices = GENESIS.parameters.initial_basefee
    looks = [Observation(member.loop.state().height, nonce, prices, prices, prices, 0) for nonce in nonces]
    wires = [wire for user, look in zip(users(), looks, strict=True) for wire in user.next_transactions(look)]
    await member.loop.pages.submit(wires)
