"""A hook of mkdocs: pages that lie outside of docs/ become part of the site, and links to them follow.

On GitHub and in an editor README.md links to docs/trust.md; on the site both lie in one folder.  So links are rewritten
on the way; whatever else a page links to inside of the repository is copied beside it.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "properties/README.md": "properties.md",
    "LICENSE": "LICENSE.txt",
    "CITATION.cff": "CITATION.cff",
}
"""Files of the repository, and where the site has them."""

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^()\s#]+)")


def on_files(files: Files, config: Any) -> Files:
    for name, place in PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with links between places of the site instead of places of the repository."""
    here = page.file.src_uri
    home = next((name for name, place in PAGES.items() if place == here), f"docs/{here}")
    return _LINK.sub(lambda found: _moved(found[1], os.path.dirname(home), os.path.dirname(here)), markdown)


def _moved(link: str, home: str, here: str) -> str:
    target = os.path.normpath(os.path.join(home, link))
    place = PAGES.get(target, target.removeprefix("docs/"))
    return os.path.relpath(place, here or ".")
