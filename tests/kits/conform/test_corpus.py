"""The exported corpus: the same bytes each time, read back whole, and refused if a file was changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.commands.cli.main import main
from cluster.common.errors import BadInput, ExitCode
from kits.conform.commands import DEFAULT_SEEDS
from kits.conform.corpus import MANIFEST, CorpusCases, export_corpus
from kits.conform.families.table import TABLE
from kits.conform.rules import OF_THE_TREE, RULES
from kits.conform.sweep import judge
from tests.kits.conform.test_sweep import OwnTool, more

NAMES = ["fifo", "tips"]


def export(folder: Path) -> Path:
    export_corpus(folder, TABLE.chosen(NAMES), range(2))
    return folder


def test_a_corpus_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = export(tmp_path / "a"), export(tmp_path / "b")
    names = {path.relative_to(first) for path in first.rglob("*") if path.is_file()}
    assert {name.as_posix() for name in names} == {MANIFEST, *(f"{name}/000{n}.json" for name in NAMES for n in (1, 2))}
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
    case = json.loads((first / "tips" / "0001.json").read_text(encoding="utf-8"))
    assert case["description"].startswith("The tip is the priority")
    with pytest.raises(BadInput, match="is not empty"):
        export(first)


def test_a_corpus_is_read_back(tmp_path: Path) -> None:
    source = CorpusCases.open(export(tmp_path / "a"), ["tips"])
    cases = [source.load(reference) for reference in source.references()]
    assert source.count() == len(cases) == 2
    assert all(judge(case, OwnTool(), has_roots=True).kind == "" for case in cases)
    assert all(judge(case, OwnTool(more("tips")), has_roots=True).kind for case in cases)
    assert all(case.rules for case in cases)


def test_a_changed_corpus_is_refused(tmp_path: Path) -> None:
    folder = export(tmp_path / "a")
    path = folder / "tips" / "0002.json"
    path.write_text(path.read_text(encoding="utf-8").replace("1", "2", 1), encoding="utf-8")
    assert CorpusCases.open(folder, ["fifo"]).count() == 2
    with pytest.raises(BadInput, match=r"tips: its files have another hash"):
        CorpusCases.open(folder, [])
    path.unlink()
    with pytest.raises(BadInput, match=r"0002\.json: cannot be read"):
        CorpusCases.open(folder, [])
    with pytest.raises(BadInput, match=r"manifest\.json: cannot be read"):
        CorpusCases.open(tmp_path / "none", [])


def test_the_commands_use_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a"
    assert main(["conform", "export", str(folder), "--family", "tips", "--seeds", "0:1"]) == ExitCode.PASS
    assert capsys.readouterr().out.startswith("1 cases, families: 1, hash ")
    options = ["--workers", "1", "--no-shrink"]
    assert main(["conform", "--tool", "false", "--corpus", str(folder), *options]) == ExitCode.FAIL
    assert main(["conform", "--tool", "false", "--corpus", str(folder), "--seeds", "0:1"]) == ExitCode.BAD_INPUT


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(8), pytest.param(DEFAULT_SEEDS, marks=pytest.mark.soak)], ids=["few", "whole"])
def test_the_corpus_reaches_every_rule(tmp_path: Path, seeds: range) -> None:
    manifest = export_corpus(tmp_path / "a", TABLE.chosen([]), seeds)
    assert manifest["cases"] >= (2_000 if seeds == DEFAULT_SEEDS else 400)
    assert len(manifest["families"]) >= 60
    reached = {family["name"]: set(family["rules"]) for family in manifest["families"]}
    assert set().union(*reached.values()) == set(RULES) - OF_THE_TREE
    assert all(set(family.rules) - OF_THE_TREE <= reached[family.name] for family in TABLE.families.values())
