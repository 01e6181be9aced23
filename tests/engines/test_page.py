"""What docs/launching.md shows of engines, as it stands there."""

import re
import sys
from pathlib import Path

import pytest

from tests.engines.conftest import ROOT
from tests.engines.mpis import MPIS
from tests.engines.test_ray import CLUSTER
from tests.lab import slurm as slurm_module

pytestmark = [
    pytest.mark.timeout(150, func_only=True),
    pytest.mark.long("engines"),
]
TRAIN = """
import os
import keras_ring as kr
kr.init()
os.write(1, f"trained {kr.rank()}/{kr.size()}\\n".encode())
"""


def blocks(section, language):
    """Returns the blocks of a section, in order."""
    page = (ROOT / "docs" / "launching.md").read_text()
    (text,) = re.findall(rf"^## {section}$(.*?)(?=^## |\Z)", page, re.M | re.S)
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    return [block.strip() for block in found]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def in_folder(folder, command):
    # It may begin with variables.
    return ["sh", "-c", f"cd {folder} && exec env {command}"]


@pytest.mark.parametrize("command", blocks("By mpirun", "sh"))
def test_mpirun(jobs, folder, command):
    mpi = MPIS["mpich"]
    mpi.run()
    variables = mpi.environment()
    # Where a user who has activated it finds `python`.
    environment = Path(sys.executable).parent
    variables["PATH"] = f"{environment}:{variables['PATH']}"
    done = jobs.run(in_folder(folder, command), **variables)
    assert done.returncode == 0, done.stderr
    ranks = sorted(re.findall(r"trained (\d)/4", done.stdout))
    assert ranks == ["0", "1", "2", "3"]


def test_communicator(jobs, folder):
    mpi = MPIS["mpich"]
    (code,) = blocks("By mpirun", "python")
    script = folder / "half.py"
    script.write_text(code + "\nprint('size', kr.size(), flush=True)\n")
    done = jobs.run(
        mpi.run("-np", "4", sys.executable, str(script)), **mpi.environment()
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall("size 2", done.stdout)) == 4


def test_slurm(lab, jobs, folder):
    if why := slurm_module.missing():
        pytest.skip(why)
    step, allocated = blocks("By Slurm", "sh")
    with slurm_module.slurm(lab, ["h0", "h1"]) as slurm:
        for command in (
            step,
            "salloc -N2 --ntasks-per-node=2 "
            + allocated.replace(
                "keras-ring", f"{sys.executable} -m keras_ring"
            ),
        ):
            slurm.wait_until_idle()
            command = command.replace(" python ", f" {sys.executable} ")
            done = jobs.run(
                slurm.on_h0("sh", "-c", f"cd {folder} && exec {command}")
            )
            assert done.returncode == 0, done.stderr
            ranks = sorted(re.findall(r"trained (\d)/4", done.stdout))
            assert ranks == ["0", "1", "2", "3"]


def test_ray(jobs, folder):
    pytest.importorskip("ray")
    (code,) = blocks("By Ray", "python")
    script = folder / "cluster.py"
    script.write_text(CLUSTER.replace("num_cpus=2", "num_cpus=4"))
    process = jobs.start([sys.executable, str(script)], with_input=True)
    out, err = process.communicate(code + "\nprint(results)", timeout=120)
    assert process.returncode == 0, err
    assert "[0, 1, 2, 3]" in out


def test_template(folder):
    from tests.engines.test_templates import template

    (command,) = blocks("Files to begin with", "sh")
    program, verb, *words = command.split()
    assert (program, verb) == ("keras-ring", "template")
    assert "#SBATCH --ntasks-per-node=4" in template(*words)
