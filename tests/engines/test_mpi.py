"""Ranks that mpirun has started: Open MPI 4 and 5, and MPICH."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.engines.conftest import DIGITS, SUMS, places, weights
from tests.engines.mpis import ENGINES, MPIS
from tests.tiers import few

pytestmark = pytest.mark.timeout(150, func_only=True)


@pytest.fixture(params=few(MPIS, "engines", 2))
def mpi(request):
    return MPIS[request.param]


@pytest.mark.parametrize("program", [SUMS])
def test_on_one_host(jobs, mpi, program):
    done = jobs.run(
        mpi.run("-n", "3", sys.executable, program), **mpi.environment()
    )
    assert done.returncode == 0, done.stderr
    ranks = [line.partition(" ")[2] for line in places(done.stdout)]
    assert ranks == [f"sum=3.0 local={r}/3 cross=0/1" for r in range(3)]


COMMUNICATOR = """
import sys
from mpi4py import MPI
import keras_ring as kr
half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2, -MPI.COMM_WORLD.rank)
for _ in range(2):
    kr.init(comm=half)
    # Highest rank of the world first.
    expected = (MPI.COMM_WORLD.size - 1 - MPI.COMM_WORLD.rank) // 2
    assert (kr.size(), kr.rank()) == (2, expected), (kr.size(), kr.rank())
    total = kr.allgather([MPI.COMM_WORLD.rank]).numpy().tolist()
    kr.shutdown()
print(f"half of {total}", flush=True)
"""


def test_communicator(jobs, tmp_path):
    """Two jobs in one mpirun, each of them twice."""
    script = tmp_path / "communicator.py"
    script.write_text(COMMUNICATOR)
    mpi = MPIS["mpich"]
    done = jobs.run(
        mpi.run("-n", "4", sys.executable, str(script)), **mpi.environment()
    )
    assert done.returncode == 0, done.stderr
    halves = re.findall(r"half of (\[.*?\])", done.stdout)
    assert sorted(halves) == ["[2, 0]"] * 2 + ["[3, 1]"] * 2


def test_mpi4py_of_another_mpi(jobs):
    """Would be as many jobs of one rank."""
    mpich, openmpi = MPIS["mpich"], MPIS["openmpi 5"]
    launch = mpich.run("-n", "2", sys.executable, SUMS)
    openmpi.run()
    done = jobs.run(
        launch,
        **mpich.environment(),
        MPI4PY_LIBMPI=str(ENGINES / "openmpi" / "lib" / "libmpi.so.40"),
        OPAL_PREFIX=str(ENGINES / "openmpi"),
    )
    assert done.returncode != 0
    assert "rank 0 of 2 that mpiexec (MPICH, Intel MPI) has" in done.stderr
    assert "mpi4py's COMM_WORLD has 1" in done.stderr
    assert "Open MPI v5" in done.stderr
    assert "sum=" not in done.stdout


def test_launcher_inside_of_a_communicator(jobs, tmp_path):
    mpich = MPIS["mpich"]
    mpich.needed()
    script = tmp_path / "communicator.py"
    script.write_text(COMMUNICATOR)
    done = jobs.run(
        [
            *(sys.executable, "-m", "keras_ring", "run", "-np", "2", "--"),
            *(sys.executable, "-c"),
            "from mpi4py import MPI; import keras_ring as kr; "
            "kr.init(comm=MPI.COMM_WORLD)",
        ],
        **mpich.environment(),
    )
    assert done.returncode == 1
    assert "`comm` has 1 processes, but KERAS_RING_SIZE is 2" in done.stderr


@pytest.mark.long("engines")
def test_a_rank_that_raises(jobs, mpi, tmp_path):
    script = tmp_path / "raises.py"
    script.write_text(
        "import keras_ring as kr\n"
        "kr.init()\n"
        "if kr.rank() == 1:\n"
        "    raise KeyError('of rank 1')\n"
        "kr.allreduce([1.0])\n"
    )
    done = jobs.run(
        mpi.run("-n", "3", sys.executable, str(script)), **mpi.environment()
    )
    assert done.returncode != 0
    assert "KeyError: 'of rank 1'" in done.stderr


@pytest.mark.long("engines")
def test_on_hosts(lab, jobs, mpi):
    command = mpi.run(sys.executable, SUMS, hosts="kr-h0:1,kr-h1:2")
    done = jobs.run(lab.on("h0", *command), **mpi.environment())
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == [
        "kr-h0 sum=3.0 local=0/1 cross=0/2",
        "kr-h1 sum=3.0 local=0/2 cross=1/2",
        "kr-h1 sum=3.0 local=1/2 cross=0/1",
    ]


@pytest.fixture(scope="module")
def on_one_host():
    """The weights of the same training by keras-ring run."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "keras_ring", "run", "-np", "2"),
            *("--threads", "1", "--", sys.executable, DIGITS),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    return set(weights(done.stdout))


@pytest.mark.long("engines")
def test_training_on_hosts(lab, jobs, mpi, on_one_host):
    threads = {
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = mpi.run(sys.executable, DIGITS, hosts="kr-h0:1,kr-h1:1")
    done = jobs.run(
        lab.on("h0", *command), limit=120, **mpi.environment(), **threads
    )
    assert done.returncode == 0, done.stderr
    sums = weights(done.stdout)
    assert len(sums) == 2
    assert set(sums) == on_one_host


def test_debians_is_what_it_is_said_to_be():
    if shutil.which("/usr/bin/mpiexec.openmpi") is None:
        pytest.skip("Debian's openmpi-bin is missing: make engines")
    told = subprocess.run(
        ["/usr/bin/mpiexec.openmpi", "--version"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert re.search(r"\) 4\.\d", told.stdout), told.stdout
