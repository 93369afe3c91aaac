"""Comparing: what changed is found, what did not is not, what cannot be compared is refused in one line."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from random import Random

import pytest

from cluster.commands.cli.main import main
from cluster.commands.compare.comparison import SERIES_PREFIX, Comparison, compare
from cluster.commands.compare.comparison_output import render_comparison
from cluster.commands.compare.groups import read_group
from cluster.commands.compare.scenario_diff import SHOWN
from cluster.common.errors import BadInput
from tests.cluster.commands.compare.folders import METRICS, drawn, write_run, write_sweep

SEEDS = range(20)


def compared(first: Path, second: Path, seed: int = 1) -> Comparison:
    return compare(read_group([first]), read_group([second]), seed)


def sweeps(root: Path, factor: float = 1.2) -> tuple[Path, Path]:
    """Two sweeps of different seeds, of which one figure differs."""
    one = drawn(SEEDS, Random(1), finality_latency_p50_ms=60.0, fires_per_second=40.0, backlog_max=9.0)
    later = range(100, 120)
    two = drawn(later, Random(2), finality_latency_p50_ms=60.0 * factor, fires_per_second=40.0, backlog_max=9.0)
    return write_sweep(root / "a", SEEDS, one), write_sweep(root / "b", later, two)


def test_what_changed_is_found_and_nothing_else(tmp_path: Path) -> None:
    found = compared(*sweeps(tmp_path))
    assert [(change.name, change.word) for change in found.significant] == [("finality_latency_p50_ms", "worse")]
    (change,) = found.significant
    assert change.share_interval is not None
    assert 0 < change.share_interval[0] < (change.share or 0) < change.share_interval[1]
    assert "independent samples" in found.method
    assert found.warnings == ()


def test_where_nothing_changed_nothing_is_significant(tmp_path: Path) -> None:
    assert compared(*sweeps(tmp_path, factor=1.0)).significant == []


def test_the_same_seeds_are_paired(tmp_path: Path) -> None:
    one = drawn(SEEDS, Random(1), finality_latency_p50_ms=60.0)
    two = {
        seed: {**figures, "finality_latency_p50_ms": figures["finality_latency_p50_ms"] + 1}
        for seed, figures in one.items()
    }
    found = compared(write_sweep(tmp_path / "a", SEEDS, one), write_sweep(tmp_path / "b", SEEDS, two))
    assert [change.name for change in found.significant] == ["finality_latency_p50_ms"]
    assert found.method.startswith("Runs of the same seed")


def test_the_same_seed_of_the_resampling_gives_the_same_comparison(tmp_path: Path) -> None:
    first, second = sweeps(tmp_path)
    assert compared(first, second, 5).page() == compared(first, second, 5).page()


def test_too_few_runs_are_said_to_be_too_few(tmp_path: Path) -> None:
    for name, seeds, latency in (("a", range(3), 60.0), ("b", range(10, 13), 600.0)):
        write_sweep(tmp_path / name, seeds, drawn(seeds, Random(1), finality_latency_p50_ms=latency))
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.significant == []
    assert any("too few" in warning for warning in found.warnings)


def lossy(root: Path, pairs: int, figures: int = 23) -> tuple[Path, Path]:
    """Two sweeps of the same seeds; one figure of so many is half as large again in each seed of the second one."""
    random, seeds = Random(1), range(pairs)
    one = {
        seed: {"heights": 50.0, "finality_latency_p50_ms": random.gauss(60, 1)}
        | {f"figure_{number}": random.gauss(10, 1) for number in range(figures - 1)}
        for seed in seeds
    }
    two = {
        seed: {name: value + (0 if name == "heights" else (-1) ** seed) for name, value in values.items()}
        | {"finality_latency_p50_ms": values["finality_latency_p50_ms"] * 1.5}
        for seed, values in one.items()
    }
    return write_sweep(root / f"a{pairs}", seeds, one), write_sweep(root / f"b{pairs}", seeds, two)


def test_pairs_that_are_too_few_for_the_number_of_figures_are_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = lossy(tmp_path, pairs=6)
    found = compared(first, second)
    assert found.significant == []
    assert found.too_few == (
        "6 pairs of runs are too few for 23 metrics tested at once; one metric alone is significant from 10 pairs of"
        " runs on"
    )
    assert main(["compare", str(first), str(second)]) == 0
    assert f"significant  nothing can be said: {found.too_few}" in capsys.readouterr().out
    text = render_comparison(found)
    assert "Too few runs to say what changed" in text and "Nothing changed" not in text


@pytest.mark.parametrize(("pairs", "is_enough"), [(9, False), (10, True)])
def test_as_many_pairs_as_are_asked_for_are_enough(tmp_path: Path, pairs: int, is_enough: bool) -> None:
    found = compared(*lossy(tmp_path, pairs))
    assert [change.name for change in found.significant] == ["finality_latency_p50_ms"] * is_enough
    assert bool(found.too_few) is not is_enough


def test_a_sweep_that_changed_nothing_says_nothing_changed(tmp_path: Path) -> None:
    found = compared(*sweeps(tmp_path, factor=1.0))
    assert (found.summary, found.too_few) == ("nothing", "")


# --- single runs ------------------------------------------------------------------------------------------------------


def series(latency: float, heights: int = 60) -> dict[str, list[float | None]]:
    random = Random(heights)
    return {
        "height": list(range(1, heights + 1)),
        "finality_latency_ms": [None, *(random.gauss(latency, 3) for _ in range(heights - 1))],
        "fires": [float(random.randrange(10)) for _ in range(heights)],
    }


def test_two_single_runs_are_compared_by_their_heights(tmp_path: Path) -> None:
    one, two = write_run(tmp_path / "a", 1, series(60)), write_run(tmp_path / "b", 2, series(70))
    found = compared(one, two)
    assert [change.name for change in found.significant] == [f"{SERIES_PREFIX}finality_latency_ms"]
    plain = {
        change.name: change.adjusted_p_value for change in found.changes if not change.name.startswith(SERIES_PREFIX)
    }
    assert plain == dict.fromkeys([*METRICS, "lateness_p95_blocks (flood)"])
    assert "Two single runs" in found.method


def test_runs_that_have_few_heights_in_common_are_not_tested(tmp_path: Path) -> None:
    one, two = write_run(tmp_path / "a", 1, series(60, 5)), write_run(tmp_path / "b", 2, series(70, 5))
    found = compared(one, two)
    assert found.significant == []
    assert any("too few heights" in warning for warning in found.warnings)


# --- what is told -----------------------------------------------------------------------------------------------------


def test_what_differs_besides_is_told(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", backend="live", verdict="fail")
    two = write_run(
        tmp_path / "b", backend="live", commit="ba9876543210", scenario="other", machine={"processor": "another"}
    )
    told = "; ".join(compared(one, two).warnings)
    for words in (
        "scenarios differ: smoke in A, other in B",
        "commits differ",
        "machines differ",
        "not all runs of A passed",
    ):
        assert words in told


def test_scenarios_of_one_name_that_differ_are_told(tmp_path: Path) -> None:
    one, two = write_run(tmp_path / "a", 1), write_run(tmp_path / "b", 2)
    assert not any("the same name" in warning for warning in compared(one, two).warnings)
    (two / "scenario.yaml").write_text("name: smoke\nlinks: {latency_ms: 7}\nvalidators: 5\n")
    found = compared(one, two)
    told = next(warning for warning in found.warnings if warning.startswith("the scenarios have the same name"))
    assert "validators.count 4 in A, 5 in B" in told
    assert "links.latency_ms" in told
    assert told in html.unescape(render_comparison(found))
    assert {"field": "validators.count", "a": "4", "b": "5"} in found.page()["scenario_differences"]


def test_settings_in_which_sweeps_differ_are_named(tmp_path: Path) -> None:
    first, second = sweeps(tmp_path)
    for folder, text in ((first, "name: smoke\n"), (second, "name: smoke\nlinks: {loss: 0.1}\n")):
        (folder / "scenario.yaml").write_text(text)
    found = compared(first, second)
    assert "the scenarios have the same name, but are not the same: links.loss 0.0 in A, 0.1 in B" in found.warnings
    assert found.first.of("scenario") == ["smoke"]


def test_of_several_names_the_one_whose_scenarios_differ_is_told(tmp_path: Path) -> None:
    first = [write_run(tmp_path / f"a{number}", number) for number in range(3)]
    second = [write_run(tmp_path / f"b{number}", number) for number in range(3)]
    for folder in (first[2], second[1], second[2]):
        result = json.loads((folder / "result.json").read_text()) | {"scenario": "calm"}
        (folder / "result.json").write_text(json.dumps(result))
        (folder / "scenario.yaml").write_text("name: calm\n")
    (second[0] / "scenario.yaml").write_text("name: smoke\nlinks: {loss: 0.1}\n")
    found = compare(read_group(first), read_group(second), 1)
    assert [each.path for each in found.scenario_differences] == ["links.loss"]


def test_what_a_scenario_says_is_nothing_that_a_terminal_obeys(tmp_path: Path) -> None:
    one, two = write_run(tmp_path / "a", 1), write_run(tmp_path / "b", 2)
    (two / "scenario.yaml").write_text('"e\\x1b[31mvil\\nline": "\\x9b31m\\u202e"\nname: smoke\n')
    (told,) = [warning for warning in compared(one, two).warnings if "the same name" in warning]
    assert told.isprintable()
    assert "vil" in told


def test_of_many_fields_that_differ_the_first_are_told(tmp_path: Path) -> None:
    one, two = write_run(tmp_path / "a", 1), write_run(tmp_path / "b", 2)
    (two / "scenario.yaml").write_text(
        "name: smoke\nsuccess: {fires: 1, transactions: 1, heights_compared: 1,"
        " stall_ms: 1, metrics: {fires: {at_least: 1}}}\nstop: {height: 9}\n"
    )
    found = compared(one, two)
    assert any(re.search(r"; and [1-9] more$", warning) for warning in found.warnings)
    assert len(found.page()["scenario_differences"]) > SHOWN


def test_a_comment_a_default_and_a_description_are_no_difference(tmp_path: Path) -> None:
    one, two = write_run(tmp_path / "a", 1), write_run(tmp_path / "b", 2)
    (two / "scenario.yaml").write_text("# mine\nname: smoke\ndescription: the same\nsuccess: {fires: 50}\n")
    found = compared(one, two)
    assert not any("scenarios" in warning for warning in found.warnings)
    assert found.page()["scenario_differences"] == []


def test_scenarios_that_this_version_cannot_load_are_compared_as_they_stand(tmp_path: Path) -> None:
    one, two = write_run(tmp_path / "a", 1), write_run(tmp_path / "b", 2)
    (two / "scenario.yaml").write_text("name: smoke\nwhat_it_was_called: [1, 2]\n")
    assert any(w.endswith("what_it_was_called nothing in A, [1, 2] in B") for w in compared(one, two).warnings)
    (two / "scenario.yaml").write_bytes(b"\xff")
    assert "the scenarios have the same name, but are not the same" in compared(one, two).warnings


# --- what cannot be compared ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda root: (write_run(root / "a"), write_run(root / "b", backend="live")), "virtual time"),
        (lambda root: (write_run(root / "a"), root / "a"), "is in both groups"),
        (lambda root: (write_run(root / "a"), root / "missing"), "no such folder"),
        (lambda root: (write_run(root / "a"), write_run(root / "b", metrics={"heights": 0})), "no final block"),
        (lambda root: (write_run(root / "a"), write_run(root / "b", metrics=3)), "is no run's result"),
        (lambda root: (write_run(root / "a"), write_run(root / "b", seed="x")), "is no run's result"),  # type: ignore[arg-type]
        (
            lambda root: (write_run(root / "a"), write_run(root / "b", seed=-5)),
            "is no run's result: a field is of another",
        ),
        (lambda root: (write_run(root / "a"), write_run(root / "b", metrics={"fires": 10**400})), "or size"),
        (lambda root: (write_run(root / "a"), write_run(root / "b", series={"fires": 3})), "no metrics of blocks"),
        (
            lambda root: (write_sweep(root / "a", range(2)), write_sweep(root / "b", range(2), {0: {}, 1: {}})),
            "older version",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, make, reason: str) -> None:  # type: ignore[no-untyped-def]
    first, second = make(tmp_path)
    with pytest.raises(BadInput, match=reason):
        compared(first, second)


def test_series_without_heights_have_none_in_common(tmp_path: Path) -> None:
    one, two = (write_run(tmp_path / name, series={"fires": [1, 2, 3]}) for name in "ab")
    assert not compared(one, two).significant


def test_a_folder_without_runs_and_one_that_is_given_twice_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    (tmp_path / "empty" / "below").mkdir(parents=True)
    with pytest.raises(BadInput, match="holds no run"):
        read_group([tmp_path / "empty"])
    write_run(tmp_path / "b")
    with pytest.raises(BadInput, match="is twice in one group"):
        compare(read_group([tmp_path / "a", tmp_path / "a"]), read_group([tmp_path / "b"]), 1)


def test_a_folder_of_folders_is_a_group(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / "all" / f"run-{seed}", seed)
    write_sweep(tmp_path / "all" / "sweep", range(10, 14))
    (tmp_path / "all" / "other").mkdir()
    assert read_group([tmp_path / "all"]).seeds == [0, 1, 2, 10, 11, 12, 13]


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = sweeps(tmp_path)
    files = ["--json", str(tmp_path / "c.json"), "--html", str(tmp_path / "c.html")]
    assert main(["compare", str(first), str(second), *files]) == 0
    printed = capsys.readouterr().out
    assert "significant  finality_latency_p50_ms worse" in printed
    page = json.loads((tmp_path / "c.json").read_text())
    assert page["significant"] == ["finality_latency_p50_ms"]
    assert page["metrics"]["heights"]["adjusted_p_value"] is None
    assert "<strong>worse</strong>" in (tmp_path / "c.html").read_text()


def test_groups_are_given_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(write_run(tmp_path / f"run-{seed}", seed)) for seed in range(5)]
    assert main(["compare", "--group", *folders[:3], "--", *folders[3:]]) == 0
    assert "(3 runs, smoke" in capsys.readouterr().out
    for arguments in (folders[:1], folders[:3]):
        assert main(["compare", *arguments]) == 2
        assert "--group A… -- B…" in capsys.readouterr().err


def test_the_page_escapes_and_needs_nothing_else(tmp_path: Path) -> None:
    one, two = write_run(tmp_path / "a", 1, scenario="<b>&"), write_run(tmp_path / "b", 2, scenario="<b>&")
    text = render_comparison(compared(one, two))
    assert "<b>&" not in text
    assert "http:" not in text
    assert "https:" not in text
