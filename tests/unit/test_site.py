"""docs/ as a site: it builds, is complete, and asks no network for anything."""

import html.parser
import inspect
import os
import re
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

import keras_ring as kr
from keras_ring import core, jax, mxnet, torch
from tests.documented import own_names

ROOT = Path(__file__).resolve().parents[2]
# Tags that make a browser fetch what the attribute names. A link that a reader
# may follow is none.
FETCHES = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "use": "href",
}
needs_mkdocs = pytest.mark.skipif(
    any(
        util.find_spec(name) is None
        for name in ("mkdocs", "material", "mkdocstrings_handlers")
    ),
    reason="needs what requirements-docs.txt has: make docs-packages",
)


class Fetched(html.parser.HTMLParser):
    """Collects what a page makes a browser fetch."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if tag in FETCHES and named.get("rel") != "canonical":
            self.found.append(named.get(FETCHES[tag]) or "")


def fetched(text):
    parser = Fetched()
    parser.feed(text)
    return parser.found


def is_elsewhere(address):
    return re.match(r"[a-z]+:|//", address) and not address.startswith("data:")


def build(configuration, site):
    return subprocess.run(
        [
            *(sys.executable, "-m", "mkdocs", "build", "--strict"),
            *("--config-file", str(configuration), "--site-dir", str(site)),
        ],
        cwd=configuration.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    finished = build(ROOT / "mkdocs.yml", folder)
    assert finished.returncode == 0, finished.stdout
    return folder


@needs_mkdocs
def test_pages_fetch_from_nowhere_else(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        found = fetched(page.read_text())
        assert found, page
        assert not [each for each in found if is_elsewhere(each)], page
        for each in found:
            name = each.partition("#")[0].partition("?")[0]
            # The page of an error is shown at any address, so its own are of
            # the root.
            if name and page.name != "404.html":
                assert (page.parent / name).exists(), (page, name)
    for sheet in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        for each in re.findall(r"(?:url\(|@import)([^)]*)", sheet.read_text()):
            assert not is_elsewhere(each.strip(" \"'")), sheet


def test_what_is_fetched_is_found():
    page = '<script src="https://a.example/b.js"></script><a href="//c">'
    assert [is_elsewhere(each) is None for each in fetched(page)] == [False]
    assert is_elsewhere("//a.example/b.css")
    assert not is_elsewhere("../assets/b.css")


class Prose(html.parser.HTMLParser):
    """Collects the text of a page, with a mark for each piece of code."""

    INLINE = ("a", "em", "strong", "span")
    CODE = ("pre", "code", "script", "style")

    def __init__(self):
        super().__init__()
        self.text = ""
        self._in_code = 0

    def handle_starttag(self, tag, _):
        self._in_code += tag in self.CODE
        if tag not in self.INLINE:
            self.text += "`" if tag == "code" else "\n"

    def handle_endtag(self, tag):
        self._in_code -= tag in self.CODE

    def handle_data(self, data):
        if not self._in_code:
            self.text += data


def left_as_written(text):
    """Returns lines of a page that look like Markdown still."""
    prose = Prose()
    prose.feed(text)
    return re.findall(r"^ *(?:[-*#|] |```|\d\. ).*", prose.text, re.M)


@needs_mkdocs
def test_all_markdown_is_rendered(site):
    """A code host takes some lists that MkDocs does not."""
    for page in site.rglob("*.html"):
        assert left_as_written(page.read_text()) == [], page


def test_what_is_not_rendered_is_found():
    assert left_as_written("<p>One:\n- two</p>") == ["- two"]
    assert not left_as_written("<ul><li>two</li></ul><pre>- three</pre>")


@needs_mkdocs
def test_docstrings_are_there_and_whole(site):
    text = (site / "api/collectives.html").read_text()
    # From the docstring, and from what it shares with others.
    assert "Reduces" in text
    assert "`kr.ReduceOp`" in text or "<code>kr.ReduceOp</code>" in text
    assert "{{" not in text


@needs_mkdocs
def test_links_that_lead_nowhere_fail(tmp_path):
    for name in ("docs", "examples", "keras_ring", "tools/site", "tests/lab"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so")
        )
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    with (tmp_path / "docs/index.md").open("a") as page:
        page.write("\n[a](gone.md) [b](scale.md#gone) [c](../gone.md)\n")
    finished = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert finished.returncode != 0
    for target in ("gone.md", "scale.md#gone", "../gone.md"):
        assert f"'{target}'" in finished.stdout, target


@needs_mkdocs
@pytest.mark.skipif(
    shutil.which("chromium") is None, reason="needs Debian's chromium"
)
def test_search_works_from_a_disk(site, tmp_path):
    finished = subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu"),
            *("--no-first-run", "--disable-background-networking"),
            *("--disable-component-update", "--disable-sync"),
            f"--user-data-dir={tmp_path}",
            *("--virtual-time-budget=20000", "--dump-dom"),
            f"{(site / 'api/job.html').as_uri()}?q=allreduce",
        ],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert finished.returncode == 0, finished.stderr
    assert re.search(r"\d+ matching documents", finished.stdout)
    assert (
        "collectives.html?h=allreduce#keras_ring.allreduce" in finished.stdout
    )


def documented():
    """Returns what the reference has, in keras_ring."""
    return [
        name
        for page in (ROOT / "docs/api").glob("*.md")
        for name in re.findall(
            r"^::: keras_ring\.(\S+)$", page.read_text(), re.M
        )
    ]


def public():
    """Returns the names that a program may use."""
    values = {name: getattr(kr, name) for name in kr.__all__}
    del values["__version__"]
    for name, value in values.items():
        if not inspect.ismodule(value):
            # An operator is a member of `ReduceOp`, which is there.
            if not isinstance(value, kr.ReduceOp):
                yield name
            continue
        own = [
            inner
            for inner, each in vars(value).items()
            if inner[0] != "_"
            and getattr(each, "__module__", "") == value.__name__
        ]
        for inner in getattr(value, "__all__", own):
            yield f"{name}.{inner}"


def of(package):
    """Returns the names that a package of a framework does not share."""
    place = package.__name__.removeprefix("keras_ring.")
    return {f"{place}.{name}" for name in own_names(package)}


def test_the_reference_has_each_public_name_once():
    found = documented()
    assert len(found) == len(set(found))
    assert set(found) == {
        *public(),
        *of(core),
        *of(jax),
        *of(mxnet),
        *of(torch),
        "ray.run",
    }
