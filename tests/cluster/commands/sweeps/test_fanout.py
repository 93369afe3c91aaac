"""Seeds over Ray: workers that die, nodes that are lost or differ, code that is sent, and what is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import yaml

from cluster.commands.sweeps.fanout import FanOut
from cluster.commands.sweeps.log import WORK_FILE
from cluster.commands.sweeps.seed_nodes import FOLDERS
from cluster.common.checkout import ROOT
from cluster.common.errors import ExitCode, HarnessError
from cluster.common.interrupts import Interrupts
from cluster.record.folder import SWEEP_LOG_FILE, SWEEP_SUMMARY_FILE
from tests.cluster.commands.sweeps.numbers_to_run import DEADLY, GREEDY, run
from tests.cluster.ray_cluster import RayCluster, ray_cluster
from tests.hangs import HANGS_AFTER_S

pytestmark = [pytest.mark.live, pytest.mark.slow]

SEEDS: Final = range(1, 13)
SCENARIO: Final[dict[str, Any]] = {
    "name": "swept",
    "validators": [{}, {}, {}, {"mutant": "wrong-balance"}],
    "load": {"users": [{"workload": "flood", "count": 2, "interval_ms": 300, "options": {"timers": 4}}]},
    "stop": {"height": 31, "drain_blocks": 2},
    "success": {"heights_compared": 20, "transactions": 3, "fires": 3},
}
"""Every seed fails."""


# --- workers ----------------------------------------------------------------------------------------------------------


def test_a_number_that_kills_two_workers_is_reported_and_the_others_end_once(temporary: Path, tmp_path: Path) -> None:
    died: list[tuple[int, str]] = []

    def on_death(number: int, reason: str) -> str:
        died.append((number, reason))
        return "died"

    with Interrupts() as interrupts:
        numbers = FanOut(run, range(40), interrupts, tmp_path, 2, memory_mib=400, on_death=on_death)
        ended = [(number, result) for number, result, *_ in numbers.results()]
    assert sorted(ended) == sorted(
        [(DEADLY, "died"), (GREEDY, "no memory"), *((n, f"ended {n}") for n in range(40) if n not in (DEADLY, GREEDY))]
    ), "each once"
    assert [number for number, _ in died] == [DEADLY]
    assert "its worker died, the last of 2 workers and 0 nodes that were lost with it" in died[0][1]
    assert {path.name for path in tmp_path.iterdir()} == {f"seed-{n}" for n in range(1, 40, 2) if n != DEADLY}


def test_without_a_result_for_it_such_a_number_ends_everything(temporary: Path, tmp_path: Path) -> None:
    with Interrupts() as interrupts, pytest.raises(HarnessError, match=r"^mutant 3 crashed: its worker died, "):
        list(FanOut(run, [DEADLY], interrupts, tmp_path, 1, what="mutant").results())


# --- nodes ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of the nodes: where they leave temporary files, and this checkout."""
    folder = tmp_path_factory.mktemp("nodes")
    return {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}


