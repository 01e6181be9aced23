"""MXNet trains on ranks as in one process, on the core alone."""

import numpy as np
import pytest

from tests.harness import run_calls
from tests.tiers import few
from tests.with_mxnet import rank_training

_EXACT = 1e-12
# MXNet's kernels have the settings of an optimizer in float32, and so the size
# of a batch.
_ROUNDED = 1e-7
FITS = [
    ("sgd", (("learning_rate", 0.1), ("momentum", 0.9)), {}),
    ("adam", (("learning_rate", 0.01),), {"num_groups": 2}),
    ("adam", (("learning_rate", 0.01),), {"gradient_predivide_factor": 2.0}),
]


@pytest.fixture(scope="module", params=few([2, 3], "programs", 1))
def job(request):
    calls = [
        ("collectives",),
        ("of_horovod",),
        *(("trained", *fit) for fit in FITS),
        ("trained", *FITS[0], True),
        ("by_updates", 0),
        ("by_updates", 2),
        ("sparse",),
        ("imported",),
        ("mistakes",),
    ]
    result = run_calls(
        rank_training, request.param, calls, fresh=True, deadline=100
    )
    return request.param, result


def test_collectives(job):
    size, result = job
    ranks = np.arange(size)
    x = np.arange(6).reshape(2, 3)
    every = np.stack([x + rank for rank in ranks]).astype(np.float32)
    rows = [np.full((rank + 1, 2), rank) for rank in ranks]
    for rank, found in enumerate(result("collectives")):
        mine = slice(2 * rank, 2 * rank + 2)
        sent = [np.arange(2 * size)[mine] + 10 * each for each in ranks]
        part = np.array_split(np.arange(2), size)[rank]
        last = rank == size - 1
        wanted = {
            "sum": every.sum(0),
            "mean": every.mean(0),
            "scaled": every.sum(0) / 2,
            "largest": every.max(0),
            "integers": np.array([7, 9]) * size // 2,
            "half": every.sum(0),
            "gathered": np.concatenate(rows),
            "root": every[1],
            "rows": np.full((len(part), 2), size),
            "exchanged": np.concatenate(sent),
            "uneven": np.tile([size - 1, size] if last else [rank], size),
            "counts": np.full(size, 2 if last else 1),
            "in_place": every.sum(0),
            "root_in_place": every[1],
            "pair0": every.sum(0),
            "pair1": 2 * every.sum(0),
            "group0": np.concatenate(every),
            "group1": np.concatenate(every) + 1,
        }
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, err_msg=name)
        assert found["integers"].dtype == np.int32
        assert found["pair1"].dtype == np.float64


def test_arguments_of_horovod(job):
    size, result = job
    total = size * (size + 1) / 2
    for found in result("of_horovod"):
        assert found == [[total] * 2, [total / size] * 2, [1.0] * 2]


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: f"{fit[0]} {fit[2]}")
def test_a_trainer(job, fit):
    for far, same in job[1]("trained", *fit):
        assert far < (_EXACT if fit[0] == "adam" else _ROUNDED)
        assert same


def test_parameters_whose_shapes_come_with_the_first_batch(job):
    """Their values are those of rank 0, whatever others draw."""
    for _, same in job[1]("trained", *FITS[0], True):
        assert same


@pytest.mark.parametrize("num_groups", [0, 2])
def test_an_optimizer(job, num_groups):
    assert max(job[1]("by_updates", num_groups)) < _ROUNDED


def test_sparse_gradients(job):
    size, result = job
    wanted = np.ones((6, 2), np.float32)
    wanted[:size] -= np.float32(1.0 / size)
    wanted[5] -= 1.0
    for found in result("sparse"):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_no_other_framework_is_imported(job):
    assert all(names == [] for names in job[1]("imported"))


def test_mistakes_are_told(job):
    for told in job[1]("mistakes"):
        assert told["array"].startswith(
            "TypeError: `grouped_allreduce` takes an `mx.nd.NDArray`."
        )
        assert "storage type 'csr'" in told["sparse"]
        assert "`op` must be one of" in told["op"]
        assert told["rank"].startswith("ValueError")
        assert "has no Adasum" in told["adasum"]
        assert told["shapes"].startswith("FailedPreconditionError")
        assert "`block.collect_params()`" in told["params"]
        assert "`mx.optimizer.create('sgd')`" in told["optimizer"]
        assert told["apart"].startswith("ConsistencyError: Ranks train")
        assert "parameter 'net_dense0_weight'" in told["apart"]
