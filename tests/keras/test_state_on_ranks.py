"""The state of a model that ranks share, and what is each rank's own."""

import numpy as np
import pytest
import rank_state

from tests.harness import only, run_calls

pytestmark = pytest.mark.timeout(900)

IN_DIRECTORIES = [
    "generative",
    "interrupted_gan",
    "normalization",
    "owned_state",
    "resumed",
    "averaged",
    "asynchronous",
    "copied",
]
CALLS = [
    ("random_numbers",),
    ("lazy_gan", False),
    ("lazy_gan", True),
    ("vocabularies",),
    ("arguments",),
]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    directory = tmp_path_factory.mktemp("state")
    calls = [*CALLS]
    for name in IN_DIRECTORIES:
        (directory / name).mkdir()
        calls.append((name, str(directory / name)))
    result = run_calls(rank_state, 2, calls, deadline=400)

    def of_call(name, *arguments):
        if name in IN_DIRECTORIES:
            arguments = (str(directory / name),)
        return result(name, *arguments)

    return of_call


def test_ranks_draw_random_numbers_of_their_own(two_ranks):
    first, second = two_ranks("random_numbers")
    for kind in ("built", "at the first step", "again"):
        for name, drawn in first[kind]["drawn"].items():
            assert drawn != second[kind]["drawn"][name], (kind, name)
    # The same ones in each run, and no matter when the model was built.
    assert first["built"] == first["again"]
    assert second["built"] == second["again"]


def test_the_seeds_of_ranks(two_ranks):
    first, second = two_ranks("random_numbers")
    for kind in ("built", "at the first step"):
        *layers, _ = zip(first[kind]["one"], second[kind]["one"], strict=True)
        for (seed, count), (other, other_count) in layers:
            # The finalizer of MurmurHash3, of 1.
            assert other == seed ^ 0x514E28B7
            assert other_count == count + 1
        # Sharing again makes of them what they would be without it.
        *layers, _ = zip(first[kind]["one"], first[kind]["three"], strict=True)
        assert all(a[0] == b[0] and a[1] < b[1] for a, b in layers)
        *layers, _ = zip(
            second[kind]["one"], second[kind]["three"], strict=True
        )
        assert all(a[0] == b[0] and a[1] < b[1] for a, b in layers)


def test_the_same_random_numbers_for_those_who_want_them(two_ranks):
    first, second = two_ranks("random_numbers")
    assert first["shared"] == second["shared"]


def test_a_broadcast_in_a_loop(two_ranks):
    first, second = two_ranks("random_numbers")
    for result in (first, second):
        seeds = result["loop"]["seeds"]
        assert seeds[0] == seeds[1] == seeds[2]
    assert first["loop"]["seeds"] != second["loop"]["seeds"]
    for name, drawn in first["loop"]["drawn"].items():
        assert drawn != second["loop"]["drawn"][name], name


def test_a_broadcast_of_the_variables_of_a_model(two_ranks):
    first, second = two_ranks("random_numbers")
    # The last generator is not the model's, but that of Keras.
    for result in (first, second):
        expected = result["model"][:-1]
        for found in result["variables"][:2]:
            assert found[:-1] == expected
    assert first["model"][0] != second["model"][0]
    assert first["variables"][2][:-1] == second["variables"][2][:-1]


@pytest.mark.parametrize("make", ["make_gan", "make_vae"])
def test_a_model_without_a_call(two_ranks, make):
    first, second = (result[make] for result in two_ranks("generative"))
    for key in ("history", "weights", "iterations", "variables"):
        only([first[key], second[key]])
    for result in (first, second):
        assert result["step"] == 1
        assert result["restored"]
        assert result["goes_on"]
    assert first["seeds"] != second["seeds"]


def test_the_optimizers_of_a_model(two_ranks):
    results = two_ranks("generative")
    gan = results[0]["make_gan"]
    # Nothing but the number of steps and the learning rate of the one that
    # nobody uses.
    assert gan["variables"] == {
        "optimizer": 2,
        "d_optimizer": 2 + 2 * 4,
        "g_optimizer": 2 + 4,
    }
    assert gan["iterations"] == {
        "optimizer": 0,
        "d_optimizer": 4,
        "g_optimizer": 4,
    }
    assert results[0]["make_vae"]["iterations"] == {"optimizer": 4}


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_model_without_a_call_or_weights(two_ranks, run_eagerly):
    result = only(two_ranks("lazy_gan", run_eagerly))
    assert result["loss"] == ["d_loss", "g_loss"]
    assert result["iterations"] == 2
    assert not result["train_step"]


def test_an_interrupted_gan(two_ranks):
    assert only(two_ranks("interrupted_gan")) == (True, "Interrupted")


