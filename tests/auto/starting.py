"""Starts an observed script: in one process, or on the ranks of a job."""

import dataclasses
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.auto import observe

SCRIPTS = Path(__file__).parent / "scripts"
_ROOT = Path(__file__).parents[2]
_LIMIT = 240.0 * float(os.environ.get("KERAS_RING_TEST_TIME_SCALE", "1"))
_ABOUT = "about.json"
_LATE = 124  # the exit status that `timeout` has


@dataclasses.dataclass(frozen=True)
class Run:
    """What came of a script.

    Args:
        folder: Where it was recorded; its files are below `work`.
        returncode: Of the process that was started; 124 if it ran too long.
        stdout: What it printed, as a terminal gets it.
        stderr: Likewise.
        ranks: Recordings of `observe`, by rank; None where there is none.
        seconds: How long it took.
    """

    folder: Path
    returncode: int
    stdout: str
    stderr: str
    ranks: list[dict[str, Any] | None]
    seconds: float

    @property
    def work(self) -> Path:
        return self.folder / observe.WORK


def start(
    script: Path,
    folder: Path,
    num_ranks: int | None = None,
    words: tuple[str, ...] = (),
    float64: bool = True,
    launcher_words: tuple[str, ...] = ("--auto",),
) -> Run:
    """Runs a script in a new folder; `num_ranks` None: without a launcher."""
    work = folder / observe.WORK
    work.mkdir(parents=True)
    command = [sys.executable, "-m"]
    if num_ranks is not None:
        command += ["keras_ring", "run", *launcher_words]
        command += ["-np", str(num_ranks), "--", sys.executable, "-m"]
    command += ["tests.auto.observe", str(folder), str(script), *words]
    environment = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **os.environ,
        "PYTHONPATH": f"{_ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        observe.FLOAT64_VARIABLE: str(int(float64)),
    }
    began = time.monotonic()
    with (
        open(folder / "stdout", "w+b") as out,
        open(folder / "stderr", "w+b") as err,
    ):
        process = subprocess.Popen(
            command, cwd=work, env=environment, stdout=out, stderr=err
        )
        try:
            returncode = process.wait(timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            # A launcher ends its ranks when it is asked to.
            process.terminate()
            process.wait(timeout=60)
            returncode = _LATE
    about = {
        "returncode": returncode,
        "num_ranks": num_ranks or 1,
        "seconds": time.monotonic() - began,
        "made_from": _made_from(script, words, float64),
    }
    (folder / _ABOUT).write_text(json.dumps(about))
    return read(folder)


def read(folder: Path) -> Run:
    """Returns what `start` has recorded in this folder."""
    about = json.loads((folder / _ABOUT).read_text())
    return Run(
        folder,
        about["returncode"],
        (folder / "stdout").read_text(errors="backslashreplace"),
        (folder / "stderr").read_text(errors="backslashreplace"),
        [_recording(folder, rank) for rank in range(about["num_ranks"])],
        about["seconds"],
    )


def start_once(script: Path, folder: Path, float64: bool) -> Run:
    """Runs it in one process; or returns that run, if nothing has changed."""
    about = folder / _ABOUT
    if about.exists():
        made_from = json.loads(about.read_text())["made_from"]
        if made_from == _made_from(script, (), float64):
            return read(folder)
        shutil.rmtree(folder)
    return start(script, folder, float64=float64)


def _made_from(script: Path, words: tuple[str, ...], float64: bool) -> str:
    digest = hashlib.sha256(repr((words, float64)).encode())
    for path in (script, Path(observe.__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _recording(folder: Path, rank: int) -> dict[str, Any] | None:
    path = folder / f"rank.{rank}.pickle"
    return pickle.loads(path.read_bytes()) if path.exists() else None
