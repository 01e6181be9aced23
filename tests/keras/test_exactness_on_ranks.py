"""Metrics, normalization and shards: ranks against one process."""

import keras
import numpy as np
import pytest
import rank_exactness

from tests import tiers
from tests.harness import only, run_calls

pytestmark = pytest.mark.timeout(900)

HALF_BITS = {"float16": 11, "bfloat16": 8}
MOMENTS = [("moments", False), ("moments", True)]
HALVES = [("moments", False, f"mixed_{kind}") for kind in HALF_BITS]
METRICS = [("every_metric",), ("two_outputs",)]
ON_ONE_RANK = [*MOMENTS, *HALVES, ("normalization", False), ("fit_on_shards",)]
# Every metric of Keras takes a minute; the gate has those of `fit_on_shards`.
IF_PULLED = METRICS if tiers.pulled("parity") else []
ON_TWO_RANKS = [
    *IF_PULLED,
    *ON_ONE_RANK,
    ("normalization", True),
    ("unequal_ends",),
    ("ends",),
]


def run(num_ranks, calls):
    return run_calls(rank_exactness, num_ranks, calls, deadline=400)


@pytest.fixture(scope="module")
def one_rank():
    return run(1, ON_ONE_RANK)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("exactness"))


@pytest.fixture(scope="module")
def two_ranks(directory):
    return run(2, [*ON_TWO_RANKS, ("decisions", directory)])


@pytest.fixture(scope="module")
def three_ranks():
    return run(3, [*IF_PULLED, *MOMENTS, *HALVES])


SEVERAL = pytest.mark.parametrize(
    "several", tiers.few(["two_ranks", "three_ranks"], "parity")
)


@pytest.mark.long("parity")
@SEVERAL
def test_every_metric(several, request):
    results, covered = only(request.getfixturevalue(several)("every_metric"))
    shipped = {
        name
        for name in dir(keras.metrics)
        if isinstance(getattr(keras.metrics, name), type)
        and issubclass(getattr(keras.metrics, name), keras.metrics.Metric)
    }
    assert covered == shipped - {"Metric"} | {"LargestError"}
    for name, (of_ranks, of_one) in results.items():
        np.testing.assert_allclose(
            of_ranks, of_one, rtol=1e-6, atol=1e-6, err_msg=name
        )


@pytest.mark.long("parity")
@SEVERAL
def test_compiled_metrics_of_two_outputs(several, request):
    result = only(request.getfixturevalue(several)("two_outputs"))
    assert len(result["whole"]) == 9
    for key, value in result["whole"].items():
        np.testing.assert_allclose(
            result["evaluated"][key], value, rtol=1e-6, err_msg=key
        )
        np.testing.assert_allclose(
            result["history"][f"val_{key}"][-1], value, rtol=1e-6, err_msg=key
        )


