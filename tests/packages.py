"""Installed packages, for tests of what others add to Stampede."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, name: str, points: str, source: str) -> None:
    """Install a package of one module in a folder, which is to be on the path. ``points`` are its entry points."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
