"""Keras 2: `tf.keras` of TensorFlow 2.15, and `tf_keras` on later ones."""

import math
import re

import numpy as np
import pytest
import rank_keras2
from comparison import bound, difference
from lane import HAS_ESTIMATOR, run_calls

from tests.harness import only
from tests.keras2 import exactness

pytestmark = pytest.mark.timeout(900)

# Elsewhere `tf_keras`, which is nearly the same code: enough to see it work.
IS_KERAS2_LANE = HAS_ESTIMATOR
PARITY = [
    *(
        ("train", name)
        for name in rank_keras2.OPTIMIZERS
        if IS_KERAS2_LANE or name in ("SGD", "Adam", "legacy SGD")
    ),
    *(
        ("train", name, settings)
        for name in ("Adam", "legacy SGD", "LossScaleOptimizer")
        if IS_KERAS2_LANE or name != "LossScaleOptimizer"
        for settings in ("predivide", "groups", "dense", "passes")
    ),
    ("train", "SGD", "summed passes"),
    ("train", "legacy SGD", "summed passes"),
    ("tape",),
]
KINDS = ("new", "legacy")
# Each with how many tensors are reduced in its 30 steps.
PROGRAMS = {
    ("fits", "custom train_step", "new"): 4 * 30,
    ("fits", "frozen layer", "new"): 2 * 30,
    ("fits", "unused variables", "new"): 4 * 30,
    ("gan", "new"): 2 * 4 * 30,
    ("half", "mixed_float16", "new"): 4 * 30,
    ("half", "mixed_float16 given", "new"): 4 * 30,
    ("half", "mixed_bfloat16", "new"): 4 * 30,
    ("trainable_set_changes", "new"): (4 + 2 + 4) * 10,
}
if not IS_KERAS2_LANE:
    # With TensorFlow 2.15 there are no collectives under XLA.
    PROGRAMS |= {("fits", "jit_compile", "new"): 4 * 30}
else:
    PROGRAMS |= {
        (name, *arguments, "legacy"): count
        for (name, *arguments, _), count in PROGRAMS.items()
    }
    PROGRAMS |= {
        ("fits", "clone_model", "new"): 4 * 30,
        ("fits", "steps_per_execution", "new"): 4 * 30,
        # Eagerly, all that has no rows is one group.
        ("fits", "run_eagerly", "new"): 30,
        ("half", "mixed_float16 train_step", "new"): 4 * 30,
        ("half", "mixed_float16 train_step", "legacy"): 4 * 30,
        ("loop", "persistent tape"): 2 * 4 * 30,
        ("loop", "nested tape"): 4 * 30,
        ("copied_model",): 4 * 30,
        ("weighted",): (6 + 4) * 15,
        ("alone",): 0,
    }
SHARDS = [
    ("shards", kind)
    for kind in exactness.SHARDS
    if IS_KERAS2_LANE or kind == "Sequence"
]
ORDERS = range(3 if IS_KERAS2_LANE else 1)
RAW = ("raw_loop", "momentum_correction", "reduced_once")
CHANGES = [(kind, what) for kind in KINDS for what in ("rate", "weights")]
OWN_METHODS = [
    (kind, method)
    for kind in KINDS
    for method in ("apply_gradients", "compute_gradients", "minimize")
]
SERVED = ("ours", "synchronized")
OVERFLOWS = [
    ("overflow", kind, implicit, settings)
    for kind in KINDS
    for implicit, settings in (
        (False, "plain"),
        (True, "plain"),
        (False, "passes"),
    )
]
COPIED = (
    "Adam",
    "schedule",
    "legacy Adam",
    "LossScaleOptimizer",
    "legacy LossScaleOptimizer",
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("keras2"))


@pytest.fixture(scope="module")
def one_rank(directory):
    return run_calls(
        rank_keras2,
        1,
        [
            *PARITY,
            *PROGRAMS,
            *SHARDS,
            ("normalization",),
            ("fit_with_callbacks", directory, False),
        ],
    )


