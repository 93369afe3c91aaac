"""A hook of MkDocs: the site has the pages of the whole repository at their paths, and what they link to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ("*.md", "docs/*.md", "k8s/*.md", "kits/*/*.md")
LINK: Final = re.compile(r"\]\(([^)#:\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All pages of the repository, and the files that they link to."""
    pages = [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    linked = {(page.parent / link).resolve() for page in pages for link in LINK.findall(page.read_text("utf-8"))}
    found = sorted({*pages, *(path for path in linked if path.is_file())})
    of_the_theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files([*of_the_theme, *(_file(path, config) for path in found)])


def _file(path: Path, config: MkDocsConfig) -> File:
    return File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls)
