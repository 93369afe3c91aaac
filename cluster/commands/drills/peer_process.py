"""The reference external validator (``stampede peer``) alongside the testnet of a drill.

It ends with the drill: at the latest with its standard input, if the drill is killed. Its key and its data are in the
run's folder while it runs, and its log is kept in the run's ``logs``.
"""

from __future__ import annotations

import select
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cluster.common.checkout import own_environment
from cluster.common.child_process import one_line
from cluster.common.errors import HarnessError
from cluster.live.host.host import LOGS_FOLDER
from cluster.scenario import Scenario
from cluster.scenario.code.gate import ALLOW
from cluster.scenario.executor_process import arguments_of
from cluster.scenario.files import scenario_text

START_TIMEOUT_S: Final = 60.0
"""Time in which it says that its addresses are free."""
END_TIMEOUT_S: Final = 10.0
FOLDER: Final = "external"
LOG_FILE: Final = "external.log"


@contextmanager
def peer_alongside(scenario: Scenario, folder: Path, secret: bytes, mutant: str | None = None) -> Iterator[None]:
    """The external validator of a scenario that has this secret runs inside of the block, with a planted bug if one is
    named. ``folder`` is the run's. Raises :class:`HarnessError` if it cannot start."""
    own, log = folder / FOLDER, folder / LOGS_FOLDER / LOG_FILE
    own.mkdir(parents=True)
    log.parent.mkdir(exist_ok=True)
    try:
        file, key = own / "scenario.yaml", own / "key"
        file.write_text(scenario_text(scenario, None), encoding="utf-8")
        key.touch(mode=0o600)
        key.write_text(secret.hex(), encoding="ascii")
        places = ["--key", str(key), "--data", str(own / "data"), "--until-eof", ALLOW]
        command = [*arguments_of("stampede peer"), str(file), str(folder), *places]
        with running([*command, *([] if mutant is None else ["--mutant", mutant])], log):
            yield
    finally:
        shutil.rmtree(own, ignore_errors=True)


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process runs inside of the block, from its first line of output on; its errors go to ``log``.

    Raises :class:`HarnessError` if it ends before that line, or does not write it in time.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=own_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            bufsize=0,
            start_new_session=True,
        )
    assert process.stdin is not None and process.stdout is not None
    try:
        is_said, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
        if not is_said:
            raise HarnessError(f"the external validator did not start within {START_TIMEOUT_S:g} s (see {log})")
        if not process.stdout.readline():
            words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["without a word"]
            raise HarnessError(f"the external validator ended: {one_line(words[-1])}")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdin.close()
        process.stdout.close()
