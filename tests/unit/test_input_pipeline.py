"""What is said of an input pipeline that was measured."""

import pytest

from keras_ring.callbacks import InputPipeline
from keras_ring.keras.callbacks.input_pipeline import described


def results(real, synthetic, data):
    return {
        "real": [real] * len(data),
        "synthetic": [synthetic] * len(data),
        "data": data,
    }


def test_the_gap_and_who_waits_most():
    first, *advice = described(
        results(0.0318, 0.0197, [0.003, 0.004, 0.014]), [0, 1, 3]
    )
    assert first == (
        "the input pipeline costs 38% of a step: 12.1 ms of 31.8 ms; rank 3"
        " waits most for it, 14.0 ms."
    )
    assert 1 <= len(advice) <= 4
    for word in ("cache", "prefetch", "num_parallel_calls", "files="):
        assert word in " ".join(advice)


def test_ranks_that_wait_alike_are_not_named():
    first, *_ = described(
        results(0.03, 0.02, [0.01, 0.0101, 0.0102]), [0, 1, 2]
    )
    assert "rank" not in first


def test_one_rank_has_no_other():
    first, *_ = described(results(0.03, 0.02, [0.01]), [0])
    assert first.endswith("33% of a step: 10.0 ms of 30.0 ms.")


@pytest.mark.parametrize("synthetic", [0.0198, 0.02, 0.021])
def test_one_that_is_fast_enough_needs_no_advice(synthetic):
    (line,) = described(results(0.02, synthetic, [0.0, 0.0]), [0, 1])
    assert line.endswith("It is fast enough.")
    assert "-" not in line


def test_steps_must_be_some():
    with pytest.raises(ValueError, match="synthetic_steps=0"):
        InputPipeline(0)
