"""Programs of TensorFlow 1: graphs, sessions, hooks, `tf.estimator`."""

import numpy as np
import pytest
import rank_tf1
from lane import HAS_ESTIMATOR, run_calls

from tests.harness import only, run_ranks

pytestmark = pytest.mark.timeout(900)

PARITY = [
    *(("train", name) for name in rank_tf1.OPTIMIZERS),
    *(("train", "Adam", name) for name in list(rank_tf1.SETTINGS)[1:]),
    ("train", "Momentum", "plain", True),
    ("train", "Momentum", "passes", True),
]
CHANGED = [("one", "plain"), ("rows/Adam", "plain"), ("one", "passes")]
ESTIMATOR = ("estimator", "train_and_evaluate") if HAS_ESTIMATOR else ()
needs_estimator = pytest.mark.skipif(
    not HAS_ESTIMATOR, reason="this TensorFlow has no tf.estimator"
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("tf1")


@pytest.fixture(scope="module")
def one_rank(directory):
    of_estimators = [
        (name, str(directory / f"one{name}")) for name in ESTIMATOR
    ]
    return run_calls(rank_tf1, 1, [*PARITY, *of_estimators])


@pytest.fixture(scope="module")
def two_ranks(directory):
    where = str(directory / "monitored")
    return run_calls(
        rank_tf1,
        2,
        [
            ("local_update",),
            ("forgotten_broadcast",),
            *(("changed_in_a_session", *case) for case in CHANGED),
            *PARITY,
            ("eagerly",),
            ("own_gradients",),
            ("arguments",),
            ("every_optimizer",),
            ("copies",),
            ("monitored", where, 7, 1),
            ("monitored", where, 12, 100),
            *((name, str(directory / f"two{name}")) for name in ESTIMATOR),
        ],
    )


def assert_close(one, several):
    for a, b in zip(one, several, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("call", PARITY, ids=str)
def test_parity_with_one_process_on_the_whole_batch(one_rank, two_ranks, call):
    (one,), ranks = one_rank(*call), two_ranks(*call)
    assert_close(one["weights"], only([rank["weights"] for rank in ranks]))
    passes = 3 if "passes" in call else 1
    step = only([rank["step"] for rank in ranks])
    assert step == one["step"] == rank_tf1.UPDATES / passes


def test_gradients_of_several_passes_are_reduced_once(two_ranks):
    """Of three variables, one of which has rows; a group is one collective."""
    for settings, steps, gathers in (
        ((), rank_tf1.UPDATES, True),
        (("dense",), rank_tf1.UPDATES, False),
        (("passes",), rank_tf1.UPDATES / 3, False),
    ):
        for found in two_ranks("train", "Adam", *settings):
            assert found["collectives"] == 3 * steps, settings
            assert found["gathers"] == gathers, settings


def test_eager_execution(two_ranks):
    assert only(two_ranks("eagerly")) == [0.0, -1.5, -1.5, -3.75]


def test_gradients_from_elsewhere_are_reduced(two_ranks):
    assert two_ranks("own_gradients") == [(-3.0, -1.0), (-3.0, -2.0)]


def test_arguments(two_ranks):
    for rank, found in enumerate(two_ranks("arguments")):
        assert found == {
            **{"Average": 1.5, "Sum": 3.0, "Min": 1.0, "Max": 2.0},
            **{"Product": 2.0, "none": 1.0 + 2.0**-12},
            **{"fp16": 1.0, "bf16": 1.0},
            **{"local True": 1.0, "local False": 2.0},
            **{"summed passes": 3.0, "process_set": 1.0 + rank},
        }


def test_every_optimizer(two_ranks):
    found = only(two_ranks("every_optimizer"))
    assert len(found) >= 10
    for name, (plain, ours) in found.items():
        assert plain != [1.0, 2.0], name
        assert ours == pytest.approx(plain, rel=1e-6), name


def test_local_updates_are_refused(two_ranks):
    text = only(two_ranks("local_update"))
    assert "'Adam'" in text
    assert "kr.DistributedOptimizer(optimizer)" in text


def test_initial_values_that_were_not_shared(two_ranks):
    for text in two_ranks("forgotten_broadcast"):
        assert "begin to train from different values" in text
        assert "the first being 'rows', of which rank 0 has one" in text
        assert "kr.broadcast_global_variables(0)" in text


@pytest.mark.parametrize("case", CHANGED)
def test_what_one_rank_changes_in_a_session(two_ranks, case):
    for made, text in two_ranks("changed_in_a_session", *case):
        assert "The ranks do not train the same model: before update " in text
        # What differs by then, the variable before what Adam has of it.
        assert f"the first being '{case[0].partition('/')[0]}'" in text
        # Behind six steps, compared behind step 8; or 12, with three passes.
        assert made == (5 if case[1] == "passes" else 1)


def test_copies(two_ranks):
    assert only(two_ranks("copies")) == [True, True]


def test_all_ranks_go_on_from_the_checkpoint_of_rank_0(two_ranks, directory):
    where = str(directory / "monitored")
    first = only(two_ranks("monitored", where, 7, 1))
    second = only(two_ranks("monitored", where, 12, 100))
    assert first["begin"] == 0
    assert second["begin"] == 7
    assert second["begun"] == first["end"]
    assert second["end"] != first["end"]


def test_a_lost_rank_ends_a_monitored_session():
    result = run_ranks(rank_tf1.lost, 2, deadline=100, expect={0: 10, 1: -9})
    assert result.ranks[0].error_type == "JobEndedError"
    assert "rank 1" in result.ranks[0].error


@needs_estimator
def test_estimator(one_rank, two_ranks, directory):
    (one,) = one_rank("estimator", str(directory / "oneestimator"))
    two = only(two_ranks("estimator", str(directory / "twoestimator")))
    assert two["step"] == one["step"] == 30
    assert_close(one["before"], two["before"])
    assert_close(one["after"], two["after"])


@needs_estimator
def test_train_and_evaluate(one_rank, two_ranks, directory):
    name = "train_and_evaluate"
    (one,) = one_rank(name, str(directory / f"one{name}"))
    two = only(two_ranks(name, str(directory / f"two{name}")))
    assert two["step"] == one["step"] == 30
    assert_close(one["weights"], two["weights"])
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-9)
