"""The soak of drawn programs goes on where it was, tells what it did, and does not pass over what differs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.validator.pvm import soak
from tests.validator.pvm.soak import CHUNK, chunks, main


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds that are tried; one in 450 differs."""
    seeds: list[int] = []

    def difference(seed: int) -> str | None:
        seeds.append(seed)
        return "another end" if seed == 450 else None

    monkeypatch.setattr(soak, "difference", difference)
    return seeds


def test_chunks_are_at_the_same_places_wherever_a_soak_begins() -> None:
    assert list(chunks(0, 2 * CHUNK + 5)) == [(0, CHUNK), (CHUNK, 2 * CHUNK), (2 * CHUNK, 2 * CHUNK + 5)]
    assert list(chunks(5, 2 * CHUNK)) == [(5, CHUNK), (CHUNK, 2 * CHUNK)]


def test_a_soak_goes_on_where_it_was(asked: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["0:400", "--out", str(tmp_path)]) == 0
    assert asked == list(range(400))
    (notes,) = tmp_path.iterdir()
    notes.write_text(notes.read_text()[:-3])
    asked.clear()
    assert main(["0:400", "--out", str(tmp_path)]) == 0
    assert asked == list(range(200, 400)), "a line that was cut off counts for nothing"
    assert capsys.readouterr().out.splitlines()[-1] == "400 of 400 programs tried, 0 differ"


def test_what_differs_is_said_and_tried_again(
    asked: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        asked.clear()
        assert main(["0:600", "--out", str(tmp_path)]) == 1
        assert capsys.readouterr().out.splitlines()[-2:] == [
            "600 of 600 programs tried, 1 differ",
            "seed 450: another end",
        ]
    assert asked == list(range(400, 600))


def test_one_that_makes_the_vm_fail_is_said_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(seed: int) -> str | None:
        if seed == 7:
            raise RuntimeError("the VM is broken")
        return None

    monkeypatch.setattr(soak, "difference", failing)
    assert main(["0:400", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "400 of 400 programs tried, 1 differ" in told
    assert "seed 7: Traceback" in told and "RuntimeError: the VM is broken" in told


def test_notes_are_of_the_code_that_they_tried(
    asked: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["0:200", "--out", str(tmp_path)]) == 0
    monkeypatch.setattr(soak, "code_digest", lambda: "other")
    assert main(["0:200", "--out", str(tmp_path)]) == 0
    assert len(asked) == 400


def test_the_code_that_is_tried_is_the_vm_and_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that is loaded and changes makes another digest; one that is not, or is not ours, does not."""
    monkeypatch.setattr(soak, "ROOT", tmp_path)
    file = tmp_path / "validator" / "pvm" / "made_up.py"
    file.parent.mkdir(parents=True)
    file.write_text("one", encoding="utf-8")
    nothing = soak.code_digest()
    made_up = ModuleType("made_up")
    made_up.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "made_up", made_up)
    one = soak.code_digest()
    file.write_text("other", encoding="utf-8")
    assert len({nothing, one, soak.code_digest()}) == 3
    made_up.__file__ = str(tmp_path / "cluster.py")
    assert soak.code_digest() == nothing


@pytest.mark.parametrize("wrong", ["5", "5:", "7:7", "9:2", "-1:4", "a:b"])
def test_what_is_no_range_is_refused(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main([wrong, "--out", str(tmp_path)])
