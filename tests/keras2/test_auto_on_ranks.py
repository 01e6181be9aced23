"""A program of one process on ranks, with Keras 2: what it is, what is refused.

The calls are those of Keras 3 (`tests/auto`), and some of Keras 2 alone.
"""

import numpy as np
import pytest
import rank_auto2
from lane import HAS_ESTIMATOR, run_calls

from tests.auto.alike import require_alike, require_same_weights

pytestmark = pytest.mark.timeout(900)

# Elsewhere `tf_keras`, which is nearly the same code: enough to see it work.
IS_KERAS2_LANE = HAS_ESTIMATOR
OWN_METHODS = ("apply_gradients", "compute_gradients", "minimize")
EXACT = [
    ("arrays",),
    ("rows_of_one_rank",),
    ("masked_rows",),
    ("own_step",),
    ("py_dataset",),
    ("results",),
    ("images", "fused"),
    ("compiled_step", "mean"),
    ("fit_and_loop",),
    ("own_metrics",),
    ("own_loss", "ratio"),
    ("layer", "center"),
    ("layer", "codebook"),
    ("tracked", 31, "weighted", "rows_told", "kl", "rate"),
    ("tracked", 45, "one_told", "columns", "sum_of_means"),
]
if IS_KERAS2_LANE:
    EXACT += [
        ("own_metrics", "eagerly"),
        *(
            ("own_loss", name)
            for name in rank_auto2.OWN_LOSSES
            if name != "ratio"
        ),
        ("own_loss", "root", "eagerly"),
        ("own_loss", "whole", "weighted"),
        ("own_losses_and_masks",),
        ("loss",),
        ("masks_and_weights",),
        ("loss_of", "sum_over_batch_size"),
        ("loss_of", "sum"),
        ("loss_function",),
        ("class_weights",),
        ("two_optimizers",),
        ("endless",),
        ("even_then_uneven",),
        *(("optimizer", name) for name in rank_auto2.OPTIMIZERS),
        *(("own_method", "new", name) for name in OWN_METHODS),
        *(("own_method", "legacy", name) for name in OWN_METHODS),
        ("sparse_gradients", "AdamW"),
        ("sparse_gradients", "legacy Adam"),
        ("added_losses",),
        ("images", "plain"),
        ("images", "without scale"),
        ("images", "of version 1"),
        ("branches", "graph"),
        ("branches", "several steps"),
        ("branches", "eagerly"),
        ("generator",),
        ("list_of_callbacks",),
        ("results_of_batches",),
        ("without_tape",),
        ("compiled_step", "keras"),
        ("compiled_step", "keras_sum"),
        ("with_moments",),
        ("fewer_rows_than_ranks",),
        ("scaled_loss",),
        ("trains_for_some_arguments",),
        ("single_batches_of_own_step",),
        ("counted", "all"),
    ]
OTHERS = ("operation", "renorm", "virtual_batch_size")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("auto"))


@pytest.fixture(scope="module")
def one_rank():
    return run_calls(rank_auto2, 1, EXACT)


@pytest.fixture(scope="module")
def two_ranks():
    return run_calls(rank_auto2, 2, EXACT)


@pytest.fixture(scope="module")
def three_ranks(folder):
    return run_calls(
        rank_auto2,
        3,
        [
            *EXACT,
            *(("own_step_that", how) for how in ("sum", "pairs", "chance")),
            *(("tracked_that", kind) for kind in ("root", "own_class")),
            *(("normalization_that", how) for how in OTHERS),
            ("train_function",),
            ("without_eager_execution",),
            ("few_rows", "arrays", 32),
            ("few_rows", "unknown", 31),
            ("files", folder),
            ("unlike_data",),
            ("changed_data",),
            ("refusals",),
            ("by_hand",),
            ("explained",),
            ("units_dropped",),
            ("batches_of_ranks",),
        ],
    )


@pytest.mark.parametrize("ranks", ["two_ranks", "three_ranks"])
@pytest.mark.parametrize(
    "call", EXACT, ids=lambda call: "-".join(map(str, call))
)
def test_it_is_what_one_process_makes(call, ranks, one_rank, request):
    (wanted,) = one_rank(*call)
    of_ranks = request.getfixturevalue(ranks)(*call)
    for found in of_ranks:
        # Images are of float32.
        require_alike(found, wanted, bound=1e-5 if "images" in call else 1e-12)
    if "weights" in wanted:
        require_same_weights([found["weights"] for found in of_ranks])


