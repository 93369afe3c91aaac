"""The testnet's own HTTP endpoint, as ``docs/http.md`` describes it: dashboard, status, metrics, orders and faucet.

A thread of the driver serves it, by default on the loopback. It shows the driver's newest look at the testnet; requests
wait in a short queue until the driver's next look. A request that changes something needs the run's token, a file in
the run's folder that only the user may read: ``Authorization: Bearer <token>``. The faucet has a separate token, which
may be given to others: it permits nothing else.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import queue
import re
import secrets
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cluster.common.errors import BadInput
from cluster.live.driver.faucet import Faucet
from cluster.live.driver.hosts import Hosts
from cluster.live.driver.supervised_host import Host
from cluster.live.host.host import LOGS_FOLDER, ValidatorAddress
from cluster.live.web.addresses import ON_THE_LOOPBACK, Served
from cluster.live.web.dashboard.pages import TESTNET, Feed, dashboard_table
from cluster.live.web.prometheus_text import PROMETHEUS, labelled, merge_pages, render_metric
from cluster.live.web.server import Endpoint, LoopThread, Page, Rate, build_application, json_response, read_body
from cluster.record.folder import FAUCET_TOKEN_FILE, TOKEN_FILE
from cluster.record.run import RunRecord
from loadgen.client import ClientError, ValidatorClient, json_object
from validator.primitives.types import Address, number_of, parse_address

TOKEN_BYTES: Final = 32
CLIENT_RATE: Final = Rate(50, 100)
MAX_WAITING: Final = 16
"""Maximum number of requests that wait for the driver."""
SCRAPE_TIMEOUT_S: Final = 2.0
"""A validator whose metrics take longer counts as one that does not answer."""
ANSWER_TIMEOUT_S: Final = 5.0
"""Time that a client waits for the driver, which handles requests several times a second unless it waits for hosts."""
SCHEME: Final = "Bearer "
LOG_NAME: Final = re.compile(r"host-[0-9]{1,4}|locust")
MAX_LOG_BYTES: Final = 64 * 1024
"""A log is served from here before its end."""


class StopRun:
    """A request to end the run as if its stop height was reached."""


@dataclass(frozen=True, slots=True)
class AddFault:
    """A request to add a fault to the run. The driver answers with the fault's fields, or :class:`BadInput`."""

    fields: Mapping[str, Any]
    """Fields of the fault, as in a scenario's ``faults``."""
    answer: Future[Page] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class SetLoad:
    """A request to start or to stop the load. The driver answers with the load's new stage, or :class:`BadInput`."""

    is_on: bool
    answer: Future[Page] = field(default_factory=Future)


Order = StopRun | AddFault | SetLoad
"""A request to the driver. One that is cancelled before the driver looks at it is not performed."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The testnet's state at one time, as the endpoint serves it. The driver replaces it as a whole."""

    status: Page = field(default_factory=dict)
    urls: Mapping[str, str] = field(default_factory=dict)
    """URLs of the validators, keyed by name, without external ones: they need not serve metrics or accounts."""
    figures: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Figures of the whole testnet, each with its description, keyed by metric. The names of counters end in
    ``_total``."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of every scrape target: which run it belongs to."""


def look_over(record: RunRecord, hosts: Hosts, height: int, at_ms: float, audit: Mapping[str, Any]) -> Overview:
    """The overview at ``at_ms``. ``height`` is the highest final height, ``audit`` the audit's page so far."""
    newest = record.samples[-1] if record.samples else None
    names, external = record.scenario.validators.names, record.scenario.validators.external
    addresses = {address.index: address for address in hosts.addresses}
    running = [fault for fault in record.faults if fault.begun_ms is not None and fault.ended_ms is None]
    sampled = ("fires", "transactions", "pending_timers", "backlog")
    figures = {"height": height} | {name: 0 if newest is None else getattr(newest, name) for name in sampled}
    status = {
        "scenario": record.scenario.name,
        "seed": record.seed,
        "commit": record.commit,
        "at_ms": round(at_ms),
        **figures,
        "validators": [
            _validator_page(hosts.host_of(index), index, name, addresses.get(index))
            | ({"pid": None} if index in external else {})
            for index, name in enumerate(names)
        ],
        "faults": [
            {
                "kind": fault.kind,
                "target": fault.target,
                "begun_ms": None if fault.begun_ms is None else round(fault.begun_ms),
                "ended_ms": None if fault.ended_ms is None else round(fault.ended_ms),
                "evidence": fault.evidence,
            }
            for fault in record.faults
        ],
        "problems": record.problems,
        "audit": audit,
    }
    metrics = {
        "stampede_testnet_height": ("Highest final height of any validator.", height),
        "stampede_testnet_fires_total": ("Timers fired, of the heights that were seen.", figures["fires"]),
        "stampede_testnet_transactions_total": ("Transactions committed likewise.", figures["transactions"]),
        "stampede_testnet_faults_running": ("Faults of the scenario that are under way.", len(running)),
        "stampede_testnet_problems_total": ("What went wrong around the run so far.", len(record.problems)),
        "stampede_testnet_run_seconds": ("Since the run began.", round(at_ms / 1_000)),
    }
    labels = {"scenario": record.scenario.name, "chain_id": record.genesis.chain_id}
    ours = {names[index]: address.url for index, address in addresses.items() if index not in external}
    return Overview(status, ours, metrics, labels)


