"""A hook of MkDocs: what a page of docs/ is like on the site alone.

Code hosts show a page's front matter as text, so there is none.
"""

import re
from typing import Any

# Beside a page of one screen, or the only one below its tab, is nothing; a page
# that is one table has no contents to list, and needs the room.
HIDDEN = {
    "index.md": ["navigation", "toc"],
    "tutorial.md": ["navigation"],
    "glossary.md": ["navigation", "toc"],
    "environment.md": ["toc"],
    "metrics.md": ["toc"],
}
# What a code block is to a test, such as "fails", is nothing to a reader.
_MARKED_BLOCK = re.compile(r"^(```\w+) \w+$", re.M)
_SYMBOL = re.compile(r"^::: keras_ring\.(\S+)\n(?:    options:\n)?", re.M)


def _with_heading(symbol: re.Match[str]) -> str:
    # As a program names it; `keras_ring.ray` has to be imported by itself.
    module, _, name = symbol[1].rpartition(".")
    package = "keras_ring" if module == "ray" else "kr"
    label = symbol[1] if module == "ray" else name
    return (
        f"::: keras_ring.{symbol[1]}\n    options:\n"
        f"      heading: {package}.{symbol[1]}\n      toc_label: {label}\n"
    )


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Says what to show of a page, and heads each name of the package."""
    if page.file.src_uri in HIDDEN:
        page.meta["hide"] = HIDDEN[page.file.src_uri]
    if page.file.src_uri.startswith("api/"):
        # Whoever looks for a name looks for what describes it.
        page.meta["search"] = {"boost": 2}
    markdown = _MARKED_BLOCK.sub(r"\1", markdown)
    return _SYMBOL.sub(_with_heading, markdown + "\n")