@pytest.fixture(scope="module")
def two_ranks(directory):
    return run_calls(
        rank_keras2,
        2,
        [
            ("local_updates",),
            *PARITY,
            *PROGRAMS,
            *OVERFLOWS,
            *(
                (name, kind)
                for name in ("compression", "reductions")
                for kind in KINDS
            ),
            *(
                ("local_variables", kind, s)
                for kind in KINDS
                for s in (True, False)
            ),
            ("local_layers",),
            ("progress", "terminal"),
            ("progress", "file"),
            *(("numbered_otherwise", kind) for kind in KINDS),
            *(("copies", name) for name in COPIED),
            ("state_is_kept",),
            ("fit_with_callbacks", directory, False),
            ("fit_with_callbacks", directory, True),
            ("saved_model", directory, ".keras"),
            ("saved_model", directory, ".h5"),
            ("checkpoints", directory),
            ("collectives",),
            ("normalization",),
            ("every_metric",),
            ("metric_state", "largest"),
            ("metric_state", "rows"),
            ("evaluate",),
            ("every_optimizer",),
            *(("decisions", directory, order) for order in ORDERS),
            ("ends",),
            *SHARDS,
            ("shuffled",),
            ("exported", directory),
            *((name, kind) for name in RAW for kind in KINDS),
            *(("changed_between_fits", *case) for case in CHANGES),
            *(("changed_in_a_tape_loop", kind) for kind in KINDS),
            *(("own_methods", *case) for case in OWN_METHODS),
            *(("own_methods_and_passes", *case) for case in OWN_METHODS),
            *(("served", directory, kind) for kind in SERVED),
        ],
    )


