"""What a scenario puts into the genesis besides the load: who holds what, which actors there are, who governs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from blake3 import blake3
from nacl.signing import SigningKey

from cluster.checks.metrics.actor_classes import class_of_actors
from cluster.commands.explain.outline import outline
from cluster.common.errors import BadInput
from cluster.record.genesis_file import from_json, to_json
from cluster.record.run import RunRecord
from cluster.scenario import Scenario
from cluster.scenario.files import change_scenario, load_scenario, scenario_from, scenario_text
from cluster.scenario.genesis import build_genesis, validator_set
from cluster.scenario.overrides import parse_setting
from cluster.scenario.sections.chain import account_key, actor_address
from consensus.keys import Ed25519Scheme
from loadgen.workloads.actor_program import source_of
from stampede import simulate
from validator.chain.genesis import Genesis, GenesisAgent
from validator.chain.transactions import address_of
from validator.primitives.types import Address

SEED = 7
ADDRESS = "0x" + "a5" * 20
KEY = bytes(SigningKey(b"k" * 32).verify_key)
CHAIN: dict[str, Any] = {
    "accounts": {"seed:alice": 10**24, ADDRESS: "12", KEY.hex(): 0},
    "actors": {
        "auction": {
            "program": "token",
            "balance": 5,
            "deployer": "seed:alice",
            "gba": {"max_fee_per_cycle": "9", "max_priority_fee_per_cycle": 1},
        },
        "script": {"program": "builtin:script", "address": "0x" + "5c" * 20},
    },
    "system_deployers": ["seed:alice", ADDRESS, "seed:alice"],
    "faucet": {"balance": 77},
}


def scenario(**fields: Any) -> Scenario:
    return scenario_from({"name": "s", "seed": SEED, **fields})


def genesis_of(plan: Scenario, seed: int = SEED) -> Genesis:
    return build_genesis(plan, seed, validator_set(Ed25519Scheme(), plan, seed))


def seed_address(name: str, seed: int = SEED) -> Address:
    """By the formula of docs/scenarios.md."""
    secret = blake3(b"stampede/account/" + seed.to_bytes(8, "big") + name.encode()).digest()
    return address_of(bytes(SigningKey(secret).verify_key))


def test_the_genesis_holds_what_the_scenario_says() -> None:
    genesis = genesis_of(scenario(chain=CHAIN))
    alice, named = seed_address("alice"), Address(bytes.fromhex("a5" * 20))
    assert genesis.accounts == {alice: 10**24, named: 12, address_of(KEY): 0, seed_address("faucet"): 77}
    assert genesis.system_deployers == (alice, named), "each once"
    derived = Address(b"\xac" + blake3(b"stampede/actor/auction").digest()[:19])
    auction, script = genesis.actors[derived], genesis.actors[Address(bytes.fromhex("5c" * 20))]
    assert (auction.code, auction.deployer, auction.balance) == (source_of("token"), alice, 5)
    assert auction.agent == GenesisAgent("builtin:fixed", 9, 1)
    assert (script.code, script.deployer, script.agent) == ("builtin:script", seed_address("deployer"), None)
    assert from_json(to_json(genesis)) == genesis, "the run's folder has all of it"


def test_keys_of_names_follow_from_the_seed_and_addresses_of_actors_do_not() -> None:
    plan = scenario(chain=CHAIN)
    assert bytes(account_key(SEED, "alice").verify_key) != bytes(account_key(SEED + 1, "alice").verify_key)
    assert seed_address("alice", 8) in genesis_of(plan, 8).accounts
    assert genesis_of(plan, 8).actors.keys() == genesis_of(plan).actors.keys()


def test_users_of_the_load_keep_theirs_and_those_that_govern_may() -> None:
    users = [{"workload": "flood", "count": 2}, {"workload": "governance"}]
    genesis = genesis_of(scenario(chain=CHAIN, load={"users": users}))
    of_load = list(scenario(load={"users": users}).load.genesis_accounts(SEED))
    assert list(genesis.accounts)[:3] == of_load and len(genesis.accounts) == 3 + 4
    assert genesis.system_deployers[0] == of_load[2]
    assert not set(of_load[:2]) & set(genesis.system_deployers)


WRONG = {
    "accounts: {alice: 5}": "chain.accounts.alice: expected an address (0x and 40 hex digits), a public key (64 hex"
    " digits) or seed:NAME, got 'alice'; did you mean seed:alice?",
    "accounts: {0xabc: 5}": "chain.accounts[2748]: expected a text, got a number; put an address into quotes",
    "accounts: {'seed:a': -5}": "chain.accounts.seed:a: expected at least 0, got -5",
    "accounts: {'seed:a': x}": "chain.accounts.seed:a: expected a whole number, got 'x'",
    f"accounts: {{'{ADDRESS}': 1, '{ADDRESS.replace('a', 'A')}': 1}}": f"chain.accounts.{ADDRESS.replace('a', 'A')}:"
    f" is the same account as {ADDRESS}",
    "accounts: {'0x0000000000000000000000000000000000000009': 1}": "chain.accounts"
    ".0x0000000000000000000000000000000000000009: is reserved for the system",
    "{faucet: {}, accounts: {'seed:faucet': 1}}": "chain: accounts.seed:faucet: is the faucet's account; its balance is"
    " faucet.balance",
    "faucet: {max_amout: 1}": "chain.faucet.max_amout: unknown field; did you mean max_amount?",
    "faucet: {max_amount: 0}": "chain.faucet.max_amount: expected at least 1, got 0",
    "system_deployers: [bob]": "chain.system_deployers[0]: expected an address (0x and 40 hex digits), a public key (64"
    " hex digits) or seed:NAME, got 'bob'; did you mean seed:bob?",
    "actors: {a: {}}": "chain.actors.a.program: is missing; expected the name of a program, the path of one or a"
    " mapping of fields",
    "actors: {a: {program: token, adress: x}}": "chain.actors.a.adress: unknown field; did you mean address?",
    "actors: {a: {program: token, gba: {max_fee_per_cycle: 1}}}": "chain.actors.a.gba.max_priority_fee_per_cycle: is"
    " missing",
    "actors: {a: {program: token, address: '0xff'}}": "chain.actors.a.address: '0xff' is no address: expected 0x and 40"
    " hex digits",
    f"actors: {{a: {{program: token, address: '{ADDRESS}'}}, b: {{program: token, address: '{ADDRESS}'}}}}": "chain"
    f".actors.b.address: {ADDRESS} is that of a",
    f"{{accounts: {{'{ADDRESS}': 1}}, actors: {{a: {{program: token, address: '{ADDRESS}'}}}}}}": f"chain: {ADDRESS} is"
    " given as account and as actor",
    "actors: {a: {program: {name: mine, source: import os}}}": "chain.actors.a.program: mine: line 1, column 1: an"
    " import; everything that a program may use is there without one",
}


@pytest.mark.parametrize(("text", "line"), WRONG.items())
def test_what_is_wrong_is_one_line(text: str, line: str) -> None:
    with pytest.raises(BadInput) as caught:
        scenario_from({"name": "s", "chain": yaml.safe_load(text)}, "here")
    assert str(caught.value) == f"here: {line}"


def test_nobody_is_put_into_the_place_of_a_user() -> None:
    load = {"users": [{"workload": "flood"}]}
    (user,) = scenario(load=load).load.genesis_accounts(SEED)
    with pytest.raises(BadInput, match=f"chain: accounts: 0x{user.hex()} is that of a user of the load"):
        scenario(load=load, chain={"accounts": {f"0x{user.hex()}": 1}})


def test_explain_lists_them_with_their_addresses() -> None:
    (table,) = (each for each in outline(scenario(chain=CHAIN)) if each.title.startswith("Accounts"))
    alice = f"0x{seed_address('alice').hex()}"
    assert table.rows[0] == ("seed:alice", alice, f"{10**24:,}", "account, may give system instructions")
    assert [row[0] for row in table.rows] == ["seed:alice", ADDRESS, KEY.hex(), "seed:faucet", "auction", "script"]
    assert table.rows[4][3] == "actor, token, bidding agent builtin:fixed"
    assert not [each for each in outline(scenario()) if each.title.startswith("Accounts")]


def test_reports_call_actors_by_their_names() -> None:
    plan = scenario(chain=CHAIN)
    classes = class_of_actors(RunRecord(plan, "sim", SEED, "", genesis_of(plan)))
    assert classes[actor_address("auction")] == "actor auction"


def test_conservation_counts_them_and_a_run_shows_their_balances() -> None:
    funds = {**CHAIN["accounts"], "seed:faucet": 77}
    minted = sum(map(int, funds.values())) + 5
    outcome = simulate(scenario(chain=CHAIN, stop={"height": 31}), seed=SEED)
    conservation = outcome.check("conservation")
    assert (
        conservation.verdict == "pass" and f"minted {minted:,} = balances {minted:,} + burned 0" in conservation.detail
    )
    (served, *_) = outcome.record.validators
    assert served.balances[f"0x{seed_address('alice').hex()}"] == 10**24


# --- programs of one's own ------------------------------------------------------------------------------------------

PROGRAM = """class Mine(Actor):
    \"\"\"Counts.\"\"\"

    def count(self, payload):
        self.set("n", self.get("n", 0) + 1)