@pytest.fixture(scope="module")
def cluster(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A head without processors, three nodes with one each, and one with another version of a package."""
    other = tmp_path_factory.mktemp("other")
    metadata = other / "msgspec-0.0.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: msgspec\nVersion: 0.0.1\n")
    with ray_cluster(0, 1, 1, 1, environment=environment) as found:
        found.environment["PYTHONPATH"] = f"{other}{os.pathsep}{ROOT}"
        found.start(1)
        yield found


def start_sweep(cluster: RayCluster, folder: Path, code: Path = ROOT, **changes: Any) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    (folder / "swept.yaml").write_text(yaml.safe_dump({**SCENARIO, **changes}))
    seeds = f"{SEEDS.start}:{SEEDS.stop}"
    stampede = [sys.executable, "-m", "cluster.commands.cli.main"]
    command = [*stampede, "sweep", "swept.yaml", "--seeds", seeds, "--out", "out"]
    environment = {**cluster.environment, "PYTHONPATH": str(code), "RAY_ADDRESS": cluster.address}
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def lines_until(sweep: subprocess.Popen[str], text: str) -> list[str]:
    """The lines up to the first one that contains a text."""
    assert sweep.stdout is not None
    found = []
    for line in sweep.stdout:
        found.append(line)
        if text in line:
            return found
    pytest.fail(f"{text!r} never came:\n{''.join(found)}")


def workers(cluster: RayCluster) -> list[psutil.Process]:
    """The processes that run seeds."""
    raylets = [psutil.Process(cluster.raylet(number).pid) for number in range(1, 4)]
    children = [child for raylet in raylets for child in raylet.children(recursive=True)]
    return [child for child in children if "ray::run_batch" in " ".join(child.cmdline())]


def test_an_interrupt_ends_the_seeds_on_all_nodes(
    cluster: RayCluster, environment: dict[str, str], tmp_path: Path
) -> None:
    with start_sweep(cluster, tmp_path) as sweep:
        lines_until(sweep, "seed ")
        running = workers(cluster)
        assert running
        sweep.send_signal(signal.SIGINT)
        said, _ = sweep.communicate(timeout=HANGS_AFTER_S)
    assert sweep.returncode == ExitCode.FAIL, said  # the seed that ended has failed
    assert " of 12 seeds, " in said
    assert psutil.wait_procs(running, HANGS_AFTER_S)[1] == []
    assert list(Path(environment["TMPDIR"]).glob("stampede-*")) == []


def test_a_sweep_that_loses_a_node_is_that_of_one_machine(
    cluster: RayCluster, environment: dict[str, str], tmp_path: Path
) -> None:
    with start_sweep(cluster, tmp_path / "many") as sweep:
        said = lines_until(sweep, "seed ")
        cluster.kill(2)
        rest, _ = sweep.communicate(timeout=HANGS_AFTER_S)
    told = "".join(said) + rest
    assert sweep.returncode == ExitCode.FAIL, told
    assert "gets no seeds: msgspec is 0.0.1 there and " in told
    assert told.count(" is lost: ") == 1 and ", lost\n" in told
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cluster.environment, "RAY_ADDRESS", "local")
        alone = RayCluster(tmp_path, cluster.environment, tmp_path)
        alone.address = "local"
        with start_sweep(alone, tmp_path / "one") as local:
            told_alone, _ = local.communicate(timeout=HANGS_AFTER_S)
    assert local.returncode == ExitCode.FAIL, told_alone
    many, one = tmp_path / "many" / "out", tmp_path / "one" / "out"
    for name in (SWEEP_LOG_FILE, SWEEP_SUMMARY_FILE):
        assert (many / name).read_bytes() == (one / name).read_bytes()
    work = [json.loads(line) for line in (many / WORK_FILE).read_text().splitlines()]
    assert sorted(each["seed"] for each in work) == list(SEEDS), "each counted once"
    assert len({each["node"] for each in work}) >= 2
    for seed in SEEDS:
        folder, expected = many / f"seed-{seed}", one / f"seed-{seed}"
        names = {path.name for path in expected.iterdir()}
        assert "report.html" in names and {path.name for path in folder.iterdir()} == names
        for name in names - {"result.json", "report.html"}:
            assert (folder / name).read_bytes() == (expected / name).read_bytes(), name
        assert f"stampede run out/seed-{seed}/scenario.yaml " in (folder / "report.html").read_text()
    left = list(Path(environment["TMPDIR"]).glob("stampede-*"))
    assert len(left) <= 1, "on the nodes, but for the one that was killed, if that was just sending a folder"


def test_nodes_without_the_code_get_it(tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copied / folder, ignore=shutil.ignore_patterns("__pycache__"))
    outcome = copied / "cluster" / "commands" / "sweeps" / "outcome.py"
    outcome.write_text(outcome.read_text().replace("crashed: ", "crashed here: "))
    driver = copied / "cluster" / "watches" / "watched_simulation.py"
    driver.write_text(
        driver.read_text() + "\n\ndef simulate(*_: object, **__: object) -> None:\n    raise ValueError('sent')\n"
    )
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with ray_cluster(0, 1, environment=bare) as cluster, start_sweep(cluster, tmp_path / "in", copied) as sweep:
        said, _ = sweep.communicate(timeout=HANGS_AFTER_S)
    assert sweep.returncode == ExitCode.CRASH, said
    assert said.count("the code is sent to the nodes (") == 1
    assert said.count("undecided: crashed here: ValueError: sent (watched_simulation.py:") == len(SEEDS)
    assert "_ray_pkg_" in (tmp_path / "in" / "out" / "seed-1" / "traceback.txt").read_text()
