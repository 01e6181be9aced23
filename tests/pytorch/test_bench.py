"""`keras-ring bench` on PyTorch."""

from tests.backends import bench_cases


class TestBench(bench_cases.BenchCases):
    """Tests of all frameworks."""

    NAME = "torch"
