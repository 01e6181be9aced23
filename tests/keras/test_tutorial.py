"""The tutorial, as a reader works through it: its files and its commands."""

import dataclasses
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/tutorial.md").read_text()
# In CI, tools/test_package.sh installs.
INSTALLATION = 'pip install ".[examples,report,top]"'


@dataclasses.dataclass(frozen=True)
class Block:
    language: str
    about: str
    text: str

    @property
    def file(self):
        return re.fullmatch(r'title="([\w.]+)".*', self.about)[1]


BLOCKS = [
    Block(*found)
    for found in re.findall(r"^```(\w*) ?(.*)\n((?s:.*?))^```$", PAGE, re.M)
]


def run(commands, folder):
    commands = "\n".join(
        line for line in commands.splitlines() if line != INSTALLATION
    )
    environment = Path(sys.executable).parent
    return subprocess.run(
        ["sh", "-ec", commands],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        env={
            **os.environ,
            "PATH": f"{environment}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
    )


def masked(line):
    """How well a model has learned is not the same on every processor."""
    return re.sub(r"0\.\d\d$", "0.##", line)


def check_output(finished, expected):
    shown = [masked(line) for line in finished.stdout.splitlines()]
    for line in expected.splitlines():
        assert masked(line) in shown, f"{line}\nis not in\n{finished.stdout}"


def work_through(blocks, folder):
    """Writes the files, types the commands, and compares what is printed."""
    finished = None
    for block in blocks:
        if block.language == "python":
            (folder / block.file).write_text(block.text)
        elif block.language == "sh":
            finished = run(block.text, folder)
            failed = finished.returncode != 0
            assert failed == (block.about == "fails"), finished.stdout
        else:
            check_output(finished, block.text)
    return finished


def test_each_block_is_run():
    # Each fence opens or ends one of them.
    assert 2 * len(BLOCKS) == len(re.findall(r"^ *```", PAGE, re.M))
    assert {block.language for block in BLOCKS} == {"python", "sh", "text"}
    for block, after in itertools.pairwise(BLOCKS):
        if block.language == "sh":
            assert after.language == "text", block
        if block.language == "python":
            assert block.file, block


def test_marked_lines_are_those_that_change():
    before, after = (
        block for block in BLOCKS if block.about.startswith('title="train.py"')
    )
    (marks,) = re.findall(r'hl_lines="(.*)"', after.about)
    marked = set()
    for each in marks.split():
        first, _, last = each.partition("-")
        marked |= set(range(int(first), int(last or first) + 1))
    old, new = before.text.splitlines(), after.text.splitlines()
    changed = {n for n, line in enumerate(new, 1) if line and line not in old}
    assert marked == changed


@pytest.mark.gate
def test_two_ranks(tmp_path):
    """What a reader needs of the tutorial to get to two ranks."""
    command = "keras-ring run -np 2 -- python train.py\n"
    program = [block for block in BLOCKS if block.language == "python"][1]
    (at,) = (i for i, block in enumerate(BLOCKS) if block.text == command)
    work_through([program, *BLOCKS[at : at + 2]], tmp_path)


@pytest.mark.timeout(600)
@pytest.mark.long("examples")
def test_all_of_it(tmp_path):
    work_through(BLOCKS, tmp_path)
