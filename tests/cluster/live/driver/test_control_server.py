"""The testnet's own endpoint: what it shows of the driver's last look, its token, and how many requests it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import urllib3

from cluster.commands.run.control_client import ControlClient, ControlError
from cluster.common.errors import BadInput
from cluster.live.driver import control_server as control
from cluster.live.driver.control_server import AddFault, ControlServer, Overview, SetLoad, StopRun, look_over
from cluster.live.host.host import ValidatorAddress
from cluster.live.network.transport import PeerAddress
from cluster.live.processes.history import Phase
from cluster.live.web.addresses import Served
from cluster.live.web.prometheus_text import merge_pages
from cluster.live.web.server import MAX_CLIENTS, ClientBudgets, Rate
from tests.cluster.records import OUTSIDER_KEY, make_record, make_scenario
from tests.hangs import HANGS_AFTER_S
from tests.loadgen.fake_validator import FakeChain, FakePages, ServerThread

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    running = ControlServer(tmp_path)
    yield running
    running.close()


def ask(server: ControlServer, method: str, path: str, token: str | None = None) -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    answer = urllib3.request(method, server.url + path, headers=headers, retries=False, timeout=HANGS_AFTER_S)
    return answer.status, answer.data.decode()


def token_of(folder: Path) -> str:
    return (folder / "token").read_text(encoding="utf-8").strip()


def test_it_shows_the_drivers_last_look(server: ControlServer) -> None:
    assert ask(server, "GET", "/status") == (200, "{}")
    server.view = Overview({"height": 7}, {"validator-0": "http://127.0.0.1:99"}, labels={"scenario": "smoke"})
    assert json.loads(ask(server, "GET", "/status")[1]) == {"height": 7}
    targets: list[dict[str, Any]] = json.loads(ask(server, "GET", "/targets")[1])
    assert targets == [{"targets": ["127.0.0.1:99"], "labels": {"scenario": "smoke", "validator": "validator-0"}}]


def test_one_page_holds_the_metrics_of_all_validators(server: ControlServer) -> None:
    chain = FakeChain()
    with ServerThread(FakePages(chain, 0)) as first, ServerThread(FakePages(chain, 1)) as second:
        urls = {"validator-0": first.url, "validator-1": second.url, "validator-2": NOBODY}
        server.view = Overview(
            {}, urls, {"stampede_testnet_height": ("Highest.", 9), "stampede_testnet_a_total": ("All.", 4)}
        )
        ask(server, "GET", "/metrics")
        status, text = ask(server, "GET", "/metrics")
    assert status == 200
    assert 'stampede_validator_up{validator="validator-1"} 1' in text
    assert 'stampede_validator_up{validator="validator-2"} 0' in text, "one that does not answer says so"
    assert "# TYPE stampede_testnet_height gauge\nstampede_testnet_height 9\n" in text
    assert "# TYPE stampede_testnet_a_total counter\nstampede_testnet_a_total 4\n" in text
    assert 'stampede_height{validator="validator-0"} 1' in text
    assert text.count("# TYPE stampede_http_requests_total counter") == 1
    assert 'validator="validator-2",' not in text


def test_pages_are_merged_metric_by_metric() -> None:
    page = '# HELP a Things.\n# TYPE a counter\na{x="1"} 2\na{x="2"} 3\n# HELP b One.\n# TYPE b gauge\nb 4\n'
    assert merge_pages({"one": page, 't"wo': "b 5\nno sample\n# TYPE c gauge\n"}, "of") == (
        '# HELP a Things.\n# TYPE a counter\na{of="one",x="1"} 2\na{of="one",x="2"} 3\n'
        '# HELP b One.\n# TYPE b gauge\nb{of="one"} 4\nb{of="t\\"wo"} 5\n'
    )


def test_only_the_runs_token_ends_it(server: ControlServer, tmp_path: Path) -> None:
    token = token_of(tmp_path)
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    for wrong in (None, "", token[:-1], token + "x", "é"):
        status, text = ask(server, "POST", "/stop", wrong if wrong is None else wrong.encode().decode("latin-1"))
        assert (status, "needs the run's token" in text) == (401, True)
    assert server.orders.empty()
    assert ask(server, "POST", "/stop", token)[0] == 202
    assert isinstance(server.orders.get_nowait(), StopRun)
    assert ask(server, "GET", "/stop", token)[0] == 405


STEERING = {"/stop": b"", "/faults": b'{"kind": "kill"}', "/load": b'{"on": false}'}


@pytest.mark.parametrize("path", STEERING)
def test_no_order_reaches_the_driver_without_the_runs_token(server: ControlServer, tmp_path: Path, path: str) -> None:
    token = token_of(tmp_path)
    headers = [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": token},
        {"Authorization": f"Bearer {token[:-1]}"},
        {"Authorization": f"bearer {token}"},
        {"Cookie": f"token={token}"},
    ]
    for each in headers:
        answer = urllib3.request(
            "POST", server.url + path, body=STEERING[path], headers=each, retries=False, timeout=HANGS_AFTER_S
        )
        assert answer.status == 401
    in_address = urllib3.request("POST", f"{server.url}{path}?token={token}", body=STEERING[path], retries=False)
    assert in_address.status == 401
    assert server.orders.empty()


def answered(server: ControlServer, answer: dict[str, Any] | BadInput) -> Any:
    """The next order, as a driver answers it."""
    order: Any = server.orders.get(timeout=HANGS_AFTER_S)
    if isinstance(answer, BadInput):
        order.answer.set_exception(answer)
    else:
        order.answer.set_result(answer)
    return order


def test_the_load_is_set_by_the_driver(server: ControlServer, tmp_path: Path) -> None:
    def order(body: bytes) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token_of(tmp_path)}"}
        answer = urllib3.request("POST", f"{server.url}/load", body=body, headers=headers, retries=False)
        return answer.status, json.loads(answer.data)

    def drive() -> None:
        for is_on, answer in ((False, {"load": "stopped"}), (True, BadInput("the testnet has no load"))):
            order = answered(server, answer)
            assert isinstance(order, SetLoad) and order.is_on is is_on

    for wrong in (b"", b"[]", b'{"on": 1}', b'{"on": true, "off": false}'):
        assert order(wrong)[0] == 400
    assert server.orders.empty()
    with ThreadPoolExecutor(1) as driver:
        driving = driver.submit(drive)
        assert order(b'{"on": false}') == (202, {"load": "stopped"})
        assert order(b'{"on": true}') == (400, {"error": "the testnet has no load"})
        driving.result(HANGS_AFTER_S)


def test_the_end_of_a_log_needs_the_token(
    server: ControlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "MAX_LOG_BYTES", 20)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "host-1.log").write_text("the first line\nanother\nthe last é\n")
    token = token_of(tmp_path)
    assert ask(server, "GET", "/logs/host-1")[0] == 401
    assert ask(server, "GET", "/logs/host-1", token) == (200, "the last é\n")
    (tmp_path / "logs" / "host-1.log").write_text("short\n")
    assert ask(server, "GET", "/logs/host-1", token) == (200, "short\n")
    for name in ("host-2", "locust"):
        assert ask(server, "GET", f"/logs/{name}", token)[0] == 404
    for name in ("token", "..%2Ftoken", "host-1.log", "host-", "host-1%00"):
        assert ask(server, "GET", f"/logs/{name}", token)[0] == 404
    assert (tmp_path / "token").exists()


def test_what_it_is_told_is_bounded(server: ControlServer, tmp_path: Path) -> None:
    answers = [ask(server, "POST", "/stop", token_of(tmp_path))[0] for _ in range(control.MAX_WAITING + 1)]
    assert answers == [202] * control.MAX_WAITING + [429]


def test_a_fault_is_handed_to_the_driver_and_its_answer_back(server: ControlServer, tmp_path: Path) -> None:
    def drive() -> None:
        for answer in ({"kind": "kill", "at_ms": 7}, BadInput("target: no validator is named 'x'")):
            order = answered(server, answer)
            assert isinstance(order, AddFault) and order.fields == {"kind": "kill"}

    client = ControlClient(server.url, tmp_path / "token")
    with ThreadPoolExecutor(1) as driver:
        driving = driver.submit(drive)
        assert client.add_fault({"kind": "kill"}) == {"kind": "kill", "at_ms": 7}
        with pytest.raises(BadInput, match=r"^target: no validator is named 'x'$"):
            client.add_fault({"kind": "kill"})
        driving.result()


def test_what_is_no_fault_or_comes_without_the_token_does_not_reach_the_driver(
    server: ControlServer, tmp_path: Path
) -> None:
    client = ControlClient(server.url, tmp_path / "token")
    refused: list[Any] = [[], 7, "kill"]
    for wrong in refused:
        with pytest.raises(BadInput, match="expected a fault as a JSON object"):
            client.add_fault(wrong)
    (tmp_path / "token").write_text("another")
    with pytest.raises(ControlError, match="status 401: needs the run's token"):
        client.add_fault({"kind": "kill"})
    assert server.orders.empty()


def test_a_fault_that_the_driver_does_not_look_at_is_not_performed_later(
    server: ControlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ANSWER_TIMEOUT_S", 0.05)
    with pytest.raises(ControlError, match="status 503: the driver does not take orders now"):
        ControlClient(server.url, tmp_path / "token").add_fault({"kind": "kill"})
    order = server.orders.get_nowait()
    assert isinstance(order, AddFault) and not order.answer.set_running_or_notify_cancel()


def test_a_run_that_is_over_or_none_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected the folder of a live run that goes on"):
        ControlClient.of_run(tmp_path)
    endpoints = tmp_path / "endpoints.json"
    endpoints.write_text("[]")
    with pytest.raises(BadInput, match="does not say where"):
        ControlClient.of_run(tmp_path)
    endpoints.write_text(json.dumps({"testnet": {"url": NOBODY, "token_file": "token"}}))
    with pytest.raises(BadInput, match="that run is over"):
        ControlClient.of_run(tmp_path)
    (tmp_path / "token").write_text("x")
    with pytest.raises(ControlError, match="refused"):
        ControlClient.of_run(tmp_path).stop()


def test_a_token_of_before_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    (tmp_path / "token").chmod(0o644)
    server = ControlServer(tmp_path)
    assert token_of(tmp_path) != "old"
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    server.close()
    assert not (tmp_path / "token").exists(), "it opens nothing any more"


def test_a_port_that_is_taken_is_an_error_and_leaves_no_thread(server: ControlServer, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="in use"):
        ControlServer(tmp_path / "other", Served(port=int(server.url.rpartition(":")[2])))
    assert not (tmp_path / "other").exists()


# --- how many requests a client may make ------------------------------------------------------------------------


def test_a_clients_budget_fills_at_its_rate() -> None:
    now = [0.0]
    budgets = ClientBudgets(Rate(a_second=2, burst=3), lambda: now[0])
    assert [budgets.take("a") for _ in range(5)] == [True, True, True, False, False]
    assert budgets.take("b"), "each client has a budget of its own"
    now[0] = 0.5
    assert [budgets.take("a") for _ in range(2)] == [True, False]
    now[0] = 100.0
    assert [budgets.take("a") for _ in range(4)] == [True, True, True, False]


def test_clients_that_are_remembered_are_bounded() -> None:
    budgets = ClientBudgets(Rate(a_second=1, burst=1), lambda: 0.0)
    assert all(budgets.take(str(number)) for number in range(MAX_CLIENTS + 1))
    assert budgets.take("0"), "the one that was quiet for longest was forgotten"
    assert not budgets.take("0")
    assert len(budgets._buckets) == MAX_CLIENTS


def test_a_client_that_asks_too_often_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "CLIENT_RATE", Rate(a_second=1, burst=2))
    server = ControlServer(tmp_path)
    try:
        answers = [ask(server, "GET", "/status") for _ in range(9)]
    finally:
        server.close()
    assert [status for status, _ in answers[:2]] == [200, 200]
    assert (429, '{"error":"too many requests, expected at most 1 a second"}') in answers


def test_an_external_validator_is_shown_and_asked_for_nothing() -> None:
    """Faucet and metrics pass over it, and its process is not ours."""
    outsider = {"external": {"public_key": OUTSIDER_KEY, "address": "[::1]:7000"}}
    record = make_record(backend="live", scenario=make_scenario(validators=[{}, {}, {}, outsider]))
    hosts: Any = SimpleNamespace(addresses=[], host_of=lambda index: host)
    host: Any = SimpleNamespace(number=3, pid=77, phase=Phase.UP, height=lambda index: 5)
    for index, peers in ((2, PeerAddress("127.0.0.1", 9)), (3, PeerAddress("::1", 7000))):
        hosts.addresses.append(ValidatorAddress(index, f"validator-{index}", peers, f"http://{index}"))
    view = look_over(record, hosts, 5, 0.0, {})
    assert view.urls == {"validator-2": "http://2"}
    pages = [(each["url"], each["peers"], each["pid"]) for each in view.status["validators"][2:]]
    assert pages == [("http://2", "127.0.0.1:9", 77), ("http://3", "[::1]:7000", None)]
