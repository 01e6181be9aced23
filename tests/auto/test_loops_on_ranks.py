"""Loops of a program's own, and single batches, on ranks."""

import numpy as np
import pytest

from tests.auto import rank_loops
from tests.auto.alike import require_alike, require_same_weights
from tests.harness import only, run_calls

pytestmark = pytest.mark.timeout(900)

EXACT = [
    ("compiled_step", "mean"),
    ("compiled_step", "keras"),
    ("compiled_step", "keras_sum"),
    ("compiled_step", "rows"),
    ("accumulated",),
    ("compiled_by_xla",),
    ("with_moments",),
    ("fewer_rows_than_ranks",),
    ("scaled_loss",),
    ("trains_for_some_arguments",),
    ("fit_and_loop",),
    ("single_batches_of_own_step",),
    ("values_by_the_name_of_a_metric",),
    ("counted", "all"),
]
OTHERS = [
    *(("counted", how) for how in ("largest", "result", "ragged")),
    *(("half_precision", how) for how in ("fit", "step")),
    *(("single_batches_that", how) for how in ("sum", "differ")),
    ("refusals",),
    ("later_batches",),
    ("unlike_data",),
    ("changed_data",),
    ("unlike_state",),
    ("shared_state",),
    ("of_chance",),
    ("random_numbers",),
    ("explained",),
    ("ways_of_small_values",),
]


@pytest.fixture(scope="module")
def one_rank():
    return run_calls(rank_loops, 1, EXACT, deadline=280)


@pytest.fixture(scope="module")
def three_ranks():
    return run_calls(
        rank_loops, rank_loops.RANKS, [*EXACT, *OTHERS], deadline=400
    )


@pytest.mark.parametrize(
    "call", EXACT, ids=lambda call: "-".join(map(str, call))
)
def test_it_is_what_one_process_makes(call, one_rank, three_ranks):
    (wanted,) = one_rank(*call)
    of_ranks = three_ranks(*call)
    for found in of_ranks:
        require_alike(found, wanted)
    require_same_weights([found["weights"] for found in of_ranks])


def test_what_rounding_leaves_tells_nothing(three_ranks):
    # As of a zero: later batches tell.
    undecided, nothing = ["MEAN", "SAME", "SUM"], []
    for found in three_ranks("ways_of_small_values"):
        assert found == [undecided, nothing] * 2


@pytest.mark.parametrize(
    "how, wanted",
    [
        ("largest", "changes the variable 'Variable' in a way"),
        ("result", "ask for `metric.result()` outside of the function"),
        ("ragged", "returns a `tf.RaggedTensor`"),
    ],
)
def test_what_parts_do_not_make_is_refused(how, wanted, three_ranks):
    for text in three_ranks("counted", how):
        assert text.startswith("AutoError: rank_loops.py:"), text
        assert wanted in text


def test_steps_that_cannot_be_divided_are_refused(three_ranks):
    for texts in three_ranks("refusals"):
        for name, text in texts.items():
            assert text.startswith("AutoError: rank_"), name
        for name in ("sum", "pairs"):
            assert "does not give the gradients of the whole" in texts[name]
        assert "it is 0.3333 times as large, as of a sum" not in texts["pairs"]
        assert "which is given no batch" in texts["no_batch"]
        assert "arguments of [7, 9] rows" in texts["other_rows"]
        assert "does not run on a part of the rows" in texts["shape"]
        assert "with `@tf.function` before it" in texts["eagerly"]
        assert "`--batch per-rank`" in texts["per_rank"]
        assert "`--batch per-rank`" in texts["per_rank_batch"]


def test_a_step_is_checked_on_later_batches(three_ranks):
    for text in three_ranks("later_batches"):
        assert text.startswith("AutoError: rank_loops.py:"), text
        assert "does not give the gradients of the whole" in text
        assert "tf.random.normal((batch_size, ...))" in text


def test_a_single_batch_is_checked(three_ranks):
    for text in three_ranks("single_batches_that", "sum"):
        assert text.startswith("AutoError: The step of model "), text
        assert "does not give the gradients of the whole" in text


def test_a_single_batch_begins_with_the_weights_of_rank_0(three_ranks):
    weights = three_ranks("single_batches_that", "differ")
    require_same_weights(weights)
    assert all((each == 1.0).all() for each in weights[0])


@pytest.mark.parametrize("how", ["fit", "step"])
def test_steps_of_16_bits_are_compared_as_such(how, three_ranks):
    assert only(three_ranks("half_precision", how)) == "nothing"


def test_other_data_on_each_rank_are_found(three_ranks):
    for texts in three_ranks("unlike_data"):
        for name, text in texts.items():
            assert text.startswith("ConsistencyError: Of "), (name, text)


def test_the_same_data_may_be_changed_in_different_ways(three_ranks):
    texts, weights = zip(*three_ranks("changed_data"), strict=True)
    assert "change them in different ways" in texts[0]
    require_same_weights(weights)


def test_a_state_that_drifts_is_found(three_ranks):
    for text in three_ranks("unlike_state"):
        assert text.startswith("ConsistencyError: After 2 calls of 'step'")
        assert "'Variable'" in text


def test_ranks_begin_with_the_weights_of_rank_0(three_ranks):
    assert only(three_ranks("shared_state")) == 1.0


def test_a_step_that_cannot_be_checked_is_said_to_be(three_ranks):
    texts, weights = zip(*three_ranks("of_chance"), strict=True)
    assert "WARNING: step 'step' is not checked" in texts[0]
    assert "(checked on batches" not in texts[0]
    assert texts[1:] == ("", "")
    require_same_weights(weights)


def test_ranks_draw_numbers_of_their_own(three_ranks):
    noise, weights = zip(*three_ranks("random_numbers"), strict=True)
    assert all(np.array_equal(noise[0], each) for each in noise)
    parts = noise[0].reshape(3, 20)
    assert (parts[0] != parts[1]).all()
    assert (parts[1] != parts[2]).all()
    require_same_weights(weights)


def test_the_explanation_trains_nothing(three_ranks):
    (text, codes, same), *others = three_ranks("explained")
    assert "step 'step': each batch is divided by rows" in text
    assert "train_on_batch of model" in text
    assert codes == [0, 0]
    assert same
    assert [each[0] for each in others] == ["", ""]
