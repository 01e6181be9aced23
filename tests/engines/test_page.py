"""What docs/engines shows, as it stands in mpi.md, slurm.md and ray.md."""

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.documented import blocks, docstring_examples
from tests.engines.conftest import ROOT
from tests.engines.mpis import MPIS
from tests.engines.test_ray import CLUSTER
from tests.lab import slurm as slurm_module

pytestmark = [
    pytest.mark.timeout(150, func_only=True),
    pytest.mark.long("engines"),
]
PAGES = ROOT / "docs" / "engines"


def of_page(name, language, word=""):
    """Returns the blocks of a page that have a word in them, in order."""
    found = blocks((PAGES / name).read_text(), language)
    return [block.strip() for block in found if word in block]


@pytest.fixture
def folder(tmp_path):
    (program,) = of_page("mpi.md", "python", "model.fit")
    (tmp_path / "train.py").write_text(program)
    return tmp_path


def check_training(done, hosts):
    """What the pages say is shown of a job of four ranks."""
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (who,) = (line for line in lines if "keras_ring: 4 ranks on " in line)
    assert f"on {hosts} host" in who
    (part,) = (line for line in lines if "keras_ring: data: " in line)
    assert part.endswith("1,600 of 6,400 samples on each rank")


def in_folder(folder, command):
    # It may begin with variables.
    return ["sh", "-c", f"cd {folder} && exec env {command}"]


@pytest.mark.parametrize("command", of_page("mpi.md", "sh", "mpirun -np"))
def test_mpirun(jobs, folder, command):
    mpi = MPIS["mpich"]
    mpi.run()
    variables = mpi.environment()
    # Where a user who has activated it finds `python`.
    environment = Path(sys.executable).parent
    variables["PATH"] = f"{environment}:{variables['PATH']}"
    done = jobs.run(in_folder(folder, command), **variables)
    check_training(done, 1)


def test_communicator(jobs, folder):
    mpi = MPIS["mpich"]
    (code,) = of_page("mpi.md", "python", "Split")
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
    step, allocated = of_page("slurm.md", "sh", "train.py")
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
            check_training(done, 2)


def test_ray(jobs, folder):
    pytest.importorskip("ray")
    (code,) = of_page("ray.md", "python")
    *_, results = on_ray(jobs, folder, code).splitlines()
    ranks, accuracies = zip(*ast.literal_eval(results), strict=True)
    assert ranks == (0, 1, 2, 3)
    assert len(set(accuracies)) == 1


def test_ray_of_the_docstring(jobs, folder):
    pytest.importorskip("ray")
    (code,) = [
        each.code for each in docstring_examples() if each.name == "kr.ray.run"
    ]
    before = "import keras_ring as kr\nloss = 0.5\n"
    expected = str([(rank, 0.5) for rank in range(4)])
    assert expected in on_ray(jobs, folder, before + code)


def on_ray(jobs, folder, code):
    """Returns what a program prints, and its results."""
    script = folder / "cluster.py"
    script.write_text(CLUSTER.replace("num_cpus=2", "num_cpus=4"))
    process = jobs.start([sys.executable, str(script)], with_input=True)
    out, err = process.communicate(code + "\nprint(results)", timeout=120)
    assert process.returncode == 0, err
    return out


def test_template(folder):
    from tests.engines.test_templates import template

    page = (ROOT / "docs" / "launching.md").read_text()
    (command,) = (b for b in blocks(page, "sh") if "template" in b)
    program, verb, *words = command.split()
    assert (program, verb) == ("keras-ring", "template")
    assert "#SBATCH --ntasks-per-node=4" in template(*words)
