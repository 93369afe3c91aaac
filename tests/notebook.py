"""The notebooks of the documentation, executed as Jupyter does. This writes their outputs again:

python -m tests.notebook
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Final
from unittest import mock

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from tests.hangs import HANGS_AFTER_S

ROOT: Final = Path(__file__).resolve().parents[1]
NOTEBOOKS: Final = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
VERSION: Final = 4
ABOUT: Final = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=VERSION)


def executed(notebook: Any) -> Any:
    """A notebook with new outputs: its cells run in a kernel, which leaves nothing behind.

    Raises :class:`nbclient.exceptions.CellExecutionError` if a cell fails.
    """
    with tempfile.TemporaryDirectory() as home:
        places = dict.fromkeys(("HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"), home)
        with mock.patch.dict(os.environ, places):
            found = NotebookClient(
                nbformat.from_dict(notebook),
                timeout=HANGS_AFTER_S,
                kernel_name="python3",
                config=Config(KernelManager={"transport": "ipc"}),  # no port
                resources={"metadata": {"path": str(ROOT)}},
                record_timing=False,
            ).execute()
    found.metadata = nbformat.from_dict(ABOUT)
    return found


def texts(notebook: Any) -> list[list[str]]:
    """What each cell of code shows as text. A figure is told by its kind: its bytes depend on fonts."""
    return [
        [
            output.get("text") or ("figure" if "image/png" in output.data else output.data["text/plain"])
            for output in cell.outputs
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


if __name__ == "__main__":
    for each in NOTEBOOKS:
        nbformat.write(executed(read(each)), each)
