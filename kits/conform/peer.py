"""``stampede peer``: :mod:`cluster.live.host.peer` as a process that ends at a signal, or with its standard input."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Final

import uvloop

from cluster.common.errors import BadInput
from cluster.common.files import ENCODING
from cluster.disks.installed_kernels import use_installed_kernels
from cluster.live.host.peer import PeerPlan, run_peer
from cluster.misbehaviour.planted import planted
from cluster.record.folder import claimed
from cluster.scenario import load_scenario
from cluster.scenario.files import find_scenario

SECRET_BYTES: Final = 32
PIECE_BYTES: Final = 4_096


def start_peer(scenario: Path, run: Path, key: Path, data: Path, mutant: str | None, until_eof: bool) -> None:
    """Run the external validator whose key is in a file until SIGINT, SIGTERM or, if asked for, the end of standard
    input. Raises :class:`BadInput`."""
    try:
        _ = None if mutant is None else planted(mutant)
    except ValueError as error:
        raise BadInput(f"--mutant: {error}") from None
    plan = PeerPlan(load_scenario(find_scenario(scenario)), run, read_secret(key), data, mutant)
    use_installed_kernels()
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
