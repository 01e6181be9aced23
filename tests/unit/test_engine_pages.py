"""The pages of docs/engines: alike, and what they quote is said somewhere."""

import re

import pytest

from tests.documented import ROOT, blocks

PAGES = sorted((ROOT / "docs/engines").glob("*.md"))
HEADINGS = (
    "From nothing to a job",
    "How to see that it works",
    "What goes wrong",
)


def said():
    """Returns what the package and the core say, without what is filled in."""
    folders = (ROOT / "keras_ring", ROOT / "csrc")
    text = "\n".join(
        path.read_text()
        for folder in folders
        for path in folder.rglob("*.*")
        if path.suffix in (".py", ".cc", ".h")
    )
    # The pieces of one text.
    return re.sub(r'"\s*\n\s*f?"', "", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_leads_from_nothing_to_a_job(page):
    found = re.findall(r"^## (.*)$", page.read_text(), re.M)
    assert tuple(h for h in found if h in HEADINGS) == HEADINGS


def test_what_is_said_is_said():
    quoted = [
        (page.stem, quote)
        for page in PAGES
        for rows in page.read_text().split("## What goes wrong")[1:]
        for quote in re.findall(r"^\| `(.*?)` \|", rows, re.M)
    ]
    assert len(quoted) > 15
    text = said()
    assert [each for each in quoted if each[1] not in text] == []


def test_there_is_one_program():
    programs = [
        code
        for page in PAGES
        for code in blocks(page.read_text(), "python")
        if code.startswith("import keras\n")
    ]
    assert len(programs) == 4
    assert len(set(programs)) == 1
