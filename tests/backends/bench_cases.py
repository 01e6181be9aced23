"""`keras-ring bench` measures and checks collectives of a framework."""

import json
import re
import sys

import pytest

from tests.harness import examples

QUICK = ("--iterations=2", "--warmup=1")


def bench(num_ranks, *words):
    command = ("-m", "keras_ring", "bench", *words, *QUICK)
    if num_ranks > 1:
        launcher = ("-m", "keras_ring", "run", "-np", num_ranks, "--")
        command = (*launcher, sys.executable, *command)
    return examples.run(*command)


class BenchCases:
    """Tests of the framework `NAME`."""

    @pytest.mark.parametrize(
        "words",
        [
            ("allreduce", "--max-bytes=64KiB", "--factor=256"),
            ("allreduce", "--max-bytes=4KiB", "--dtype=bfloat16", "--op=Sum"),
            ("allreduce", "--max-bytes=4KiB", "--dtype=int64", "--op=Max"),
            ("allreduce", "--max-bytes=4KiB", "--compression=fp16"),
            ("grouped", "--tensors=1,10", "--bytes=64KiB"),
            ("step", "many_small", "--fresh"),
            ("step", "many_small", "--api=none"),
        ],
        ids=" ".join,
    )
    def test_results_are_right(self, words):
        done = bench(2, *words, f"--framework={self.NAME}", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        lines = re.findall(r"^(?:\[0\] )?(\{.*\})$", done.stdout, re.M)
        assert lines
        for record in map(json.loads, lines):
            assert record["size"] == 2
            assert record["median_us"] > 0

    def test_the_framework_that_there_is_needs_no_word(self):
        done = bench(1, "allreduce", "--max-bytes=4")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 rank, float32, Average" in done.stdout

    def test_what_is_not_there_is_an_error(self):
        done = bench(1, "allreduce", "--framework=tensorflow")
        assert done.returncode == 1
        assert f"has no tensorflow: it has {self.NAME} of" in done.stderr
        done = bench(1, "step", "--api=gradients")
        assert done.returncode == 1
        assert "--api gradients is there on tensorflow alone" in done.stderr