def assert_close(one, several):
    for a, b in zip(one, several, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("call", PARITY, ids=" ".join)
def test_parity_with_one_process_on_the_whole_batch(one_rank, two_ranks, call):
    (one,), ranks = one_rank(*call), two_ranks(*call)
    if call == ("tape",):
        assert_close(one, only(ranks))
        return
    assert_close(one["weights"], only([rank["weights"] for rank in ranks]))
    passes = {"passes": 3, "summed passes": 2}.get(call[-1], 1)
    iterations = only([rank["iterations"] for rank in ranks])
    assert iterations == one["iterations"] == rank_keras2.STEPS / passes


@pytest.mark.parametrize("call", PROGRAMS, ids=" ".join)
def test_parity_of_programs(one_rank, two_ranks, call):
    (one,), ranks = one_rank(*call), two_ranks(*call)
    weights = only([rank["weights"] for rank in ranks])
    assert difference(one["weights"], weights) <= bound(call)
    assert all(rank["collectives"] == PROGRAMS[call] for rank in ranks)
    assert only([rank["iterations"] for rank in ranks]) == one["iterations"]


@pytest.mark.parametrize(
    "call", [call for call in PROGRAMS if call[0] == "half"], ids=" ".join
)
def test_loss_scales(two_ranks, call):
    results = two_ranks(*call)
    scale, dynamic = only([(r["scale"], r["dynamic"]) for r in results])
    name = call[1]
    if name == "mixed_bfloat16":
        assert (scale, dynamic) == (None, None)
    elif name == "mixed_float16":
        assert dynamic
    else:
        # Twice as large after 12 steps without an overflow, and again.
        assert (scale, dynamic) == (2.0**6, True)


@pytest.mark.parametrize("name", ["Adam", "legacy SGD"])
def test_gradients_of_several_passes_are_reduced_once(two_ranks, name):
    """Of five variables, one of which has rows; a group is one collective."""
    for settings, steps, gathers in (
        ((), rank_keras2.STEPS, True),
        (("dense",), rank_keras2.STEPS, False),
        (("passes",), rank_keras2.STEPS / 3, False),
    ):
        for found in two_ranks("train", name, *settings):
            assert found["collectives"] == 5 * steps, settings
            assert found["gathers"] == gathers, settings


@pytest.mark.parametrize("kind", KINDS)
def test_compression(two_ranks, kind):
    assert only(two_ranks("compression", kind)) == -1.0


@pytest.mark.parametrize("kind", KINDS)
def test_reductions(two_ranks, kind):
    assert only(two_ranks("reductions", kind)) == {
        "Average": 1.5,
        "Sum": 3.0,
        "Min": 1.0,
        "Max": 2.0,
        "Product": 2.0,
    }


@pytest.mark.parametrize("call", OVERFLOWS, ids=str)
def test_an_overflow_on_one_rank_is_one_on_all(two_ranks, call):
    scales, weights = only(two_ranks(*call))
    assert scales[1] == scales[0] / 2 == scales[2]
    assert weights[1] == weights[0] != weights[2]
    assert np.isfinite(weights[2][0]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_local_variables(two_ranks, kind):
    assert two_ranks("local_variables", kind, True) == [(-3, -1), (-3, -2)]
    assert two_ranks("local_variables", kind, False) == [(-3, -2), (-3, -4)]


def test_local_layers(two_ranks):
    (local, shared), (other_local, other_shared) = two_ranks("local_layers")
    assert shared == other_shared
    assert local != other_local


@pytest.mark.parametrize("kind", ["terminal", "file"])
def test_one_bar_shows_all_ranks(two_ranks, kind):
    first, second = two_ranks("progress", kind)
    assert second == ""
    lines = first.splitlines()
    ours = [line for line in lines if line.startswith("keras_ring: ")]
    ranks, reduction, data, rate, batch, pace, communication, *last = ours
    assert "2 ranks on 1 host" in ranks
    assert "through shared memory" in reduction
    assert data.endswith("80 of 160 samples on each rank")
    assert "sgd with a learning rate of 0.05" in rate.lower()
    assert "2 x 8 = 16" in batch
    assert "20 steps of 16 in" in pace
    assert "of 2 ranks" in pace
    assert "Communication takes" in communication
    assert last
    assert any(sign in first for sign in "\r\b") == (kind == "terminal")
    # A line, or the last state of a bar, for each epoch. Where a step took
    # long, Keras has drawn the bar after it, too: with the time that is left.
    shown = [
        each
        for each in re.split(r"[\n\r\b]+", first)
        if "10/10" in each and "ETA" not in each
    ]
    assert len(shown) >= 2
    assert all("samples/s" in each for each in shown)


@pytest.mark.parametrize("name", COPIED)
def test_copies_go_on_alike(two_ranks, name):
    assert all(only(two_ranks("copies", name)).values()), two_ranks(
        "copies", name
    )


def test_state_is_kept(two_ranks):
    assert only(two_ranks("state_is_kept")) == {"Adam": 1, "legacy Adam": 1}


def test_local_updates_are_refused(two_ranks):
    for name, text in only(two_ranks("local_updates")).items():
        assert "kr.DistributedOptimizer(optimizer)" in text, name


def test_callbacks(one_rank, two_ranks, directory):
    (one,) = one_rank("fit_with_callbacks", directory, False)
    two = only(two_ranks("fit_with_callbacks", directory, False))
    # The warm-up of one rank has nothing to do.
    assert two["history"]["learning_rate"][-1] == pytest.approx(0.1)
    assert two["history"].keys() == one["history"].keys()
    # Metrics of the last epoch are those of one process with these weights.
    last = [two["history"][f"val_{k}"][-1] for k in ("loss", "mae", "own")]
    assert last == pytest.approx(two["evaluated"], rel=1e-5)


def test_callbacks_of_a_model_that_is_not_built(two_ranks, directory):
    only(two_ranks("fit_with_callbacks", directory, True))


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_saved_model(two_ranks, directory, suffix):
    assert only(two_ranks("saved_model", directory, suffix)) == {
        "plain": True,
        "groups": 2,
        "iterations": 2,
        "equal": True,
    }


def test_an_interrupted_training_goes_on(two_ranks, directory):
    assert only(two_ranks("checkpoints", directory))


def test_collectives(two_ranks):
    for found in two_ranks("collectives"):
        for way in ("eager", "function", "graph"):
            assert found[way] == found["expected"], way
        assert found["gradient"] == [1.0, 1.0]


def test_normalization(one_rank, two_ranks):
    (one,) = one_rank("normalization")
    first, second = two_ranks("normalization")
    for whole, a, b in zip(one[:2], first[:2], second[:2], strict=True):
        np.testing.assert_allclose([*a, *b], whole, rtol=1e-9, atol=1e-9)
    assert first[2:] == second[2:]
    np.testing.assert_allclose(first[2], one[2], rtol=1e-9)
    np.testing.assert_allclose(first[3], one[3], rtol=1e-9)


def test_every_metric(two_ranks):
    results, not_covered = only(two_ranks("every_metric"))
    assert not_covered == []
    for name, (of_ranks, of_one) in results.items():
        np.testing.assert_allclose(
            of_ranks, of_one, rtol=1e-6, atol=1e-6, err_msg=name
        )


@pytest.mark.parametrize("kind", KINDS)
def test_variables_that_have_other_paths_on_each_rank(two_ranks, kind):
    first, second = two_ranks("numbered_otherwise", kind)
    assert first[0] != second[0]
    assert first[1] == second[1]


def test_a_metric_whose_state_is_no_sum(two_ranks):
    message = only(two_ranks("metric_state", "largest"))
    assert "'largest' (class Largest) cannot be added up over ranks" in message
    assert "aggregation=tf.VariableAggregation.MEAN" in message
    assert only(two_ranks("metric_state", "rows")) == [48.0, 48.0]


def test_evaluate(two_ranks):
    found, whole = only(two_ranks("evaluate"))
    assert len(whole) == 4
    assert found == pytest.approx(whole, rel=1e-6)


def test_every_optimizer(two_ranks):
    found = only(two_ranks("every_optimizer"))
    assert len([name for name in found if "legacy" in name]) >= 8
    assert len(found) >= 18
    for name, (plain, ours, copied) in found.items():
        assert plain != [1.0, 2.0], name
        assert ours == pytest.approx(plain, rel=1e-6), name
        # Keras 2 keeps some of its state where no file and no copy has it.
        assert name == "Nadam" or copied == ours, name


def test_decisions_are_those_of_all_in_any_order(two_ranks, directory):
    found = [only(two_ranks("decisions", directory, i)) for i in ORDERS]
    losses, saved, rate, _ = only(found)
    assert len(losses) < 25, "EarlyStopping was meant to act"
    assert rate < 1.05, "ReduceLROnPlateau was meant to act"
    best = [
        i
        for i in range(len(losses))
        if losses[i] < min(losses[:i], default=math.inf)
    ]
    assert 1 < len(best) < len(losses)
    assert saved == [f"{i + 1:02d}.weights.h5" for i in best]


def test_what_makes_ranks_part(two_ranks):
    found = only(two_ranks("ends"))
    assert found["nan"] == (2, None)
    steps, message = found["change"]
    assert steps == 4
    assert "after epoch 1, 1 of 4 do" in message
    assert "dense/two/kernel" in message or "two/kernel" in message
    assert "rank 0 has one value and rank 1 has another" in message


@pytest.mark.parametrize("call", SHARDS, ids=" ".join)
def test_shards(one_rank, two_ranks, call):
    (expected, weights), (found, others) = (
        one_rank(*call)[0],
        only(two_ranks(*call)),
    )
    assert difference(weights, others) < 1e-5
    assert found.keys() == expected.keys()
    for key, values in found.items():
        np.testing.assert_allclose(values, expected[key], rtol=1e-5)


def test_shuffled_batches(two_ranks):
    """In each epoch, each batch on one rank, in an order of its own."""
    ranks = two_ranks("shuffled")
    epochs = [first + second for first, second in zip(*ranks, strict=True)]
    assert len(epochs) == 3
    assert all(sorted(epoch) == list(range(16)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_exported_models(two_ranks, directory):
    close, _ = only(two_ranks("exported", directory))
    assert close == [True] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_with_a_plain_tape(two_ranks, kind):
    message, value = only(two_ranks("raw_loop", kind))
    assert "kr.DistributedGradientTape(tape)" in message
    assert value == [1.0]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_reduced_once(two_ranks, kind):
    results = two_ranks("reduced_once", kind)
    for rank, found in enumerate(results):
        assert "which would reduce it again" in found["both"]
        assert "reduces its gradients already" in found["other settings"]
        assert found["again"] == [-3.0]
        for name in ("not a member", "tape of others"):
            assert found[name] == [-1.0 - rank]
        assert found["weight"] == pytest.approx([-(1.0 + 2.0 * 3.0) / 4.0])


@pytest.mark.parametrize("kind", KINDS)
def test_momentum_correction(two_ranks, kind):
    """From 0.05, which it starts with, to 0.025."""
    found = only(two_ranks("momentum_correction", kind))
    for corrected, values in found.items():
        value, momentum, expected = 0.0, 0.0, []
        for rate in (0.05, 0.05, 0.025, 0.025):
            if corrected and len(expected) == 2:
                momentum *= 0.5
            momentum = 0.5 * momentum - rate
            value += momentum
            expected.append(value)
        assert values == pytest.approx(expected, rel=1e-5), corrected


@pytest.mark.parametrize("case", CHANGES)
def test_what_one_rank_changes_between_two_trainings(two_ranks, case):
    made, kind, text = only(two_ranks("changed_between_fits", *case))
    assert kind == "ConsistencyError", text
    assert made == 0
    first = text.partition("the first being '")[2].partition("'")[0]
    assert ("learning_rate" in first) == (case[1] == "rate")


@pytest.mark.parametrize("kind", KINDS)
def test_slots_that_one_rank_changes_in_a_loop(two_ranks, kind):
    made, error, text = only(two_ranks("changed_in_a_tape_loop", kind))
    assert error == "ConsistencyError", text
    assert made <= 1
    assert "rank 0: 1" in text


@pytest.mark.parametrize("case", OWN_METHODS)
def test_methods_that_change_gradients_get_those_of_all_ranks(two_ranks, case):
    for largest in two_ranks("own_methods", *case):
        assert largest < 1e-5


@pytest.mark.parametrize("case", OWN_METHODS)
def test_methods_that_change_gradients_of_a_pass_are_refused(two_ranks, case):
    _, method = case
    for said in two_ranks("own_methods_and_passes", *case):
        if method == "apply_gradients":
            assert said == "trained"
            continue
        assert f"{method}` of Own would change the gradients" in said
        assert "Received: backward_passes_per_step=2" in said


@pytest.mark.parametrize("kind", SERVED)
def test_saved_models_have_no_operation_of_ours(two_ranks, directory, kind):
    (code, printed, errors), _ = two_ranks("served", directory, kind)
    assert code == 0, errors
    assert "served" in printed
