"""The pages say what is so: examples run, generated pages are current."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keras_ring as kr
from keras_ring.core import native
from tests.documented import blocks
from tests.tiers import few
from tools import generate_architecture

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()

# A link to a file of the project, and to a heading in it.
_LINK = r"\]\((?!https?:)([^)#:]+)(#?)([^)]*)\)"

# What the README's examples leave to the reader.
PRELUDE = """
import keras
import numpy as np

def make_model():
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.layers.Dense(1)])

x = np.linspace(0.0, 1.0, 640, dtype="float32").reshape(-1, 1)
y = 3.0 * x + 1.0
"""
EPILOGUE = """
print("weights", model.get_weights()[0].tolist())
"""


def test_the_readme_has_a_before_and_an_after():
    assert len(blocks(README, "python")) == 2


@pytest.mark.gate
@pytest.mark.parametrize(
    ("option", "num_ranks"),
    few([("", 2), ("--auto ", 2), ("", 1), ("", 0)], "examples", keep=2),
)
def test_readme_examples(tmp_path, option, num_ranks):
    """Number 0, and `--auto`: the program before, without keras_ring."""
    before, after = blocks(README, "python")
    script = tmp_path / "train.py"
    program = after if num_ranks and not option else before
    script.write_text(PRELUDE + program + EPILOGUE)
    command = [sys.executable, str(script)]
    if num_ranks > 1:
        shell = f"keras-ring run {option}-np 4 -- python train.py"
        assert f"{shell}\n" in blocks(README, "sh")
        command = [
            *(sys.executable, "-m", "keras_ring", "run", *option.split()),
            *("-np", str(num_ranks), "--stdout", "all", "--", *command),
        ]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert result.returncode == 0, result.stderr
    weights = re.findall(r"weights (.*)", result.stdout)
    assert len(weights) == max(1, num_ranks)
    assert len(set(weights)) == 1


@pytest.mark.parametrize(
    "name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
)
def test_what_the_pages_of_the_root_name_exists(name):
    page = (ROOT / name).read_text()
    for target, _, anchor in re.findall(_LINK, page):
        assert (ROOT / target).exists(), target
        if anchor:
            heading = "# " + anchor.replace("-", " ")
            assert heading in (ROOT / target).read_text().lower(), anchor
    for target in re.findall(r"^make ([\w-]+)", page, re.M):
        assert f"\n{target}:" in (ROOT / "Makefile").read_text(), target


def test_the_version_has_one_source():
    cited = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {kr.__version__}\n" in cited
    assert kr.__version__ in (ROOT / "CHANGELOG.md").read_text()


def test_all_examples_are_listed():
    page = (ROOT / "examples/README.md").read_text()
    listed = re.findall(r"^\| `(\w+\.py)` \|", page, re.M)
    assert sorted(listed) == sorted(
        path.name for path in (ROOT / "examples").glob("*.py")
    )


@pytest.mark.parametrize(
    "name", ["environment", "collectives", "metrics", "command_line"]
)
def test_generated_pages_are_current(tmp_path, name):
    page = tmp_path / f"{name}.md"
    subprocess.run(
        [sys.executable, f"tools/generate_{name}_page.py", str(page)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=60,
    )
    assert page.read_text() == (ROOT / f"docs/{name}.md").read_text(), (
        "run `make docs`"
    )


def test_the_architecture_shows_the_tables_of_rooms_and_events():
    text = (ROOT / "docs/architecture.md").read_text()
    assert generate_architecture.page(text) == text, "run `make docs`"
    assert generate_architecture.BEGIN in text
    assert generate_architecture.BEGIN_EVENTS in text
    image = (ROOT / "docs/images/architecture.svg").read_text()
    assert generate_architecture.drawing() == image, "run `make docs`"


def test_the_drawing_has_every_folder():
    boxes = generate_architecture.uses_of_boxes()
    folders = {
        path.parent.name for path in (ROOT / "keras_ring").glob("*/__init__.py")
    }
    assert folders < {*boxes}
    assert "keras" not in boxes["core"]
    assert "core" in boxes["tensorflow"]


def test_a_change_begins_at_a_path_that_exists():
    text = (ROOT / "docs/architecture.md").read_text()
    _, _, section = text.partition("## Where a change begins\n")
    section, _, _ = section.partition("\n## ")
    rows = re.findall(r"^\| (.*?) \| (.*?) \| .*\|$", section, re.MULTILINE)
    begins = {
        what: re.findall(r"`([\w/.]+/[\w/.]+)`", cell)
        for what, cell in rows[1:]
    }
    assert len(begins) >= 13
    for what, paths in begins.items():
        assert paths, what
        for path in paths:
            assert (ROOT / path).exists(), (what, path)


def test_the_ci_runs_what_the_readme_says():
    assert re.search(r"^make test$", (ROOT / ".ci/run").read_text(), re.M)


def _sources():
    """Returns the source files and the text of all of them."""
    files = [
        path
        for folder in ("csrc", "tf_ops", "xla_ops", "keras_ring")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".cc", ".h")
    ]
    return "\n".join(path.read_text() for path in files)


def test_the_glossary_is_of_what_there_is():
    rows = re.findall(
        r"^\| ([a-z].*?) \| .* \| (.*?) \| .*\|$",
        (ROOT / "docs/glossary.md").read_text(),
        re.M,
    )[1:]
    terms = [term for term, _ in rows]
    assert len(terms) > 30
    assert terms == sorted(terms, key=lambda term: term.replace("-", " "))
    words = set(re.findall(r"\w+", _sources()))
    for term, place in rows:
        (name, *_) = re.findall(r"`([^`]+)`", place)
        if "/" in name:
            assert (ROOT / name).exists(), term
        else:
            assert name in words, term


@pytest.mark.parametrize(
    "page",
    sorted(
        str(path.relative_to(ROOT / "docs"))
        for path in (ROOT / "docs").rglob("*.md")
    ),
)
def test_files_that_a_page_names_exist(page):
    """From the top, from csrc, keras_ring or tests, or the name alone."""
    names = {
        path.name
        for folder in (
            "csrc",
            "keras_ring",
            "tests",
            "tf_ops",
            "xla_ops",
            "benchmarks",
        )
        for path in (ROOT / folder).rglob("*.*")
    } | {path.name for path in ROOT.glob("tools/**/*.*")}
    names |= {path.name for path in (ROOT / "examples").iterdir()}
    starts = [ROOT / each for each in ("", "csrc", "keras_ring", "tests")]
    text = (ROOT / "docs" / page).read_text()
    for name in re.findall(r"`([\w/.]+\.(?:py|cc|h|sh|bzl))`", text):
        if "NAME" in name:
            continue
        if "/" in name:
            assert any((start / name).exists() for start in starts), name
        else:
            # The second one is what a reader is to write.
            assert name in names | {"setup.py", "train.py"}, name


def test_metrics_says_which_there_are():
    keys = {row[0] for row in native.core().describe_metrics()}
    named = set(re.findall(r"`(\w+)`", kr.metrics.__doc__)) - {"init"}
    assert keys == named
