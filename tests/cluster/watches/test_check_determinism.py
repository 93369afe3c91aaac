"""Two runs of one seed are compared event by event, and the first one that differs is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random, SystemRandom

import pytest
import yaml

from cluster.commands.cli.main import main
from cluster.commands.run.scenario_run import run_scenario
from cluster.common.errors import BadInput, ExitCode
from cluster.faults.link_model import Links
from cluster.record.run import RunRecord, ignore
from cluster.scenario import Scenario
from cluster.simulation import driver
from cluster.watches.determinism import NotDeterministic, compare
from cluster.watches.watched_simulation import WatchedSimulation

SEED = 3
PLAN = {
    "name": "twice",
    "consensus": {"block_interval_ms": 100},
    "faults": [{"kind": "degrade", "at_height": 3, "for_ms": 500, "loss": 0.1}],
    "stop": {"height": 8, "drain_blocks": 1},
    "success": {"heights_compared": 5, "transactions": 0, "fires": 0},
}


class Unseeded(Links):
    """Draws from a source that nobody seeded, once something was sent."""

    def arrivals(
        self, sender: int, receivers: Iterable[int], size: int, now_us: int, random: Random | None = None
    ) -> list[tuple[int, int]]:
        if self.sent >= 100:
            self._random = SystemRandom()
        return super().arrivals(sender, receivers, size, now_us, random)


def lines(change: Callable[[WatchedSimulation], None] = ignore) -> list[str]:
    found: list[str] = []
    simulation = WatchedSimulation(Scenario.model_validate(PLAN), SEED, "test", on_event=found.append)
    change(simulation)
    simulation.run()
    return found


def compare_all(one: list[str], other: Iterator[str]) -> None:
    for line in [*one, ""]:
        compare(line, other)


def run() -> RunRecord:
    return WatchedSimulation(Scenario.model_validate(PLAN), SEED, "test").run()


def test_equal_runs_agree_on_every_event() -> None:
    one = lines()
    assert len(one) > 300
    compare_all(one, iter(lines()))


def test_a_source_that_nobody_seeded_is_named_by_the_first_event_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "Links", Unseeded)
    one, other = lines(), lines()
    first = next(number for number, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    assert first > 90, "the runs are equal as long as the source is the seeded one"
    with pytest.raises(NotDeterministic, match=f"^two runs of one seed differ: event {first + 1} at ") as caught:
        compare_all(one, iter(other))
    assert caught.value.exit_code is ExitCode.FAIL
    assert "message " in str(caught.value), "the messages' times differ"


def test_other_bytes_are_named_by_the_event_that_sent_them() -> None:
    sends = 0

    def one_word_off(simulation: WatchedSimulation) -> None:
        send = simulation.network.send

        def wrong(sender: int, recipient: int | None, payload: bytes) -> None:
            nonlocal sends
            sends += 1
            send(sender, recipient, payload + b"!" if sends == 40 else payload)

        for machine in simulation.machines:
            machine.send = wrong

    one = lines()
    with pytest.raises(NotDeterministic, match=r"two runs of one seed differ in event \d+ at .* other bytes"):
        compare_all(one, iter(lines(one_word_off)))


def test_a_run_that_goes_on_longer_is_named() -> None:
    one = lines()
    with pytest.raises(NotDeterministic, match=r"only the second run has event \d+ at "):
        compare_all(one[:-1], iter(one))
    with pytest.raises(NotDeterministic, match=r"only the first run has event \d+ at "):
        compare_all(one, iter(one[:-1]))


def test_tracing_changes_nothing() -> None:
    traced = WatchedSimulation(Scenario.model_validate(PLAN), SEED, "test", on_event=ignore)
    assert traced.run().digest == run().digest


def scenario_file(folder: Path) -> Path:
    path = folder / "twice.yaml"
    path.write_text(yaml.safe_dump(PLAN), encoding="utf-8")
    return path


def command(folder: Path) -> list[str]:
    options = ["--backend", "sim", "--seed", str(SEED), "--check-determinism", "--out", str(folder / "run")]
    return ["run", str(scenario_file(folder)), *options]


@pytest.mark.slow
def test_the_command_runs_it_in_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command(tmp_path)) == ExitCode.PASS
    assert f"digest {run().digest}" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_fails_at_the_first_event_that_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(driver, "Random", lambda seed: Random(seed + 1))
    assert main(command(tmp_path)) == ExitCode.FAIL
    told = capsys.readouterr().err
    assert told.startswith("stampede: two runs of one seed differ")
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_the_live_testnet_does_not_repeat_itself(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="needs --backend sim"):
        run_scenario(scenario_file(tmp_path), "live", twice=True)