def _kind(metric: str) -> str:
    return "counter" if metric.endswith("_total") else "gauge"


def _validator_page(host: Host, index: int, name: str, address: ValidatorAddress | None) -> dict[str, Any]:
    return {
        "name": name,
        "url": None if address is None else address.url,
        "peers": None if address is None else address.peers.text,
        "host": host.number,
        "pid": host.pid,
        "host_is": host.phase.value,
        "height": host.height(index),
    }


class ControlServer:
    """The HTTP server of the testnet's own endpoint. :meth:`close` ends it."""

    def __init__(self, folder: Path, served: Served = ON_THE_LOOPBACK, faucet: Faucet | None = None) -> None:
        """Begin to serve, and write the run's token into its folder; with a faucet, also the faucet's token.

        The tokens are valid until :meth:`close`. Raises :class:`OSError`.
        """
        self._folder = folder
        self._faucet = faucet
        self.view = Overview()
        self.orders: queue.Queue[Order] = queue.Queue(MAX_WAITING)
        names = [TOKEN_FILE] if faucet is None else [TOKEN_FILE, FAUCET_TOKEN_FILE]
        self._tokens = {name: secrets.token_urlsafe(TOKEN_BYTES) for name in names}
        """Tokens, keyed by the name of the file that holds each."""
        self._thread = LoopThread("control")
        self.dashboard = Feed(self._thread.loop)
        self._server = self._thread.serve(build_application(self._table(), Counter(), CLIENT_RATE), served)
        try:
            for name, token in self._tokens.items():
                _write_secret(folder / name, token)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return self._server.url

    def close(self) -> None:
        """End the server and its thread, and remove the tokens, which are no longer valid."""
        for name in (TOKEN_FILE, FAUCET_TOKEN_FILE):
            (self._folder / name).unlink(missing_ok=True)
        self.dashboard.close()
        self._thread.close(self._server)

    # --- pages --------------------------------------------------------------------------------------------------------

    def _table(self) -> list[tuple[str, str, Endpoint]]:
        return [
            ("GET", "/status", self._status),
            ("GET", "/metrics", self._metrics),
            ("GET", "/targets", self._targets),
            ("GET", "/logs/{name}", self._log),
            ("POST", "/faults", self._add_fault),
            ("POST", "/load", self._set_load),
            ("POST", "/stop", self._stop),
            ("POST", "/faucet", self._pay),
            *dashboard_table(TESTNET, self.dashboard),
        ]

    async def _status(self, _request: Request) -> Response:
        return json_response(self.view.status)

    async def _targets(self, _request: Request) -> Response:
        view = self.view
        return json_response(
            [
                {"targets": [url.removeprefix("http://")], "labels": {**view.labels, "validator": name}}
                for name, url in view.urls.items()
            ]
        )

    async def _metrics(self, _request: Request) -> Response:
        view = self.view
        answers = await asyncio.gather(*(asyncio.to_thread(_scrape, url) for url in view.urls.values()))
        pages = {name: page for name, page in zip(view.urls, answers, strict=True) if page is not None}
        up = labelled("validator", {name: int(name in pages) for name in view.urls})
        text = render_metric("stampede_validator_up", "gauge", "Whether a validator serves its metrics.", up)
        text += "".join(render_metric(name, _kind(name), told, value) for name, (told, value) in view.figures.items())
        return Response(text + merge_pages(pages, "validator"), headers={"content-type": PROMETHEUS})

    async def _stop(self, request: Request) -> Response:
        self._check_token(request)
        self._tell(StopRun())
        return json_response({"told": "stop"}, 202)

    async def _add_fault(self, request: Request) -> Response:
        self._check_token(request)
        fields = json_object(await read_body(request))
        if fields is None:
            raise HTTPException(400, 'expected a fault as a JSON object, such as {"kind": "kill", "target": "leader"}')
        return await self._answer(AddFault(fields))

    async def _set_load(self, request: Request) -> Response:
        self._check_token(request)
        match json_object(await read_body(request)):
            case {"on": bool(is_on), **others} if not others:
                return await self._answer(SetLoad(is_on))
        raise HTTPException(400, 'expected a JSON object: {"on": true} or {"on": false}')

    async def _log(self, request: Request) -> Response:
        """The end of a log. It needs the token: a log may hold more than the pages do."""
        self._check_token(request)
        name = request.path_params["name"]
        if LOG_NAME.fullmatch(name) is None:
            raise HTTPException(404, "no such log; expected host-N or locust")
        try:
            data = await asyncio.to_thread(_end_of, self._folder / LOGS_FOLDER / f"{name}.log")
        except FileNotFoundError:
            raise HTTPException(404, f"there is no log of {name} here: that of another node comes at the end") from None
        return Response(data, media_type="text/plain; charset=utf-8", headers={"cache-control": "no-store"})

    async def _answer(self, order: AddFault | SetLoad) -> Response:
        """The driver's answer to an order."""
        self._tell(order)
        try:
            page = await asyncio.wait_for(asyncio.wrap_future(order.answer), ANSWER_TIMEOUT_S)
        except BadInput as error:
            raise HTTPException(400, str(error)) from None
        except TimeoutError:
            raise HTTPException(503, "the driver does not take orders now: the testnet starts or ends") from None
        return json_response(page, 202)

    async def _pay(self, request: Request) -> Response:
        if self._faucet is None:
            raise HTTPException(404, "the testnet has no faucet: chain.faucet in the scenario, or stampede up --faucet")
        self._check_token(request, FAUCET_TOKEN_FILE)
        to, amount = _payment(await read_body(request))
        return json_response(await asyncio.to_thread(self._faucet.pay, to, amount, self.view.urls), 202)

    def _tell(self, order: Order) -> None:
        try:
            self.orders.put_nowait(order)
        except queue.Full:
            raise HTTPException(429, "the driver has not handled the earlier requests yet") from None

    def _check_token(self, request: Request, file: str = TOKEN_FILE) -> None:
        """Refuse a request without the token of a file, by default the run's."""
        given, expected = request.headers.get("authorization", ""), SCHEME + self._tokens[file]
        if not hmac.compare_digest(given.encode(), expected.encode()):
            headers: Any = {"www-authenticate": SCHEME.strip()}
            whose = "run" if file == TOKEN_FILE else "faucet"
            raise HTTPException(
                401, f"needs the {whose}'s token: Authorization: Bearer <content of the file {file}>", headers
            )


