"""What is said of mistakes: the programs and the lines of docs/mistakes.md."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import few

PAGE = (Path(__file__).parents[2] / "docs/mistakes.md").read_text()
PRELUDE, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@dataclasses.dataclass(frozen=True)
class Mistake:
    title: str
    setting: str
    program: str
    lines: tuple[str, ...]

    def __str__(self):
        return self.title


MISTAKES = [
    Mistake(title, setting, program, tuple(lines.splitlines()))
    for title, setting, program, lines in re.findall(
        r"^## (.*?)\n.*?```python ?(\w*)\n(.*?)```\n\n```text\n(.*?)```",
        PAGE,
        re.S | re.M,
    )
]
ENVIRONMENTS = {
    "": {},
    # As torchrun sets them.
    "torchrun": {
        "WORLD_SIZE": "2",
        "RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    },
    "variables": {
        "KERAS_RING_STAL_CHECK_TIME": "5",
        "HOROVOD_FUSION_THRESHOLD": "0",
    },
}


def test_all_of_them_are_found():
    assert len(MISTAKES) == PAGE.count("\n## ") == 14


@pytest.mark.parametrize("mistake", few(MISTAKES, "examples", keep=3), ids=str)
def test_what_is_said(tmp_path, mistake):
    script = tmp_path / "train.py"
    script.write_text(PRELUDE + mistake.program)
    command = [sys.executable, str(script)]
    if mistake.setting != "torchrun":
        run = ("-m", "keras_ring", "run", "-np", "2", "--")
        command = [sys.executable, *run, *command]
    result = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **ENVIRONMENTS[mistake.setting],
        },
    )
    at = 0
    for line in mistake.lines:
        found = result.stdout.find(line, at)
        assert found >= 0, f"{line}\nis not in\n{result.stdout[-5000:]}"
        at = found + len(line)