def test_normalization(two_ranks):
    result = only(two_ranks("normalization"))
    assert result["untouched"] == [10.0, 20.0, 30.0]
    deviation = np.sqrt(200 / 3)
    expected = (np.array([10.0, 20.0, 30.0]) - 20.0) / deviation
    for key in ("shared", "restored", "called"):
        np.testing.assert_allclose(result[key], expected, rtol=1e-5, atol=1e-6)
    for key in ("loss", "restored loss"):
        np.testing.assert_allclose(
            result[key], [np.mean(expected**2)], rtol=1e-5
        )


def test_layers_that_have_learned_different_things(two_ranks):
    errors = only(two_ranks("vocabularies"))
    assert errors.pop("mended") == ("nothing", "")
    for name, (kind, message) in errors.items():
        assert kind == "ConsistencyError", (name, message)
        assert f"({name}) has not learned the same on all ranks" in message
        assert "ranks [0] and ranks [1] differ in" in message
        assert "before `kr.data.shard`" in message


def test_what_each_rank_owns_is_restored(two_ranks):
    first, second = two_ranks("owned_state")
    for name, saved in first["saved"].items():
        assert (saved == second["saved"][name]) == (name == "shared"), name
    for result in (first, second):
        for key in ("restored", "goes_on", "kept"):
            assert result[key], key


def test_a_rank_that_was_not_there_when_it_was_saved(two_ranks):
    first, second = two_ranks("owned_state")
    assert first["grown"]["weights"] == second["grown"]["weights"]
    assert first["grown"]["seeds"] == first["saved"]["seeds"]
    # Folded as when it was there.
    assert second["grown"]["seeds"] == second["saved"]["seeds"]
    assert second["shared"] == first["shared"] == first["saved"]["seeds"]


@pytest.mark.longer("saves")
def test_a_training_goes_on_with_what_each_rank_owns(two_ranks):
    for result in two_ranks("resumed"):
        assert set(result) == set(rank_state.RESUMED)
        for name, found in result.items():
            assert found["same"], name


@pytest.mark.longer("saves")
def test_nothing_is_done_again_for_batches_passed_over(two_ranks):
    first, second = two_ranks("resumed")
    for result in (first, second):
        for name, found in result.items():
            assert found["file"], name
    # Of six in each of two epochs.
    whole = [*range(6), *range(6)]
    cases = [name for name in first if name.startswith("batch")]
    assert cases
    for name in cases:
        # It was not called after the fifth, when the training ended.
        before, after = first[name]["batches"]
        assert before == whole[:5]
        # Behind the callback that goes on: it may have missed the fourth.
        assert after == whole[3:]
        assert second[name]["batches"] == ([], [])


def test_moving_statistics_of_all_ranks(two_ranks):
    first, second = two_ranks("averaged")
    means = np.array([first["mine"][0], second["mine"][0]], "float64")
    variances = np.array([first["mine"][1], second["mine"][1]], "float64")
    assert not np.allclose(means[0], means[1])
    expected = [means.mean(0), variances.mean(0) + means.var(0)]
    for result in (first, second):
        assert result["kept"]
        for found in result["found"]:
            for value, wanted in zip(found, expected, strict=True):
                np.testing.assert_allclose(value, wanted, rtol=1e-5)


def test_arguments_of_horovod(two_ranks):
    first, second = two_ranks("arguments")
    for result in (first, second):
        # A device is not a `check` that is left out.
        assert result["device"][0] == "nothing"
        assert result["checked"][0] == "ConsistencyError"
        assert result["local"] == ("nothing", True)
        kind, message = result["bool"]
        assert kind == "ValueError"
        assert "`check=False`" in message
    assert not second["device"][1]


def test_a_checkpoint_that_is_written_while_ranks_train(two_ranks):
    for result in two_ranks("asynchronous"):
        assert result["not_yet"]
        assert result["there"] == ["step-00000001"]
        # As it was when it was saved.
        assert result["same"]
        assert result["changed"]
        assert len(result["errors"]) == 5
        # Saved after the third, it was an error before the sixth and last.
        assert result["batches"] in ([0, 1, 2, 3], [0, 1, 2, 3, 4])
        for kind, message in result["errors"]:
            assert kind == "CheckpointError"
            assert "Rank 0 could not write the checkpoint of step" in message
            assert "/proc/x" in message


def test_a_checkpoint_in_two_places(two_ranks):
    result = only(two_ranks("copied"))
    assert result["found"] == [(3, True), (2, True), (2, True)]
    assert result["there"] == [[], ["step-00000002"]]
    assert result["same"][0] == "ValueError"
    # Deleted in both when the training has ended.
    assert result["left"] == [False, False]
