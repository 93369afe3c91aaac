"""What tests share that start a Ray."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """A folder with a short path, in which Ray's own are made."""
    path = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cluster.live.driver.ray_session.SHORT_TEMPORARY_FOLDER", path)
        yield path
    shutil.rmtree(path)
