"""A hook of MkDocs: the site has the pages of the whole repository at their paths, and what they link to.

A notebook is a page of its name: its cells, and what they show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ("*.md", "docs/*.md", "k8s/*.md", "kits/*/*.md")
NOTEBOOK: Final = ".ipynb"
LINK: Final = re.compile(r"\]\(([^)#:\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All pages of the repository, and the files that they link to."""
    pages = [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    linked = {(page.parent / link).resolve() for page in pages for link in LINK.findall(page.read_text("utf-8"))}
    found = sorted({*pages, *(path for path in linked if path.is_file())})
    of_the_theme = [file for file in files if file.src_dir != config.docs_dir]
    notebooks = [_page(path, config) for path in found if path.suffix == NOTEBOOK]
    return Files([*of_the_theme, *(_file(path, config) for path in found if path.suffix != NOTEBOOK), *notebooks])


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to notebooks lead to their pages."""
    return markdown.replace(f"{NOTEBOOK})", ".md)")


def _file(path: Path, config: MkDocsConfig) -> File:
    return File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls)


def _page(path: Path, config: MkDocsConfig) -> File:
    name = path.relative_to(ROOT).with_suffix(".md").as_posix()
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return File.generated(config, name, content="\n\n".join(part for cell in cells for part in _parts(cell)))


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    """A notebook's cell as Markdown: its text or code, then what the code shows."""
    text = "".join(cell["source"])
    yield text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
    for output in cell.get("outputs", []):
        shown = output.get("data", {"text/plain": output.get("text", "")})
        figure, words = shown.get("image/png"), "".join(shown.get("text/plain", ""))
        yield f"```text\n{words}\n```" if figure is None else f"![the figure](data:image/png;base64,{figure.strip()})"
