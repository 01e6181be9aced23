"""Collectives that go through MPI, alone and between hosts."""

import re
import sys

import pytest

from tests.engines.conftest import DIGITS, ROOT, weights
from tests.engines.mpis import MPIS
from tests.tiers import few

pytestmark = pytest.mark.timeout(150, func_only=True)
_PLANE = str(ROOT / "tests" / "engines" / "rank_mpi_plane.py")
_LOSS = str(ROOT / "tests" / "engines" / "rank_mpi_loss.py")
_THROUGH_MPI = {
    "KERAS_RING_COLLECTIVE": "mpi",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(params=few(MPIS, "engines"))
def mpi(request):
    return MPIS[request.param]


@pytest.mark.parametrize(
    "hosts", few(["aab", "aaa", "abc", "aabb", "abab"], "engines")
)
def test_collectives(jobs, mpi, hosts):
    """Hosts that are pretended: between them, MPI has one to send through."""
    size = len(hosts)
    done = jobs.run(
        mpi.run("-n", str(size), sys.executable, _PLANE, hosts),
        limit=120,
        **mpi.environment(),
        **_THROUGH_MPI,
    )
    assert done.returncode == 0, done.stderr
    ranks = sorted(re.findall(r"rank \d local=\S+", done.stdout))
    assert ranks == [
        f"rank {rank} local={hosts[:rank].count(host)}/{hosts.count(host)}"
        for rank, host in enumerate(hosts)
    ]


# How each launcher is told to let the other ranks live: they would not come to
# say why they end. MPICH's ends whoever is on the same host as a rank that a
# signal has ended, so each rank has a host to itself, as it thinks.
KEEP_GOING = {
    "mpich": (
        *("-disable-auto-cleanup", "-launcher", "fork"),
        *("-hosts", "localhost,127.0.0.1,127.0.0.2"),
    ),
    "openmpi 5": ("--with-ft", "ulfm"),
}


@pytest.mark.alone
@pytest.mark.parametrize("name", few(reversed(KEEP_GOING), "engines"))
@pytest.mark.parametrize("ending", few(["raise", "catch"], "engines"))
def test_a_rank_that_is_killed(jobs, tmp_path, name, ending):
    """All others say who, within a second, and end."""
    mpi = MPIS[name]
    words = (sys.executable, _LOSS, str(tmp_path / "told"), ending)
    done = jobs.run(
        mpi.run(*KEEP_GOING[name], "-n", "3", *words),
        limit=60,
        **mpi.environment(),
        **_THROUGH_MPI,
    )
    seen = sorted(tmp_path.glob("seen.*"))
    assert [file.name for file in seen] == ["seen.0", "seen.2"], done.stderr
    for file in seen:
        seconds, message = file.read_text().split(maxsplit=1)
        assert float(seconds) < 1.0
        assert "rank 1" in message


@pytest.mark.long("engines")
def test_ranks_that_mpi_has_not_started(jobs):
    done = jobs.run(
        [
            *(sys.executable, "-m", "keras_ring", "run", "-np", "2", "--"),
            *(sys.executable, "-c", "import keras_ring as kr; kr.init()"),
        ],
        **_THROUGH_MPI,
    )
    assert done.returncode == 1
    assert (
        "KERAS_RING_COLLECTIVE is 'mpi', but the ranks were not started by MPI"
    ) in done.stderr
    assert "`mpirun`" in done.stderr


@pytest.mark.long("engines")
def test_mpi_for_one_thread(jobs):
    mpi = MPIS["mpich"]
    program = (
        "import mpi4py; mpi4py.rc.thread_level = 'serialized'; "
        "import keras_ring as kr; kr.init()"
    )
    done = jobs.run(
        mpi.run("-n", "2", sys.executable, "-c", program),
        **mpi.environment(),
        **_THROUGH_MPI,
    )
    assert done.returncode != 0
    assert "on ranks 0, 1 MPI was started without" in done.stderr
    assert "mpi4py.rc.thread_level" in done.stderr


@pytest.mark.long("engines")
def test_training_on_hosts(lab, jobs, mpi):
    command = mpi.run(sys.executable, DIGITS, hosts="kr-h0:2,kr-h1:2")
    done = jobs.run(
        lab.on("h0", *command), limit=120, **mpi.environment(), **_THROUGH_MPI
    )
    assert done.returncode == 0, done.stderr
    assert len(set(weights(done.stdout))) == 1
    assert len(weights(done.stdout)) == 4
