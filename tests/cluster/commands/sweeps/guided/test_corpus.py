"""The corpus on disk: minimal, merged by copying files, and nothing else in it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import msgspec
import pytest

from cluster.commands.sweeps.guided import corpus as module
from cluster.commands.sweeps.guided.corpus import Corpus, Entry, minimal, read_start, write_start
from cluster.common.errors import BadInput


def entry(genotype: str, *features: str, seconds: float = 1.0, protocol: str = "simplex") -> Entry:
    return Entry(protocol, genotype, list(features), "c0ffee", seconds)


RICH, POOR, OTHER = entry("1", "a", "b", "c"), entry("2", "a", "b"), entry("3", "d")


def test_entries_that_add_nothing_are_left_out_in_whatever_order_they_come() -> None:
    for entries in permutations([POOR, RICH, OTHER]):
        assert minimal(entries) == [RICH, OTHER]
    cheap = entry("4", "a", "b", "c", seconds=0.5)
    assert minimal([RICH, cheap]) == [cheap]
    assert minimal([entry("5")]) == []
    left_behind = [
        entry("6", "a", "b", "c", "d", seconds=0.5),
        entry("7", "a", "b", "c", "e"),
        entry("8", "x", "y", "z"),
    ]
    assert [one.genotype for one in minimal(left_behind)] == ["6", "8", "7"], (
        "what is new counts, not how much there is"
    )


def test_the_number_of_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 1)
    assert minimal([POOR, RICH, OTHER]) == [RICH]


def test_entries_are_kept_and_folders_merge_by_copying(tmp_path: Path) -> None:
    one, other = Corpus(tmp_path / "one", "simplex"), Corpus(tmp_path / "other", "simplex")
    for each in (POOR, OTHER):
        one.add(each)
    other.add(RICH)
    Corpus(tmp_path / "other", "hotstuff").add(entry("9", "a", protocol="hotstuff"))
    for path in (tmp_path / "other").iterdir():
        shutil.copy(path, tmp_path / "one")
    merged = Corpus(tmp_path / "one", "simplex")
    assert (merged.entries, merged.superfluous) == ([RICH, OTHER], 1)
    assert len(list((tmp_path / "one").iterdir())) == 4, "reading alone removes nothing"
    merged.remove_superfluous()
    assert {path.name for path in (tmp_path / "one").iterdir()} == {
        RICH.name,
        OTHER.name,
        entry("9", protocol="hotstuff").name,
    }
    assert Corpus(tmp_path / "one", "hotstuff").entries == [entry("9", "a", protocol="hotstuff")]


@dataclass(frozen=True)
class Foreign:
    name: str
    text: bytes
    problem: str


def encoded(one: Entry) -> bytes:
    return msgspec.json.encode(one)


@pytest.mark.parametrize(
    "foreign",
    [
        Foreign("notes.txt", b"hello", "is no entry of a corpus"),
        Foreign(RICH.name, encoded(RICH)[:-9], "is no entry of a corpus: Input data was truncated"),
        Foreign("simplex-0.json", encoded(RICH), f"expected its name to be {RICH.name}"),
        Foreign(RICH.name, b"{}", "missing required field `protocol`"),
        Foreign(RICH.name, encoded(RICH)[:-1] + b',"more":1}', "unknown field `more`"),
        Foreign(entry("1,x=2").name, encoded(entry("1,x=2")), "'1,x=2' is no genotype"),
        Foreign(RICH.name, b" " * (module.MAX_FILE_BYTES + 1), "is no entry of a corpus"),
    ],
    ids=lambda foreign: foreign.problem[:20],
)
def test_a_corrupt_or_foreign_file_is_told_in_one_line(tmp_path: Path, foreign: Foreign) -> None:
    (tmp_path / foreign.name).write_bytes(foreign.text)
    with pytest.raises(BadInput) as refused:
        Corpus(tmp_path, "simplex")
    assert str(refused.value).startswith(f"{tmp_path / foreign.name}: ")
    assert foreign.problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_in_it_and_a_file_in_its_place_are_told(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    with pytest.raises(BadInput, match="inner: cannot be read: Is a directory; a corpus holds its entries alone"):
        Corpus(tmp_path, "simplex")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(BadInput, match="file: cannot be opened: File exists"):
        Corpus(file, "simplex")


def test_what_a_fuzz_began_with_is_kept_for_its_continuation(tmp_path: Path) -> None:
    path = tmp_path / "start.json"
    assert read_start(path) is None
    write_start(path, [RICH, OTHER])
    assert read_start(path) == [RICH, OTHER]
    path.write_text("[1]")
    with pytest.raises(BadInput, match=r"start\.json: cannot be read: Expected `object`, got `int`"):
        read_start(path)
