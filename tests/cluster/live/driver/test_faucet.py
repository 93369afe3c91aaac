"""The faucet of a live testnet: ordinary transfers, bounded, for whoever shows its token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from starlette.exceptions import HTTPException

from cluster.commands.cli.main import main
from cluster.commands.run.control_client import ControlClient
from cluster.commands.run.scenario_run import LiveOptions, PlannedRun
from cluster.common.errors import BadInput
from cluster.live.driver.control_server import ControlServer, Overview
from cluster.live.driver.faucet import Faucet
from cluster.scenario import Scenario
from cluster.scenario.sections.chain import FaucetSection
from loadgen.workloads.user import MAX_UNCONFIRMED, STALL_BLOCKS
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import CHAIN_ID, FakeChain, FakePages, ServerThread
from validator.chain.transactions import Transfer
from validator.primitives.params import DEFAULTS
from validator.primitives.types import Address

SEED = 5
TO = Address(b"\xaa" * 20)
TO_TEXT = f"0x{TO.hex()}"
NOBODY = {"gone": "http://127.0.0.1:1"}


class Clock:
    """Seconds that pass when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def chain() -> FakeChain:
    return FakeChain()


@pytest.fixture
def urls(chain: FakeChain) -> Iterator[dict[str, str]]:
    with ServerThread(FakePages(chain, 0)) as server:
        yield {"validator-0": server.url}


def faucet(clock: Clock | None = None, **fields: Any) -> Faucet:
    return Faucet(FaucetSection.model_validate(fields), SEED, CHAIN_ID, DEFAULTS, clock or Clock())


def refused(paying: Faucet, urls: dict[str, str], amount: int = 1, to: Address = TO) -> tuple[int, str]:
    with pytest.raises(HTTPException) as caught:
        paying.pay(to, amount, urls)
    return caught.value.status_code, caught.value.detail


def test_it_sends_ordinary_transfers_from_the_account_of_the_genesis(chain: FakeChain, urls: dict[str, str]) -> None:
    scenario = Scenario.model_validate({"name": "s", "chain": {"faucet": {}}})
    paying = Faucet.of(scenario, SEED, CHAIN_ID)
    assert paying is not None and paying.address in scenario.chain.genesis_accounts(SEED)
    pages = [paying.pay(TO, amount, NOBODY | urls) for amount in (7, 8)]
    sent = [transaction for _, transaction in chain.taken]
    assert [(each.sender, each.nonce, each.value, each.action) for each in sent] == [
        (paying.address, 0, 7, Transfer(TO)),
        (paying.address, 1, 8, Transfer(TO)),
    ]
    assert [(page["nonce"], page["amount"], page["to"], page["validator"]) for page in pages] == [
        (0, 7, TO_TEXT, "validator-0"),
        (1, 8, TO_TEXT, "validator-0"),
    ]


def test_there_is_none_where_the_scenario_asks_for_none() -> None:
    assert Faucet.of(Scenario(name="s"), SEED, CHAIN_ID) is None


def test_amounts_are_bounded(chain: FakeChain, urls: dict[str, str]) -> None:
    paying = faucet(max_amount=100)
    assert refused(paying, urls, 101) == (400, "amount: 101 is not within 1 to 100")
    assert refused(paying, urls, 0)[0] == 400
    assert refused(paying, urls, 5, Address(bytes(19) + b"\x09"))[0] == 400
    assert not chain.taken


def test_the_rate_is_bounded_whoever_asks(urls: dict[str, str]) -> None:
    clock = Clock()
    paying = faucet(clock, requests_per_minute=3)
    for _ in range(3):
        paying.pay(TO, 1, urls)
    assert refused(paying, urls) == (429, "too many payments, expected at most 3 a minute")
    clock.now += 20
    paying.pay(TO, 1, urls)
    assert refused(paying, urls)[0] == 429


def test_it_promises_no_more_than_it_has(chain: FakeChain, urls: dict[str, str]) -> None:
    """The fake's accounts hold 2**100 units. What is not final yet is gone, too."""
    paying = faucet(max_amount=2**120)
    assert refused(paying, urls, 2**100)[0] == 409
    chain.submit = lambda endpoint, wire: type(chain).submit(FakeChain(), endpoint, wire)  # type: ignore[method-assign]
    paying.pay(TO, 2**99, urls)
    status, reason = refused(paying, urls, 2**99)
    assert status == 409 and "that the faucet has left" in reason


def test_what_is_under_way_is_bounded_and_sent_again(chain: FakeChain, urls: dict[str, str]) -> None:
    """A validator that takes transfers and forgets them: each keeps its nonce and comes again."""
    forgotten: list[bytes] = []
    real = chain.submit
    chain.submit = lambda endpoint, wire: (forgotten.append(wire), type(chain).submit(_at(wire), endpoint, wire))[1]  # type: ignore[method-assign]
    paying = faucet()
    for _ in range(MAX_UNCONFIRMED):
        paying.pay(TO, 1, urls)
        chain.height -= 1  # or the faucet would see that nothing becomes final
    assert refused(paying, urls) == (429, "too many transfers are under way; wait for a block")
    assert len(set(forgotten)) == MAX_UNCONFIRMED
    chain.submit = real  # type: ignore[method-assign]
    chain.height += STALL_BLOCKS
    assert refused(paying, urls)[0] == 429, "all of them are sent again"
    assert [transaction.nonce for _, transaction in chain.taken] == list(range(MAX_UNCONFIRMED))
    assert paying.pay(TO, 1, urls)["nonce"] == MAX_UNCONFIRMED


