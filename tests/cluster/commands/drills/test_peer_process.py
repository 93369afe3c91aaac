"""The external validator alongside a drill's testnet: it starts or says why not, and nothing of it is left."""

from __future__ import annotations

import socket
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cluster.commands.drills import peer_process
from cluster.commands.drills.peer_process import peer_alongside, running
from cluster.common.errors import HarnessError
from cluster.live.processes import processes
from tests.cluster.outsider import SECRET, scenario_with
from tests.ports import free_ports

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_it_ends_with_the_block(tmp_path: Path) -> None:
    with running(python("print('up', flush=True); input()"), tmp_path / "log") as process:
        assert process.poll() is None
    assert process.returncode is not None


def test_one_that_does_not_listen_to_signals_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_process, "END_TIMEOUT_S", 0.1)
    with running(python(STUBBORN), tmp_path / "log") as process:
        pass
    assert process.returncode == -9


def test_what_it_wrote_last_is_why_it_did_not_start(tmp_path: Path) -> None:
    failing = python("import sys; sys.exit('first\\nno such key')")
    with (
        pytest.raises(HarnessError, match=r"^the external validator ended: no such key$"),
        running(failing, tmp_path / "log"),
    ):
        pass


def test_one_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_process, "START_TIMEOUT_S", 0.1)
    with (
        pytest.raises(HarnessError, match=r"did not start within 0\.1 s"),
        running(python("input()"), tmp_path / "log"),
    ):
        pass


@pytest.mark.slow
def test_it_waits_beside_the_testnet_and_leaves_its_log(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with peer_alongside(scenario_with(free_ports()), folder, SECRET):
        assert (folder / "external" / "key").stat().st_mode & 0o777 == 0o600
        assert processes.with_argument(str(folder))
    assert processes.with_argument(str(folder)) == set()
    assert [each.name for each in folder.iterdir()] == ["logs"]


@pytest.mark.slow
def test_an_address_that_is_taken_is_why_it_did_not_start(tmp_path: Path) -> None:
    port = free_ports()
    with (
        closing(socket.create_server(("127.0.0.1", port))),
        pytest.raises(
            HarnessError, match=rf"ended: stampede: 127\.0\.0\.1:{port}: cannot be listened at: Address already"
        ),
        peer_alongside(scenario_with(port), tmp_path / "run", SECRET),
    ):
        pass
