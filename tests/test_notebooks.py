"""The notebooks of the documentation: their cells run, and show what the pages show."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from nbclient.exceptions import CellExecutionError

from tests.notebook import NOTEBOOKS, executed, read, texts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.name)
def notebook(request: pytest.FixtureRequest) -> Any:
    return read(request.param)


def test_cells_run_and_show_what_the_page_shows(notebook: Any) -> None:
    shown = texts(notebook)
    assert any("figure" in outputs for outputs in shown)
    assert texts(executed(notebook)) == shown, "python -m tests.notebook"


def test_another_output_is_found(notebook: Any) -> None:
    changed = copy.deepcopy(notebook)
    output = next(each for cell in changed.cells for each in cell.get("outputs", []) if "text/plain" in each.data)
    output.data["text/plain"] += " "
    assert texts(changed) != texts(notebook)


def test_a_cell_that_fails_is_found(notebook: Any) -> None:
    changed = copy.deepcopy(notebook)
    changed.cells = [cell for cell in changed.cells if cell.cell_type == "code"][:1]
    changed.cells[0].source = "assert False"
    with pytest.raises(CellExecutionError):
        executed(changed)


def test_there_is_a_notebook() -> None:
    assert [path.name for path in NOTEBOOKS] == ["timers.ipynb"]
    assert all(isinstance(path, Path) for path in NOTEBOOKS)