def _at(wire: bytes) -> FakeChain:
    """A chain that takes this transaction."""
    from validator.chain.transactions import parse

    chain, transaction = FakeChain(), parse(wire, CHAIN_ID)
    chain.nonces[transaction.sender] = transaction.nonce
    return chain


def test_without_a_validator_it_says_so(chain: FakeChain) -> None:
    assert refused(faucet(), NOBODY) == (503, "no validator answered for the prices and the faucet's account")
    assert refused(faucet(), {}) == (503, "no validator answered for the prices and the faucet's account")


# --- over HTTP ------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path, urls: dict[str, str]) -> Iterator[ControlServer]:
    running = ControlServer(tmp_path, faucet=faucet())
    running.view = Overview(urls=urls)
    yield running
    running.close()


def ask(server: ControlServer, body: object, token: str) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {token}"}
    answer = urllib3.request(
        "POST", server.url + "/faucet", body=json.dumps(body), headers=headers, retries=False, timeout=HANGS_AFTER_S
    )
    return answer.status, json.loads(answer.data)


def token_of(folder: Path, name: str = "faucet-token") -> str:
    return (folder / name).read_text(encoding="utf-8").strip()


def test_only_its_own_token_opens_it_and_that_opens_nothing_else(
    server: ControlServer, tmp_path: Path, chain: FakeChain
) -> None:
    body = {"to": TO_TEXT, "amount": "12"}
    assert (tmp_path / "faucet-token").stat().st_mode & 0o777 == 0o600
    for wrong in ("", token_of(tmp_path, "token"), token_of(tmp_path)[:-1]):
        status, page = ask(server, body, wrong)
        assert status == 401 and "the faucet's token" in page["error"]
    assert not chain.taken
    assert ask(server, body, token_of(tmp_path))[0] == 202
    assert chain.taken[0][1].value == 12
    stop = {"Authorization": f"Bearer {token_of(tmp_path)}"}
    assert urllib3.request("POST", server.url + "/stop", headers=stop, retries=False).status == 401


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ([], "expected a JSON object with the fields to and amount"),
        ({"to": TO_TEXT}, "expected a JSON object with the fields to and amount"),
        ({"to": TO_TEXT, "amount": 1, "note": ""}, "expected a JSON object with the fields to and amount"),
        ({"to": "0x12", "amount": 1}, "to: expected an address, 0x and 40 hex digits"),
        ({"to": 5, "amount": 1}, "to: expected an address, 0x and 40 hex digits"),
        ({"to": TO_TEXT, "amount": 1.5}, "amount: expected a whole number, or decimal text"),
        ({"to": TO_TEXT, "amount": True}, "amount: expected a whole number, or decimal text"),
        ({"to": TO_TEXT, "amount": "9" * 41}, "amount: expected a whole number, or decimal text"),
        ({"to": TO_TEXT, "amount": 10**22}, f"amount: {10**22} is not within 1 to {10**21}"),
    ],
)
def test_a_wrong_request_is_one_line(server: ControlServer, tmp_path: Path, body: object, line: str) -> None:
    status, page = ask(server, body, token_of(tmp_path))
    assert status == 400 and page["error"].startswith(line)


def test_without_a_faucet_there_is_no_token_and_nobody_is_paid(tmp_path: Path) -> None:
    bare = ControlServer(tmp_path)
    try:
        status, page = ask(bare, {"to": TO_TEXT, "amount": 1}, token_of(tmp_path, "token"))
        assert status == 404 and "chain.faucet" in page["error"]
        assert not (tmp_path / "faucet-token").exists()
    finally:
        bare.close()


def test_a_run_that_goes_on_pays_from_python(server: ControlServer, tmp_path: Path, chain: FakeChain) -> None:
    endpoints = {"testnet": {"url": server.url, "token_file": "token"}}
    (tmp_path / "endpoints.json").write_text(json.dumps(endpoints), encoding="utf-8")
    client = ControlClient.of_run(tmp_path)
    assert client.pay(TO_TEXT, 5)["amount"] == 5
    with pytest.raises(BadInput, match="amount: 0 is not within"):
        client.pay(TO_TEXT, 0)
    (tmp_path / "faucet-token").unlink()
    with pytest.raises(BadInput, match="its testnet has no faucet"):
        client.pay(TO_TEXT, 5)


def test_up_asks_for_a_faucet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the scenario says nothing of one; what it says of its own stays."""
    seen: list[Scenario] = []

    def perform(planned: PlannedRun, *_: Any) -> Any:
        seen.append(planned.scenario)
        raise BadInput("seen enough")

    monkeypatch.setattr("cluster.commands.run.scenario_run.perform_run", perform)
    plain, own = tmp_path / "plain.yaml", tmp_path / "own.yaml"
    plain.write_text("name: plain", encoding="utf-8")
    own.write_text("name: own\nchain: {faucet: {max_amount: 3}}", encoding="utf-8")
    for arguments in (["up", str(plain)], ["up", str(plain), "--faucet"], ["up", str(own), "--faucet"]):
        assert main(arguments) == 2
    found = [scenario.chain.faucet for scenario in seen]
    assert found[0] is None and found[1] == FaucetSection()
    assert found[2] is not None and found[2].max_amount == 3
    assert not LiveOptions().faucet
