"""``stampede peer``, the reference external validator: one outside of the harness, as another party would run it.

It is a plain process with its own key and data folder, which ends at a signal or with its standard input. From the
scenario it has the settings that no page of a testnet shows, such as timeouts and limits, and its own addresses. The
genesis and the addresses of its peers it reads where ``docs/peer-protocol.md`` says: in the run's ``endpoints.json``,
and from another validator's ``GET /genesis``.

It takes no transactions from clients, since its peers pass theirs on, and so it serves its supply at any time. Its disk
does not keep that it diverged.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import uvloop

from cluster.common.errors import BadInput
from cluster.common.files import ENCODING
from cluster.disks.directory import DirectoryDisk
from cluster.live.host.host import crash
from cluster.live.host.http import build_app
from cluster.live.host.validator_loop import ValidatorLoop, ValidatorSetup
from cluster.live.network.transport import PeerAddress
from cluster.live.web.server import serve
from cluster.misbehaviour.planted import planted
from cluster.record.folder import ENDPOINTS_FILE, claimed
from cluster.record.genesis_file import from_json
from cluster.record.status import Tally
from cluster.scenario import Scenario
from cluster.scenario.code.gate import code_of_genesis, pass_gate
from cluster.scenario.files import find_scenario, load_scenario
from cluster.scenario.genesis import validators_of
from cluster.scenario.node_setup import node_config, parts_of
from cluster.scenario.sections.validators import ExternalSection, split_address
from consensus.keys import Ed25519Scheme, Signer
from loadgen.client import ClientError, ValidatorClient
from validator.chain.genesis import Genesis
from validator.node.shared_work import RememberingScheme
from validator.storage.disk import DiskError

SECRET_BYTES: Final = 32
PIECE_BYTES: Final = 4_096
LOOK_EVERY_S: Final = 0.25
"""How often the file with the addresses is read."""
TIMEOUT_S: Final = 20.0

Address = tuple[str, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """What an external validator starts from."""

    scenario: Scenario
    run: Path
    """The run's folder; it may still be missing."""
    secret: bytes
    """Its Ed25519 secret, 32 bytes."""
    data: Path
    """Its data folder, which is made if it is missing."""
    mutant: str | None = None
    """The name of a bug that is planted in it."""

    @property
    def place(self) -> tuple[int, ExternalSection]:
        """The validator's index, and its section of the scenario. Raises :class:`BadInput`."""
        key = bytes(self.signer.public_key).hex()
        found = [each for each in self.scenario.validators.external.items() if each[1].public_key == key]
        if len(found) != 1:
            raise BadInput(f"{len(found)} external validators of the scenario have the key {key}, expected one")
        return found[0]

    @property
    def signer(self) -> Signer:
        return _SCHEME.signer(self.secret)


_SCHEME: Final = RememberingScheme(Ed25519Scheme())


async def run_peer(plan: PeerPlan, end: asyncio.Event, say: Callable[[str], None]) -> None:
    """Run the validator until ``end`` is set. A bug in it ends the process as it ends a host's.

    ``say`` gets a line when its addresses are found free, before there need be a testnet, and one when it takes part.
    Raises :class:`BadInput`.
    """
    index, section = plan.place
    for address in (section.peers, section.pages):
        require_free(address)
    say(f"waits for {plan.run / ENDPOINTS_FILE}")
    try:
        genesis = await _unless_ended(read_genesis(plan.run, index), end)
        if genesis is not None:
            await _take_part(plan, genesis, end, say)
    except (OSError, DiskError) as error:
        raise BadInput(f"the external validator cannot run: {getattr(error, 'strerror', None) or error}") from None


