"""Trainings that come apart after they began alike, on two ranks."""

import pytest
import rank_divergence

from tests.harness import only, run_calls

# One job makes many calls, and the first test of a module waits for it.
pytestmark = pytest.mark.timeout(900)

RESTORED = ["optimizer", "optimizer graph", "tape", "tape graph"]
CHANGED = [
    *("optimizer", "optimizer graph", "optimizer jit", "tape", "tape jit"),
    *("optimizer concrete", "optimizer nested", "tape graph"),
]
PARTS = {"rate": "adam/learning_rate", "one weight": "sequential/out/kernel"}
SETTINGS = [
    *(("optimizer graph", "schedule"), ("tape", "schedule")),
    *(("optimizer jit", "weight decay"), ("tape graph", "weight decay")),
]
BETWEEN = [
    *(("weights", "fit", case) for case in rank_divergence._COMPILED),
    *(("rate", "fit", "graph"), ("rate", "train_on_batch", "jit")),
    ("weights", "train_on_batch", "graph"),
]
ALLOWED = [
    *("passes_of_one_rank_more", "steps_without_reduction"),
    "traced_again_by_one_rank",
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("divergence"))


@pytest.fixture(scope="module")
def two_ranks(directory):
    calls = [
        *(("restored_on_one_rank", way, directory) for way in RESTORED),
        *(("changed_in_a_loop", way, 5) for way in CHANGED),
        *(("told_by_parts", change) for change in PARTS),
        *(("another_setting", *case) for case in SETTINGS),
        *(("between_fits", *case) for case in BETWEEN),
        ("allowed",),
        *((name,) for name in ALLOWED),
        ("same_results",),
    ]
    return run_calls(rank_divergence, 2, calls, deadline=280)


def check_told(found, first, latest):
    """Checks that it was told after `latest` steps at most, and what."""
    made, kind, text = only(found)
    assert kind == "ConsistencyError", text
    assert made <= latest, text
    assert "The ranks do not train the same model: before " in text
    assert f"the first being '{first}'" in text
    assert "rank 0 has one value and rank 1 has another" in text
    assert "kr.broadcast_model(model, optimizers=[optimizer])" in text
    return text


@pytest.mark.parametrize("way", RESTORED)
def test_state_of_the_optimizer_of_one_rank(two_ranks, directory, way):
    found = two_ranks("restored_on_one_rank", way, directory)
    # What a tape has reduced may be shared after the first step.
    first_step = int("tape" in way)
    _, _, text = found[0]
    first = text.partition("the first being '")[2].partition("'")[0]
    check_told(found, first, first_step)
    assert "momentum" in first or first_step


@pytest.mark.parametrize("way", CHANGED)
def test_a_learning_rate_that_one_rank_sets(two_ranks, way):
    text = check_told(
        two_ranks("changed_in_a_loop", way, 5), "sgd/learning_rate", 3
    )
    assert "(rank 0: 0.5, rank 1: 0.01)" in text


@pytest.mark.parametrize("change", PARTS)
def test_looks_at_a_part_tell_of_all(two_ranks, change):
    found = two_ranks("told_by_parts", change)
    # At the latest by the third look, before update 32.
    check_told([each[:3] for each in found], PARTS[change], 31 - 5)
    for *_, sizes in found:
        assert {count for _, count in sizes} == {8}
        # Before the first update at all.
        assert sizes[0][0] == 8
        assert {count for count, _ in sizes[1:]} == {3}
    assert found[0][3] == found[1][3]


@pytest.mark.parametrize(("way", "setting"), SETTINGS)
def test_settings_that_are_in_no_variable(two_ranks, way, setting):
    latest = 3 if setting == "schedule" else 1
    found = two_ranks("another_setting", way, setting)
    text = check_told(found, "sequential/hidden/kernel", latest)
    assert "(at [0, 0] rank 0: " in text


@pytest.mark.parametrize("case", BETWEEN)
def test_what_one_rank_changes_between_two_trainings(two_ranks, case):
    change, then, _ = case
    first = "sgd/learning_rate" if change == "rate" else ""
    first = first or "sequential/hidden/kernel"
    text = check_told(two_ranks("between_fits", *case), first, 0)
    assert ("before update " in text) and then


def test_what_ranks_have_of_their_own(two_ranks):
    for told in two_ranks("allowed"):
        assert [kind for _, kind, _ in told] == [None] * 3, told


@pytest.mark.parametrize("name", ALLOWED)
def test_ranks_that_do_not_do_the_same_in_between(two_ranks, name):
    for found in two_ranks(name):
        assert found[-2:] in ([None, None], (None, None)), found


def test_comparisons_become_rare_and_change_nothing(two_ranks):
    first, entries, weights = only(two_ranks("same_results"))
    # Two gradients in each step, and comparisons before steps 4, 8, 16.
    assert entries == 16 * 2 + 3
    assert first > 2 * 2 + 1
    assert weights
