"""What was seen of a run outlives who saw it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.live.handover.finality_log import ROW, Sightings
from cluster.record.finalizations import Finalization, Finalizations

SEEN = [Finalization(1.5, 0, 1), Finalization(2.5, 3, 1), Finalization(9.0, 1, 2)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "sightings"
    sightings = Sightings(path)
    for seen in SEEN:
        sightings.finalized(seen)
    sightings.proposed(0.5, 1)
    sightings.proposed(0.25, 1)
    sightings.sync()
    sightings.close()
    return path


def test_it_reads_what_it_wrote_and_goes_on(path: Path) -> None:
    again, finalizations, proposals = Sightings.reopen(path)
    assert (finalizations, proposals) == (Finalizations(SEEN), {1: 0.25})
    again.finalized(Finalization(11.0, 2, 2))
    again.flush()
    _, finalizations, _ = Sightings.reopen(path)
    assert list(finalizations) == [*SEEN, Finalization(11.0, 2, 2)]


@pytest.mark.parametrize("torn", [b"\x01", b"\x01" * (ROW.size - 1), bytes(ROW.size), bytes(5 * ROW.size + 3)])
def test_a_torn_end_is_removed(path: Path, torn: bytes) -> None:
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(torn)
    _, finalizations, _ = Sightings.reopen(path)
    assert finalizations == Finalizations(SEEN)
    assert path.stat().st_size == whole