async def _take_part(plan: PeerPlan, genesis: Genesis, end: asyncio.Event, say: Callable[[str], None]) -> None:
    index, section = plan.place
    if genesis.validators[index : index + 1] != (bytes(plan.signer.public_key),):
        raise BadInput(f"the genesis of {genesis.chain_id} has another key for validator {index}")
    name, tally = plan.scenario.validators.names[index], Tally()
    setup = ValidatorSetup(
        name=name,
        index=index,
        genesis=genesis,
        signer=plan.signer,
        validators=validators_of(genesis, _SCHEME),
        config=node_config(plan.scenario, index, tally.mutant_runs, plan.mutant),
        parts=parts_of(plan.scenario, index, tally.mutant_runs, plan.mutant),
    )
    disk = DirectoryDisk(plan.data)
    validator = ValidatorLoop(setup, disk, crash, tally)
    await validator.transport.listen(*section.peers)
    server = await serve(build_app(validator.pages), *section.pages)
    await validator.recover()
    validator.pages.freeze()
    say(f"{name} takes part in {genesis.chain_id}, peers at {section.address}, HTTP at {server.url}")
    while not end.is_set():
        found = read_endpoints(plan.run, index)
        validator.transport.set_addresses({each["index"]: peers_of(each) for each in found})
        with suppress(TimeoutError):
            await asyncio.wait_for(end.wait(), LOOK_EVERY_S)
    await server.close()
    await validator.close()
    disk.close()


def read_endpoints(run: Path, own: int) -> list[dict[str, Any]]:
    """The entries of all validators but ``own`` in a run's endpoints file; none until it is there."""
    try:
        page = json.loads((run / ENDPOINTS_FILE).read_text(encoding="utf-8"))
        return [each for each in page["validators"] if each["index"] != own]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def peers_of(entry: dict[str, Any]) -> PeerAddress:
    """The address for peers of an entry of the endpoints file."""
    return PeerAddress(*split_address(entry["peers"]))


async def read_genesis(run: Path, own: int) -> Genesis:
    """The genesis, as soon as a validator of the run serves it. Its code has to pass the gate. Raises :class:`BadInput`
    if it is none."""
    while True:
        for entry in read_endpoints(run, own):
            with suppress(ClientError), ValidatorClient(entry["url"], TIMEOUT_S) as client:
                source = f"{entry['url']}/genesis"
                genesis = from_json(await asyncio.to_thread(client.genesis), source)
                pass_gate(code_of_genesis(genesis), source)
                return genesis
        await asyncio.sleep(LOOK_EVERY_S)


async def _unless_ended(work: Coroutine[Any, Any, T], end: asyncio.Event) -> T | None:
    """The result of ``work``; ``None`` if ``end`` is set first."""
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(end.wait())
    done, _ = await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
    for task in (working, ending):
        task.cancel()
    return working.result() if working in done else None


def require_free(address: Address) -> None:
    """Raise :class:`BadInput` if this process cannot listen at an address."""
    try:
        with closing(socket.create_server(address)):
            pass
    except OSError as error:
        reason = error if error.errno is None else os.strerror(error.errno)
        raise BadInput(f"{address[0]}:{address[1]}: cannot be listened at: {reason}") from None


def start_peer(scenario: Path, run: Path, key: Path, data: Path, mutant: str | None, until_eof: bool) -> None:
    """Run the external validator whose key is in a file until SIGINT, SIGTERM or, if asked for, the end of standard
    input. Raises :class:`BadInput`."""
    try:
        _ = None if mutant is None else planted(mutant)
    except ValueError as error:
        raise BadInput(f"--mutant: {error}") from None
    plan = PeerPlan(load_scenario(find_scenario(scenario)), run, read_secret(key), data, mutant)
    with claimed(data), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(plan, until_eof))


def read_secret(file: Path) -> bytes:
    """An Ed25519 secret from a file with 64 hex digits. Raises :class:`BadInput`, which does not show them."""
    try:
        secret = bytes.fromhex(file.read_text(encoding=ENCODING).strip())
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise BadInput(f"{file}: expected an Ed25519 secret in {2 * SECRET_BYTES} hex digits")
    return secret


async def _run(plan: PeerPlan, until_eof: bool) -> None:
    loop, end = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end.set)
    if until_eof:

        def wait() -> None:
            while os.read(sys.stdin.fileno(), PIECE_BYTES):
                pass
            loop.call_soon_threadsafe(end.set)

        threading.Thread(target=wait, name="input", daemon=True).start()
    await run_peer(plan, end, lambda text: print(f"peer: {text}", flush=True))
