"""Arguments of functions that take a model, in the wrong order."""

import keras
import pytest

import keras_ring as kr


@pytest.mark.parametrize(
    "call",
    [
        lambda model: kr.checkpoint.save("checkpoints", model, 1),
        lambda model: kr.checkpoint.restore("checkpoints", model),
        lambda model: kr.broadcast_model("model.keras"),
    ],
    ids=["save", "restore", "broadcast_model"],
)
def test_what_is_no_model(call):
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(TypeError, match=r"takes a `keras.Model`.*Received: '"):
        call(model)
