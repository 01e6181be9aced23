"""A hook of MkDocs: pages of the site that are not in docs/.

On a code host, a page of docs/ links to such a file as it lies in the
repository. On the site the same link leads to the page that is made of it.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

# From the root of the repository -> on the site. The README's place is taken
# by a page of docs/.
PAGES = {
    "examples/README.md": "examples.md",
    "tests/lab/README.md": "lab.md",
}
_PLACES = {**PAGES, "README.md": "index.md"}
_LINK = re.compile(r"(?<=\]\()\.\./([^)#\s]+)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages."""
    root = Path(config.config_file_path).parent
    for source, page in PAGES.items():
        files.append(
            File.generated(config, page, abs_src_path=str(root / source))
        )
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leads links out of docs/ to the pages; others are left, and fail."""
    return _LINK.sub(lambda link: _PLACES.get(link[1], link[0]), markdown)
