"""Opening a validator: from its own journal or not at all, with the parts and the storage that it is given."""

from __future__ import annotations

import pytest

from cluster.chain import build_genesis, node_config, parts_of, validator_set, validator_signer
from cluster.mutants.base import RunCounter
from cluster.scenario import Scenario
from cluster.simulation.disk import MemoryDisk
from consensus.journal import encode_record
from consensus.keys import KeyedHashScheme
from consensus.messages import Vote, VoteKind, vote_signing_bytes
from consensus.types import Digest, ValidatorIndex, View
from validator.assembly import Validator, open_validator
from validator.executor import RecoveryError
from validator.journal import JOURNAL_FILE, encode_batch

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
