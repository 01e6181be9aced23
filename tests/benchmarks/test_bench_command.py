"""`keras-ring bench` as it is typed, on two ranks and alone."""

import json
import sys
from pathlib import Path

import pytest

from keras_ring.bench import table
from tests.benchmarks.command import run
from tests.harness import ANY, RanksFailed, run_ranks
from tests.tiers import few

QUICK = ("--iterations=3", "--warmup=1")


def bench(num_ranks, *words):
    """Runs it; returns the lines of rank 0 without their prefix."""
    command = ("-m", "keras_ring", "bench", *words, *QUICK)
    if num_ranks:
        launcher = ("-m", "keras_ring", "run", "-np", num_ranks, "--")
        # Beside `python -m keras_ring` there is no script to be looked for.
        command = (*launcher, sys.executable, *command)
    done = run(*command)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    if num_ranks:
        assert all(line.startswith("[0] ") for line in lines), lines
        lines = [line.removeprefix("[0] ") for line in lines]
    return lines


def test_what_a_processor_takes():
    done = run("-m", "keras_ring", "bench", "processor")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    values = dict(line.split() for line in lines[: lines.index("")])
    assert values.keys() == {
        *("message_us", "send_ns_per_byte", "receive_ns_per_byte"),
        *("memory_gb_per_s", "host_memory_gb_per_s"),
    }
    # A copy in memory is not that slow, and loopback not that quick.
    assert float(values["memory_gb_per_s"]) > 0.05
    assert 0.001 < float(values["receive_ns_per_byte"]) < 1000
    words = " ".join(f"{name}={value}" for name, value in values.items())
    assert lines[-1] == f"  {words}"


def test_a_processor_is_measured_without_ranks():
    command = (sys.executable, "-m", "keras_ring", "bench", "processor")
    done = run("-m", "keras_ring", "run", "-np", "2", "--", *command)
    assert done.returncode == 1
    assert "2 ranks on it would disturb each other" in done.stderr


def test_a_table_from_two_ranks():
    lines = bench(
        2, "allreduce", "--max-bytes=64KiB", "--factor=1024", "--explain"
    )
    how, why, empty, first, header, *rows = lines
    assert how == "2 ranks of one host, through shared memory"
    assert why.startswith("an allreduce is done in one shot up to 131072")
    assert not empty
    assert first == "2 ranks, float32, Average; bandwidths in GB/s"
    assert header == table.HEADER
    assert [row.split()[:5] for row in rows] == [
        ["allreduce", "4", "B", "4", "1"],
        ["allreduce", "4", "KiB", "4096", "1"],
    ]
    assert all(row.endswith(" ok") for row in rows)


@pytest.mark.long("benchmarks")
def test_json_from_two_ranks():
    lines = bench(
        *(2, "grouped", "--json", "--tensors=2,30", "--bytes=6000KiB"),
        *("--dtype=bfloat16", "--op=Max"),
    )
    records = [json.loads(line) for line in lines]
    assert [record["num_tensors"] for record in records] == [2, 30]
    for record in records:
        assert record["system"] == "keras_ring"
        assert record["size"] == 2
        assert record["iterations"] == 3
        assert record["num_bytes"] == 6000 << 10
        assert (record["dtype"], record["op"]) == ("bfloat16", "Max")
        assert record["check"] == "ok"
        assert 0 < record["p10_us"] <= record["median_us"] <= record["p90_us"]
        assert record["busbw_gb_s"] == pytest.approx(
            6000 * 1024 / record["median_us"] / 1e3, rel=1e-2, abs=1e-4
        )
        assert record["cpu_us"] > 0
        # Of smaller tensors it may be less than what else becomes free.
        assert record["memory_extra_bytes"] > 6000 << 10
        assert record["control_bytes"] > 0


# What is reduced is compared with what it has to be.
@pytest.mark.long("benchmarks")
def test_gradients_of_two_ranks():
    lines = bench(2, "step", "many_small", "--json", "--api=gradients")
    (record,) = map(json.loads, lines)
    assert (record["size"], record["num_tensors"]) == (2, 1000)
    assert record["system"] == "keras_ring, as gradients"
    assert record["check"] == "ok"


@pytest.mark.parametrize(
    "api", few(["keras_ring", "none"], "benchmarks", keep=0)
)
def test_alone(api):
    (line,) = bench(
        0, "step", "many_small", "--fresh", "--json", f"--api={api}"
    )
    record = json.loads(line)
    assert (record["size"], record["num_tensors"]) == (1, 1000)
    assert record["case"] == "many_small fresh"
    assert record["system"] == api


@pytest.mark.long("benchmarks")
def test_a_wrong_result_is_an_error():
    words = ("step", "many_small", *QUICK)
    script = Path(__file__).with_name("rank_wrong.py")
    with pytest.raises(RanksFailed) as failed:
        run_ranks(script, 2, args=words, deadline=90, expect={1: ANY})
    rank = failed.value.result.ranks[0]
    assert rank.exit_code == 1
    assert (
        "keras-ring: error: wrong result: many_small: tensor 0 of 1000 is "
        "wrong in 256 of 256 elements" in rank.stderr
    )
    assert " ok" not in rank.stdout
