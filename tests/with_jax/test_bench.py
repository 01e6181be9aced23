"""`keras-ring bench` on JAX."""

from tests.backends import bench_cases


class TestBench(bench_cases.BenchCases):
    """Tests of all frameworks."""

    NAME = "jax"