"""
OWN = """
chain: {actors: {counter: {program: ../mine.py}}}
load:
  users:
    - {workload: program, interval_ms: 200, options: {program: ../mine.py, calls: [{handler: count}]}}
    - {workload: governance, options: {deploys: [../mine.py, token], refused_percent: 0}}
"""


@pytest.fixture
def child(tmp_path: Path) -> Path:
    """A scenario that inherits programs from a file in another folder."""
    (tmp_path / "mine.py").write_text(PROGRAM, encoding="ascii")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "base.yaml").write_text(f"name: base\n{OWN}", encoding="utf-8")
    (tmp_path / "far").mkdir()
    path = tmp_path / "far" / "child.yaml"
    path.write_text(f"extends: {tmp_path}/base/base.yaml\nname: child\nstop: {{height: 12}}\n", encoding="utf-8")
    return path


def codes_of(plan: Scenario) -> list[str]:
    return [actor.code for actor in genesis_of(plan).actors.values()]


def test_a_program_is_found_from_the_file_that_names_it(child: Path) -> None:
    plan = load_scenario(child)
    assert codes_of(plan).count(PROGRAM) == 2
    assert plan.load.users[1].options["deploys"] == [{"name": "mine", "source": PROGRAM}, "token"]


def test_a_scenario_with_a_program_needs_its_file_once(child: Path, tmp_path: Path) -> None:
    """Hosts get it as JSON, the run's folder as YAML."""
    plan = load_scenario(child)
    (tmp_path / "mine.py").unlink()
    assert Scenario.model_validate_json(plan.model_dump_json()) == plan
    text = scenario_text(plan, child)
    assert "source: |\n" in text, "written as people read it"
    (tmp_path / "elsewhere.yaml").write_text(text, encoding="utf-8")
    assert load_scenario(tmp_path / "elsewhere.yaml") == plan


