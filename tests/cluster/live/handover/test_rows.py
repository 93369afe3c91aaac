"""What was seen of a run outlives who saw it, and what hosts told outlives who it was told to, as far as files go."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cluster.live.handover import rows as module
from cluster.live.handover.rows import SIGHTING, Row, Sightings, Told
from cluster.live.host.observations import CertificateSeen, FirstSeen, VoteSent
from cluster.record.finalizations import Finalization, Finalizations
from consensus.types import View
from tests.consensus.bench import FINALIZE, NOTARIZE, HotStuffBench

BENCH = HotStuffBench()


def row(view: int) -> Row:
    certificates = [
        CertificateSeen(each, True) for each in (BENCH.certificate(NOTARIZE, view, "b"), BENCH.timeouts(view, 1))
    ]
    found = Row.of(3, [VoteSent(View(view), FINALIZE, View(1), bytes(32)), FirstSeen(1, 2.0), *certificates])
    assert found is not None
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "told"


def test_it_reads_what_it_wrote_and_goes_on(path: Path) -> None:
    told = Told(path)
    assert Row.of(3, [FirstSeen(1, 2.0)]) is None
    for view in (5, 6):
        told.add(row(view))
    told.flush()
    again, rows = Told.reopen(path)
    assert rows == [(0, row(5)), (1, row(6))]
    again.add(row(7))
    again.flush()
    assert Told.reopen(path)[1] == [(0, row(5)), (1, row(6)), (2, row(7))]
    Told(path).flush()
    assert Told.reopen(path)[1] == [], "another run's"


def test_the_newest_rows_are_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(path)
    told.add(row(1))
    told.flush()
    monkeypatch.setattr(module, "MAX_BYTES", 3 * (path.stat().st_size - 20))
    for view in range(2, 20):
        told.add(row(view))
        told.flush()
        again, rows = Told.reopen(path)
        assert 1 <= len(rows) <= 6 and rows[-1] == (view - 1, row(view))
        assert [number for number, _ in rows] == list(range(view - len(rows), view)), "none between is missing"
        assert again.count == view
        again.close()
    module.remove_told(path)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("torn", [b"\xa6", b"\xa6\x00\x00\x00torn", bytes(7), bytes(40)])
def test_a_torn_end_is_removed(path: Path, torn: bytes) -> None:
    told = Told(path)
    told.add(row(5))
    told.flush()
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(torn)
    again, rows = Told.reopen(path)
    assert rows == [(0, row(5))] and path.stat().st_size == whole
    again.add(row(6))
    again.flush()
    assert Told.reopen(path)[1] == [(0, row(5)), (1, row(6))]


def test_rows_wait_while_the_disk_is_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, write = Told(path), os.write

    def fills_up(descriptor: int, content: bytes) -> int:
        if len(content) < 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, bytes(content[: len(content) - 9]))

    with monkeypatch.context() as full:
        full.setattr(os, "write", fills_up)
        for view in (5, 6):
            told.add(row(view))
            with pytest.raises(OSError, match="No space left"):
                told.flush()
    told.flush()
    assert Told.reopen(path)[1] == [(0, row(5)), (1, row(6))]


# --- sightings --------------------------------------------------------------------------------------------------------

SEEN = [Finalization(1.5, 0, 1), Finalization(2.5, 3, 1), Finalization(9.0, 1, 2)]


@pytest.fixture
def sightings(tmp_path: Path) -> Path:
    path = tmp_path / "sightings"
    file = Sightings(path)
    for seen in SEEN:
        file.finalized(seen)
    file.proposed(0.5, 1)
    file.proposed(0.25, 1)
    file.sync()
    file.close()
    return path


def test_sightings_are_read_as_they_were_written(sightings: Path) -> None:
    again, finalizations, proposals = Sightings.reopen(sightings)
    assert (finalizations, proposals) == (Finalizations(SEEN), {1: 0.25})
    again.finalized(Finalization(11.0, 2, 2))
    again.flush()
    _, finalizations, _ = Sightings.reopen(sightings)
    assert list(finalizations) == [*SEEN, Finalization(11.0, 2, 2)]


@pytest.mark.parametrize("torn", [b"\1", b"\1" * (SIGHTING.size - 1), bytes(SIGHTING.size), bytes(73)])
def test_a_torn_end_of_sightings_is_removed(sightings: Path, torn: bytes) -> None:
    whole = sightings.stat().st_size
    with sightings.open("ab") as file:
        file.write(torn)
    _, finalizations, _ = Sightings.reopen(sightings)
    assert finalizations == Finalizations(SEEN)
    assert sightings.stat().st_size == whole
