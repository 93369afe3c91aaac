"""The reference external validator before it takes part: its place, its addresses, its genesis, and its end."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.common.errors import BadInput
from cluster.live.network.transport import PeerAddress
from cluster.record.genesis_file import to_json
from cluster.scenario import Scenario
from cluster.scenario.genesis import build_genesis, validator_set
from consensus.keys import Ed25519Scheme
from kits.conform import peer
from kits.conform.peer import PeerPlan, peers_of, read_endpoints, require_free, run_peer
from loadgen.client import ClientError, ValidatorClient
from tests.cluster.outsider import SECRET, scenario_with
from tests.hangs import HANGS_AFTER_S
from tests.ports import free_ports
from validator.chain.genesis import Genesis

SCHEME = Ed25519Scheme()


@pytest.fixture
def plan(tmp_path: Path) -> PeerPlan:
    return PeerPlan(scenario_with(free_ports()), tmp_path / "run", SECRET, tmp_path / "data")


def perform(plan: PeerPlan, ends_at: str) -> list[str]:
    """Run it until it says a line that begins like this. Returns all lines."""
    said: list[str] = []

    async def run() -> None:
        end = asyncio.Event()

        def say(line: str) -> None:
            said.append(line)
            if line.startswith(ends_at):
                end.set()

        await asyncio.wait_for(run_peer(plan, end, say), HANGS_AFTER_S)

    asyncio.run(run())
    return said


def test_its_place_is_that_of_its_key(plan: PeerPlan) -> None:
    assert plan.place[0] == 3
    with pytest.raises(BadInput, match="0 external validators of the scenario have the key"):
        _ = replace(plan, secret=b"\x08" * 32).place


def test_it_ends_before_there_is_a_testnet(plan: PeerPlan) -> None:
    assert perform(plan, "waits for") == [f"waits for {plan.run}/endpoints.json"]
    assert not plan.data.exists()


@pytest.mark.parametrize("further", [0, 1])
def test_an_address_that_is_taken_is_named_at_once(plan: PeerPlan, further: int) -> None:
    port = plan.place[1].peers[1] + further
    with (
        closing(socket.create_server(("127.0.0.1", port))),
        pytest.raises(BadInput, match=rf"127\.0\.0\.1:{port}: cannot be listened at: Address already in use$"),
    ):
        perform(plan, "waits for")
    require_free(("127.0.0.1", port))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"validators": 3}', '{"validators": [{}]}'])
def test_an_endpoints_file_that_is_not_there_yet_or_wrong_has_none(tmp_path: Path, text: str) -> None:
    assert read_endpoints(tmp_path, 3) == []
    (tmp_path / "endpoints.json").write_text(text)
    assert read_endpoints(tmp_path, 3) == []


def test_endpoints_are_those_of_the_others(tmp_path: Path) -> None:
    entries = [{"index": index, "peers": f"127.0.0.1:{7_000 + index}"} for index in range(4)]
    (tmp_path / "endpoints.json").write_text(json.dumps({"validators": entries}))
    found = read_endpoints(tmp_path, 3)
    assert [each["index"] for each in found] == [0, 1, 2]
    assert peers_of(found[1]) == PeerAddress("127.0.0.1", 7_001)
    third = PeerAddress("::1", 7_002)
    assert peers_of({"peers": third.text}) == third


def genesis_of(scenario: Scenario) -> Genesis:
    return build_genesis(scenario, 1, validator_set(SCHEME, scenario, 1))


def test_the_genesis_comes_from_the_first_validator_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genesis, asked = genesis_of(scenario_with(7_000)), []

    def read(client: ValidatorClient) -> str:
        asked.append(client.endpoint)
        if len(asked) < 2:
            raise ClientError("not yet")
        return to_json(genesis)

    monkeypatch.setattr(ValidatorClient, "genesis", read)
    monkeypatch.setattr(peer, "LOOK_EVERY_S", 0)
    entries = [{"index": index, "url": f"http://192.0.2.{index + 1}:1"} for index in range(4)]
    (tmp_path / "endpoints.json").write_text(json.dumps({"validators": entries}))
    assert asyncio.run(peer.read_genesis(tmp_path, 0)) == genesis
    assert asked == ["http://192.0.2.2:1", "http://192.0.2.3:1"]


def test_it_takes_part_and_ends(plan: PeerPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(*_: object) -> Genesis:
        return genesis_of(plan.scenario)

    monkeypatch.setattr(peer, "read_genesis", read)
    said = perform(plan, "validator-3 takes part in stampede-outsider-1, peers at 127.0.0.1:")
    assert len(said) == 2 and (plan.data / ".lock").exists()
    for address in (plan.place[1].peers, plan.place[1].pages):
        require_free(address)


def test_a_genesis_with_another_key_is_refused(plan: PeerPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(*_: object) -> Genesis:
        return genesis_of(scenario_with(7_000, b"\x08" * 32))

    monkeypatch.setattr(peer, "read_genesis", read)
    with pytest.raises(BadInput, match="the genesis of stampede-outsider-1 has another key for validator 3"):
        perform(plan, "never")