@pytest.mark.slow
def test_a_run_with_a_program_can_be_run_again_from_its_folder(child: Path, tmp_path: Path) -> None:
    first = simulate(child, seed=SEED, out=tmp_path / "run")
    assert not [check for check in first.verdict.checks if check.verdict == "fail"]
    assert first.metrics["transactions"] > 10 and first.metrics["transactions_reverted"] == 0
    (tmp_path / "mine.py").unlink()
    again = simulate(tmp_path / "run" / "scenario.yaml", seed=SEED)
    assert again.record.digest == first.record.digest != ""


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "far/../mine.py: no such file"),
        (b"", "far/../mine.py: expected a program's text, in ASCII alone"),
        ("é".encode(), "far/../mine.py: expected a program's text, in ASCII alone"),
        (b"#" * 16_001, "far/../mine.py: expected a program of at most 16,000 characters"),
    ],
)
def test_a_program_that_cannot_be_read_is_one_line(child: Path, content: bytes | None, line: str) -> None:
    program = child.parent.parent / "mine.py"
    program.unlink()
    if content is not None:
        program.write_bytes(content)
    own = child.with_name("own.yaml")
    own.write_text("name: own\nchain: {actors: {counter: {program: ../mine.py}}}", encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        load_scenario(own)
    assert str(caught.value) == f"{own}: chain.actors.counter.program: {child.parent.parent}/{line}"


def test_a_path_that_is_nearly_right_is_told(child: Path) -> None:
    own = child.parent.parent / "own.yaml"
    own.write_text("name: own\nchain: {actors: {counter: {program: ./mien.py}}}", encoding="utf-8")
    with pytest.raises(BadInput, match=r"mien\.py: no such file; did you mean mine\.py\?$"):
        load_scenario(own)


def test_a_program_with_a_mistake_is_told_with_its_place(child: Path) -> None:
    (child.parent.parent / "mine.py").write_text("class Mine(Actor):\n    x = 1.5\n", encoding="ascii")
    with pytest.raises(BadInput, match=r"base\.yaml: chain\.actors\.counter\.program: mine: line 2, .*inherited by"):
        load_scenario(child)


def test_settings_may_name_a_program_from_where_the_user_is(child: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(child.parent.parent)
    change = parse_setting("chain.actors={counter: {program: mine.py}}")
    assert codes_of(change_scenario(scenario(), [change], "here")) == [PROGRAM]
