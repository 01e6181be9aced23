"""Ranks that are actors of Ray, on a cluster of two nodes."""

import importlib.util
import sys

import pytest

# Each starts a cluster of its own, in a process of its own.
pytestmark = [
    pytest.mark.timeout(150, func_only=True),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="ray is not installed: make engines",
    ),
]
CLUSTER = """
import contextlib, os, sys
import ray
from ray.cluster_utils import Cluster
import keras_ring.ray

node = dict(num_cpus=2, object_store_memory=100 << 20)
cluster = Cluster(
    initialize_head=True, head_node_args=dict(node, include_dashboard=False)
)
cluster.add_node(**node)
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)

def attempt(*args, **kwargs):
    try:
        return keras_ring.ray.run(*args, **kwargs)
    except (keras_ring.errors.KerasRingError, ValueError) as error:
        print(type(error).__name__, error)
try:
    exec(sys.stdin.read())
finally:
    ray.shutdown()
    cluster.shutdown()
"""
TRAIN = """
def train(scale, *, fails=None, dies=None):
    import signal
    import tensorflow as tf
    import keras_ring as kr
    from keras_ring.core import arena
    kr.init()
    if kr.rank() == fails:
        raise KeyError("of a rank")
    if kr.rank() == dies:
        os.kill(os.getpid(), signal.SIGKILL)
    total = kr.allreduce(tf.constant(scale * kr.rank()), op=kr.Sum)
    node = ray.get_runtime_context().get_node_id()
    threads = os.environ["TF_NUM_INTRAOP_THREADS"]
    return kr.rank(), float(total), node, threads, arena.refusal()
"""


@pytest.fixture
def cluster(jobs, tmp_path):
    """Runs a program in which there is a cluster; returns what it prints."""

    def run(program):
        script = tmp_path / "cluster.py"
        script.write_text(CLUSTER)
        process = jobs.start([sys.executable, str(script)], with_input=True)
        out, err = process.communicate(TRAIN + program, timeout=120)
        assert process.returncode == 0, err
        return out

    return run


def test_function_on_ranks(cluster):
    out = cluster(
        """
results = keras_ring.ray.run(train, (10.0,), num_workers=3)
assert [result[:2] for result in results] == [(r, 30.0) for r in range(3)]
# Those of a node are neighbours; tensors need not be copied.
nodes = [result[2] for result in results]
assert len(set(nodes)) == 2 and nodes in (
    sorted(nodes), sorted(nodes, reverse=True)), nodes
assert {result[3:] for result in results} == {("1", "")}
print("right")
"""
    )
    assert out.splitlines()[-1] == "right"


@pytest.mark.long("engines")
def test_failures(cluster):
    out = cluster(
        """
attempt(train, (1.0,), dict(fails=1), num_workers=3)
attempt(train, (1.0,), dict(dies=2), num_workers=3)
# Nothing is left that would take its room.
print(attempt(train, (1.0,), num_workers=2,
              resources_per_worker={"CPU": 2})[1][:2])
attempt(train, (1.0,), num_workers=5, start_timeout=1)
attempt(train, (1.0,), num_workers=0)
attempt(lambda: (lambda: open("/dev/null")), num_workers=1)
"""
    )
    raised, _, died = out.partition("RankFailedError rank 2")
    assert "RankFailedError rank 1 raised KeyError: 'of a rank'" in raised
    assert "ranks 0, 2 exited with code 1, having lost rank 1" in raised
    assert "in train" in raised
    assert "was lost with its Ray actor: Worker unexpectedly exits" in died
    assert "ranks 0-1 exited with code 1, having lost rank 2" in died
    assert "(1, 1.0)" in died
    assert "room for 5 workers of 1 CPU each (PACK) within 1 s" in died
    assert "The cluster has 4 CPU" in died
    assert "`num_workers` must be at least 1. Received: 0" in died


@pytest.mark.long("engines")
def test_a_function_of_one_process(cluster):
    out = cluster(
        """
def train():
    # Before anything of this function runs, even its unpickling.
    import keras_ring as kr
    return kr.is_initialized(), os.environ.get("KERAS_RING_AUTO"), kr.rank()
print(keras_ring.ray.run(train, num_workers=2, auto=True))
attempt(train, env={"KERAS_RING_AUTO_BATCH": "half"}, auto=True)
attempt(train, env={"KERAS_RING_CYCLE_TIME": "soon"}, auto=True)
"""
    )
    assert "[(True, None, 0), (True, None, 1)]" in out
    assert "ValueError KERAS_RING_AUTO_BATCH is 'half': expected" in out
    failed = out[out.index("RankFailedError") :]
    assert "ranks 0-1 raised ConfigurationError" in failed
    assert "KERAS_RING_CYCLE_TIME" in failed


@pytest.mark.long("engines")
def test_keras_example(cluster):
    out = cluster(
        """
def digits():
    import contextlib, io
    sys.path.insert(0, "examples")
    import keras_digits
    keras_digits.FLAGS(["digits", "--epochs=2"])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        keras_digits.main([])
    return out.getvalue().split()[-1]
sums = keras_ring.ray.run(digits, num_workers=2)
print(len(sums), len(set(sums)), len(sums[0]))
"""
    )
    assert out.splitlines()[-1] == "2 1 16"
