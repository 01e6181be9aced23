"""Benchmarks between hosts, those of the lab, with little to do."""

import json
import sys

import pytest

from benchmarks.hosting import figures as figures_module
from benchmarks.hosting.figures import FLOOR, OURS, Figures, Place
from tests.benchmarks.command import run, run_command
from tests.lab import lab as lab_module

pytestmark = [
    pytest.mark.long("benchmarks"),
    # Another file may have the lab for a while.
    pytest.mark.timeout(400, func_only=True),
]


@pytest.fixture(autouse=True, scope="module")
def _there_are_hosts():
    if why := lab_module.missing():
        pytest.skip(why)


def bench(lab, *words):
    """Runs `keras-ring bench` on three ranks of two hosts."""
    done = run_command(
        lab.run(
            *("kr-h0:2,kr-h1:1", "--", sys.executable, "-m", "keras_ring"),
            *("bench", *words, "--iterations=2", "--warmup=1"),
        )
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    return [
        line.removeprefix("[0] ") for line in lines if line.startswith("[0] ")
    ]


def test_the_bound_of_the_link():
    with lab_module.lab(2) as lab:
        lab("up", "2", "--rate", "1gbit")
        first, second, header, row = bench(
            lab, "allreduce", "--min-bytes=1MiB", "--max-bytes=1MiB"
        )
        assert first.startswith("3 ranks on 2 hosts, float32, Average")
        rate = float(second.partition(" at once: ")[2].partition(" GB/s")[0])
        # 1 Gbit/s less what headers take.
        assert 0.08 < rate < 0.125
        assert header.endswith("bound us  x bound CPU s/GB control B check")
        bound = float(row.split()[-5])
        assert bound == pytest.approx(2**20 / rate / 1e3, rel=0.02)

        (line,) = bench(
            *(lab, "step", "many_small", "--compression=bf16", "--json")
        )
        record = json.loads(line)
        assert record["case"] == "many_small bf16"
        assert (record["hosts"], record["size"]) == (2, 3)
        assert record["wire_bytes"] == record["num_bytes"] / 2
        assert record["link_bound_us"] == pytest.approx(
            record["wire_bytes"] / record["link_gb_s"] / 1e3, rel=0.01
        )
        assert record["link_ratio"] == pytest.approx(
            record["median_us"] / record["link_bound_us"], rel=0.01
        )


def test_ours_and_the_floor(tmp_path):
    kept = tmp_path / "kept.json"
    done = run(
        *("-m", "benchmarks.hosts", "--hosts=2x1,1x2", "--links=1gbit"),
        *("--cases=4B,64KiB:bf16", "--rounds=1", "--iterations=3"),
        *(f"--systems={FLOOR};{OURS};torch gloo", f"--out={kept}"),
        deadline=240.0,
    )
    assert done.returncode == 0, done.stderr
    measured, absent, failures = figures_module.from_json(kept.read_text())
    assert failures == []
    assert absent == {"torch gloo": "no --torch-python given"}
    figures = Figures(measured)
    for place in (Place("2x1", "1gbit"), Place("1x2", "1gbit")):
        assert figures.cases(place) == ["4B", "64KiB:bf16"]
        assert figures.systems(place) == [FLOOR, OURS]
        assert figures.median_us(place, "64KiB:bf16", FLOOR) is None
        assert f"## {place}" in done.stdout
    (rate,) = figures.tcp_gb_s(Place("2x1", "1gbit"))
    assert 0.08 < rate < 0.125
    assert figures.tcp_gb_s(Place("1x2", "1gbit")) == []
    assert not lab_module.Lab("")("status").startswith("kr-h0")


def test_options_of_sockets():
    done = run(
        *("-m", "benchmarks.socket_options", "--rate=1gbit"),
        *("--rounds=1", "--seconds=0.3"),
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()[2:]]
    assert [row[0].strip() for row in rows] == [
        *("plain", "zerocopy", "busy poll")
    ]
    for row in rows:
        rate, sender, receiver = map(float, row[1:4])
        # What is in buffers at the end counts as sent.
        assert 0.05 < rate < 0.5
        assert sender > 0
        assert receiver > 0
