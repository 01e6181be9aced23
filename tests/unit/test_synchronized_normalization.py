"""`synchronized=True` where a model is trained by some of the ranks."""

import types

import keras
import pytest

import keras_ring as kr
from keras_ring.core import topology
from keras_ring.keras.model import synchronized_normalization


def model_of(layer):
    return keras.Sequential([keras.Input((2,)), layer])


@pytest.mark.parametrize(
    ("ranks", "synchronized", "is_error"),
    [
        ([0, 1, 2, 3], True, False),
        ([0, 1], False, False),
        ([0, 1], True, True),
    ],
)
def test_its_ranks_are_those_of_the_job(
    monkeypatch, ranks, synchronized, is_error
):
    monkeypatch.setattr(topology, "size", lambda: 4)
    monkeypatch.setattr(
        synchronized_normalization,
        "trained_by",
        lambda model: types.SimpleNamespace(ranks=[0, 1, 2, 3]),
    )
    model = model_of(
        keras.layers.BatchNormalization(synchronized=synchronized, name="b")
    )
    process_set = types.SimpleNamespace(ranks=ranks)
    check = synchronized_normalization.require_all_ranks
    if is_error:
        with pytest.raises(ValueError, match=r"Layer 'b' .*SyncBatchNormaliz"):
            check(model, process_set)
        kr.SyncBatchNormalization.convert(model)
    check(model, process_set)
