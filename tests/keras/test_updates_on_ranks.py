"""What is found out when gradients are about to be used, on two ranks."""

import pytest
import rank_updates

from tests.harness import only, run_calls

# One job makes many calls, and the first test of a module waits for it.
pytestmark = pytest.mark.timeout(900)

WEIGHTED = ["graph", "jit", "eager", "tape", "weight", "weight eager"]
PATHS = ["fit", "tape", "compiled", "eager"]
OWN_METHODS = [
    (method, passes, settings)
    for method, passes in [
        *(("apply", 1), ("apply_gradients", 1)),
        *(("apply", 2), ("apply_gradients", 2)),
    ]
    for settings in [
        (("jit_compile", True),),
        *([(("run_eagerly", True),)] if passes == 1 else []),
    ]
]
CALLS = [
    *(("forgotten_callback", case) for case in rank_updates.SETTINGS),
    ("forgotten_with_mixed_precision",),
    ("one_rank_traces_again",),
    ("local_variables",),
    ("tapes", False),
    ("tapes", True),
    *(("numbered_otherwise", case) for case in PATHS),
    ("another_model",),
    ("variables_made_in_the_function",),
    ("weighted_mistakes",),
    ("warned",),
    *(("own_methods", *case) for case in OWN_METHODS),
    ("bad_steps_of_one_rank",),
    *(("weighted", case) for case in ("plain", *WEIGHTED)),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("updates"))


@pytest.fixture(scope="module")
def two_ranks(directory):
    calls = [
        *CALLS,
        ("optimizers",),
        ("fit_as_horovod", directory),
        ("tapes_as_horovod",),
        # The last: nothing is compared after a join.
        ("joined_before_the_first_step",),
        ("collectives",),
    ]
    return run_calls(rank_updates, 2, calls, deadline=280)


def check_text(failed, first="model/dense/kernel"):
    kind, text = failed
    assert kind == "ConsistencyError"
    assert f"the first being '{first}'" in text
    assert "rank 0 has one value and rank 1 has another" in text
    assert "kr.callbacks.BroadcastGlobalVariablesCallback()" in text
    assert "kr.broadcast_model(model, optimizers=[optimizer])" in text


@pytest.mark.parametrize("case", rank_updates.SETTINGS)
def test_initial_values_that_were_not_shared(two_ranks, case):
    failed, unchanged, trained = only(two_ranks("forgotten_callback", case))
    check_text(failed)
    assert unchanged
    assert trained


def test_they_are_compared_before_gradients_accumulate(two_ranks):
    check_text(only(two_ranks("forgotten_with_mixed_precision")))


def test_a_rank_that_traces_again_compares_nothing(two_ranks):
    assert only(two_ranks("one_rank_traces_again"))


def test_values_of_local_variables_may_differ(two_ranks):
    first, second = two_ranks("local_variables")
    assert first[0] != second[0]
    assert first[2:] == second[2:]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_tape_lets_one_step_pass(two_ranks, compiled):
    results = two_ranks("tapes", compiled)
    for failed, _ in results:
        check_text(failed)
    only([trained for _, trained in results])


@pytest.mark.parametrize("case", PATHS)
def test_variables_that_have_other_paths_on_each_rank(two_ranks, case):
    first, second = two_ranks("numbered_otherwise", case)
    assert first[0] != second[0]
    assert first[1] == second[1]


def test_variables_of_another_model(two_ranks):
    kind, text = only(two_ranks("another_model"))
    assert kind == "ConsistencyError"
    assert "rank 0 has sequential/dense/kernel of float32 (3, 2)" in text
    assert "rank 1 has sequential/dense/kernel of float32 (3, 3)" in text


def test_variables_that_a_function_makes(two_ranks):
    for _, text in two_ranks("variables_made_in_the_function"):
        assert "the first being 'w'" in text


def test_collectives_of_programs_for_horovod(two_ranks):
    assert len(only(two_ranks("collectives"))) > 25


def test_wrappers_of_programs_for_horovod(two_ranks):
    kept, *others = only(two_ranks("optimizers"))
    assert kept == [
        *((False, None), (True, None), (False, 2), (True, None)),
        (False, None),
    ]
    assert others == [True, 2, True]


def test_fit_of_programs_for_horovod(two_ranks, directory):
    found = only(two_ranks("fit_as_horovod", directory))
    assert found["bare"]
    assert found["errors"] == ["TypeError", "ValueError"]


def test_loops_of_programs_for_horovod(two_ranks):
    first, second = two_ranks("tapes_as_horovod")
    assert first["shared"] == second["shared"]
    assert first["own"] != second["own"]
    assert first["settings"] == (True, True)


@pytest.mark.parametrize("case", WEIGHTED)
def test_the_mean_over_the_whole_batch(two_ranks, case):
    """In float64: far below the 1e-6 that float32 could show."""
    assert only(two_ranks("weighted", case)) < 1e-12


def test_the_mean_of_the_means_is_another(two_ranks):
    assert only(two_ranks("weighted", "plain")) > 1e-2


def test_losses_that_should_be_weighted_are_said_once(two_ranks):
    """By the lowest rank: what divides is told by the data, not its size."""
    first, second = two_ranks("warned")
    assert not any(second.values())
    said = {name for name, lines in first.items() if lines}
    assert said == {"mask", "weights", "tape, mask", "tape, weights"}
    for name in said:
        (line,) = first[name]
        assert "not what one process would do" in line


def test_what_cannot_be_weighted(two_ranks):
    for found in two_ranks("weighted_mistakes"):
        for name, text in {
            "op": "needs `op=kr.Average`",
            "loop": "is used outside of `fit`",
            "tape": "saw no loss of `keras.losses`",
            "sum": "`weight` is for `op=kr.Average`",
            "v1": "is for optimizers of Keras 3",
        }.items():
            assert text in found.pop(name), name
        assert found == {}


def test_a_rank_may_join_before_its_first_step(two_ranks):
    only(two_ranks("joined_before_the_first_step"))


@pytest.mark.parametrize("case", OWN_METHODS)
def test_methods_that_change_gradients_get_those_of_all_ranks(two_ranks, case):
    for difference in two_ranks("own_methods", *case):
        assert difference < 1e-5


def test_all_ranks_skip_a_step_that_is_bad_on_one(two_ranks):
    changed, _ = only(two_ranks("bad_steps_of_one_rank"))
    assert changed == [True, False, True]
