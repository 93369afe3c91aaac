"""The genesis: its state, its block, and what cannot be one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.validator.chains import ACTOR, ALICE, BOB, OTHER, RICH, Chain, make_genesis
from validator.chain.block import header_hash
from validator.chain.genesis import Genesis, GenesisActor, GenesisAgent, GenesisEpoch, GenesisError, Policy
from validator.chain.records import GLOBALS, Account, Actor, BiddingAgent, Globals, decode_record
from validator.primitives.codec import pack_uint
from validator.primitives.params import GOVERNED, Parameters
from validator.primitives.types import SYSTEM_PARAMETERS_ADDRESS, Address
from validator.transition.genesis_block import genesis_batch, genesis_header


def test_the_state_of_height_zero() -> None:
    genesis = make_genesis({"INITIAL_BASEFEE": 77, "MIN_BASEFEE": 1}, accounts={ALICE: 5, BOB: 0}, actors={ACTOR: 7})
    batch = genesis_batch(genesis)
    records = {key: decode_record(key, value) for key, value in batch.items() if value is not None and key[:1] != b"s"}
    assert records == {
        b"a" + ALICE: Account(5, 0),
        b"a" + BOB: Account(0, 0),
        b"a" + ACTOR: Account(7, 0),
        b"c" + ACTOR: Actor("builtin:script", ALICE),
        GLOBALS: Globals(0, 0, 0, 77, 77, 77, 0, 0, 0, 12, 0, 0, 0, 0),
    }
    assert list(batch) == sorted(batch)


def test_the_governed_parameters_stand_in_the_systems_storage() -> None:
    batch = genesis_batch(make_genesis({"PRIORITY_TIERS": [1, 2, 3, 4], "MAX_TTL": 9}))
    prefix = b"s" + SYSTEM_PARAMETERS_ADDRESS
    stored = {key[21:].decode(): value for key, value in batch.items() if key.startswith(prefix)}
    assert set(stored) == {f"system:cip1:{name.lower()}" for name in GOVERNED}
    assert stored["system:cip1:priority_tiers"] == b"[1,2,3,4]"
    assert stored["system:cip1:max_ttl"] == b"9"
    for name, value in Parameters().to_names().items():
        if name in GOVERNED - {"PRIORITY_TIERS", "MAX_TTL"}:
            assert json.loads(stored[f"system:cip1:{name.lower()}"] or b"") == value


def test_the_genesis_block() -> None:
    header = genesis_header(make_genesis(), b"\5" * 32)
    assert (header.height, header.view, header.proposer, header.parent_hash) == (0, 0, 0, bytes(32))
    assert header.basefee_cycle == header.basefee_cell == header.basefee_lane_timer == pack_uint(1_000_000)
    assert header.state_root == b"\5" * 32


def test_everything_of_a_genesis_is_in_its_hash() -> None:
    base = make_genesis()
    variants = [
        base,
        replace(base, chain_id="other"),
        replace(base, validators=base.validators[::-1]),
        replace(base, validators=base.validators[:3]),
        replace(base, epochs=(GenesisEpoch(5, (0, 1)),)),
        replace(base, epochs=(GenesisEpoch(6, (0, 1)),)),
        replace(base, epochs=(GenesisEpoch(5, (0, 2)),)),
        replace(base, accounts={ALICE: RICH}),
        replace(base, accounts={ALICE: RICH, BOB: RICH + 1}),
        replace(base, actors={}),
        replace(base, actors={**base.actors, OTHER: GenesisActor("builtin:script", BOB, RICH)}),
        replace(base, system_deployers=(ALICE,)),
        replace(base, policy=Policy.FIFO),
        replace(base, runners=(ALICE,)),
        replace(base, runners=(BOB,)),
        replace(base, runners=(BOB,), epochs=(GenesisEpoch(5, (0, 1)),)),
        make_genesis(agents={ACTOR: GenesisAgent("builtin:fixed", 5, 6)}),
        make_genesis(agents={ACTOR: GenesisAgent("builtin:fixed", 6, 5)}),
        make_genesis(agents={OTHER: GenesisAgent("builtin:fixed", 5, 6)}),
        *[
            make_genesis({name: value})
            for name, value in (("DEFAULT_TIP_CAP", 3), ("SCAN_LIMIT", 9), ("TIE_BREAK", "aged"))
        ],
    ]
    assert len({header_hash(genesis_header(genesis, bytes(32))) for genesis in variants}) == len(variants)


def test_the_order_in_which_a_genesis_was_filled_does_not_matter() -> None:
    base = make_genesis()
    accounts, actors = list(base.accounts.items()), list(base.actors.items())
    turned = replace(base, accounts=dict(reversed(accounts)), actors=dict(reversed(actors)))
    assert list(turned.accounts) != list(base.accounts)
    assert genesis_header(turned, bytes(32)) == genesis_header(base, bytes(32))
    assert Chain(turned).view.root == Chain(base).view.root


def with_epochs(*epochs: tuple[int, tuple[int, ...]]) -> Genesis:
    return replace(make_genesis(), epochs=tuple(GenesisEpoch(*epoch) for epoch in epochs))


SYSTEM = Address(bytes(19) + b"\x0f")
WRONG: list[tuple[str, Genesis]] = [
    ("validators", replace(make_genesis(), validators=())),
    ("validators", replace(make_genesis(), validators=(b"k", b"k"))),
    ("epochs.1..first_view: 5 is not above 5", with_epochs((5, (0,)), (5, (1,)))),
    ("epochs.0..first_view: 0 is not above 0", with_epochs((0, (0,)))),
    ("epochs.0..members: expected validators in ascending order", with_epochs((5, (1, 0)))),
    ("epochs.0..members: expected validators in ascending order", with_epochs((5, ()))),
    ("epochs.0..members: there are validators 0 to 3", with_epochs((5, (0, 4)))),
    ("as account and as actor", make_genesis(accounts={ACTOR: 1})),
    ("is reserved", make_genesis(accounts={SYSTEM: 1})),
    ("is reserved", make_genesis(actors={SYSTEM: 1})),
    ("balance -1 is out of range", make_genesis(accounts={ALICE: -1})),
    ("is out of range", make_genesis(actors={ACTOR: 2**128})),
    ("code: 'builtin:other' is unknown", replace(make_genesis(), actors={ACTOR: GenesisActor("builtin:other", ALICE)})),
    ("code: line 1, column 1: no class", replace(make_genesis(), actors={ACTOR: GenesisActor("other", ALICE, 1)})),
]


@pytest.mark.parametrize(("reason", "genesis"), WRONG)
def test_what_cannot_be_a_genesis(reason: str, genesis: Genesis) -> None:
    with pytest.raises(GenesisError, match=reason):
        genesis_batch(genesis)


def test_the_first_address_that_is_not_reserved() -> None:
    genesis_batch(make_genesis(accounts={Address(bytes(19) + b"\x10"): 2**128 - 1}))


def test_an_actors_agent_stands_in_its_record() -> None:
    batch = genesis_batch(make_genesis(agents={OTHER: GenesisAgent("builtin:fixed", 2**95, 7)}))
    agents = {at: decode_record(b"c" + at, batch[b"c" + at] or b"").agent for at in (ACTOR, OTHER)}
    assert agents == {ACTOR: None, OTHER: BiddingAgent("builtin:fixed", 2**95, 7)}