def test_a_step_that_is_no_mean_over_rows_is_refused(three_ranks):
    for how in ("sum", "pairs"):
        for text in three_ranks("own_step_that", how):
            assert text.startswith("AutoError: The step of model 'own'"), text
            assert "gradients of the whole: of 'own/dense/kernel'" in text


@pytest.mark.parametrize("kind", ["root", "own_class"])
def test_a_metric_of_what_is_no_mean_is_refused(kind, three_ranks):
    for text in three_ranks("tracked_that", kind):
        assert text.startswith("AutoError: The step of model 'tracks"), text
        assert f"updates metric '{kind}' (class " in text


def test_a_step_that_cannot_be_checked_is_said_to_be(three_ranks):
    first, *others = three_ranks("own_step_that", "chance")
    assert "WARNING: the step of model 'own' (rank_auto.py:" in first
    assert ") is not checked, for it draws random numbers" in first
    assert others == ["", ""]


def test_operations_in_the_place_of_layers_are_checked(three_ranks):
    for text in three_ranks("normalization_that", "operation"):
        assert text.startswith("AutoError: The step of model 'model'"), text


@pytest.mark.parametrize("how", ["renorm", "virtual_batch_size"])
def test_normalization_that_goes_by_the_part_is_refused(how, three_ranks):
    for text in three_ranks("normalization_that", how):
        assert text.startswith("AutoError: Layer "), text
        assert f"with `{how}`" in text


def test_a_train_function_of_ones_own_is_refused(three_ranks):
    for text in three_ranks("train_function"):
        assert text.startswith("AutoError: rank_auto2.py:"), text
        assert "in a loop of the program's own" in text


def test_a_program_needs_eager_execution(three_ranks):
    for texts in three_ranks("without_eager_execution"):
        for name, text in texts.items():
            assert text.startswith("AutoError: "), text
            assert f"calls `tf.compat.v1.{name}`" in text


@pytest.mark.parametrize(
    ("kind", "rows", "said"),
    [("arrays", 32, "the last has 2 rows"), ("unknown", 31, "one has 1 row")],
)
def test_a_step_of_ones_own_needs_a_row_on_each_rank(
    kind, rows, said, three_ranks
):
    for text, steps in three_ranks("few_rows", kind, rows):
        assert text.startswith("AutoError: rank_auto.py:"), text
        assert f"{said}, fewer than there are ranks (3)." in text
        assert (steps == 0) == (kind == "arrays")


def test_rank_0_writes_what_is_one_file(three_ranks, folder):
    saved, same, own, best = zip(*three_ranks("files", folder), strict=True)
    # Two epochs of the callback, and `save`.
    assert saved == ([0, 0, 0], [], [])
    assert all(same)
    assert all(own)
    assert all(best)


def test_data_that_ranks_do_not_share_are_refused(three_ranks):
    for text in three_ranks("unlike_data"):
        assert text.startswith("ConsistencyError: Of "), text
    first, *_ = three_ranks("changed_data")
    assert "change them in different ways" in first


def test_what_cannot_be_exact_is_refused_with_its_line(three_ranks):
    for texts in three_ranks("refusals"):
        for text in texts.values():
            assert text.startswith("AutoError: rank_auto.py:"), text
        assert "tf.distribute.MirroredStrategy" in texts["strategy"]
        assert "kr.DistributedGradientTape" in texts["loop"]


def test_what_a_program_does_by_hand_is_left_alone(three_ranks):
    first, *_ = three_ranks("by_hand")
    assert "it is left alone" in first


def test_the_explanation_trains_nothing(three_ranks):
    first, *others = three_ranks("explained")
    assert "fit: 82 samples, about 27 each; batch 10 = 3 x 3 + 1" in first
    assert "nothing is trained" in first
    assert others == ["", ""]


def test_ranks_drop_different_units_of_equal_weights(three_ranks):
    dropped, weights = zip(*three_ranks("units_dropped"), strict=True)
    for one, other in ((0, 1), (1, 2), (2, 0)):
        for a, b in zip(dropped[one], dropped[other], strict=True):
            assert a.shape == b.shape == (5, 16)
            assert (a != b).any()
    require_same_weights(weights)


def test_batches_of_ranks_are_each_epoch_all(three_ranks):
    for seen, steps, per_epoch, _ in three_ranks("batches_of_ranks"):
        assert np.array_equal(seen, np.full(28, 2.0))
        assert per_epoch == 3
        assert steps == 2 * 3
    require_same_weights([each[3] for each in three_ranks("batches_of_ranks")])
