"""The benchmarks in C++ run; `make test-cpp` has built them."""

import json
import re
import subprocess
import sys

import pytest

from tests.benchmarks.command import ROOT

CORE = ROOT / "build/core/benchmarks/core_benchmark"
RENDEZVOUS = CORE.with_name("rendezvous_benchmark")
SCALE = CORE.with_name("scale_benchmark")

pytestmark = pytest.mark.skipif(
    not CORE.exists(), reason="`make test-cpp` has not built it"
)


def test_the_core_alone():
    done = subprocess.run(
        [
            *(sys.executable, "-m", "keras_ring", "run", "-np", "2", "--"),
            *(str(CORE), "20", "4", "65536"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[1] for row in rows if row[0] == "[0]"] == ["4", "65536"], rows


def rendezvous(ranks, limit):
    command = f"ulimit {limit}; exec {RENDEZVOUS} {ranks} 8"
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60
    )


def test_many_ranks_meet():
    """More than the soft limit of open files lets in."""
    done = rendezvous(400, "-Sn 256")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^started +[0-9.]+ s$", done.stdout, re.M)
    # To each host once, which has its name in it once.
    connections, megabytes = re.search(
        r"(\d+) connections to rank 0, ([0-9.]+) MB from it", done.stdout
    ).groups()
    assert int(connections) == 50
    assert float(megabytes) < 50 * 400 * 30 / 1e6


def test_open_files_that_are_not_enough():
    done = rendezvous(400, "-n 256")
    assert done.returncode != 0
    needed = re.search(
        r"rank 0 of a job of 400 needs (\d+) open files, and this process may "
        r"have 256; raise the hard limit",
        done.stderr,
    )
    assert int(needed[1]) > 400, done.stderr


def scale(*words, timeout=120):
    return subprocess.run(
        [SCALE, *words], capture_output=True, text=True, timeout=timeout
    )


def test_hosts_that_are_not_there():
    done = scale("allreduce", "8", "2", "4194304", "gbit_per_s=1")
    assert done.returncode == 0, done.stderr
    seconds, bound = re.match(
        r"([0-9.]+) ms, bound ([0-9.]+) ms, \d+ sends$", done.stdout
    ).groups()
    assert float(bound) <= float(seconds) < 1.1 * float(bound)
    assert scale("allreduce", "8", "2", "4", "rate=1").returncode == 2


def test_a_step_with_noise():
    words = ("step", "8", "2", "4194304", "long_per_s=50", "runs=8")
    done = scale(*words)
    assert done.returncode == 0, done.stderr
    median, bound, worst = re.match(
        r"([0-9.]+) ms, bound ([0-9.]+) ms, \d+ sends,"
        r" p99 ([0-9.]+) ms of 8 runs$",
        done.stdout,
    ).groups()
    assert float(bound) < float(median) < float(worst)
    assert scale(*words).stdout == done.stdout


def test_the_simulation_takes_what_is_measured_of_processors():
    bench = (sys.executable, "-m", "keras_ring", "bench", "processor")
    measured = json.loads(
        subprocess.run(
            [*bench, "--json"], capture_output=True, check=True, timeout=60
        ).stdout
    )
    assert all(value > 0 for value in measured.values())
    words = [f"{name}={value}" for name, value in measured.items()]
    done = scale("allreduce", "4", "2", "4194304", *words)
    assert done.returncode == 0, done.stderr


@pytest.mark.long("benchmarks")
@pytest.mark.timeout(1200)
def test_the_tables_of_the_page():
    # Alone on a core it takes five minutes.
    done = scale("tables", timeout=1100)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs/scale.md").read_text()
    # Those of allreduces are the same on each machine.
    tables = done.stdout.partition("## Agreement")[0]
    assert tables.strip() in page, "run `make scale`"
