"""Genesis files read back as they were written, and wrong ones are refused in one line that names the place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.common.errors import BadInput
from cluster.record.genesis_file import from_json, read_genesis, to_json
from tests.cluster.records import ACTOR, OTHER, USER_ADDRESS, VALIDATOR_KEYS, make_genesis
from validator.chain.genesis import Genesis, GenesisActor, GenesisEpoch
from validator.primitives.params import Parameters
from validator.primitives.types import Address, address_text

addresses = st.binary(min_size=20, max_size=20).filter(lambda raw: raw[:19] != bytes(19)).map(Address)
balances = st.integers(0, 2**128 - 1)


@given(
    accounts=st.dictionaries(addresses, balances, max_size=5),
    actor=addresses,
    deployer=addresses,
    balance=balances,
    lane=st.integers(1_000_000, 10**9),
)
def test_what_is_written_reads_back(
    accounts: dict[Address, int], actor: Address, deployer: Address, balance: int, lane: int
) -> None:
    accounts.pop(actor, None)
    genesis = Genesis(
        chain_id="chain",
        validators=VALIDATOR_KEYS,
        parameters=Parameters(lane_timer_cycles=lane),
        accounts=accounts,
        actors={actor: GenesisActor("builtin:script", deployer, balance)},
        system_deployers=(deployer,),
    )
    assert from_json(to_json(genesis)) == genesis
    assert to_json(from_json(to_json(genesis))) == to_json(genesis)


def test_a_file_written_by_hand_may_use_a_preset_and_decimal_strings() -> None:
    text = json.dumps(
        {
            "chain_id": "c",
            "validators": [VALIDATOR_KEYS[0].hex()],
            "preset": "hardened",
            "params": {"LANE_TIMER_CYCLES": "3000000"},
            "accounts": {address_text(OTHER): {"balance": "340282366920938463463374607431768211455"}},
        }
    )
    genesis = from_json(text)
    assert genesis.parameters.priority_floor == 1
    assert genesis.parameters.lane_timer_cycles == 3_000_000
    assert genesis.accounts == {OTHER: 2**128 - 1}


def changed(path: str, value: Any) -> str:
    """The test genesis with one field set, or taken away where the value is ``...``."""
    whole = json.loads(to_json(make_genesis()))
    *parents, last = path.split("/")
    at = whole
    for name in parents:
        at = at[int(name)] if isinstance(at, list) else at[name]
    if value is ...:
        del at[last]
    elif isinstance(at, list):
        at[int(last)] = value
    else:
        at[last] = value
    return json.dumps(whole)


USER, SCRIPT = address_text(USER_ADDRESS), address_text(ACTOR)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "g.json: $: no JSON: "),
        ("[" * 100_000, "g.json: $: nested more than 256 levels deep"),
        ("[]", "g.json: $: expected an object, got a list"),
        ('{"chain_id": "a", "chain_id": "b"}', "g.json: $: field 'chain_id' is given twice"),
        (changed("chain_id", ...), "g.json: $: field 'chain_id' is missing"),
        (changed("chain_id", 5), "g.json: chain_id: expected a text, got a number"),
        (changed("chain_id", ""), "g.json: chain_id: expected a name, got an empty text"),
        (changed("extra", 1), "g.json: $: unknown field 'extra'"),
        (changed("validators", []), "g.json: validators: expected at least one key"),
        (changed("validators", {}), "g.json: validators: expected a list, got an object"),
        (changed("validators/1", "zz"), "g.json: validators[1]: expected 64 hex digits, got 'zz'"),
        (changed("validators/1", VALIDATOR_KEYS[0].hex()), "g.json: validators: the same key is given twice"),
        (changed("params", []), "g.json: params: expected an object, got a list"),
        (changed("params/SCAN_LIMIT", 0), "g.json: params.SCAN_LIMIT: 0 is out of range"),
        (changed("params/NONSENSE", 0), "g.json: params.NONSENSE: unknown parameter"),
        (changed("preset", "soft"), "g.json: preset: 'soft' is unknown"),
        (changed("preset", 1), "g.json: preset: expected a name or null, got a number"),
        (changed("system_deployers", ["0x12"]), "g.json: system_deployers[0]: '0x12' is no address"),
        (changed("runners", {}), "g.json: runners: expected a list, got an object"),
        (changed("runners", [5]), "g.json: runners[0]: expected a text, got a number"),
        (changed("runners", [USER, USER]), "g.json: runners[1]: this address is given twice"),
        (changed("runners", ["0x" + "00" * 20]), "g.json: runners[0]: reserved address"),
        (changed("epochs", {}), "g.json: epochs: expected a list, got an object"),
        (changed("epochs", [{"first_view": 3}]), "g.json: epochs[0]: field 'members' is missing"),
        (changed("epochs", [{"first_view": 3, "members": ["x"]}]), "g.json: epochs[0].members[0]: expected an integer"),
        (changed("epochs", [{"first_view": -1, "members": [0]}]), "g.json: epochs[0].first_view: out of range"),
        (changed("accounts", 3), "g.json: accounts: expected an object, got a number"),
        (changed(f"accounts/{USER}", 3), f"g.json: accounts.{USER}: expected an object, got a number"),
        (changed(f"accounts/{USER}/balance", -1), f"g.json: accounts.{USER}.balance: out of range"),
        (changed(f"accounts/{USER}/balance", 2**128), f"g.json: accounts.{USER}.balance: out of range"),
        (changed(f"accounts/{USER}/balance", 1.5), f"g.json: accounts.{USER}.balance: 1.5 is no integer"),
        (changed(f"accounts/{USER}/balance", True), f"g.json: accounts.{USER}.balance: expected an integer"),
        (changed(f"accounts/{USER}/nonce", 1), f"g.json: accounts.{USER}: unknown field 'nonce'"),
        (changed("accounts/0x" + "00" * 20, {"balance": 1}), "reserved address"),
        (changed(f"accounts/{SCRIPT.upper().replace('0X', '0x')}", {"balance": 1}), "this address is given twice"),
        (changed(f"actors/{SCRIPT}/code", "builtin:x"), f"g.json: actors.{SCRIPT}.code: 'builtin:x' is unknown"),
        (changed(f"actors/{SCRIPT}/code", "native"), f"g.json: actors.{SCRIPT}.code: line 1, column 1: no class"),
        (changed(f"actors/{SCRIPT}/deployer", ...), f"g.json: actors.{SCRIPT}: field 'deployer' is missing"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(text: str, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        from_json(text, "g.json")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        read_genesis(tmp_path / "missing.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="cannot be read"):
        read_genesis(tmp_path / "binary.json")
    (tmp_path / "right.json").write_text(to_json(make_genesis()))
    assert read_genesis(tmp_path / "right.json") == make_genesis()
    scheduled = replace(make_genesis(), epochs=(GenesisEpoch(7, (0, 2)), GenesisEpoch(9, (1,))))
    (tmp_path / "scheduled.json").write_text(to_json(scheduled))
    assert read_genesis(tmp_path / "scheduled.json") == scheduled
    answered = make_genesis(runners=(USER_ADDRESS, OTHER))
    assert from_json(to_json(answered)) == answered
    assert "runners" not in to_json(make_genesis())
