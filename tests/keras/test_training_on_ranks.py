"""Training on ranks that are processes, with data that differ."""

import numpy as np
import pytest
import rank_training

from tests.harness import only, run_calls

# One job makes many calls, and the first test of a module waits for it.
pytestmark = pytest.mark.timeout(900)

STEPS, BATCH_SIZE = 50, 64
PARITY = ("parity", STEPS, BATCH_SIZE)
ON_TWO_RANKS = [
    # First: nothing but `init` has had a chance to install the check.
    ("local_updates",),
    PARITY,
    ("embeddings",),
    ("overflow", False, None),
    ("overflow", True, None),
    ("overflow", False, 2),
    ("metrics",),
    ("broadcasts", 0),
    ("broadcasts", 1),
    ("different_models",),
    ("objects",),
    ("two_models_of_one_name",),
    ("progress_bars",),
]


def run(num_ranks, calls):
    return run_calls(rank_training, num_ranks, calls, deadline=280)


@pytest.fixture(scope="module")
def one_rank():
    return run(1, [PARITY])


@pytest.fixture(scope="module")
def two_ranks():
    return run(2, ON_TWO_RANKS)


@pytest.fixture(scope="module")
def four_ranks():
    return run(4, [PARITY])


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_parity_with_one_process_on_the_whole_batch(
    one_rank, num_ranks, request
):
    several = request.getfixturevalue(
        "two_ranks" if num_ranks == 2 else "four_ranks"
    )(*PARITY)
    (one,) = one_rank(*PARITY)
    for name in rank_training.OPTIMIZERS:
        ranks = [rank[name] for rank in several]
        for key in ("weights", "state", "tape_weights", "tape_state"):
            only([rank[key] for rank in ranks])
        for key in ("losses", "tape_losses"):
            assert len(one[name][key]) == STEPS
            losses = np.mean([rank[key] for rank in ranks], axis=0)
            np.testing.assert_allclose(losses, one[name][key], rtol=1e-5)
            assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("explicit", [False, True])
def test_an_overflow_on_one_rank_is_skipped_by_all(two_ranks, explicit):
    result = only(two_ranks("overflow", explicit, None))
    assert result["steps"] == [1, 2, 3, 3, 4, 5, 6, 7]
    scale = 2.0**15
    assert result["scales"] == [scale] * 3 + [scale / 2] * 5
    assert result["finite"]


def test_an_overflow_on_one_rank_while_gradients_accumulate(two_ranks):
    result = only(two_ranks("overflow", False, 2))
    assert result["steps"] == [1, 2, 3, 3, 4, 5, 6, 7]
    assert result["scales"][-1] == 2.0**14
    assert result["finite"]


def test_embeddings(two_ranks):
    """Keras' Adagrad squares the rows of an index one by one."""
    two, other = two_ranks("embeddings")
    assert [state for state, _ in two] == [state for state, _ in other]
    # Rows or a whole table: the same sums, in whatever order.
    (_, rows), (_, dense) = two
    for a, b in zip(rows, dense, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_metrics_of_unequal_data(two_ranks):
    first, second = two_ranks("metrics")
    assert first["history"] == second["history"]
    assert first["evaluated"] == second["evaluated"]
    assert first["state"] == second["state"]
    history = first["history"]
    epochs = len(history["loss"])
    assert 1 < epochs < 30, "EarlyStopping was meant to act"
    for key in ("loss", "binary_accuracy", "auc", "root_mean_squared_error"):
        expected = [results[key] for results in first["expected"]]
        np.testing.assert_allclose(
            history[f"val_{key}"], expected, rtol=1e-6, err_msg=key
        )
        np.testing.assert_allclose(
            first["evaluated"][key], expected[-1], rtol=1e-6, err_msg=key
        )


@pytest.mark.parametrize("root_rank", [0, 1])
def test_all_ranks_start_as_the_root(two_ranks, root_rank):
    results = two_ranks("broadcasts", root_rank)
    for kind in ("built", "subclassed"):
        ranks = [result[kind] for result in results]
        only([rank["state"] for rank in ranks])
        expected = np.float32(0.01 * (1 + root_rank))
        assert only([rank["learning_rate"] for rank in ranks]) == expected
    # Seeds are shared, and the rank is folded into them.
    seeds = [result["subclassed"]["seeds"] for result in results]
    assert len(seeds[0]) == 1
    assert seeds[0] != seeds[1]
    built = [result["built"] for result in results]
    assert built[0]["own"] != built[1]["own"]
    only([rank["first"] for rank in built])


def test_different_models_are_an_error_on_all_ranks(two_ranks):
    (message,), _, after = only(two_ranks("different_models"))
    assert after == 2.0
    assert "rank 0 has classifier/two/kernel of float32 (32, 4)" in message
    assert "rank 1 has classifier/two/kernel of float32 (32, 5)" in message


def test_objects_and_variables(two_ranks):
    first, second = two_ranks("objects")
    for result in (first, second):
        assert result["broadcast"] == {"from": 1}
        assert result["gathered"] == ["x", "xxxx"]
        assert result["large"] == 3_000_000 or result is first
        assert set(map(tuple, result["values"].values())) == {(1.0, 0.0, 1.0)}
        assert "differ between ranks" in result["difference"]
    assert first["difference"] == second["difference"]
    assert first["failure"][0] == "RuntimeError"
    assert "object of rank 1" in first["failure"][1]
    assert "pickle" in second["failure"][1]


def test_updates_that_are_not_reduced(two_ranks):
    kind, message = only(two_ranks("local_updates"))
    assert kind == "LocalUpdateError"
    assert "kr.DistributedOptimizer" in message


def test_two_models_whose_variables_have_the_same_names(two_ranks):
    only(two_ranks("two_models_of_one_name"))


def test_progress_bars_are_rank_0s(two_ranks):
    first, second = two_ranks("progress_bars")
    assert all(first.values())
    assert second == dict.fromkeys(first, False)


def test_a_saved_model_goes_on(tmp_path):
    calls = [("save_and_load", str(tmp_path / "model.keras"))]
    same, loaded, model = only(run(2, calls)(*calls[0]))
    assert same
    assert loaded == model
