"""What a driver finds that takes a run over, without Ray: what the one before saw, and the testnet that may be gone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.checks.run import check_run
from cluster.common.interrupts import Interrupts
from cluster.common.outcome import Outcome
from cluster.live.driver.driver import _LiveRun, attached_testnet
from cluster.live.driver.ray_session import KeptRay, Place
from cluster.live.driver.stage import LiveStage
from cluster.live.driver.supervised_host import Host, Phase
from cluster.live.handover import checkpoint
from cluster.live.handover.handover import FOLLOWING
from cluster.live.host.host import ValidatorView
from cluster.live.host.observations import FinalSeen, VoteSent
from cluster.live.host.validator_loop import LoopState
from cluster.live.web.addresses import ON_THE_LOOPBACK
from cluster.record.chain_store import FileBlocks
from cluster.record.folder import STORE_FILE
from consensus.types import View
from tests.cluster.records import make_chain, make_scenario
from tests.consensus.bench import NOTARIZE
from validator.node.events import BlockFinal
from validator.primitives.types import Hash, Height

NOBODY = 9
"""A port at which nobody answers."""
FINAL = BlockFinal(Height(3), 3, Hash(b""), Hash(b""), 0, 0, 0, 0, 0, 0, 0, 0)


class LeftRun(_LiveRun):
    """A run as its driver has it while it follows a testnet, whose Ray does not exist."""

    def __init__(self, folder: Path) -> None:
        super().__init__(make_scenario(), 1, "0123456789ab", folder, Interrupts(), None, ON_THE_LOOPBACK, lease_s=5.0)
        folder.mkdir(parents=True, exist_ok=True)
        self.record.store = FileBlocks(folder / STORE_FILE)
        self._audit = self._new_audit()
        assert self._handover is not None
        self._handover.begin()
        self._watch.sightings, self._audit.safety.backlog.told = self._handover.sightings, self._handover.told
        session: Any = SimpleNamespace(ray=None, kept=KeptRay(f"127.0.0.1:{NOBODY}", "stampede-1", 5.0, str(folder)))
        self._testnet._session = session
        self._testnet.hosts = hosts = self._make_hosts(session)
        hosts.all.extend(Host(number, Place("node", "127.0.0.1"), [number], {}) for number in range(4))
        for host in hosts.all:
            host.actor, host.phase = object(), Phase.UP
        self._watch.take(0, [FinalSeen(self._clock.began_epoch_ms, FINAL)])
        height = partial(getattr, self._watch, "height")
        self._stage = LiveStage(self._scenario, 1, hosts, self._clock.now_ms, height, self.on_notice, self._keep_blocks)
        self.record.faults = self._stage.engine.records

    def is_killed(self) -> None:
        """After it has written what it writes at each look."""
        assert self._handover is not None
        self._handover.keep()
        self._audit.close()


def contradict(run: _LiveRun) -> None:
    """A validator casts two votes of a view."""
    votes: list[Any] = [VoteSent(View(3), NOTARIZE, View(2), digest) for digest in (b"a", b"b")]
    run._take_view(ValidatorView(2, LoopState(), votes))


@pytest.mark.parametrize("is_in_the_checkpoint", [True, False])
def test_a_violation_that_was_seen_fails_the_run_though_the_testnet_is_gone(
    tmp_path: Path, is_in_the_checkpoint: bool
) -> None:
    run = LeftRun(tmp_path)
    for block in make_chain(3).blocks:
        run.record.store.append(block)
    if is_in_the_checkpoint:
        contradict(run)
        run._audit.go_round()
    run._write_checkpoint(FOLLOWING)
    if not is_in_the_checkpoint:
        contradict(run)
    run.is_killed()

    with Interrupts() as interrupts, attached_testnet(checkpoint.read(tmp_path), tmp_path, interrupts) as record:
        (problem,) = record.problems
        assert "and its testnet is gone" in problem and record.interrupted and len(record.store) == 3
        found = check_run(record).check("safety")
    assert found.verdict is Outcome.FAIL and "validator-2 notarizes view 3, and did so before" in found.detail