def _payment(body: bytes) -> tuple[Address, int]:
    """The recipient and the amount in the body of a request to the faucet. Raises :class:`HTTPException`."""
    fields = json_object(body)
    if fields is None or fields.keys() != {"to", "amount"}:
        raise HTTPException(400, 'expected a JSON object with the fields to and amount: {"to": "0x…", "amount": 1000}')
    to, amount = fields["to"], number_of(fields["amount"])
    try:
        address = parse_address(to if isinstance(to, str) else "")
    except ValueError:
        raise HTTPException(400, "to: expected an address, 0x and 40 hex digits") from None
    if not isinstance(amount, int) or isinstance(amount, bool):
        raise HTTPException(400, "amount: expected a whole number, or decimal text")
    return address, amount


def _scrape(url: str) -> str | None:
    try:
        with ValidatorClient(url, SCRAPE_TIMEOUT_S) as client:
            return client.metrics()
    except ClientError:
        return None


def _end_of(path: Path) -> bytes:
    """The end of a file, from the beginning of a line. Raises :class:`OSError`."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MAX_LOG_BYTES))
        data = file.read(MAX_LOG_BYTES)
    return data if size <= MAX_LOG_BYTES else data.partition(b"\n")[2]


def _write_secret(path: Path, secret: str) -> None:
    """Write a file that only its owner may read, from its creation on."""
    path.unlink(missing_ok=True)
    path.touch(0o600, exist_ok=False)
    path.write_text(secret + "\n", encoding="utf-8")