def test_normalization_is_that_of_the_whole_batch(one_rank, two_ranks):
    (one,) = one_rank("normalization", False)
    ranks = two_ranks("normalization", False)
    for policy, tolerance in (("one", 2e-5), ("half", 1e-2)):
        results = [rank[policy] for rank in ranks]
        only([result["digest"] for result in results])
        assert results[0]["dtypes"] == ["float32"]
        assert results[0]["entries"] == 9 + 2 * 2
        assert results[0]["entries of inference"] == 0
        for a, b in zip(
            results[0]["weights"], one[policy]["weights"], strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_normalization_under_xla(two_ranks):
    compiled = two_ranks("normalization", True)
    for rank in compiled:
        assert rank["one"]["entries"] == 9 + 2 * 2
    only([rank["one"]["digest"] for rank in compiled])
    plain = two_ranks("normalization", False)
    for a, b in zip(
        compiled[0]["one"]["weights"], plain[0]["one"]["weights"], strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@SEVERAL
@pytest.mark.parametrize("masked", [False, True])
def test_moments_of_unequal_batches(several, masked, one_rank, request):
    (one,) = one_rank("moments", masked)
    for rank in request.getfixturevalue(several)("moments", masked):
        assert rank["entries"] == (1, 1)
        # The values are 1000 +- 0.5, known to 1000 * 2**-24 each.
        for key, tolerance in (("y", 1e-3), ("gradient", 5e-3)):
            np.testing.assert_allclose(
                rank[key], one[key], atol=tolerance, err_msg=key
            )
        for a, b in zip(rank["moving"], one["moving"], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


@SEVERAL
@pytest.mark.parametrize("kind", HALF_BITS)
def test_moments_of_unequal_batches_in_half_precision(
    several, kind, one_rank, request
):
    call = ("moments", False, f"mixed_{kind}")
    (one,) = one_rank(*call)
    # The layer reckons in float32, of inputs and to results of half of it:
    # an ulp of values up to 4, and so much of the gradients.
    tolerance = 4 * 2.0 ** -HALF_BITS[kind]
    for rank in request.getfixturevalue(several)(*call):
        assert rank["entries"] == (1, 1)
        for key in ("y", "gradient"):
            np.testing.assert_allclose(
                rank[key], one[key], atol=tolerance, err_msg=key
            )
        for a, b in zip(rank["moving"], one["moving"], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("kind", rank_exactness.DATA_KINDS)
def test_shards_of_each_kind(one_rank, two_ranks, kind):
    (one,) = one_rank("fit_on_shards")
    first, second = two_ranks("fit_on_shards")
    history, weights = first[kind]
    assert history == second[kind][0]
    expected, expected_weights = one[kind]
    assert set(history) == set(expected)
    for key, values in history.items():
        np.testing.assert_allclose(values, expected[key], rtol=1e-5)
    for a, b in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_nothing_hangs_at_uneven_ends(two_ranks):
    results = only(two_ranks("unequal_ends"))
    # Keras itself makes one update too many from a generator.
    steps = {
        name: steps - name.startswith("generator")
        for name, (steps, _) in results.items()
    }
    # 29 elements in batches of 4, or 7 batches, on two ranks.
    assert steps == {
        "arrays pad": 4,
        "arrays drop": 4,
        "PyDataset pad": 4,
        "PyDataset drop": 3,
        "generator pad": 4,
        "generator drop": 3,
        "tf.data pad": 4,
        "tf.data drop": 4,
    }


def test_a_nan_on_one_rank_ends_all(two_ranks):
    batches, message = only([rank["nan"] for rank in two_ranks("ends")])
    assert (batches, message) == ([0, 1], None)
    for rank in two_ranks("ends"):
        batches, (kind, message) = rank["nan raised"]
        assert kind == "RuntimeError"
        assert "NaN" in message


def test_an_end_on_one_rank_is_an_error_on_all(two_ranks):
    batches, (kind, message) = only([r["stop"] for r in two_ranks("ends")])
    assert len(batches) == 4
    assert kind == "ConsistencyError"
    assert "ended on rank 1 of 2" in message


def test_weights_that_differ_are_an_error_on_all(two_ranks):
    results = two_ranks("ends")
    batches, (kind, message) = only([rank["change"] for rank in results])
    assert len(batches) == 4
    assert kind == "ConsistencyError"
    assert "after epoch 1, 1 of 4 do" in message
    assert "classifier/two/kernel" in message
    assert "rank 0 has one value and rank 1 has another" in message
    batches, (_, message) = only([rank["change within"] for rank in results])
    assert "after batch 2 of epoch 1" in message
    assert [r["not checked"][1] for r in results] == [None, None]
    first, second = (rank["own statistics"] for rank in results)
    assert first != second


def test_different_numbers_of_batches_are_an_error_on_all(two_ranks):
    batches, (kind, message) = only([r["steps"] for r in two_ranks("ends")])
    assert batches == []
    assert kind == "ValueError"
    assert "(rank 0: 2, rank 1: 5)" in message
    assert "kr.data.shard" in message


def test_own_weights_are_not_compared_and_others_are(two_ranks):
    (first, *_), (second, *_) = (r["local"] for r in two_ranks("ends"))
    assert (first, second) == (None, None)
    results = [rank["local"][1] for rank in two_ranks("ends")]
    differ = [a != b for a, b in zip(*results, strict=True)]
    assert differ == [True, True, False, False]
    message = only([rank["local change"][0] for rank in two_ranks("ends")])
    assert "after epoch 1, 1 of 2 do" in message
    assert "classifier/two/kernel" in message


def test_decisions_are_those_of_all_in_any_order(two_ranks, directory):
    orders = only(two_ranks("decisions", directory))
    # One that looks at the learning rate sees it before or after the change.
    rates = orders[0][1]
    losses, saved, _ = only([(losses, *rest) for losses, _, *rest in orders])
    assert len(losses) < 40, "EarlyStopping was meant to act"
    assert rates[-1] < rates[0], "ReduceLROnPlateau was meant to act"
    best = [i for i in range(len(losses)) if losses[i] == min(losses[: i + 1])]
    assert saved == [f"{i + 1:02d}.weights.h5" for i in best]
