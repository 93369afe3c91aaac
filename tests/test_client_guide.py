"""The client guide's program, its two parts as they stand, against a real validator behind a real socket."""

from __future__ import annotations

import ast
import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.disks.directory import DirectoryDisk
from cluster.live.host.http import build_app
from cluster.live.host.validator_loop import ValidatorLoop, ValidatorSetup
from cluster.live.web.server import serve
from cluster.misbehaviour.planted import RunCounter
from cluster.record.status import Tally
from cluster.scenario.files import scenario_from
from cluster.scenario.genesis import build_genesis, validator_set, validator_signer
from cluster.scenario.node_setup import node_config
from consensus.keys import Ed25519Scheme
from tests.hangs import HANGS_AFTER_S

GUIDE = (Path(__file__).resolve().parents[1] / "docs" / "client.md").read_text(encoding="utf-8")
CLIENT, PROOF = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
PROGRAM = CLIENT + PROOF
(SCENARIO,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
URL = "http://127.0.0.1:8000"
NEEDED = {"json", "urllib", "msgpack", "nacl"}
NEEDED_FOR_THE_PROOF = {"time", "urllib", "blake3"}
MAX_LINES = 20


class OneValidator:
    """A chain of one validator, with an event loop and a thread of its own."""

    def __init__(self, folder: Path) -> None:
        quick = {"validators": 1, "consensus": {"block_interval_ms": 40}}
        self._scenario = scenario_from({**yaml.safe_load(SCENARIO), **quick})
        self._folder = folder
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.url = ""
        self.crashes: list[BaseException] = []

    def __enter__(self) -> OneValidator:
        self._thread.start()
        assert self._is_up.wait(HANGS_AFTER_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(HANGS_AFTER_S)
        assert not self._thread.is_alive() and self.crashes == []

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        scheme, seed = Ed25519Scheme(), self._scenario.seed
        validators = validator_set(scheme, self._scenario, seed)
        genesis = build_genesis(self._scenario, seed, validators)
        signer, config = validator_signer(scheme, seed, 0), node_config(self._scenario, 0, RunCounter())
        disk = DirectoryDisk(self._folder)
        setup = ValidatorSetup("validator-0", 0, genesis, signer, validators, config)
        validator = ValidatorLoop(setup, disk, self.crashes.append, Tally())
        await validator.transport.listen("127.0.0.1")
        await validator.recover()
        server = await serve(build_app(validator.pages))
        self.url = server.url
        self._is_up.set()
        await self._stop.wait()
        await server.close()
        await validator.close()
        disk.close()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with OneValidator(tmp_path) as running:
        yield running.url


def test_the_guides_program_sees_its_timer_fire_and_proves_it(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert PROGRAM.count(URL) == 1
    exec(compile(PROGRAM.replace(URL, url), "docs/client.md", "exec"), {"__name__": "client"})
    assert re.fullmatch(r"fired at height \d+ for \d{7,} burned\n", capsys.readouterr().out)


def test_from_a_key_to_a_fired_timer_in_twenty_lines() -> None:
    lines = [line for line in CLIENT.splitlines() if line and not line.startswith("#")]
    assert len(lines) <= MAX_LINES


@pytest.mark.parametrize(("program", "needed"), [(CLIENT, NEEDED), (PROOF, NEEDED_FOR_THE_PROOF)])
def test_it_imports_nothing_of_ours(program: str, needed: set[str]) -> None:
    found = set()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    assert found == needed
