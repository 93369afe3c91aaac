"""Opening a validator: from its own journal or not at all, with the parts and the storage that it is given."""

from __future__ import annotations

from random import Random

import pytest

from cluster.disks.memory import FaultPlan, MemoryDisk
from cluster.misbehaviour.planted import RunCounter
from cluster.scenario import Scenario
from cluster.scenario.files import change_scenario
from cluster.scenario.genesis import build_genesis, validator_set, validator_signer
from cluster.scenario.node_setup import node_config, parts_of
from cluster.scenario.overrides import Change
from cluster.simulation.driver import Simulation
from consensus.journal import encode_record
from consensus.keys import KeyedHashScheme
from consensus.messages import Vote, VoteKind, vote_signing_bytes
from consensus.types import Digest, ValidatorIndex, View
from validator.node.assembly import Validator, open_validator
from validator.node.executor.executor import RecoveryError
from validator.storage.disk import DiskError
from validator.storage.journal import JOURNAL_FILE, encode_batch, open_journal

SEED = 3
PLAN = Scenario.model_validate(
    {
        "name": "assembly",
        "consensus": {"signatures": "keyed-hash"},
        "storage": {"segment_kib": 2, "retained_heights": 9},
    }
)
VALIDATORS = validator_set(KeyedHashScheme(), PLAN, SEED)
GENESIS = build_genesis(PLAN, SEED, VALIDATORS)
SIGNER = validator_signer(KeyedHashScheme(), SEED, 0)


def opened(disk: MemoryDisk) -> Validator:
    counter = RunCounter()
    config, parts = node_config(PLAN, 0, counter), parts_of(PLAN, 0, counter)
    return open_validator(disk, GENESIS, 0, SIGNER, VALIDATORS, config, parts)


def vote(digest: bytes) -> bytes:
    subject = (View(2), View(0), Digest(digest))
    signature = SIGNER.sign(vote_signing_bytes(GENESIS.chain_id.encode(), VoteKind.NOTARIZE, *subject))
    return encode_record(Vote(VoteKind.NOTARIZE, *subject, ValidatorIndex(0), signature))


def test_contradictory_votes_in_the_journal_are_one_line() -> None:
    disk = MemoryDisk()
    opened(disk).executor.close()
    disk.append(JOURNAL_FILE, encode_batch([vote(bytes(32)), vote(b"x" * 32)], ()))
    with pytest.raises(RecoveryError, match=r"^journal: the journal holds contradictory votes of ours in view 2$"):
        opened(disk)


def test_a_scenario_says_how_much_a_disk_keeps() -> None:
    store = opened(MemoryDisk()).executor._store
    assert store.log.segment_bytes == 2_048
    assert store._retained == 9


@pytest.mark.parametrize("seed", range(20))
def test_what_was_read_back_outlives_a_loss_of_power(seed: int) -> None:
    """A process was killed with a vote on its way to the disk: the next one repeats it, so it must not be forgotten."""
    disk = MemoryDisk()
    opened(disk).executor.close()
    disk.append(JOURNAL_FILE, encode_batch([vote(bytes(32))], ()))
    opened(disk).executor.close()
    disk.crash(Random(seed))
    assert open_journal(disk).records == (vote(bytes(32)),)


def test_a_vote_whose_sync_failed_is_durable_once_it_was_read_back() -> None:
    disk = MemoryDisk()
    opened(disk).executor.close()
    disk.plan = FaultPlan(disk.operations + 1, verbs=frozenset({"sync"}))
    disk.append(JOURNAL_FILE, encode_batch([vote(bytes(32))], ()))
    with pytest.raises(DiskError):
        disk.sync(JOURNAL_FILE)
    opened(disk).executor.close()
    disk.append(JOURNAL_FILE, encode_batch([vote(bytes(32))], ()))
    disk.sync(JOURNAL_FILE)
    disk.crash(Random(1))
    assert open_journal(disk).records == (vote(bytes(32)), vote(bytes(32)))


def test_a_journal_that_is_missing_though_blocks_are_final_is_one_line() -> None:
    simulation = Simulation(change_scenario(PLAN, [Change("stop.height", 4)], "short"), SEED, "test")
    simulation.run()
    disk = simulation.machines[0].disk
    disk.remove(JOURNAL_FILE)
    with pytest.raises(
        RecoveryError, match=r"^journal: is missing, though \d+ blocks are final, and with it what was voted for"
    ):
        opened(disk)
