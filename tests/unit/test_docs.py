"""The pages say what is so: examples run, generated pages are current."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import few

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()

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


def code_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_readme_has_a_before_and_an_after():
    assert len(code_blocks("python")) == 2


@pytest.mark.gate
@pytest.mark.parametrize("num_ranks", few([2, 1, 0], "examples"))
def test_readme_examples(tmp_path, num_ranks):
    """Number 0: the program before, without keras_ring."""
    before, after = code_blocks("python")
    script = tmp_path / "train.py"
    script.write_text(PRELUDE + (after if num_ranks else before) + EPILOGUE)
    command = [sys.executable, str(script)]
    if num_ranks > 1:
        shell = code_blocks("sh")[1].strip().splitlines()[-1]
        assert shell == "keras-ring run -np 4 -- python train.py"
        command = [
            *(sys.executable, "-m", "keras_ring", "run"),
            *("-np", str(num_ranks), "--", *command),
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


def test_readme_links_and_examples_exist():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
    for name in re.findall(r"\| `(\w+\.py)` \|", README):
        assert (ROOT / "examples" / name).exists(), name
    for target in re.findall(r"^make ([\w-]+)", README, re.M):
        assert f"\n{target}:" in (ROOT / "Makefile").read_text(), target


@pytest.mark.parametrize("name", ["environment", "collectives"])
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


def test_the_ci_runs_what_the_readme_says():
    assert re.search(r"^make test$", (ROOT / ".ci/run").read_text(), re.M)
